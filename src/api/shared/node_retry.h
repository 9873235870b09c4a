/*
 * node_retry.h - how long and how often a streaming call to the node is made again
 *
 * Unary calls have node_unary(); this is for calls that stream and know where to go on. The clock starts at the first
 * failure after the last progress.
 */
#ifndef QS_API_SHARED_NODE_RETRY_H
#define QS_API_SHARED_NODE_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/loop.h"

#define NODE_PATIENCE_MS 10000

struct node_retry {
    struct loop_timer *timer;   /* owned */
    int64_t since_ms;           /* CLOCK_BOOTTIME of the first failure; 0 = none */
    uint64_t delay_ms;
};

/* `again` runs when the call should be made again. */
void node_retry_init(struct node_retry *r, struct loop *l, loop_timer_cb again, void *ctx);
void node_retry_done(struct node_retry *r);
void node_retry_progress(struct node_retry *r);
/* After a failure: true if `again` will be called, false if the error is for good. */
bool node_retry_schedule(struct node_retry *r, const struct err *e);

#endif
