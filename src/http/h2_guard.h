/*
 * h2_guard.h - watches an HTTP/2 connection that is passed on, so that it carries requests for one host alone
 *
 * A client uses a connection for every name that its certificate has (RFC 9113, section 9.1.1), and a wildcard certificate has
 * those of all sandboxes. The guard reads the client's frames: requests for us go on, with their header block written anew
 * (nothing is indexed, so that the server's decoder needs no block that it does not get); others are answered 421, after
 * which clients make a connection of their own. The server's frames pass as they are; our answers go between two of them.
 *
 * Pure but for its callbacks. A connection that is not HTTP/2, or breaks its rules where we must understand it, is an error.
 */
#ifndef QS_HTTP_H2_GUARD_H
#define QS_HTTP_H2_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct h2_guard_ops {
    void (*to_client)(void *ctx, const void *p, size_t n);
    void (*to_server)(void *ctx, const void *p, size_t n);
    bool (*is_for_us)(void *ctx, const char *authority);    /* "" = none was given */
};

struct h2_guard;

struct h2_guard *h2_guard_new(const struct h2_guard_ops *ops, void *ctx);
void h2_guard_free(struct h2_guard *g);     /* accepts NULL */
/* 0, or -EPROTO: to be closed. */
int h2_guard_from_client(struct h2_guard *g, const uint8_t *p, size_t n);
int h2_guard_from_server(struct h2_guard *g, const uint8_t *p, size_t n);

#endif
