/*
 * sockets.c - ways to others by sockets, and power over the network
 *
 * Addresses are made of the victim's token (victim_names()), which in a sandbox is that of the host's victim.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "escape.h"
#include "victim.h"

static int family(int af, int type, int protocol)
{
    int fd = socket(af, type | SOCK_CLOEXEC, protocol);

    if (fd < 0)
        return -errno;
    (void)close(fd);
    return 0;
}

#define FAMILY(fn, af, type, protocol)                                                                                \
    static int fn(const struct ctx *c)                                                                                \
    {                                                                                                                 \
        (void)c;                                                                                                      \
        return family(af, type, protocol);                                                                            \
    }
FAMILY(packet, AF_PACKET, SOCK_RAW, 0x300)
FAMILY(packet_cooked, AF_PACKET, SOCK_DGRAM, 0x300)
FAMILY(raw_tcp, AF_INET, SOCK_RAW, IPPROTO_TCP)
FAMILY(raw_icmp, AF_INET, SOCK_RAW, IPPROTO_ICMP)
FAMILY(raw_any, AF_INET, SOCK_RAW, IPPROTO_RAW)
FAMILY(raw_v6, AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)
FAMILY(vsock_stream, 40, SOCK_STREAM, 0)
FAMILY(vsock_dgram, 40, SOCK_DGRAM, 0)
FAMILY(crypto, 38, SOCK_SEQPACKET, 0)
FAMILY(express, 44, SOCK_RAW, 0)
FAMILY(key_management, 15, SOCK_RAW, 2)
FAMILY(bluetooth, 31, SOCK_RAW, 1)
FAMILY(can, 29, SOCK_RAW, 1)
FAMILY(tipc, 30, SOCK_STREAM, 0)
FAMILY(rds, 21, SOCK_SEQPACKET, 0)
FAMILY(ax25, 3, SOCK_SEQPACKET, 0)
FAMILY(pair_odd, 0x10000 | AF_PACKET, SOCK_RAW, 0x300)
FAMILY(netlink_netfilter, AF_NETLINK, SOCK_RAW, 12)
FAMILY(netlink_xfrm, AF_NETLINK, SOCK_RAW, 6)
FAMILY(netlink_audit, AF_NETLINK, SOCK_RAW, 9)
FAMILY(netlink_connector, AF_NETLINK, SOCK_RAW, 11)
FAMILY(netlink_generic, AF_NETLINK, SOCK_RAW, 16)
FAMILY(netlink_crypto, AF_NETLINK, SOCK_RAW, 21)
FAMILY(netlink_rdma, AF_NETLINK, SOCK_RAW, 20)
FAMILY(netlink_scsi, AF_NETLINK, SOCK_RAW, 18)
FAMILY(mptcp, AF_INET, SOCK_STREAM, 262)
FAMILY(sctp, AF_INET, SOCK_STREAM, 132)
FAMILY(dccp, AF_INET, 6, 33)
FAMILY(l2tp, AF_INET, SOCK_DGRAM, 115)
FAMILY(smc, 43, SOCK_STREAM, 0)

/* What the kernel tells of the machine's devices, to whoever listens in a network namespace of the host's. */
static int uevents(const struct ctx *c)
{
    struct {
        unsigned short family, pad;
        uint32_t pid, groups;
    } a = {AF_NETLINK, 0, 0, 1};
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, 15);

    (void)c;
    return fd < 0 ? -errno : outcome(bind(fd, (struct sockaddr *)&a, sizeof a));
}

/* --- others' addresses ---------------------------------------------------------------------------------------------- */

