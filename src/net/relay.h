/*
 * relay.h - bytes both ways between two TCP sockets, looked at by nobody
 *
 * For tunnels without TLS. A direction that carries much is left to the kernel (sys/mover.h). Whoever is slow slows the other
 * side down, not us; each direction ends on its own; a side that fails ends the other with a reset, so that nobody takes a
 * part for the whole.
 */
#ifndef QS_NET_RELAY_H
#define QS_NET_RELAY_H

#include "loop/loop.h"

struct net_relay;

/* Takes both descriptors, which are non-blocking. on_end comes once, from the loop, when nothing more can pass; the owner
 * frees it. */
struct net_relay *net_relay_new(struct loop *l, int a, int b, void (*on_end)(void *ctx), void *ctx);
void net_relay_free(struct net_relay *r);       /* cuts what is under way; accepts NULL */

#endif
