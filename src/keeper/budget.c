/*
 * budget.c - the memory that sandboxes have set aside for them
 *
 * Called by sandbox.c. What all have together stays below a part of the host's memory, and is what our
 * directory of control groups is protected for.
 */
#include "keeper/budget.h"

#include <inttypes.h>

#include "keeper/keeper.h"

static uint64_t total;

int budget_check(uint64_t more, struct err *e)
{
    uint64_t most = keeper.memory_bytes / 100 * keeper.conf.memory_request_percent;

    if (more <= most && total <= most - more)
        return 0;
    return err_param(e, ERR_CAPACITY, "memory_request_mb",
                     "of the %" PRIu64 " MiB that sandboxes of this node may have set aside for them %" PRIu64
                     " MiB are taken; %" PRIu64 " MiB more are asked for",
                     most >> 20, total >> 20, more >> 20);
}

void budget_set(uint64_t *held, uint64_t bytes)
{
    if (*held == bytes)
        return;
    total += bytes - *held;
    *held = bytes;
    cg_request_total(&keeper.cg, total);
}
