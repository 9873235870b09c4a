/*
 * probe.c - Probe: does a port of the sandbox's loopback accept connections?
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "init/fs/op.h"
#include "sys/fd.h"

#define CONNECT_MS 2000

/* 0 or -errno. */
static int reach(const struct sockaddr *a, socklen_t n)
{
    auto_close int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0;
    socklen_t size = sizeof error;

    if (fd < 0)
        return -errno;
    if (connect(fd, a, n) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -errno;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, CONNECT_MS) <= 0)
        return -ETIMEDOUT;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
        return -errno;
    return -error;
}

int op_probe(struct op *o, struct fs_error *e)
{
    int64_t port;

    if (arg_int(o, "tcp_port", 0, 1, UINT16_MAX, &port, e) < 0)
        return -1;
    if (port == 0)
        return fs_fail_kind(e, "Invalid", "tcp_port is needed");
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    int r = reach((const struct sockaddr *)&v4, sizeof v4);
    if (r < 0)
        r = reach((const struct sockaddr *)&v6, sizeof v6);
    return r < 0 ? fs_fail_kind(e, "NotReady", "nothing accepts connections on the port") : 0;
}
