/*
 * udp.c - datagrams of a sandbox: from its socket, and back to it by its raw sockets
 *
 * Those to the resolver are dns/dns.c's, all others flow.c's.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sandbox_net.h"
#include "egress/egress.h"
#include "egress/udp/packet.h"

#define DATAGRAMS_A_TURN 64     /* then other sandboxes have their turn */

static uint8_t datagram[UDP_PAYLOAD_MAX];
static uint8_t packet[UDP_PACKET_MAX];

static void take4(const struct sockaddr_in *a, struct address *ret, uint16_t *ret_port)
{
    *ret = (struct address){{[10] = 0xff, [11] = 0xff}};
    memcpy(ret->b + 12, &a->sin_addr, 4);
    *ret_port = ntohs(a->sin_port);
}

static void take6(const struct sockaddr_in6 *a, struct address *ret, uint16_t *ret_port)
{
    memcpy(ret->b, &a->sin6_addr, 16);
    *ret_port = ntohs(a->sin6_port);
}

/* Where it came from and where it was to go; false: the kernel did not say. */
static bool read_ends(struct msghdr *m, struct udp_ends *ret)
{
    const struct sockaddr *from = m->msg_name;
    struct sockaddr_in four;
    struct sockaddr_in6 six;

    if (from->sa_family == AF_INET)
        take4(m->msg_name, &ret->from, &ret->from_port);
    else
        take6(m->msg_name, &ret->from, &ret->from_port);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_ORIGDSTADDR && c->cmsg_len >= CMSG_LEN(sizeof four)) {
            memcpy(&four, CMSG_DATA(c), sizeof four);
            take4(&four, &ret->to, &ret->to_port);
            return true;
        }
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR &&
            c->cmsg_len >= CMSG_LEN(sizeof six)) {
            memcpy(&six, CMSG_DATA(c), sizeof six);
            take6(&six, &ret->to, &ret->to_port);
            return true;
        }
    }
    return false;
}

void udp_ready(struct box *b)
{
    struct sockaddr_storage from;
    union {
        char bytes[256];
        struct cmsghdr align;
    } control;
    struct udp_ends ends;

    for (int i = 0; i < DATAGRAMS_A_TURN; i++) {
        struct iovec iov = {.iov_base = datagram, .iov_len = sizeof datagram};
        struct msghdr m = {
            .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1,
            .msg_control = control.bytes, .msg_controllen = sizeof control.bytes,
        };
        ssize_t n = recvmsg(b->udp, &m, 0);
        if (n < 0)
            return;
        if (!read_ends(&m, &ends))
            continue;
        if (dns_is_resolver(&ends.to, ends.to_port))
            dns_datagram(b, &ends, datagram, (size_t)n);
        else
            udp_flow_datagram(b, &ends, datagram, (size_t)n);
    }
}

/* A full buffer is a lost packet, as everywhere. */
static void send_packet(const struct box *b, const struct address *to, size_t n)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};

    if (n == 0)
        return;
    if (address_is4(to)) {
        memcpy(&four.sin_addr, to->b + 12, 4);
        (void)!sendto(b->raw4, packet, n, MSG_NOSIGNAL, (struct sockaddr *)&four, sizeof four);
    } else {
        memcpy(&six.sin6_addr, to->b, 16);
        (void)!sendto(b->raw6, packet, n, MSG_NOSIGNAL, (struct sockaddr *)&six, sizeof six);
    }
}

void udp_send(const struct box *b, const struct udp_ends *ends, const void *payload, size_t n)
{
    send_packet(b, &ends->to, udp_packet(ends, payload, n, packet));
}

void udp_refuse(const struct box *b, const struct udp_ends *ends, size_t n)
{
    struct address by;

    (void)address_parse(address_is4(&ends->from) ? SANDBOX_NET_DNS4 : SANDBOX_NET_DNS6, &by);
    send_packet(b, &ends->from, udp_refusal(ends, n, &by, packet));
}
