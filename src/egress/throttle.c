/*
 * throttle.c - how many bytes a second a sandbox may send, and receive
 */
#include "egress/throttle.h"

#include "base/clock.h"
#include "egress/egress.h"

#define BURST_MS 250
#define BURST_MIN (16 * 1024)
#define SHARE_MIN 4096          /* what one that waited reads at least, if it is there */
#define WAIT_MIN_MS 2
#define WAIT_MAX_MS 1000

static double burst(const struct throttle *t)
{
    double n = (double)t->rate * BURST_MS / 1000;

    return n > BURST_MIN ? n : BURST_MIN;
}

static void refill(struct throttle *t)
{
    int64_t now = clock_boot_ms();

    t->tokens += (double)(now - t->at_ms) * (double)t->rate / 1000;
    if (t->tokens > burst(t))
        t->tokens = burst(t);
    t->at_ms = now;
}

/* Not for single bytes: until there is a share for somebody. */
static void rest(struct throttle *t)
{
    double ms = (SHARE_MIN - t->tokens) * 1000 / (double)t->rate;

    loop_timer_set(t->timer, ms < WAIT_MIN_MS ? WAIT_MIN_MS : ms > WAIT_MAX_MS ? WAIT_MAX_MS : (uint64_t)ms + 1);
}

static void leave(struct throttle *t, struct flow *f)
{
    struct way *w = t->way(f);

    *(w->wait_prev != NULL ? &t->way(w->wait_prev)->wait_next : &t->first) = w->wait_next;
    *(w->wait_next != NULL ? &t->way(w->wait_next)->wait_prev : &t->last) = w->wait_prev;
    w->wait_prev = w->wait_next = NULL;
    w->waits = false;
    t->waiting--;
}

/* Who has read a share and has more waits again, behind all others. */
static void on_tokens(void *arg)
{
    struct throttle *t = arg;

    if (t->rate > 0)
        refill(t);
    for (uint32_t n = t->waiting; n > 0 && t->first != NULL && (t->rate == 0 || t->tokens > 0); n--) {
        struct flow *f = t->first;
        leave(t, f);
        t->turn = f;
        t->go_on(f);
        t->turn = NULL;
    }
    if (t->first != NULL && t->rate > 0)
        rest(t);
}

static void wait_for_turn(struct throttle *t, struct flow *f)
{
    struct way *w = t->way(f);

    if (w->waits)
        return;
    w->waits = true;
    w->wait_prev = t->last;
    *(t->last != NULL ? &t->way(t->last)->wait_next : &t->first) = f;
    t->last = f;
    if (t->waiting++ > 0)
        return;
    if (t->timer == NULL)
        t->timer = loop_timer_new(t->loop, on_tokens, t);
    rest(t);
}

size_t throttle_room(struct throttle *t, struct flow *f, size_t want)
{
    if (t->rate == 0)
        return want;
    refill(t);
    if (t->tokens <= 0 || (t->first != NULL && t->turn != f)) {
        wait_for_turn(t, f);
        return 0;
    }
    double share = t->tokens / (t->waiting + 1);
    if (share < SHARE_MIN)
        share = SHARE_MIN;
    return (double)want < share ? want : (size_t)share;
}

bool throttle_takes(struct throttle *t, size_t n)
{
    if (t->rate == 0)
        return true;
    refill(t);
    if (t->tokens < -burst(t))
        return false;
    throttle_use(t, n);
    return true;
}

void throttle_use(struct throttle *t, size_t n)
{
    if (t->rate > 0)
        t->tokens -= (double)n;
}

void throttle_leave(struct throttle *t, struct flow *f)
{
    if (t->way != NULL && t->way(f)->waits)
        leave(t, f);
    if (t->turn == f)
        t->turn = NULL;
}

void throttle_set(struct throttle *t, uint64_t bits_s)
{
    uint64_t rate = bits_s / 8;

    if (rate == t->rate)
        return;
    if (t->rate == 0) {
        t->rate = rate;
        t->tokens = burst(t);
        t->at_ms = clock_boot_ms();
    } else {
        refill(t);
        t->rate = rate;
        /* What was owed is owed at the new rate, but nobody pays for hours. */
        if (rate > 0 && t->tokens < -burst(t))
            t->tokens = -burst(t);
    }
    if (t->first != NULL)
        loop_timer_set(t->timer, 0);
}

void throttle_done(struct throttle *t)
{
    loop_timer_free(t->timer);
    t->timer = NULL;
}
