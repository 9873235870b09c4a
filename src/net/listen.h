/*
 * listen.h - listening sockets
 *
 * Accepted descriptors are non-blocking, close-on-exec and the callback's. When descriptors run out, accepting pauses
 * for a moment: the backlog waits, the loop does not spin.
 */
#ifndef QS_NET_LISTEN_H
#define QS_NET_LISTEN_H

#include <sys/socket.h>

#include "base/err.h"
#include "loop/loop.h"

struct net_listener;

typedef void (*net_accept_cb)(int fd, const struct sockaddr *peer, void *arg);

/* TCP ("host:port") or unix ("unix:/path"; a stale socket file of that name is replaced, a live one is an error). */
struct net_listener *net_listen(struct loop *l, const char *address, net_accept_cb cb, void *arg,
                                struct err *e);
/* Takes the descriptor also on failure. */
struct net_listener *net_listen_fd(struct loop *l, int fd, net_accept_cb cb, void *arg, struct err *e);
int net_listener_port(const struct net_listener *ls);   /* 0 for unix sockets */
/* Closes and, for a unix socket made by net_listen, removes the file. Accepts NULL. */
void net_listener_free(struct net_listener *ls);

#endif
