/*
 * sandbox_net.h - the few numbers of a sandbox's network namespace
 *
 * The namespace has loopback alone. Every address of the world is routed to it, and rules hand each TCP connection and
 * each datagram to two sockets of the egress role; all else is refused. Made by the keeper
 * (keeper/runtime/slot_net.c), understood by egress; init writes the resolver's address into /etc/resolv.conf.
 */
#ifndef QS_BASE_SANDBOX_NET_H
#define QS_BASE_SANDBOX_NET_H

/* Both are bound to this port; nothing else in the namespace can be reached on it. */
#define SANDBOX_NET_PORT 61753
/* Carried by packets of the sockets of egress and by those that the rules hand to them. Nobody inside can set a mark. */
#define SANDBOX_NET_MARK 0x5153
/* The sandbox's own address, of ranges that lead nowhere in the world. */
#define SANDBOX_NET_SELF4 "192.0.2.2"
#define SANDBOX_NET_SELF6 "fd71:7569:636b::2"
/* Where DNS queries go, and what says that a datagram was refused. */
#define SANDBOX_NET_DNS4 "192.0.2.53"
#define SANDBOX_NET_DNS6 "fd71:7569:636b::53"
#define SANDBOX_NET_DNS_PORT 53

#endif
