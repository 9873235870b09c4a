/*
 * netlink.c - the few network settings a namespace needs, by raw rtnetlink
 */
#include "sys/netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sys/fd.h"

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
        /* In a new namespace the loopback is the first interface. */
        .link = {.ifi_family = AF_UNSPEC,
                 .ifi_index = 1,
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
