/*
 * dial.c - connections to servers inside, for the node
 *
 * The monitor lives in the sandbox's network namespace, so what it dials on loopback is the sandbox's own. It hands the
 * connected socket out and keeps nothing. A server may listen on one address family alone, so both are tried.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor/monitor.h"

/* A descriptor, or -errno. On loopback the kernel settles a connect while it is being made: asked again, it tells how it
 * ended. Only a full backlog leaves it open; the socket is good then, and its reader sees what becomes of it. */
static int dial_one(const struct sockaddr *sa, socklen_t len)
{
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (connect(fd, sa, len) == 0)
        return fd;
    int error = errno;
    if (error == EINPROGRESS)
        error = connect(fd, sa, len) == 0 ? EISCONN : errno;
    if (error == EISCONN || error == EALREADY)
        return fd;
    (void)close(fd);
    return -error;
}

int dial(uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = dial_one((const struct sockaddr *)&v4, sizeof v4);

    if (fd != -ECONNREFUSED)
        return fd;
    int second = dial_one((const struct sockaddr *)&v6, sizeof v6);
    return second >= 0 ? second : fd;
}
