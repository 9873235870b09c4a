/*
 * packet.c - datagrams as packets, and the packet that says that one was refused
 */
#include "egress/udp/packet.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#define IP4_HEADER 20
#define IP6_HEADER 40
#define UDP_HEADER 8
#define ICMP_HEADER 8
#define HOPS 64
#define ICMP4_UNREACHABLE 3
#define ICMP4_PORT 3
#define ICMP6_UNREACHABLE 1
#define ICMP6_PORT 4

static void put16(uint8_t *p, size_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static uint32_t add(uint32_t sum, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    if (n % 2 != 0)
        sum += (uint32_t)p[n - 1] << 8;
    /* 65575 bytes at most: no sum of their words comes near 2^32. */
    return sum;
}

static uint16_t fold(uint32_t sum)
{
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* The part of the checksum that is not in the packet: addresses, length, protocol. */
static uint32_t pseudo(const struct address *from, const struct address *to, uint8_t protocol, size_t n)
{
    size_t skip = address_is4(from) ? 12 : 0;
    uint32_t sum = add(0, from->b + skip, 16 - skip);

    return add(sum, to->b + skip, 16 - skip) + protocol + (uint32_t)n;
}

/* The IP header before n bytes; returns its length. */
static size_t head(const struct address *from, const struct address *to, uint8_t protocol, size_t n, uint8_t *out)
{
    if (!address_is4(from)) {
        memset(out, 0, 8);
        out[0] = 6 << 4;
        put16(out + 4, n);
        out[6] = protocol;
        out[7] = HOPS;
        memcpy(out + 8, from->b, 16);
        memcpy(out + 24, to->b, 16);
        return IP6_HEADER;
    }
    memset(out, 0, 12);
    out[0] = 4 << 4 | IP4_HEADER / 4;
    put16(out + 2, IP4_HEADER + n);
    out[8] = HOPS;
    out[9] = protocol;
    memcpy(out + 12, from->b + 12, 4);
    memcpy(out + 16, to->b + 12, 4);
    put16(out + 10, fold(add(0, out, IP4_HEADER)));
    return IP4_HEADER;
}

static bool is_fit(const struct udp_ends *e, size_t n)
{
    bool four = address_is4(&e->from);

    return four == address_is4(&e->to) && n <= UDP_PAYLOAD_MAX - (four ? IP4_HEADER : 0);
}

size_t udp_packet(const struct udp_ends *e, const void *payload, size_t n, uint8_t out[UDP_PACKET_MAX])
{
    if (!is_fit(e, n))
        return 0;
    size_t at = head(&e->from, &e->to, IPPROTO_UDP, UDP_HEADER + n, out);
    uint8_t *udp = out + at;
    put16(udp, e->from_port);
    put16(udp + 2, e->to_port);
    put16(udp + 4, UDP_HEADER + n);
    put16(udp + 6, 0);
    if (n > 0)
        memcpy(udp + UDP_HEADER, payload, n);
    uint16_t sum = fold(add(pseudo(&e->from, &e->to, IPPROTO_UDP, UDP_HEADER + n), udp, UDP_HEADER + n));
    put16(udp + 6, sum != 0 ? sum : 0xffff);    /* 0 would mean that there is none */
    return at + UDP_HEADER + n;
}

size_t udp_refusal(const struct udp_ends *e, size_t n, const struct address *by, uint8_t out[UDP_REFUSAL_MAX])
{
    bool four = address_is4(&e->from);

    if (!is_fit(e, n) || address_is4(by) != four)
        return 0;
    size_t quoted = (four ? IP4_HEADER : IP6_HEADER) + UDP_HEADER;
    uint8_t protocol = four ? IPPROTO_ICMP : IPPROTO_ICMPV6;
    uint8_t *icmp = out + head(by, &e->from, protocol, ICMP_HEADER + quoted, out);
    memset(icmp, 0, ICMP_HEADER);
    icmp[0] = four ? ICMP4_UNREACHABLE : ICMP6_UNREACHABLE;
    icmp[1] = four ? ICMP4_PORT : ICMP6_PORT;
    /* The beginning of what was refused: by it the kernel finds the socket. */
    uint8_t *udp = icmp + ICMP_HEADER + head(&e->from, &e->to, IPPROTO_UDP, UDP_HEADER + n, icmp + ICMP_HEADER);
    put16(udp, e->from_port);
    put16(udp + 2, e->to_port);
    put16(udp + 4, UDP_HEADER + n);
    put16(udp + 6, 0);
    uint32_t sum = four ? 0 : pseudo(by, &e->from, protocol, ICMP_HEADER + quoted);
    put16(icmp + 2, fold(add(sum, icmp, ICMP_HEADER + quoted)));
    return (size_t)(icmp - out) + ICMP_HEADER + quoted;
}
