/*
 * dial.c - connects to where a flow may go
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "egress/egress.h"
#include "sys/fd.h"

#define CONNECT_MS 10000        /* one address */

union sock_address {
    struct sockaddr sa;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

static socklen_t fill(const struct address *a, uint16_t port, union sock_address *ret)
{
    *ret = (union sock_address){0};
    if (address_is4(a)) {
        ret->four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&ret->four.sin_addr, a->b + 12, 4);
        return sizeof ret->four;
    }
    ret->six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&ret->six.sin6_addr, a->b, 16);
    return sizeof ret->six;
}

/* The kernel speaks to an address of its own from that address. Nothing is sent for the question. */
bool dial_is_local(const struct address *a)
{
    union sock_address to, from;
    socklen_t n = sizeof from;
    socklen_t len = fill(a, 9, &to);
    auto_close int fd = socket(to.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, &to.sa, len) < 0 || getsockname(fd, &from.sa, &n) < 0)
        return false;           /* then it cannot be dialled either */
    return address_is4(a) ? memcmp(&from.four.sin_addr, &to.four.sin_addr, 4) == 0
                          : memcmp(&from.six.sin6_addr, &to.six.sin6_addr, 16) == 0;
}

static void next(struct flow *f);

static void give_up_this(struct flow *f)
{
    loop_io_free(f->out_io);
    f->out_io = NULL;
    fd_close(&f->out);
    next(f);
}

static void on_timeout(void *arg)
{
    give_up_this(arg);
}

static void on_connected(int fd, unsigned what, void *arg)
{
    struct flow *f = arg;
    int error = 0;
    socklen_t n = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 || error != 0) {
        give_up_this(f);
        return;
    }
    loop_io_free(f->out_io);
    f->out_io = NULL;
    relay_start(f);
}

static void next(struct flow *f)
{
    static const int on = 1;
    union sock_address to;

    while (f->next_address < f->naddresses) {
        f->dialled = f->addresses[f->next_address++];
        socklen_t len = fill(&f->dialled, f->port, &to);
        f->out = socket(to.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (f->out < 0)
            continue;
        (void)setsockopt(f->out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (connect(f->out, &to.sa, len) < 0 && errno != EINPROGRESS) {
            fd_close(&f->out);
            continue;
        }
        f->out_io = loop_io_new(f->box->egress->loop, f->out, LOOP_WRITE, on_connected, f);
        f->out_wants = LOOP_WRITE;
        flow_timer(f, CONNECT_MS, on_timeout);
        return;
    }
    flow_failed(f, "it cannot be reached");
}

void dial_start(struct flow *f)
{
    f->state = FLOW_DIAL;
    f->next_address = 0;
    flow_want(f, 0, 0);
    next(f);
}
