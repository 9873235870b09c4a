/*
 * slot_net.h - the network of a slot: routes, rules and the sockets that lead to egress
 *
 * Prepared once by the keeper; laid by each slot's builder in its new namespace, while it still is root. Without the
 * sockets (closed for a sandbox whose network is blocked) the same rules refuse everything.
 */
#ifndef QS_KEEPER_RUNTIME_SLOT_NET_H
#define QS_KEEPER_RUNTIME_SLOT_NET_H

#include "base/err.h"

/* Makes the bytes that all slots load. */
int slot_net_prepare(struct err *e);
/* What connections and datagrams to the world arrive at, and what answers to datagrams leave by, from any address. */
enum { SLOT_NET_TCP, SLOT_NET_UDP, SLOT_NET_RAW4, SLOT_NET_RAW6, SLOT_NET_SOCKETS };
/*
 * In the namespace of the caller. ret_fds stay -1 where the kernel lacks what it takes: such a sandbox has loopback
 * alone. Without IPv6 the last is the one before it once more. A half-laid network is an error.
 */
int slot_net_lay(int ret_fds[SLOT_NET_SOCKETS], struct err *e);

#endif
