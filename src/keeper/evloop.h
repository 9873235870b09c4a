/*
 * evloop.h - the keeper's event loop: epoll, timers, and work for idle moments
 *
 * One event is fetched at a time, so a callback may remove and free any watch, its own included.
 * Idle work runs only when no event is ready: requests come before pools and clean-up.
 */
#ifndef QS_KEEPER_EVLOOP_H
#define QS_KEEPER_EVLOOP_H

#include <stdbool.h>
#include <stdint.h>

struct watch {
    void (*ready)(struct watch *w, uint32_t events);
    int fd; /* borrowed; -1 = not watched */
};

struct timer {
    void (*due)(struct timer *t);
    int64_t at_ms; /* boot clock; 0 = not set */
    struct timer *next;
};

struct evloop {
    int epfd;
    bool stop;
    struct timer *timers; /* unsorted: there are few */
    /* Does one bounded piece of work; returns whether more is waiting. */
    bool (*idle)(void);
    bool idle_wanted;
};

int evloop_init(struct evloop *l); /* 0 or -errno */
void evloop_run(struct evloop *l); /* until l->stop */

int evloop_watch(struct evloop *l, struct watch *w, int fd, uint32_t events);
void evloop_unwatch(struct evloop *l, struct watch *w); /* safe when not watched */

void evloop_timer(struct evloop *l, struct timer *t, int64_t delay_ms); /* sets or moves */
void evloop_timer_stop(struct evloop *l, struct timer *t);
bool evloop_timer_is_set(const struct timer *t);

void evloop_want_idle(struct evloop *l);

#endif
