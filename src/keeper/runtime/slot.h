/*
 * slot.h - building a slot: what can be made before anybody asks for a sandbox
 *
 * Runs in a child of the spawner, which becomes the slot's monitor. The keeper's end of the channel
 * hears SLOT_READY or SLOT_FAILED first and speaks to the monitor afterwards.
 */
#ifndef QS_KEEPER_RUNTIME_SLOT_H
#define QS_KEEPER_RUNTIME_SLOT_H

#include <stdint.h>

void slot_build(uint32_t slot, int channel) __attribute__((noreturn));

#endif
