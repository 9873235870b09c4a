/*
 * sweep.c - control groups that are to be emptied and removed, in idle moments
 */
#include "keeper/sweep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keeper/keeper.h"
#include "keeper/objects.h"
#include "keeper/sandbox.h"

#define RETRY_FIRST_MS 2
#define RETRY_MAX_MS 1000
#define COMPLAIN_AT 16 /* tries: by then it has been half a minute */

struct item {
    uint32_t slot;
    uint32_t tries;
    int64_t not_before_ms;
    struct item *next;
};

static struct item *first, **last = &first;

static void again(struct timer *t)
{
    (void)t;
    evloop_want_idle(&keeper.loop);
}

static struct timer timer = {.due = again};

bool sweep_has(uint32_t slot)
{
    for (const struct item *i = first; i != NULL; i = i->next)
        if (i->slot == slot)
            return true;
    return false;
}

static void append(struct item *i)
{
    i->next = NULL;
    *last = i;
    last = &i->next;
}

void sweep_add(uint32_t slot)
{
    if (slot == 0 || sweep_has(slot))
        return;
    struct item *i = mem_zalloc(sizeof *i);
    i->slot = slot;
    append(i);
    /* Killed at once: what belongs to nobody must not go on running while it waits for its turn. */
    int r = cg_kill(&keeper.cg, slot);
    if (r < 0)
        log_error("sweep", "slot=%" PRIu32 " cannot be killed: errno=%d", slot, -r);
    evloop_want_idle(&keeper.loop);
}

bool sweep_is_empty(void)
{
    return first == NULL;
}

static void postpone(struct item *i, int r)
{
    int64_t delay_ms = RETRY_FIRST_MS;

    for (uint32_t n = 0; n < i->tries && delay_ms < RETRY_MAX_MS; n++)
        delay_ms *= 2;
    if (delay_ms > RETRY_MAX_MS)
        delay_ms = RETRY_MAX_MS;
    i->not_before_ms = clock_boot_ms() + delay_ms;
    if (++i->tries == COMPLAIN_AT)
        log_error("sweep", "slot=%" PRIu32 " control group cannot be removed: errno=%d", i->slot,
                  -r);
    /* A process may have been born beside the first kill: once more. */
    (void)cg_kill(&keeper.cg, i->slot);
    append(i);
}

static void arm_timer(void)
{
    int64_t least = INT64_MAX, now = clock_boot_ms();

    for (const struct item *i = first; i != NULL; i = i->next)
        if (i->not_before_ms < least)
            least = i->not_before_ms;
    if (first != NULL)
        evloop_timer(&keeper.loop, &timer, least - now);
}

bool sweep_step(void)
{
    int64_t now = clock_boot_ms();

    for (struct item **at = &first; *at != NULL; at = &(*at)->next) {
        struct item *i = *at;
        if (i->not_before_ms > now)
            continue;
        *at = i->next;
        if (*at == NULL)
            last = at;
        int r = cg_remove(&keeper.cg, i->slot);
        if (r < 0) {
            postpone(i, r);
        } else {
            objects_forget(i->slot);
            free(i);
            sandbox_swept();
        }
        return true;
    }
    arm_timer();
    return false;
}
