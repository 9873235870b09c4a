/*
 * relay.c - passes the bytes of a connection on, both ways
 *
 * Bytes are read into one buffer of the process and written at once; only what the other side does not take is kept, and
 * then nothing more is read. So an idle flow has no buffer and a slow reader holds its own connection back. A direction
 * that nobody looks at and that turns out to carry much is left to the kernel (sys/mover.h).
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "egress/egress.h"
#include "egress/open/open.h"
#include "sys/fd.h"

#define CHUNK (128 * 1024)
#define CHUNKS_A_TURN 4         /* then other flows have their turn */
#define MUCH (32 * 1024)        /* read at once */
#ifndef HALF_MS
#define HALF_MS (5 * 60 * 1000) /* a connection that is closed one way, and for all of this time silent the other */
#endif
#define KEEPALIVE_S 60

static uint8_t chunk[CHUNK];

enum result { GO_ON, GONE };

static void on_half(void *arg)
{
    struct flow *f = arg;
    uint64_t bytes = f->up.bytes + f->down.bytes;

    if (bytes == f->bytes_before) {
        flow_reset(f);
        return;
    }
    f->bytes_before = bytes;
    loop_timer_set(f->timer, HALF_MS);
}

/* Bytes wait for the next socket to take them. */
static bool is_full(const struct way *w)
{
    return w->rest != NULL || w->mover.held > 0;
}

static void update(struct flow *f)
{
    bool waits = f->up.waits || (f->watched && f->scan.state == SCAN_WAIT);
    unsigned in = (!is_full(&f->up) && !f->up.eof && !waits ? (unsigned)LOOP_READ : 0) |
                  (is_full(&f->down) ? (unsigned)LOOP_WRITE : 0);
    unsigned out = (!is_full(&f->down) && !f->down.eof && !f->down.waits ? (unsigned)LOOP_READ : 0) |
                   (is_full(&f->up) ? (unsigned)LOOP_WRITE : 0);

    flow_want(f, in, out);
}

/* Writes now, or keeps. Negative: the connection is broken. */
static int put(struct flow *f, struct way *w, int to, const uint8_t *p, size_t n)
{
    size_t done = 0;

    while (w->rest == NULL && done < n) {
        ssize_t r = send(to, p + done, n - done, MSG_NOSIGNAL);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno != EAGAIN)
            return -errno;
        if (r < 0)
            break;
        done += (size_t)r;
    }
    if (done == n)
        return 0;
    /* More than once only for the pieces of one chunk. */
    w->rest = mem_realloc(w->rest, w->rest_len + n - done);
    memcpy(w->rest + w->rest_len, p + done, n - done);
    w->rest_len += n - done;
    return 0;
}

