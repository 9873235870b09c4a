/*
 * dialed.c - see dialed.h
 */
#include "node/tunnel/dialed.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/monitor_proto.h"
#include "sys/fd.h"

int dialed_socket(const struct chan_msg *m)
{
    static const int on = 1;
    int domain = 0, type = 0;
    socklen_t len = sizeof domain;

    if (m->type != MON_DIAL_R || m->nfds != 1 || getsockopt(m->fds[0], SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 ||
        getsockopt(m->fds[0], SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM ||
        (domain != AF_INET && domain != AF_INET6))
        return -1;
    auto_close int fd = fcntl(m->fds[0], F_DUPFD_CLOEXEC, 3);
    if (fd < 0 || fd_set_nonblock(fd, true) < 0)
        return -1;
    /* Whether the peer is alive needs no asking: it is in the same kernel. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return take_fd(&fd);
}
