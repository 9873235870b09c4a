/*
 * throttle.h - how many bytes a second a sandbox may send, and receive
 *
 * A bucket of tokens a direction, one a byte. Connections read only while there are tokens, so that the kernel holds the
 * sender back; those that find none wait in a queue and go on in turn. A datagram cannot wait: it may take what later bytes
 * pay back, to a bound, and is lost beyond that, as on a wire that is full.
 */
#ifndef QS_EGRESS_THROTTLE_H
#define QS_EGRESS_THROTTLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/loop.h"

struct flow;
struct way;

struct throttle {
    struct loop *loop;
    struct way *(*way)(struct flow *f);     /* of a flow, the direction that this is about */
    void (*go_on)(struct flow *f);          /* it may read again; the flow may be gone afterwards */
    uint64_t rate;                          /* bytes a second; 0 = no limit */
    double tokens;                          /* below 0: owed */
    int64_t at_ms;                          /* boot clock: when tokens were counted */
    struct flow *first, *last;              /* who waits */
    uint32_t waiting;
    const struct flow *turn;                /* whose turn it is, in front of who waits */
    struct loop_timer *timer;               /* made when first used */
};

/* In front of who waits nobody is let through; a wait ends with go_on. 0: wait. Else how many of `want` bytes may be read now. */
size_t throttle_room(struct throttle *t, struct flow *f, size_t want);
/* A datagram that does not go is lost. */
bool throttle_takes(struct throttle *t, size_t n);
void throttle_use(struct throttle *t, size_t n);
/* The flow is going: it waits no more. */
void throttle_leave(struct throttle *t, struct flow *f);
void throttle_set(struct throttle *t, uint64_t bits_s);
void throttle_done(struct throttle *t);

#endif
