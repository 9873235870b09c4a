/*
 * slot_net.c - the network of a slot: routes, rules and the sockets that lead to egress
 *
 * Rules come before routes, so that there is no moment in which a foreign address is local and nothing stands before
 * it. The namespace belongs to the host: root of the sandbox can change nothing of this.
 */
#include "keeper/runtime/slot_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/sandbox_net.h"
#include "keeper/runtime/slot_rules.h"
#include "sys/fd.h"
#include "sys/netlink.h"

#define BACKLOG 1024

static uint8_t rules[16384];
static size_t rules_len;

int slot_net_prepare(struct err *e)
{
    int r = slot_rules_build(rules, sizeof rules, &rules_len);

    return r < 0 ? err_sys(e, -r, "build the packet rules of sandboxes") : 0;
}

static int set(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value) < 0 ? -errno : 0;
}

/* Dual-stack, or IPv4 alone where the kernel has no IPv6. */
static int bind_any(int fd, bool six)
{
    struct sockaddr_in6 any6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(SANDBOX_NET_PORT), .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(SANDBOX_NET_PORT)};
    int r = six ? bind(fd, (struct sockaddr *)&any6, sizeof any6)
                : bind(fd, (struct sockaddr *)&any4, sizeof any4);

    return r < 0 ? -errno : 0;
}

static int open_socket(int type, int *ret_fd)
{
    auto_close int fd = socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool six = fd >= 0;
    int r = 0;

    if (!six && errno == EAFNOSUPPORT)
        fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (six)
        r = set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (r == 0 && six)
        r = set(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, 1);
    if (r == 0)
        r = set(fd, IPPROTO_IP, IP_TRANSPARENT, 1);
    if (r == 0)
        r = set(fd, SOL_SOCKET, SO_MARK, SANDBOX_NET_MARK);
    if (r == 0 && type == SOCK_DGRAM)
        r = set(fd, IPPROTO_IP, IP_RECVORIGDSTADDR, 1);
    if (r == 0 && type == SOCK_DGRAM && six)
        r = set(fd, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 1);
    if (r == 0)
        r = bind_any(fd, six);
    if (r == 0 && type == SOCK_STREAM && listen(fd, BACKLOG) < 0)
        r = -errno;
    if (r == 0)
        *ret_fd = take_fd(&fd);
    return r;
}

/* Sends whole packets and receives none. Its mark makes the rules believe any source address. */
static int open_raw(int domain, int *ret_fd)
{
    auto_close int fd = socket(domain, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
    int r = fd < 0 ? -errno : set(fd, SOL_SOCKET, SO_MARK, SANDBOX_NET_MARK);

    if (r == 0)
        *ret_fd = take_fd(&fd);
    return r;
}

static int open_sockets(int fds[SLOT_NET_SOCKETS])
{
    int r = open_socket(SOCK_STREAM, &fds[SLOT_NET_TCP]);

    if (r == 0)
        r = open_socket(SOCK_DGRAM, &fds[SLOT_NET_UDP]);
    if (r == 0)
        r = open_raw(AF_INET, &fds[SLOT_NET_RAW4]);
    if (r == 0)
        r = open_raw(AF_INET6, &fds[SLOT_NET_RAW6]);
    if (r == -EAFNOSUPPORT && fds[SLOT_NET_RAW4] >= 0) {
        fds[SLOT_NET_RAW6] = fcntl(fds[SLOT_NET_RAW4], F_DUPFD_CLOEXEC, 3);
        r = fds[SLOT_NET_RAW6] < 0 ? -errno : 0;
    }
    return r;
}

/* What a kernel answers that has no nftables, no transparent proxying or no rejecting in prerouting. */
static bool is_lacking(int error)
{
    return error == -EOPNOTSUPP || error == -ENOENT || error == -EPROTONOSUPPORT || error == -EAFNOSUPPORT;
}

int slot_net_lay(int ret_fds[SLOT_NET_SOCKETS], struct err *e)
{
    int fds[SLOT_NET_SOCKETS] = {-1, -1, -1, -1};
    int r = slot_rules_load(rules, rules_len);

    if (is_lacking(r)) {
        log_warn("slot", "no network for sandboxes: the kernel cannot hand over connections (errno=%d)", -r);
        return 0;
    }
    if (r < 0)
        return err_sys(e, -r, "load the packet rules of a sandbox");
    r = netlink_catch_all(SANDBOX_NET_SELF4, SANDBOX_NET_SELF6);
    if (r < 0)
        return err_sys(e, -r, "route all addresses of a sandbox");
    r = open_sockets(fds);
    for (int i = 0; r < 0 && i < SLOT_NET_SOCKETS; i++)
        fd_close(&fds[i]);
    if (r < 0)
        return err_sys(e, -r, "open the sockets of a sandbox's network");
    memcpy(ret_fds, fds, sizeof fds);
    return 0;
}
