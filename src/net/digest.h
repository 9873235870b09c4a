/*
 * digest.h - digests that protocols ask for, by OpenSSL: fast ones of much data, and signatures with a shared key
 */
#ifndef QS_NET_DIGEST_H
#define QS_NET_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_SHA1_BASE64_SIZE 29

/* SHA-1 in base64, as the WebSocket handshake wants it; no security depends on it. 0 or -EIO. */
int net_sha1_base64(const void *p, size_t n, char out[NET_SHA1_BASE64_SIZE]);

enum net_digest_kind { NET_MD5, NET_SHA256 };

#define NET_MD5_SIZE 16
#define NET_SHA256_SIZE 32

/* Of bytes that come in pieces. MD5 tells that bytes came as they were sent, no security depends on it. */
struct net_digest;
struct net_digest *net_digest_new(enum net_digest_kind kind);   /* NULL: this OpenSSL refuses the algorithm */
int net_digest_add(struct net_digest *d, const void *p, size_t n);      /* 0 or -EIO */
int net_digest_end(struct net_digest *d, uint8_t *out);         /* its size by kind; 0 or -EIO */
void net_digest_free(struct net_digest *d);                     /* accepts NULL */

/* HMAC-SHA256. 0 or -EIO. */
int net_hmac(const void *key, size_t nkey, const void *p, size_t n, uint8_t out[NET_SHA256_SIZE]);
/* In a time that does not depend on where they differ. */
bool net_equal(const void *a, const void *b, size_t n);

#endif
