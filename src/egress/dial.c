/*
 * dial.c - connects to where a flow may go
 *
 * The addresses are tried in their order, the next one as soon as one fails or stays silent for a moment, beside it: the
 * program inside holds a connection already, so what it would do itself for an address that does not answer has to be done
 * here. The first that answers is taken. flow.c calls; relay_start or flow_failed follow, perhaps at once.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "egress/egress.h"
#include "sys/fd.h"

#define NEXT_MS 300             /* an address that is silent for so long gets company */
#define CONNECT_MS 10000        /* after the last one was begun */

union sock_address {
    struct sockaddr sa;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

struct dial {
    struct flow *flow;
    size_t next;                /* of flow->addresses */
    unsigned pending;
    int error;                  /* the one that says most */
    struct attempt {
        struct dial *dial;
        struct loop_io *io;     /* NULL: not under way */
        int fd;
    } attempts[ADDRESSES_MAX];
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

/*
 * The address from which the kernel would speak to *a. Nothing is sent for the question. Every connection asks it, so the
 * socket is kept; it is nobody's between two questions.
 */
static bool speaks_from(const struct address *a, union sock_address *to, union sock_address *ret)
{
    static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    static int sockets[2] = {-1, -1};
    socklen_t n = sizeof *ret;
    socklen_t len = fill(a, 9, to);
    int *fd = &sockets[!address_is4(a)];

    if (*fd < 0)
        *fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = *fd >= 0 && connect(*fd, &to->sa, len) == 0 && getsockname(*fd, &ret->sa, &n) == 0;
    /* Also after a failure, which may leave an address behind. */
    if (*fd >= 0 && connect(*fd, &nobody, sizeof nobody) < 0)
        fd_close(fd);
    return found;
}

bool dial_is_local(const struct address *a)
{
    union sock_address to, from;

    if (!speaks_from(a, &to, &from))
        return false;           /* then it cannot be dialled either */
    return address_is4(a) ? memcmp(&from.four.sin_addr, &to.four.sin_addr, 4) == 0
                          : memcmp(&from.six.sin6_addr, &to.six.sin6_addr, 16) == 0;
}

int dial_datagram(const struct address *a, uint16_t port)
{
    union sock_address to;
    socklen_t len = fill(a, port, &to);
    auto_close int fd = socket(to.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || connect(fd, &to.sa, len) < 0)
        return -errno;
    return take_fd(&fd);
}

bool dial_has_way(const struct address *a)
{
    union sock_address to, from;

    return speaks_from(a, &to, &from);
}

void dial_cancel(struct flow *f)
{
    struct dial *d = take_ptr(&f->dial);

    if (d == NULL)
        return;
    for (size_t i = 0; i < array_len(d->attempts); i++) {
        loop_io_free(d->attempts[i].io);
        fd_close(&d->attempts[i].fd);
    }
    free(d);
}

/* How much an error says: that somebody answered, that nobody did, anything else. */
static int weight(int error)
{
    return error == ECONNREFUSED ? 3 : error == ETIMEDOUT ? 2 : error != 0;
}

static void failed(struct dial *d, int error)
{
    if (weight(error) > weight(d->error))
        d->error = error;
}

static void give_up(struct flow *f, int error)
{
    dial_cancel(f);
    if (error == ETIMEDOUT)
        flow_failed(f, "504 Gateway Timeout", "there was no answer");
    else
        flow_failed(f, "502 Bad Gateway",
                    error == ECONNREFUSED                           ? "the connection was refused"
                    : error == EHOSTUNREACH || error == ENETUNREACH ? "no way leads there"
                                                                    : "it cannot be reached");
}

static void begin_next(struct dial *d);

static void on_time(void *arg)
{
    struct flow *f = arg;

    if (f->dial->next < f->naddresses) {
        begin_next(f->dial);
        return;
    }
    failed(f->dial, ETIMEDOUT);
    give_up(f, f->dial->error);
}

static void connected(struct dial *d, size_t i)
{
    struct flow *f = d->flow;

    f->dialled = f->addresses[i];
    f->out = take_fd(&d->attempts[i].fd);
    dial_cancel(f);
    relay_start(f);
}

static void on_connected(int fd, unsigned what, void *arg)
{
    struct attempt *a = arg;
    struct dial *d = a->dial;
    int error = 0;
    socklen_t n = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    loop_io_free(take_ptr(&a->io));
    if (error == 0) {
        connected(d, (size_t)(a - d->attempts));
        return;
    }
    fd_close(&a->fd);
    d->pending--;
    failed(d, error);
    if (d->next < d->flow->naddresses)
        begin_next(d);
    else if (d->pending == 0)
        give_up(d->flow, d->error);
}

/* 0: it is under way, or stands, which is then told. */
static int begin(struct attempt *a, const struct address *address, uint16_t port, bool *ret_stands)
{
    static const int on = 1;
    union sock_address to;
    socklen_t len = fill(address, port, &to);

    a->fd = socket(to.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0)
        return errno;
    (void)setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int r = connect(a->fd, &to.sa, len);
    /* Who is near has answered before the call is back: asked again, the kernel says so. */
    if (r < 0 && errno == EINPROGRESS)
        r = connect(a->fd, &to.sa, len);
    *ret_stands = r == 0 || errno == EISCONN;
    if (*ret_stands)
        return 0;
    if (errno != EALREADY) {
        int error = errno;
        fd_close(&a->fd);
        return error;
    }
    a->io = loop_io_new(a->dial->flow->box->egress->loop, a->fd, LOOP_WRITE, on_connected, a);
    return 0;
}

/* The next address that can be tried at all; the flow may be gone afterwards. */
static void begin_next(struct dial *d)
{
    struct flow *f = d->flow;

    while (d->next < f->naddresses) {
        size_t i = d->next++;
        bool stands;
        int error = begin(&d->attempts[i], &f->addresses[i], f->port, &stands);
        if (error != 0) {
            failed(d, error);
            continue;
        }
        if (stands) {
            connected(d, i);
            return;
        }
        d->pending++;
        flow_timer(f, d->next < f->naddresses ? NEXT_MS : CONNECT_MS, on_time);
        return;
    }
    if (d->pending == 0)
        give_up(f, d->error);
    else
        flow_timer(f, CONNECT_MS, on_time);
}

void dial_start(struct flow *f)
{
    struct dial *d = mem_zalloc(sizeof *d);

    *d = (struct dial){.flow = f};
    for (size_t i = 0; i < array_len(d->attempts); i++)
        d->attempts[i] = (struct attempt){.dial = d, .fd = -1};
    f->dial = d;
    f->state = FLOW_DIAL;
    begin_next(d);
}
