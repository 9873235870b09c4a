/*
 * cpus.h - which processors a sandbox runs on
 *
 * A sandbox with a quota of n processors runs on n (rounded up) of the host's, so that every program that
 * counts processors, in whatever way, counts what it has. Which ones: those on which the fewest run already.
 * One whose quota is the host or more runs anywhere.
 */
#ifndef QS_KEEPER_CPUS_H
#define QS_KEEPER_CPUS_H

#include <stdint.h>

#include "ipc/keeper_proto.h"

/* What was chosen: `count` of ours from number `first` on; 0 = anywhere. */
struct cpu_part {
    uint16_t first, count;
};

void cpus_init(void);
/* Gives back what *part holds and takes what the quota needs. */
void cpus_take(struct cpu_part *part, uint32_t cpu_milli);
void cpus_release(struct cpu_part *part);
/* As KEEPER_CONFIGURE says it: nothing set = anywhere. */
void cpus_set(const struct cpu_part *part, uint8_t ret[KEEPER_CPUS]);

#endif