static int connect_to(int af, int type, const void *a, socklen_t len)
{
    int fd = socket(af, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t size = sizeof error;

    if (fd < 0)
        return -errno;
    if (connect(fd, a, len) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        struct pollfd pf = {.fd = fd, .events = POLLOUT};
        if (poll(&pf, 1, 5000) <= 0)
            return -ETIMEDOUT;
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    (void)send(fd, "x", 1, MSG_NOSIGNAL);
    (void)close(fd);
    return -error;
}

static int abstract_stream(const struct ctx *c)
{
    struct sockaddr_un a;
    socklen_t len = victim_abstract(&a, c->token, "stream");

    return connect_to(AF_UNIX, SOCK_STREAM, &a, len);
}

static int abstract_dgram(const struct ctx *c)
{
    struct sockaddr_un a;
    socklen_t len = victim_abstract(&a, c->token, "dgram");

    return connect_to(AF_UNIX, SOCK_DGRAM, &a, len);
}

static struct sockaddr_in inet_address(const char *text, unsigned port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    (void)inet_pton(AF_INET, text, &a.sin_addr);
    return a;
}

static int tcp_loopback(const struct ctx *c)
{
    struct sockaddr_in a = inet_address("127.0.0.1", victim_port(c->token));

    return connect_to(AF_INET, SOCK_STREAM, &a, sizeof a);
}

/* Sent to a port at which nobody listens in the sandbox: the kernel's refusal comes with the second write. */
static int udp_loopback(const struct ctx *c)
{
    struct sockaddr_in a = inet_address("127.0.0.1", victim_port(c->token));
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char text[32];

    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0 || send(fd, "x", 1, 0) < 0)
        return -errno;
    struct pollfd pf = {.fd = fd, .events = POLLIN};
    if (poll(&pf, 1, 3000) <= 0)
        return -ETIMEDOUT;
    return recv(fd, text, sizeof text, 0) < 0 ? -errno : 0;
}

/* The service that tells cloud machines their secrets, and any address at all. In the control the loopback device has it. */
static int metadata(const struct ctx *c)
{
    struct sockaddr_in a = inet_address("169.254.169.254", 80);

    if (c->is_control) {
        struct ifreq r = {.ifr_name = "lo"};
        struct sockaddr_in here = a;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        memcpy(&r.ifr_addr, &here, sizeof here);
        if (ioctl(fd, SIOCSIFADDR, &r) < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1) < 0)
            return -ENOTSUP;
    }
    return connect_to(AF_INET, SOCK_STREAM, &a, sizeof a);
}

static int broadcast(const struct ctx *c)
{
    struct sockaddr_in a = inet_address("255.255.255.255", 9999);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) < 0)
        return -errno;
    if (c->is_control) {
        /* A route for it, by way of the only device there is. */
        if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) < 0)
            return -ENOTSUP;
    }
    return outcome(sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof a));
}

/* --- power over the network ------------------------------------------------------------------------------------------ */

static int option(int level, int name, int value)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd < 0 ? -errno : outcome(setsockopt(fd, level, name, &value, sizeof value));
}

static int mark(const struct ctx *c)
{
    (void)c;
    return option(SOL_SOCKET, SO_MARK, 1);
}

static int transparent(const struct ctx *c)
{
    (void)c;
    return option(SOL_IP, 19 /* IP_TRANSPARENT */, 1);
}

static int force_buffer(const struct ctx *c)
{
    (void)c;
    return option(SOL_SOCKET, SO_RCVBUFFORCE, 1 << 30);
}

static int priority(const struct ctx *c)
{
    (void)c;
    return option(SOL_SOCKET, SO_PRIORITY, 7);
}

static int interface_down(const struct ctx *c)
{
    struct ifreq r = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)c;
    return fd < 0 ? -errno : outcome(ioctl(fd, SIOCSIFFLAGS, &r));
}

static int interface_address(const struct ctx *c)
{
    struct ifreq r = {.ifr_name = "lo"};
    struct sockaddr_in a = inet_address("10.9.8.7", 0);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)c;
    memcpy(&r.ifr_addr, &a, sizeof a);
    return fd < 0 ? -errno : outcome(ioctl(fd, SIOCSIFADDR, &r));
}

static int bridge(const struct ctx *c)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)c;
    return fd < 0 ? -errno : outcome(ioctl(fd, 0x89a0 /* SIOCBRADDBR */, "qse0"));
}

