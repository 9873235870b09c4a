/*
 * network.c - the sockets through which a sandbox's connections and datagrams reach egress
 *
 * They lie in the sandbox's namespace and belong to nobody inside. The monitor only keeps them: it accepts nothing, so
 * while egress is away connections wait, and without them none is possible.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "monitor/monitor.h"

static bool there;

void network_keep(bool wanted)
{
    int listening = 0;
    socklen_t n = sizeof listening;

    /* Where the kernel cannot do it, something else is in their place. */
    there = wanted && getsockopt(MON_FD_TCP, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) == 0 && listening == 1;
    if (there)
        return;
    for (int fd = MON_FD_TCP; fd <= MON_FD_RAW6; fd++)
        (void)close(fd);
}

bool network_is_there(void)
{
    return there;
}

void network_end(void)
{
    /* Copies of the descriptors are with egress; this ends the sockets for all. */
    if (there)
        (void)shutdown(MON_FD_TCP, SHUT_RDWR);
}
