/*
 * spawner.h - the process that makes every other process
 *
 * A root child of the keeper, forked before the keeper installs its filter. It obeys fixed messages of
 * the keeper alone; monitors, inits and roles are made by it, so that the keeper's filter is not theirs
 * and the keeper itself can neither fork nor execute. When the keeper ends, it ends, and the roles with it.
 */
#ifndef QS_KEEPER_SPAWNER_H
#define QS_KEEPER_SPAWNER_H

#include <stdint.h>

#include "base/err.h"

enum spawn_type {
    SPAWN_SLOT = 1, /* struct spawn_ask, the slot's end of its channel; answered STARTED + pidfd */
    SPAWN_ROLE,     /* struct spawn_ask; answered STARTED, of the image role with its user namespace */
    SPAWN_EMPTY_TRASH, /* remove what is in layers/.trash; no answer */
    SPAWN_STARTED,     /* struct spawn_started */
    SPAWN_EXITED,      /* struct spawn_exited, of every child that ends */
};

/* What a builder says on the slot's channel before it becomes the monitor. */
enum slot_type {
    SLOT_READY = 200, /* struct slot_ready + the user namespace */
    SLOT_FAILED,      /* text */
};

/* These travel between processes of one program, so their form in memory will do. */
struct spawn_ask {
    uint32_t number; /* slot number, or enum role */
};

struct spawn_started {
    uint32_t type; /* SPAWN_SLOT or SPAWN_ROLE */
    uint32_t number;
    int32_t pid;
    int32_t error; /* errno of a failed fork, 0 */
};

struct spawn_exited {
    int32_t pid;
    int32_t status; /* as from waitpid */
};

struct slot_ready {
    int32_t pid;
    uint64_t start_time;
    bool network; /* the kernel could do what a network takes */
};

/* Forks the spawner. It answers through pool.c and roles.c. */
int spawner_start(struct err *e);
int spawner_watch(struct err *e); /* in the event loop, from when on answers are taken */
void spawner_stop(void);          /* and wait for its end, a short time */

/* 0 or -errno; `slot_end` is passed on and stays the caller's. */
int spawner_build_slot(uint32_t slot, int slot_end);
int spawner_start_role(uint32_t role);
int spawner_empty_trash(void);

#endif
