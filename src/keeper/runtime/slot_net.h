/*
 * slot_net.h - the network of a slot: routes, rules and the two sockets that lead to egress
 *
 * Prepared once by the keeper; laid by each slot's builder in its new namespace, while it still is root. Without the
 * sockets (closed for a sandbox whose network is blocked) the same rules refuse everything.
 */
#ifndef QS_KEEPER_RUNTIME_SLOT_NET_H
#define QS_KEEPER_RUNTIME_SLOT_NET_H

#include "base/err.h"

/* Makes the bytes that all slots load. */
int slot_net_prepare(struct err *e);
/*
 * In the namespace of the caller. *ret_tcp and *ret_udp stay -1 where the kernel lacks what it takes: such a
 * sandbox has loopback alone. A half-laid network is an error.
 */
int slot_net_lay(int *ret_tcp, int *ret_udp, struct err *e);

#endif
