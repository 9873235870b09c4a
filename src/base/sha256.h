/*
 * sha256.h - SHA-256 (FIPS 180-4), for programs that must not link a crypto library
 *
 * Used for digests of files and for ids derived from text; no secret key passes through it.
 */
#ifndef QS_BASE_SHA256_H
#define QS_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32
#define SHA256_HEX_SIZE (2 * SHA256_SIZE + 1)

struct sha256 {
    uint32_t state[8];
    uint64_t nbytes;
    uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, uint8_t out[SHA256_SIZE]);
/* Lower-case hexadecimal with a NUL. */
void sha256_hex(const uint8_t digest[SHA256_SIZE], char out[SHA256_HEX_SIZE]);

#endif
