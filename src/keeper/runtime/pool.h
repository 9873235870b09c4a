/*
 * pool.h - slots that are ready before they are asked for
 *
 * A slot is used once: its id range, namespaces, control group and monitor become those of one sandbox,
 * and end with it.
 */
#ifndef QS_KEEPER_RUNTIME_POOL_H
#define QS_KEEPER_RUNTIME_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "keeper/evloop.h"

struct slot {
    uint32_t number;
    pid_t pid; /* of the monitor */
    uint64_t start_time;
    int pidfd, chan, userns; /* owned */
    struct watch chan_watch, exit_watch;
    bool network; /* it has the sockets that lead to egress */
    bool ready; /* SLOT_READY was heard; it may be used once pidfd is there too */
    struct slot *next;
};

int pool_init(struct err *e);
/* Takes a ready slot out of the pool, unwatched, or returns NULL: then one is being built, and
 * sandbox_slot_ready() or sandbox_slot_failed() follows. */
struct slot *pool_take(void);
void slot_free(struct slot *s); /* closes what it still owns */
/* Starts a build if more slots are wanted; returns whether more builds could be started now. */
bool pool_step(void);
bool pool_has(uint32_t slot);
uint32_t pool_ready(void);
void pool_drop_all(void); /* at the stop: monitors without a sandbox end */

void pool_started(uint32_t slot, int error, int pidfd); /* from the spawner */

#endif
