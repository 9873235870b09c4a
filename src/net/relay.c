/*
 * relay.c - see relay.h
 */
#include "net/relay.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "sys/fd.h"
#include "sys/mover.h"

#define CHUNK (64 * 1024)
#define BUDGET (1024 * 1024) /* of one direction in a turn of the loop */
#define MUCH (32 * 1024)     /* read at once: the kernel is asked to go on */

/* From one side to the other. */
struct way {
    uint8_t *rest; /* owned: what the other side does not take yet */
    size_t len, at;
    struct mover mover;
    bool is_bulk;
    bool eof, shut; /* read to the end; and passed on */
};

struct net_relay {
    int fd[2];
    struct loop_io *io[2];
    unsigned wants[2];
    struct way way[2]; /* way[i] begins at fd[i] */
    void (*on_end)(void *ctx);
    void *ctx;
};

static uint8_t chunk[CHUNK];

static bool is_full(const struct way *w)
{
    return w->rest != NULL || w->mover.held > 0;
}

static void reset_on_close(int fd)
{
    const struct linger l = {.l_onoff = 1};

    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
}

/* Nothing more can pass; the owner may free us in it. */
static void over(struct net_relay *r, bool broken)
{
    for (int i = 0; i < 2; i++) {
        if (broken)
            reset_on_close(r->fd[i]);
        loop_io_free(take_ptr(&r->io[i]));
        fd_close(&r->fd[i]);
    }
    r->on_end(r->ctx);
}

/* --- one direction: 0, or -errno when the connection is broken ------------------------------------------------------ */

static int flush(struct way *w, int to)
{
    while (w->rest != NULL) {
        ssize_t n = send(to, w->rest + w->at, w->len - w->at, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        w->at += (size_t)n;
        if (w->at < w->len)
            continue;
        free(take_ptr(&w->rest));
        w->at = w->len = 0;
    }
    return mover_flush(&w->mover, to);
}

static int put(struct way *w, int to, size_t n)
{
    ssize_t done = send(to, chunk, n, MSG_NOSIGNAL);

    if (done < 0 && errno != EAGAIN && errno != EINTR)
        return -errno;
    size_t sent = done > 0 ? (size_t)done : 0;
    if (sent < n) {
        w->rest = mem_dup(chunk + sent, n - sent);
        w->len = n - sent;
        w->at = 0;
    }
    return 0;
}

static int copy(struct way *w, int from, int to, size_t *ret_n)
{
    ssize_t n = recv(from, chunk, sizeof chunk, 0);

    *ret_n = n > 0 ? (size_t)n : 0;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    w->eof = n == 0;
    w->is_bulk = n >= MUCH;
    return n > 0 ? put(w, to, (size_t)n) : 0;
}

static int pump(struct way *w, int from, int to)
{
    size_t n = sizeof chunk;

    /* A read that was not full has left nothing. */
    for (size_t done = 0; done < BUDGET && n == sizeof chunk && !is_full(w) && !w->eof; done += n) {
        if (w->is_bulk) {
            int r = mover_move(&w->mover, from, to, BUDGET, &n);
            w->eof = r == MOVER_END;
            if (r != MOVER_COPY)
                return r < 0 ? r : 0;
        }
        int r = copy(w, from, to, &n);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Passes the end on once everything before it is written. */
static void pass_end(struct way *w, int to)
{
    if (!w->eof || w->shut || is_full(w))
        return;
    (void)shutdown(to, SHUT_WR); /* fails only if the peer is gone, which reading tells */
    w->shut = true;
}

/* --- both ----------------------------------------------------------------------------------------------------------- */

static void update(struct net_relay *r)
{
    for (int i = 0; i < 2; i++) {
        const struct way *out = &r->way[i], *in = &r->way[1 - i];
        unsigned wants = (!is_full(out) && !out->eof ? (unsigned)LOOP_READ : 0) |
                         (is_full(in) ? (unsigned)LOOP_WRITE : 0);
        if (wants != r->wants[i])
            loop_io_set(r->io[i], wants);
        r->wants[i] = wants;
    }
}

static void ready(struct net_relay *r, int side, unsigned what)
{
    struct way *out = &r->way[side], *in = &r->way[1 - side];
    int e = 0;

    if ((what & LOOP_WRITE) != 0)
        e = flush(in, r->fd[side]);
    if (e == 0 && (what & LOOP_READ) != 0)
        e = pump(out, r->fd[side], r->fd[1 - side]);
    if (e < 0) {
        over(r, true);
        return;
    }
    pass_end(in, r->fd[side]);
    pass_end(out, r->fd[1 - side]);
    if (in->shut && out->shut)
        over(r, false);
    else
        update(r);
}

static void on_ready(int fd, unsigned what, void *arg)
{
    struct net_relay *r = arg;

    ready(r, fd == r->fd[0] ? 0 : 1, what);
}

struct net_relay *net_relay_new(struct loop *l, int a, int b, void (*on_end)(void *ctx), void *ctx)
{
    struct net_relay *r = mem_zalloc(sizeof *r);

    *r = (struct net_relay){
        .fd = {a, b}, .wants = {LOOP_READ, LOOP_READ}, .on_end = on_end, .ctx = ctx};
    for (int i = 0; i < 2; i++)
        r->io[i] = loop_io_new(l, r->fd[i], LOOP_READ, on_ready, r);
    return r;
}

void net_relay_free(struct net_relay *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < 2; i++) {
        loop_io_free(r->io[i]);
        fd_close(&r->fd[i]);
        free(r->way[i].rest);
        mover_done(&r->way[i].mover);
    }
    free(r);
}