static int flush(struct way *w, int to)
{
    while (w->rest != NULL) {
        ssize_t r = send(to, w->rest + w->rest_at, w->rest_len - w->rest_at, MSG_NOSIGNAL);
        if (r < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        w->rest_at += (size_t)r;
        if (w->rest_at < w->rest_len)
            continue;
        free(w->rest);
        w->rest = NULL;
        w->rest_at = w->rest_len = 0;
    }
    return mover_flush(&w->mover, to);
}

/* Passes the end on once everything before it is written. */
static void pass_end(struct flow *f, struct way *w, int to)
{
    if (!w->eof || w->shut || is_full(w))
        return;
    w->shut = true;
    /* The second end is passed on by closing, which follows: settle. */
    if (f->up.shut && f->down.shut)
        return;
    (void)shutdown(to, SHUT_WR);
    f->bytes_before = f->up.bytes + f->down.bytes;
    flow_timer(f, HALF_MS, on_half);
}

static enum result refuse(struct flow *f, enum scan_why why)
{
    flow_refuse(f, why == SCAN_MISMATCH ? EGRESS_MISMATCH : why == SCAN_METHOD ? EGRESS_METHOD : EGRESS_MALFORMED,
                &f->dialled, -1);
    return GONE;
}

/* What a client sends where every request is looked at. */
static enum result put_watched(struct flow *f, const uint8_t *p, size_t n)
{
    enum scan_why why = SCAN_MALFORMED;
    const uint8_t *out;
    size_t used, out_len;

    while (n > 0) {
        if (!scan_feed(&f->scan, p, n, &used, &out, &out_len, &why))
            return refuse(f, why);
        if (out_len > 0 && put(f, &f->up, f->out, out, out_len) < 0) {
            flow_reset(f);
            return GONE;
        }
        if (used == 0 && out_len == 0)
            return refuse(f, SCAN_METHOD);      /* more before the answer to an upgrade */
        p += used;
        n -= used;
    }
    return GO_ON;
}

/* Left to the kernel, if it can. False: to be copied. */
static bool moved(struct flow *f, struct way *w, int from, int to, struct throttle *t, uint64_t *count, enum result *ret)
{
    size_t n;

    *ret = GO_ON;
    if (!w->is_bulk || is_full(w) || w->eof)
        return false;
    size_t room = throttle_room(t, f, CHUNK * CHUNKS_A_TURN);
    if (room == 0)
        return true;
    int r = mover_move(&w->mover, from, to, room, &n);
    throttle_use(t, n);
    w->bytes += n;
    *count += n;
    w->eof = r == MOVER_END;
    if (r < 0) {
        flow_reset(f);
        *ret = GONE;
    } else if (r == MOVER_COPY) {
        w->is_bulk = false;
        return false;
    } else {
        pass_end(f, w, to);
    }
    return true;
}

/* What was read before it was decided. */
static enum result put_first(struct flow *f)
{
    if (f->first_len > 0 && throttle_room(&f->box->up, f, f->first_len) == 0)
        return GO_ON;
    auto_free uint8_t *first = take_ptr(&f->first);
    size_t n = f->first_len;
    f->first_len = 0;
    f->box->status.totals.sent += n;
    throttle_use(&f->box->up, n);
    if (f->watched)
        return put_watched(f, first, n);
    if (put(f, &f->up, f->out, first, n) == 0)
        return GO_ON;
    flow_reset(f);
    return GONE;
}

static enum result pump_up(struct flow *f)
{
    enum result r;

    if (f->first != NULL && put_first(f) == GONE)
        return GONE;
    if (f->first != NULL)
        return GO_ON;
    if (moved(f, &f->up, f->in, f->out, &f->box->up, &f->box->status.totals.sent, &r))
        return r;
    for (int i = 0; i < CHUNKS_A_TURN && f->up.rest == NULL && !f->up.eof; i++) {
        if (f->watched && f->scan.state == SCAN_WAIT)
            break;
        size_t room = throttle_room(&f->box->up, f, sizeof chunk);
        if (room == 0)
            break;
        ssize_t n = recv(f->in, chunk, room, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0) {
            flow_reset(f);
            return GONE;
        }
        f->up.eof = n == 0;
        f->up.bytes += (uint64_t)n;
        f->box->status.totals.sent += (uint64_t)n;
        throttle_use(&f->box->up, (size_t)n);
        if (f->watched) {
            if (put_watched(f, chunk, (size_t)n) == GONE)
                return GONE;
        } else if (put(f, &f->up, f->out, chunk, (size_t)n) < 0) {
            flow_reset(f);
            return GONE;
        }
        f->up.is_bulk = n >= MUCH && !f->watched;
        if ((size_t)n < room)
            break;
    }
    pass_end(f, &f->up, f->out);
    return GO_ON;
}

static void watch_answer(struct flow *f, const uint8_t *p, size_t n)
{
    size_t part = n < sizeof f->answer - f->answer_len ? n : sizeof f->answer - f->answer_len;

    memcpy(f->answer + f->answer_len, p, part);
    f->answer_len += part;
    (void)scan_answer(&f->scan, f->answer, f->answer_len);
}

static enum result pump_down(struct flow *f)
{
    enum result r;

    if (moved(f, &f->down, f->out, f->in, &f->box->down, &f->box->status.totals.received, &r))
        return r;
    for (int i = 0; i < CHUNKS_A_TURN && f->down.rest == NULL && !f->down.eof; i++) {
        size_t room = throttle_room(&f->box->down, f, sizeof chunk);
        if (room == 0)
            break;
        ssize_t n = recv(f->out, chunk, room, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0) {
            flow_reset(f);
            return GONE;
        }
        f->down.eof = n == 0;
        f->down.bytes += (uint64_t)n;
        f->box->status.totals.received += (uint64_t)n;
        throttle_use(&f->box->down, (size_t)n);
        if (f->watched && f->scan.state == SCAN_WAIT)
            watch_answer(f, chunk, (size_t)n);
        if (put(f, &f->down, f->in, chunk, (size_t)n) < 0) {
            flow_reset(f);
            return GONE;
        }
        f->down.is_bulk = n >= MUCH && !f->watched;
        if ((size_t)n < room)
            break;
    }
    pass_end(f, &f->down, f->in);
    return GO_ON;
}

static void settle(struct flow *f)
{
    if (f->up.shut && f->down.shut)
        flow_free(f);
    else
        update(f);
}

void relay_go_on_up(struct flow *f)
{
    if (f->opened != NULL)
        opened_go_on(f);
    else if (pump_up(f) == GO_ON)
        settle(f);
}

void relay_go_on_down(struct flow *f)
{
    if (f->opened != NULL)
        opened_go_on(f);
    else if (pump_down(f) == GO_ON)
        settle(f);
}

void relay_inside(struct flow *f, unsigned what)
{
    if ((what & LOOP_WRITE) != 0) {
        if (flush(&f->down, f->in) < 0) {
            flow_reset(f);
            return;
        }
        pass_end(f, &f->down, f->in);
    }
    if ((what & LOOP_READ) != 0 && pump_up(f) == GONE)
        return;
    settle(f);
}

static void on_inside(int fd, unsigned what, void *arg)
{
    relay_inside(arg, what);
}

static void on_outside(int fd, unsigned what, void *arg)
{
    struct flow *f = arg;

    if ((what & LOOP_WRITE) != 0) {
        if (flush(&f->up, fd) < 0) {
            flow_reset(f);
            return;
        }
        pass_end(f, &f->up, fd);
    }
    if ((what & LOOP_READ) != 0 && pump_down(f) == GONE)
        return;
    settle(f);
}

void relay_keep_alive(int fd)
{
    static const int on = 1, idle = KEEPALIVE_S;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

void relay_start(struct flow *f)
{
    struct loop *l = f->box->egress->loop;

    f->state = FLOW_RELAY;
    f->box->status.totals.flows++;
    loop_timer_free(f->timer);
    f->timer = NULL;
    if (f->opens) {
        opened_start(f);
        return;
    }
    f->watched = f->by_name && f->protocol == POLICY_HTTP;
    if (f->watched)
        scan_init(&f->scan, f->name);
    /* Most clients have spoken by now. */
    if ((f->first != NULL ? put_first(f) : pump_up(f)) == GONE)
        return;
    relay_keep_alive(f->out);
    if (f->in_io == NULL) {     /* else flow.c has it, and calls relay_inside */
        f->in_io = loop_io_new(l, f->in, 0, on_inside, f);
        f->in_wants = 0;
    }
    f->out_io = loop_io_new(l, f->out, 0, on_outside, f);
    f->out_wants = 0;
    update(f);
}
