/*
 * proxy_head.h - the head of a request on its way inside
 *
 * What we vouch for is said by us alone: fields of those names that a client sends go no further, and neither do our tokens.
 */
#ifndef QS_NODE_TUNNEL_PROXY_HEAD_H
#define QS_NODE_TUNNEL_PROXY_HEAD_H

#include "base/buf.h"
#include "http/h1_parse.h"

/* The token that the request shows, into `out`; false: none. */
bool proxy_head_token(const struct h1_head *h, char *out, size_t size);

struct proxy_head {
    const char *target;
    const char *peer;           /* its address */
    const char *prefix;         /* that was taken off the path; "" = none */
    const char *metadata;       /* of the connect token; "" = none */
    bool is_tls;
};
void proxy_head_write(struct buf *out, const struct h1_head *h, const struct proxy_head *x);

#endif
