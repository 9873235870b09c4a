/*
 * seal.h - what is kept encrypted on disk: AES-256-GCM (OpenSSL)
 *
 * Called by core for the values of secrets. A sealed text is bound to its name, so rows of the database cannot be exchanged.
 */
#ifndef QS_NET_SEAL_H
#define QS_NET_SEAL_H

#include <stddef.h>

#include "base/err.h"

#define NET_SEAL_KEY_SIZE 32
#define NET_SEAL_EXTRA 28       /* bytes that sealing adds: nonce and tag */

/* Reads the key, or makes one and writes it there (mode 0600). */
int net_seal_key(const char *path, unsigned char ret_key[NET_SEAL_KEY_SIZE], struct err *e);
/* `out` has room for n + NET_SEAL_EXTRA bytes. */
int net_seal(const unsigned char key[NET_SEAL_KEY_SIZE], const char *name, const void *p, size_t n, unsigned char *out,
             struct err *e);
/* `out` has room for n bytes; *ret_n is the length of the text. Fails when anything was changed. */
int net_unseal(const unsigned char key[NET_SEAL_KEY_SIZE], const char *name, const void *p, size_t n, unsigned char *out,
               size_t *ret_n, struct err *e);

#endif
