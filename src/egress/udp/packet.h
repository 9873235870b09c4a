/*
 * packet.h - datagrams as packets, and the packet that says that one was refused
 *
 * Answers to a sandbox must come from wherever it sent to, which no ordinary socket of ours can be bound to; so they are
 * whole packets, sent by raw sockets of its namespace. Pure functions.
 */
#ifndef QS_EGRESS_UDP_PACKET_H
#define QS_EGRESS_UDP_PACKET_H

#include <stddef.h>
#include <stdint.h>

#include "base/address.h"

#define UDP_PAYLOAD_MAX 65527           /* of IPv6; IPv4 has 20 fewer */
#define UDP_PACKET_MAX (40 + 8 + UDP_PAYLOAD_MAX)
#define UDP_REFUSAL_MAX (40 + 8 + 40 + 8)

struct udp_ends {
    struct address from, to;            /* of one family */
    uint16_t from_port, to_port;
};

/* The packet's length; 0: the ends are of two families, or it is too long. */
size_t udp_packet(const struct udp_ends *e, const void *payload, size_t n, uint8_t out[UDP_PACKET_MAX]);
/* "Port unreachable", said by `by` to who sent a datagram with n bytes of payload. */
size_t udp_refusal(const struct udp_ends *e, size_t n, const struct address *by, uint8_t out[UDP_REFUSAL_MAX]);

#endif
