/*
 * loop.h - the event loop of control, node, egress and image (libevent underneath)
 *
 * One loop a process, one thread. Callbacks do bounded work and return.
 */
#ifndef QS_LOOP_LOOP_H
#define QS_LOOP_LOOP_H

#include <stdbool.h>
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
int loop_run(struct loop *l);               /* until loop_stop; 0 or -errno */
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

/* Run cb soon, not from inside the current callback. */
void loop_defer(struct loop *l, loop_timer_cb cb, void *arg);
void loop_on_signal(struct loop *l, int signal, loop_signal_cb cb, void *arg);

#endif
