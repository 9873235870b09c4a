/*
 * egress_link.c - the one connection from the node to egress
 *
 * A request moves from `waiting` (not sent) to `sent` and is freed by its reply, its deadline, or the end of the
 * connection it was sent on. Whatever ends a request outside of a reply does so from the tick.
 */
#include "node/egress_link.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/fd.h"

#define TICK_MS 50
#define BACKOFF_MS 100

struct request {
    struct request *next;
    enum egress_type type;
    uint32_t tag;
    int64_t deadline_ms;
    bool lost;                  /* its connection broke */
    egress_cb cb;
    void *arg;
    int fds[EGRESS_SOCKETS];
    int nfds;
    size_t len;
    uint8_t payload[];
};

struct egress_link {
    struct loop *loop;
    char *path;                 /* owned */
    int fd;
    struct loop_io *io;
    struct loop_timer *tick;    /* runs while a request is under way or there is no connection */
    struct request *waiting, **waiting_end, *sent;
    uint32_t tag;
    int64_t connect_at_ms;
    void (*on_up)(void *arg);
    void (*on_event)(void *arg, const struct chan_msg *m);
    void *arg;
    uint8_t space[LIMIT_CHANNEL_INLINE];
};

static void request_free(struct request *r)
{
    for (int i = 0; i < r->nfds; i++)
        fd_close(&r->fds[i]);
    explicit_bzero(r->payload, r->len);     /* it may have values of secrets */
    free(r);
}

static void finish(struct request *r, const struct chan_msg *m, const struct err *e)
{
    if (r->cb != NULL)
        r->cb(r->arg, m, e);
    request_free(r);
}

static void disconnect(struct egress_link *k)
{
    loop_io_free(k->io);
    k->io = NULL;
    fd_close(&k->fd);
    for (struct request *r = k->sent; r != NULL; r = r->next)
        r->lost = true;
    k->connect_at_ms = clock_boot_ms() + BACKOFF_MS;
    loop_timer_set(k->tick, TICK_MS);
}

static void reply(struct egress_link *k, const struct chan_msg *m)
{
    struct request **at = &k->sent;
    struct egress_error ee;
    struct err e;

    while (*at != NULL && (*at)->tag != m->tag)
        at = &(*at)->next;
    struct request *r = *at;
    if (r == NULL)
        return;                 /* given up before */
    *at = r->next;
    if (m->type != EGRESS_ERROR) {
        finish(r, m, NULL);
        return;
    }
    if (egress_error_decode(&ee, m->data, m->len) < 0)
        err_set(&e, ERR_INTERNAL, "the answer of egress cannot be read");
    else
        err_set(&e, ee.code != ERR_OK && ee.code < ERR_MAX_ ? (enum err_code)ee.code : ERR_INTERNAL, "%s", ee.message);
    finish(r, NULL, &e);
}

static void flush(struct egress_link *k)
{
    while (k->fd >= 0 && k->waiting != NULL) {
        struct request *r = k->waiting;
        int rc = chan_send(k->fd, (uint16_t)r->type, r->tag, r->payload, r->len, r->fds, r->nfds);
        if (rc == -EAGAIN) {
            loop_io_set(k->io, LOOP_READ | LOOP_WRITE);
            return;
        }
        if (rc == -EPIPE || rc == -ECONNRESET) {
            disconnect(k);
            return;
        }
        k->waiting = r->next;
        if (k->waiting == NULL)
            k->waiting_end = &k->waiting;
        for (int i = 0; i < r->nfds; i++)
            fd_close(&r->fds[i]);
        r->nfds = 0;
        r->lost = rc < 0;
        r->next = k->sent;
        k->sent = r;
    }
    if (k->io != NULL)
        loop_io_set(k->io, LOOP_READ);
}

