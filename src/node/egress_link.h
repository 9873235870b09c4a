/*
 * egress_link.h - the one connection from the node to egress
 *
 * While egress is away requests wait for it, up to their deadline; those under way when the connection breaks fail,
 * because egress has forgotten everything by then: `on_up` is called after each connect, for telling it all again.
 */
#ifndef QS_NODE_EGRESS_LINK_H
#define QS_NODE_EGRESS_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ipc/channel.h"
#include "ipc/egress_proto.h"
#include "loop/loop.h"

struct egress_link;

/* m is NULL on failure. Comes exactly once, never from inside the call. */
typedef void (*egress_cb)(void *arg, const struct chan_msg *m, const struct err *e);

struct egress_link *egress_link_new(struct loop *l, const char *socket_path, void (*on_up)(void *arg),
                                    void (*on_event)(void *arg, const struct chan_msg *m), void *arg);
/* fds (none, or EGRESS_SOCKETS) are copied; cb may be NULL. */
void egress_call(struct egress_link *k, enum egress_type type, const void *p, size_t n, const int *fds, int nfds,
                 uint64_t timeout_ms, egress_cb cb, void *arg);
void egress_link_free(struct egress_link *k);

#endif
