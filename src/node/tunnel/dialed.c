/*
 * dialed.c - see dialed.h
 */
#include "node/tunnel/dialed.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/monitor_proto.h"
#include "net/conn.h"
#include "sys/fd.h"

int dialed_socket(const struct chan_msg *m)
{
    int domain = 0, type = 0;
    socklen_t len = sizeof domain;

    if (m->type != MON_DIAL_R || m->nfds != 1 || getsockopt(m->fds[0], SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 ||
        getsockopt(m->fds[0], SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM ||
        (domain != AF_INET && domain != AF_INET6))
        return -1;
    auto_close int fd = fcntl(m->fds[0], F_DUPFD_CLOEXEC, 3);
    if (fd < 0 || fd_set_nonblock(fd, true) < 0)
        return -1;
    net_socket_tune(fd);
    return take_fd(&fd);
}