/* One request to the kernel's network configuration; its answer. */
static int route_request(uint16_t type, uint16_t flags, const void *body, size_t size)
{
    struct {
        uint32_t len;
        uint16_t type, flags;
        uint32_t seq, pid;
        unsigned char body[128];
    } m = {.len = (uint32_t)(16 + size), .type = type, .flags = (uint16_t)(flags | 5), .seq = 1};
    struct {
        uint32_t len;
        uint16_t type, flags;
        uint32_t seq, pid;
        int error;
        unsigned char rest[512];
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);

    memcpy(m.body, body, size);
    if (fd < 0 || send(fd, &m, m.len, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 20)
        return -errno;
    return answer.type == 2 ? answer.error : 0;
}

static int route_add(const struct ctx *c)
{
    /* default dev lo */
    struct {
        uint8_t family, dst_len, src_len, tos, table, protocol, scope, type;
        uint32_t flags;
        uint16_t len, kind;
        uint32_t oif;
    } r = {AF_INET, 0, 0, 0, 254, 3, 253, 1, 0, 8, 4, 1};

    (void)c;
    return route_request(24, 0x600, &r, sizeof r);
}

static int link_add(const struct ctx *c)
{
    struct {
        uint8_t family, pad;
        uint16_t type;
        int index;
        uint32_t flags, change;
        uint16_t info_len, info, kind_len, kind;
        char name[8];
    } r = {0, 0, 0, 0, 0, 0, 16, 18 /* IFLA_LINKINFO */, 11, 1, "bridge"};

    (void)c;
    return route_request(16, 0x600, &r, sizeof r);
}

/* --- lies about oneself ------------------------------------------------------------------------------------------------ */

static int forged(uint32_t uid, pid_t pid)
{
    int fds[2];
    struct {
        pid_t pid;
        uint32_t uid, gid;
    } who = {pid, uid, uid};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof who)];
    } control = {0};
    struct iovec iov = {"x", 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
        return -errno;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = 2;   /* SCM_CREDENTIALS */
    h->cmsg_len = CMSG_LEN(sizeof who);
    memcpy(CMSG_DATA(h), &who, sizeof who);
    return outcome(sendmsg(fds[0], &m, 0));
}

static int forged_uid(const struct ctx *c)
{
    (void)c;
    return forged(1000000, getpid());
}

static int forged_pid(const struct ctx *c)
{
    return forged(0, c->victim);
}

#define NONE "EAFNOSUPPORT"
#define ABSENT "EPERM|absent:ESOCKTNOSUPPORT|absent:EPROTONOSUPPORT"

