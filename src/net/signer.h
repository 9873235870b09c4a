/*
 * signer.h - signing JSON Web Tokens with a key of ours: ECDSA over P-256 with SHA-256 (OpenSSL)
 *
 * Control makes the key at first run and signs; the node verifies with the public half (pubkey.h).
 */
#ifndef QS_NET_SIGNER_H
#define QS_NET_SIGNER_H

#include "base/err.h"

#define NET_KID_SIZE 17

struct net_signer;

/* Reads the PEM file, or makes a key and writes it there (mode 0600). NULL with the error. */
struct net_signer *net_signer_open(const char *path, struct err *e);
void net_signer_free(struct net_signer *s);         /* accepts NULL */
/* Name of the key: the beginning of the public half's SHA-256. */
const char *net_signer_kid(const struct net_signer *s);
const char *net_signer_public_pem(const struct net_signer *s);
/* A compact JWT over `claims`, a JSON object as text; the caller frees. NULL with the error. */
char *net_signer_jwt(const struct net_signer *s, const char *claims, struct err *e);

#endif