static void on_io(int fd, unsigned what, void *arg)
{
    struct egress_link *k = arg;
    struct chan_msg m;

    for (int i = 0; (what & LOOP_READ) != 0 && i < 32 && k->fd >= 0; i++) {
        int rc = chan_recv(fd, k->space, sizeof k->space, CHAN_NO_FDS, &m);
        if (rc == -EAGAIN)
            break;
        if (rc <= 0) {
            disconnect(k);
            return;
        }
        if (m.tag == 0)
            k->on_event(k->arg, &m);
        else
            reply(k, &m);
        chan_msg_done(&m);
    }
    flush(k);
}

static void connect_now(struct egress_link *k, int64_t now)
{
    int fd = -1;

    if (chan_connect(k->path, &fd) < 0) {
        k->connect_at_ms = now + BACKOFF_MS;
        return;
    }
    k->fd = fd;
    k->io = loop_io_new(k->loop, fd, LOOP_READ, on_io, k);
    k->on_up(k->arg);
    flush(k);
}

static void expire(struct request **list, struct request ***end, int64_t now)
{
    struct err e;

    for (struct request **at = list; *at != NULL;) {
        struct request *r = *at;
        if (!r->lost && now < r->deadline_ms) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (end != NULL && *end == &r->next)
            *end = at;
        if (r->lost)
            err_set(&e, ERR_UNAVAILABLE, "the connection to egress broke");
        else
            err_set(&e, ERR_UNAVAILABLE, "egress has not answered in time");
        finish(r, NULL, &e);
        at = list;              /* the callback may have changed it */
    }
}

static void on_tick(void *arg)
{
    struct egress_link *k = arg;
    int64_t now = clock_boot_ms();

    expire(&k->waiting, &k->waiting_end, now);
    expire(&k->sent, NULL, now);
    if (k->fd < 0 && now >= k->connect_at_ms)
        connect_now(k, now);
    if (k->fd < 0 || k->waiting != NULL || k->sent != NULL)
        loop_timer_set(k->tick, TICK_MS);
}

struct egress_link *egress_link_new(struct loop *l, const char *socket_path, void (*on_up)(void *arg),
                                    void (*on_event)(void *arg, const struct chan_msg *m), void *arg)
{
    struct egress_link *k = mem_zalloc(sizeof *k);

    k->loop = l;
    k->path = mem_strdup(socket_path);
    k->fd = -1;
    k->waiting_end = &k->waiting;
    k->on_up = on_up;
    k->on_event = on_event;
    k->arg = arg;
    k->tick = loop_timer_new(l, on_tick, k);
    loop_timer_set(k->tick, 0);
    return k;
}

void egress_call(struct egress_link *k, enum egress_type type, const void *p, size_t n, const int *fds, int nfds,
                 uint64_t timeout_ms, egress_cb cb, void *arg)
{
    struct request *r = mem_zalloc(sizeof *r + n);

    if (++k->tag == 0)
        k->tag = 1;
    r->type = type;
    r->tag = k->tag;
    r->deadline_ms = clock_boot_ms() + (int64_t)timeout_ms;
    r->cb = cb;
    r->arg = arg;
    r->len = n;
    if (n > 0)
        memcpy(r->payload, p, n);
    for (int i = 0; i < nfds && i < EGRESS_SOCKETS; i++) {
        r->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        r->lost = r->lost || r->fds[i] < 0;
        r->nfds++;
    }
    loop_timer_set(k->tick, TICK_MS);
    *k->waiting_end = r;
    k->waiting_end = &r->next;
    flush(k);
}

void egress_link_free(struct egress_link *k)
{
    if (k == NULL)
        return;
    loop_io_free(k->io);
    fd_close(&k->fd);
    loop_timer_free(k->tick);
    for (struct request *r = k->waiting, *next; r != NULL; r = next) {
        next = r->next;
        request_free(r);
    }
    for (struct request *r = k->sent, *next; r != NULL; r = next) {
        next = r->next;
        request_free(r);
    }
    free(k->path);
    free(k);
}
