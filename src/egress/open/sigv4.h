/*
 * sigv4.h - signatures of requests to AWS and to services that do as it does (Signature Version 4)
 */
#ifndef QS_EGRESS_OPEN_SIGV4_H
#define QS_EGRESS_OPEN_SIGV4_H

#include "egress/open/request.h"

#define SIGV4_HASH_SIZE 65          /* hexadecimal, with NUL */

struct sigv4 {
    const char *key_id, *secret_key;
    const char *token;              /* NULL = none */
    const char *service, *region;   /* "" = those of the signature that the request has */
    const char *host;
    const char *payload;            /* hash of the body; NULL: what the request says of it in X-Amz-Content-Sha256 */
    int64_t now_s;
};

/* NULL, or what is wrong. Replaces an earlier signature; what that one covered, and all of X-Amz-, is covered. */
const char *sigv4_sign(struct request *r, const struct sigv4 *s);
/* Whether the signature needs the hash of the body, which the request does not say. */
bool sigv4_needs_body(const struct request *r, const char *service);
void sigv4_hash(const void *p, size_t n, char out[SIGV4_HASH_SIZE]);

#endif
