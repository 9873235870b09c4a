/*
 * evloop.c - the keeper's event loop: epoll, timers, and work for idle moments
 */
#include "keeper/evloop.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"

int evloop_init(struct evloop *l)
{
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    return l->epfd < 0 ? -errno : 0;
}

int evloop_watch(struct evloop *l, struct watch *w, int fd, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};

    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return -errno;
    w->fd = fd;
    return 0;
}

void evloop_unwatch(struct evloop *l, struct watch *w)
{
    if (w->fd >= 0)
        (void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->fd, NULL); /* it is open, so it cannot fail */
    w->fd = -1;
}

void evloop_timer_stop(struct evloop *l, struct timer *t)
{
    for (struct timer **at = &l->timers; *at != NULL; at = &(*at)->next) {
        if (*at == t) {
            *at = t->next;
            break;
        }
    }
    t->at_ms = 0;
}

void evloop_timer(struct evloop *l, struct timer *t, int64_t delay_ms)
{
    evloop_timer_stop(l, t);
    t->at_ms = clock_boot_ms() + (delay_ms > 0 ? delay_ms : 0);
    t->next = l->timers;
    l->timers = t;
}

bool evloop_timer_is_set(const struct timer *t)
{
    return t->at_ms != 0;
}

void evloop_want_idle(struct evloop *l)
{
    l->idle_wanted = true;
}

static int timeout_ms(const struct evloop *l)
{
    int64_t now = clock_boot_ms(), least = 60 * 1000;

    if (l->idle_wanted)
        return 0;
    for (const struct timer *t = l->timers; t != NULL; t = t->next)
        if (t->at_ms - now < least)
            least = t->at_ms - now;
    return least > 0 ? (int)least : 0;
}

/* One timer at a time from the start of the list: the callback may change it. */
static void run_timers(struct evloop *l)
{
    int64_t now = clock_boot_ms();
    struct timer *t = l->timers;

    while (t != NULL) {
        if (t->at_ms > now) {
            t = t->next;
            continue;
        }
        evloop_timer_stop(l, t);
        t->due(t);
        t = l->timers;
    }
}

void evloop_run(struct evloop *l)
{
    while (!l->stop) {
        struct epoll_event ev;
        int n = epoll_wait(l->epfd, &ev, 1, timeout_ms(l));

        if (n > 0) {
            struct watch *w = ev.data.ptr;
            w->ready(w, ev.events);
        } else if (n < 0 && errno != EINTR) {
            log_error("loop", "epoll: errno %d", errno);
            return;
        } else if (l->idle_wanted) {
            l->idle_wanted = l->idle();
        }
        if (l->timers != NULL)
            run_timers(l);
    }
}
