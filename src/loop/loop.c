/*
 * loop.c - the event loop over libevent
 *
 * Called by every daemon and by net and http. One turn is: wait, run the callbacks of what is ready, run the jobs queued
 * meanwhile, then the late jobs (connections write once what the whole turn produced).
 *
 * Invariant: the loop never sleeps while a job is queued.
 */
#include "loop/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>

#include "base/clock.h"
#include "base/mem.h"

/* Jobs that queue jobs are followed this often before descriptors get their turn. */
#define JOB_ROUNDS 8

struct loop_signal {
    struct event event;
    loop_signal_cb cb;
    void *arg;
    struct loop_signal *next;
};

struct loop {
    struct event_base *base;
    struct loop_job soon;       /* heads of circular lists */
    struct loop_job late;
    struct loop_signal *signals;
    bool stopped;
};

struct loop_timer {
    struct event event;
    loop_timer_cb cb;
    void *arg;
    int64_t due_ms;
};

struct loop_io {
    struct event event;
    struct event_base *base;
    loop_io_cb cb;
    void *arg;
    unsigned what;
};

struct deferred {
    struct loop_job job;
    loop_timer_cb cb;
    void *arg;
};

/* --- jobs ------------------------------------------------------------------------------------ */

static void list_init(struct loop_job *head)
{
    head->prev = head->next = head;
}

static bool list_is_empty(const struct loop_job *head)
{
    return head->next == head;
}

static void list_add(struct loop_job *head, struct loop_job *j)
{
    j->prev = head->prev;
    j->next = head;
    head->prev->next = j;
    head->prev = j;
}

/* Move all jobs of `from` to the empty head `to`. */
static void list_take(struct loop_job *to, struct loop_job *from)
{
    list_init(to);
    if (list_is_empty(from))
        return;
    to->next = from->next;
    to->prev = from->prev;
    to->next->prev = to;
    to->prev->next = to;
    list_init(from);
}

void loop_job_soon(struct loop *l, struct loop_job *j)
{
    if (!loop_job_is_queued(j))
        list_add(&l->soon, j);
}

void loop_job_late(struct loop *l, struct loop_job *j)
{
    if (!loop_job_is_queued(j))
        list_add(&l->late, j);
}

void loop_job_cancel(struct loop_job *j)
{
    if (!loop_job_is_queued(j))
        return;
    j->prev->next = j->next;
    j->next->prev = j->prev;
    j->prev = j->next = NULL;
}

static void run_queue(struct loop_job *queue)
{
    struct loop_job now;

    list_take(&now, queue);
    while (!list_is_empty(&now)) {
        struct loop_job *j = now.next;
        loop_job_cancel(j);
        j->cb(j->arg);
    }
}

static bool has_jobs(const struct loop *l)
{
    return !list_is_empty(&l->soon) || !list_is_empty(&l->late);
}

static void run_jobs(struct loop *l)
{
    for (int round = 0; round < JOB_ROUNDS && has_jobs(l); round++) {
        run_queue(&l->soon);
        run_queue(&l->late);
    }
}

static void on_deferred(void *arg)
{
    struct deferred *d = arg;
    loop_timer_cb cb = d->cb;
    void *cb_arg = d->arg;

    free(d);
    cb(cb_arg);
}

void loop_defer(struct loop *l, loop_timer_cb cb, void *arg)
{
    struct deferred *d = mem_zalloc(sizeof *d);

    d->job.cb = on_deferred;
    d->job.arg = d;
    d->cb = cb;
    d->arg = arg;
    loop_job_soon(l, &d->job);
}

/* --- the loop -------------------------------------------------------------------------------- */

struct loop *loop_new(void)
{
    struct loop *l = mem_zalloc(sizeof *l);

    l->base = event_base_new();
    if (l->base == NULL) {
        free(l);
        return NULL;
    }
    list_init(&l->soon);
    list_init(&l->late);
    return l;
}

static void drop_jobs(struct loop_job *queue)
{
    struct loop_job *next;

    for (struct loop_job *j = queue->next; j != queue; j = next) {
        next = j->next;
        j->prev = j->next = NULL;
        if (j->cb == on_deferred)
            free(j->arg);
    }
    list_init(queue);
}

void loop_free(struct loop *l)
{
    if (l == NULL)
        return;
    drop_jobs(&l->soon);
    drop_jobs(&l->late);
    while (l->signals != NULL) {
        struct loop_signal *s = l->signals;
        l->signals = s->next;
        (void)event_del(&s->event);
        free(s);
    }
    event_base_free(l->base);
    free(l);
}

