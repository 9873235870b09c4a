/*
 * jwt.h - taking a router token apart
 *
 * The form: header.claims.signature in base64url without padding. Header: alg, kid, perhaps typ "JWT". Claims: exp (needed) and
 * nbf in whole seconds, task_id and sandbox_id (one of them needed) as clients know them; others are ignored. Nothing is
 * believed here: keys.c checks the signature over what was taken apart. Any bytes may come in (tests/fuzz/jwt_fuzz.c).
 */
#ifndef QS_NODE_MODAL_JWT_H
#define QS_NODE_MODAL_JWT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "net/pubkey.h"

#define JWT_MAX 4096
#define JWT_KID 64

struct jwt {
    char alg[16];
    char kid[JWT_KID];
    int64_t exp_s, nbf_s;       /* seconds since the epoch; nbf 0 = none */
    char sandbox[ID_SIZE];      /* our id of the sandbox that the claims name */
    size_t signed_len;          /* the first bytes of the text, which the signature is over */
    unsigned char signature[NET_SIGNATURE_SIZE];
};

/* ERR_UNAUTHENTICATED with what is wrong. */
int jwt_decode(const char *text, size_t len, struct jwt *ret, struct err *e);

#endif
