/*
 * sweep.h - control groups that are to be emptied and removed, in idle moments
 *
 * The groups of ended sandboxes, of slots that failed, and those found at start that belong to nobody.
 */
#ifndef QS_KEEPER_SWEEP_H
#define QS_KEEPER_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

void sweep_add(uint32_t slot); /* again is harmless */
bool sweep_has(uint32_t slot);
bool sweep_is_empty(void);
bool sweep_step(void); /* tries one; returns whether another could be tried now */

#endif