int loop_run(struct loop *l)
{
    int ret = 0;

    for (;;) {
        run_jobs(l);
        if (l->stopped)
            break;
        int r = event_base_loop(l->base, EVLOOP_ONCE | (has_jobs(l) ? EVLOOP_NONBLOCK : 0));
        if (r < 0) {
            ret = -EIO;
            break;
        }
        if (r == 1 && !has_jobs(l))
            break;
    }
    run_jobs(l);
    l->stopped = false;
    return ret;
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
    (void)event_base_loopbreak(l->base);
}

struct event_base *loop_base(struct loop *l)
{
    return l->base;
}

/* --- timers ---------------------------------------------------------------------------------- */

static void arm(struct loop_timer *t, int64_t after_ms)
{
    struct timeval tv = {.tv_sec = after_ms / 1000, .tv_usec = after_ms % 1000 * 1000};

    (void)event_add(&t->event, &tv);    /* fails only for lack of memory, which ends the process anyway */
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop_timer *t = arg;
    int64_t now_ms = clock_boot_ms();

    /* libevent counts from a cached, coarse clock and may be some milliseconds early; a deadline may not. */
    if (now_ms < t->due_ms) {
        arm(t, t->due_ms - now_ms);
        return;
    }
    t->cb(t->arg);
}

struct loop_timer *loop_timer_new(struct loop *l, loop_timer_cb cb, void *arg)
{
    struct loop_timer *t = mem_zalloc(sizeof *t);

    t->cb = cb;
    t->arg = arg;
    (void)event_assign(&t->event, l->base, -1, 0, on_timer, t);
    return t;
}

void loop_timer_set(struct loop_timer *t, uint64_t after_ms)
{
    /* A year is never; it keeps the arithmetic far from overflow. */
    const uint64_t max_ms = 366ULL * 24 * 3600 * 1000;
    int64_t ms = (int64_t)(after_ms < max_ms ? after_ms : max_ms);

    t->due_ms = clock_boot_ms() + ms;
    arm(t, ms);
}

void loop_timer_clear(struct loop_timer *t)
{
    (void)event_del(&t->event);
}

void loop_timer_free(struct loop_timer *t)
{
    if (t == NULL)
        return;
    (void)event_del(&t->event);
    free(t);
}

/* --- descriptors ----------------------------------------------------------------------------- */

static void on_io(evutil_socket_t fd, short what, void *arg)
{
    struct loop_io *io = arg;
    unsigned ready = ((what & EV_READ) ? LOOP_READ : 0U) | ((what & EV_WRITE) ? LOOP_WRITE : 0U);

    io->cb(fd, ready, io->arg);
}

struct loop_io *loop_io_new(struct loop *l, int fd, unsigned what, loop_io_cb cb, void *arg)
{
    struct loop_io *io = mem_zalloc(sizeof *io);

    io->base = l->base;
    io->cb = cb;
    io->arg = arg;
    (void)event_assign(&io->event, l->base, fd, EV_PERSIST, on_io, io);
    loop_io_set(io, what);
    return io;
}

void loop_io_set(struct loop_io *io, unsigned what)
{
    short flags = EV_PERSIST;
    int fd = event_get_fd(&io->event);

    if (what == io->what)
        return;
    if (io->what != 0)
        (void)event_del(&io->event);
    io->what = what;
    if (what == 0)
        return;
    if (what & LOOP_READ)
        flags |= EV_READ;
    if (what & LOOP_WRITE)
        flags |= EV_WRITE;
    (void)event_assign(&io->event, io->base, fd, flags, on_io, io);
    (void)event_add(&io->event, NULL);
}

void loop_io_free(struct loop_io *io)
{
    if (io == NULL)
        return;
    if (io->what != 0)
        (void)event_del(&io->event);
    free(io);
}

/* --- signals --------------------------------------------------------------------------------- */

static void on_signal_event(evutil_socket_t signal, short what, void *arg)
{
    struct loop_signal *s = arg;

    s->cb(signal, s->arg);
}

void loop_on_signal(struct loop *l, int signal, loop_signal_cb cb, void *arg)
{
    struct loop_signal *s = mem_zalloc(sizeof *s);

    s->cb = cb;
    s->arg = arg;
    (void)event_assign(&s->event, l->base, signal, EV_SIGNAL | EV_PERSIST, on_signal_event, s);
    (void)event_add(&s->event, NULL);
    s->next = l->signals;
    l->signals = s;
}
