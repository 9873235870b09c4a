/*
 * loop.h - the event loop of control, node, egress and image (libevent underneath)
 *
 * One loop a process, one thread. Callbacks do bounded work and return.
 */
#ifndef QS_LOOP_LOOP_H
#define QS_LOOP_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct loop_timer;
struct loop_io;
struct event_base;

enum { LOOP_READ = 1, LOOP_WRITE = 2 };

typedef void (*loop_timer_cb)(void *arg);
typedef void (*loop_io_cb)(int fd, unsigned what, void *arg);
typedef void (*loop_signal_cb)(int signal, void *arg);

struct loop *loop_new(void);
void loop_free(struct loop *l);
/* Until loop_stop, or until nothing is left that could ever happen; 0 or -errno. The only way to run the loop: a bare
 * event_base_loop would leave deferred work undone. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l);
struct event_base *loop_base(struct loop *l);   /* for net and http */

/* A one-shot timer, created idle; loop_timer_set arms (or re-arms) it. Free from its own callback is allowed. */
struct loop_timer *loop_timer_new(struct loop *l, loop_timer_cb cb, void *arg);
void loop_timer_set(struct loop_timer *t, uint64_t after_ms);
void loop_timer_clear(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t); /* accepts NULL */

/* Level-triggered readiness of a descriptor that stays the caller's. */
struct loop_io *loop_io_new(struct loop *l, int fd, unsigned what, loop_io_cb cb, void *arg);
void loop_io_set(struct loop_io *io, unsigned what);    /* 0 pauses */
void loop_io_free(struct loop_io *io);      /* accepts NULL; may be called from its own callback */

/* Run cb soon, not from inside the current callback. Jobs queued when loop_stop is called still run. */
void loop_defer(struct loop *l, loop_timer_cb cb, void *arg);
/* The same without an allocation, for objects that defer often: the caller embeds the job, sets cb and arg once and
 * queues it as often as it likes (it runs once). `late` runs after all other work of this turn of the loop: the place
 * to write what the turn produced. Cancel before the object goes. */
struct loop_job {
    loop_timer_cb cb;
    void *arg;
    struct loop_job *prev, *next;   /* the loop's; NULL while not queued */
};
void loop_job_soon(struct loop *l, struct loop_job *j);
void loop_job_late(struct loop *l, struct loop_job *j);
void loop_job_cancel(struct loop_job *j);
static inline bool loop_job_is_queued(const struct loop_job *j)
{
    return j->next != NULL;
}
void loop_on_signal(struct loop *l, int signal, loop_signal_cb cb, void *arg);

#endif
