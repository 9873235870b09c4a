/*
 * node_retry.c - making a streaming call to the node again
 */
#include "api/shared/node_retry.h"

#include "base/clock.h"

#define DELAY_FIRST_MS 20
#define DELAY_MAX_MS 500

void node_retry_init(struct node_retry *r, struct loop *l, loop_timer_cb again, void *ctx)
{
    *r = (struct node_retry){.timer = loop_timer_new(l, again, ctx), .delay_ms = DELAY_FIRST_MS};
}

void node_retry_done(struct node_retry *r)
{
    loop_timer_free(r->timer);
    r->timer = NULL;
}

void node_retry_progress(struct node_retry *r)
{
    r->since_ms = 0;
    r->delay_ms = DELAY_FIRST_MS;
}

bool node_retry_schedule(struct node_retry *r, const struct err *e)
{
    int64_t now = clock_boot_ms();

    if (e->code != ERR_UNAVAILABLE)
        return false;
    if (r->since_ms == 0)
        r->since_ms = now;
    if (now - r->since_ms >= NODE_PATIENCE_MS)
        return false;
    loop_timer_set(r->timer, r->delay_ms);
    r->delay_ms = r->delay_ms * 2 < DELAY_MAX_MS ? r->delay_ms * 2 : DELAY_MAX_MS;
    return true;
}
