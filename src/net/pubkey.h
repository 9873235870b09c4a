/*
 * pubkey.h - signatures of tokens: ECDSA over P-256 with SHA-256, and Ed25519 (OpenSSL)
 *
 * Signatures have the form of JSON Web Signatures: 64 bytes, r and s for ECDSA. Control signs, the node verifies.
 */
#ifndef QS_NET_PUBKEY_H
#define QS_NET_PUBKEY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define NET_SIGNATURE_SIZE 64

struct net_pubkey;

/* PEM of a SubjectPublicKeyInfo; NULL and *e for another kind of key or none. */
struct net_pubkey *net_pubkey_load(const char *pem, struct err *e);
void net_pubkey_free(struct net_pubkey *k);     /* accepts NULL */
/* "ES256" or "EdDSA". */
const char *net_pubkey_alg(const struct net_pubkey *k);
bool net_pubkey_verify(const struct net_pubkey *k, const void *p, size_t n,
                       const unsigned char signature[NET_SIGNATURE_SIZE]);

#endif