const struct attempt sockets_table[] = {
    {"socket-packet", "see every packet", NONE, NULL, packet, 0},
    {"socket-packet-cooked", "see every packet, without heads", NONE, NULL, packet_cooked, 0},
    {"socket-raw-tcp", "send packets of one's own making", "EPERM", NULL, raw_tcp, 0},
    {"socket-raw-icmp", "send raw ICMP", "EPERM", NULL, raw_icmp, 0},
    {"socket-raw-any", "send raw IP", "EPERM", NULL, raw_any, 0},
    {"socket-raw-v6", "send raw ICMPv6", "EPERM", "EAFNOSUPPORT", raw_v6, 0},
    {"socket-vsock", "reach the machine's own host (vsock)", NONE, "absent:EAFNOSUPPORT", vsock_stream, 0},
    {"socket-vsock-dgram", "reach the machine's own host by datagrams", NONE,
     "ENODEV|ESOCKTNOSUPPORT|EOPNOTSUPP", vsock_dgram, 0},
    {"socket-crypto", "use the kernel's ciphers (AF_ALG)", NONE, "absent:EAFNOSUPPORT", crypto, 0},
    {"socket-xdp", "map a device's queue (AF_XDP)", NONE, "absent:EAFNOSUPPORT", express, 0},
    {"socket-key", "manage IPsec keys (AF_KEY)", NONE, "absent:EAFNOSUPPORT", key_management, 0},
    {"socket-bluetooth", "reach Bluetooth", NONE, "absent:EAFNOSUPPORT", bluetooth, 0},
    {"socket-can", "reach a CAN bus", NONE, "absent:EAFNOSUPPORT", can, 0},
    {"socket-tipc", "reach a cluster (TIPC)", NONE, "absent:EAFNOSUPPORT", tipc, 0},
    {"socket-rds", "reach RDS", NONE, "absent:EAFNOSUPPORT", rds, 0},
    {"socket-ax25", "reach amateur radio", NONE, "absent:EAFNOSUPPORT", ax25, 0},
    {"socket-smc", "reach SMC", NONE, "absent:EAFNOSUPPORT", smc, 0},
    {"socket-family-bits", "hide the family behind bits above", NONE, "absent:EAFNOSUPPORT|EINVAL", pair_odd, 0},
    {"socket-mptcp", "use multipath TCP", "EPROTONOSUPPORT", ABSENT, mptcp, 0},
    {"socket-sctp", "use SCTP", "EPROTONOSUPPORT", ABSENT, sctp, 0},
    {"socket-dccp", "use DCCP", "EPROTONOSUPPORT", ABSENT, dccp, 0},
    {"socket-l2tp", "use L2TP", "EPROTONOSUPPORT", ABSENT, l2tp, 0},
    {"netlink-uevent", "listen to what the kernel says of the host's devices", "EPROTONOSUPPORT", NULL, uevents, 0},
    {"netlink-netfilter", "reach the packet filter", "EPROTONOSUPPORT", ABSENT, netlink_netfilter, 0},
    {"netlink-xfrm", "reach IPsec", "EPROTONOSUPPORT", ABSENT, netlink_xfrm, 0},
    {"netlink-audit", "reach the audit", "EPROTONOSUPPORT", ABSENT, netlink_audit, 0},
    {"netlink-connector", "hear of every process of the host", "EPROTONOSUPPORT", ABSENT, netlink_connector, 0},
    {"netlink-generic", "reach generic families", "EPROTONOSUPPORT", ABSENT, netlink_generic, 0},
    {"netlink-crypto", "reach the kernel's ciphers by netlink", "EPROTONOSUPPORT", ABSENT, netlink_crypto, 0},
    {"netlink-rdma", "reach RDMA", "EPROTONOSUPPORT", ABSENT, netlink_rdma, 0},
    {"netlink-scsi", "reach SCSI transports", "EPROTONOSUPPORT", ABSENT, netlink_scsi, 0},
    {"net-abstract-stream", "connect to an abstract socket of the host", "ECONNREFUSED", NULL, abstract_stream, 0},
    {"net-abstract-dgram", "send to an abstract socket of the host", "ECONNREFUSED", NULL, abstract_dgram, 0},
    {"net-tcp-loopback", "connect to a service on the host's loopback", "ECONNREFUSED", NULL, tcp_loopback, 0},
    {"net-udp-loopback", "ask a service on the host's loopback", "ECONNREFUSED", NULL, udp_loopback, 0},
    {"net-metadata", "connect to the cloud's metadata service", "ENETUNREACH|ECONNREFUSED|EPERM", NULL, metadata, 0},
    {"net-broadcast", "broadcast", "ENETUNREACH|EPERM", NULL, broadcast, 0},
    {"net-mark", "mark packets, past the host's rules", "EPERM", NULL, mark, 0},
    {"net-transparent", "answer for foreign addresses", "EPERM", NULL, transparent, 0},
    {"net-force-buffer", "take more buffer than is allowed", "EPERM", NULL, force_buffer, 0},
    {"net-priority", "send before everybody else", "EPERM", NULL, priority, 0},
    {"net-interface-down", "take an interface down", "EPERM", NULL, interface_down, 0},
    {"net-interface-address", "give an interface an address", "EPERM", NULL, interface_address, 0},
    {"net-bridge", "make a bridge", "EPERM", "ENOPKG", bridge, 0},
    {"net-route", "add a route", "EPERM", NULL, route_add, 0},
    {"net-link", "add an interface", "EPERM", "EOPNOTSUPP", link_add, 0},
    {"net-forged-uid", "pass as another user over a socket", "EINVAL", NULL, forged_uid, 0},
    {"net-forged-pid", "pass as another process over a socket", "EPERM|ESRCH", NULL, forged_pid, 0},
    TABLE_END,
};
