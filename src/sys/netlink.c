/*
 * netlink.c - the few network settings a namespace needs, by raw rtnetlink
 */
#include "sys/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sys/fd.h"

#define LOOPBACK 1      /* in a new namespace it is the first interface */

int netlink_loopback_up(void)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } ask = {
        .head = {.nlmsg_len = sizeof ask,
                 .nlmsg_type = RTM_NEWLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
                 .nlmsg_seq = 1},
        .link = {.ifi_family = AF_UNSPEC,
                 .ifi_index = LOOPBACK,
                 .ifi_flags = IFF_UP,
                 .ifi_change = IFF_UP},
    };
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[256];
    } answer = {0};
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0 || send(fd, &ask, sizeof ask, 0) < 0)
        return -errno;
    ssize_t n = recv(fd, &answer, sizeof answer, 0);
    if (n < 0)
        return -errno;
    if ((size_t)n < offsetof(typeof(answer), rest) - sizeof answer.error.msg ||
        answer.head.nlmsg_type != NLMSG_ERROR)
        return -EBADMSG;
    return answer.error.error; /* 0 is the acknowledgement */
}

/* Room for the largest message below. */
struct message {
    struct nlmsghdr head;
    union {
        struct ifaddrmsg address;
        struct rtmsg route;
        char room[96];
    };
};

static void put(struct message *m, uint16_t type, const void *value, size_t len)
{
    struct rtattr a = {.rta_len = (uint16_t)RTA_LENGTH(len), .rta_type = type};
    char *at = (char *)m + NLMSG_ALIGN(m->head.nlmsg_len);

    memcpy(at, &a, sizeof a);
    memcpy(at + RTA_LENGTH(0), value, len);
    m->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(m->head.nlmsg_len) + RTA_ALIGN(a.rta_len));
}

static int ask(int fd, const struct message *m)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[256];
    } answer = {0};

    if (send(fd, m, m->head.nlmsg_len, 0) < 0)
        return -errno;
    ssize_t n = recv(fd, &answer, sizeof answer, 0);
    if (n < 0)
        return -errno;
    if ((size_t)n < sizeof answer.head + sizeof answer.error.error || answer.head.nlmsg_type != NLMSG_ERROR)
        return -EBADMSG;
    return answer.error.error;
}

static int catch_all(int fd, int family, const void *self, size_t len)
{
    struct message address = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifaddrmsg)),
                 .nlmsg_type = RTM_NEWADDR,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
        .address = {.ifa_family = (uint8_t)family,
                    .ifa_prefixlen = (uint8_t)(len * 8),
                    .ifa_flags = IFA_F_NODAD,
                    .ifa_index = LOOPBACK},
    };
    struct message route = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
                 .nlmsg_type = RTM_NEWROUTE,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
        .route = {.rtm_family = (uint8_t)family,
                  .rtm_table = RT_TABLE_LOCAL,
                  .rtm_protocol = RTPROT_STATIC,
                  .rtm_scope = RT_SCOPE_HOST,
                  .rtm_type = RTN_LOCAL},
    };
    uint32_t device = LOOPBACK;

    put(&address, IFA_LOCAL, self, len);
    put(&address, IFA_ADDRESS, self, len);
    int r = ask(fd, &address);
    if (r < 0)
        return r;
    put(&route, RTA_OIF, &device, sizeof device);
    put(&route, RTA_PREFSRC, self, len);
    return ask(fd, &route);
}

int netlink_catch_all(const char *self4, const char *self6)
{
    struct in_addr four;
    struct in6_addr six;
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0)
        return -errno;
    if (inet_pton(AF_INET, self4, &four) != 1 || inet_pton(AF_INET6, self6, &six) != 1)
        return -EINVAL;
    int r = catch_all(fd, AF_INET, &four, sizeof four);
    if (r < 0)
        return r;
    r = catch_all(fd, AF_INET6, &six, sizeof six);
    /* The answers of kernels without IPv6, and with it disabled by a setting. */
    return r == -EAFNOSUPPORT || r == -EOPNOTSUPP || r == -EACCES || r == -EPERM ? 0 : r;
}
