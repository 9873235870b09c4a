/*
 * configure.h - what a slot's monitor is given to become the monitor of a sandbox
 *
 * Called by sandbox.c. Everything is made here and now and lives below names of the sandbox, so whoever gives up removes it
 * with them.
 */
#ifndef QS_KEEPER_CONFIGURE_H
#define QS_KEEPER_CONFIGURE_H

#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "ipc/keeper_proto.h"
#include "keeper/cpus.h"

/* Descriptors for CONFIGURE, in its order: they are closed once they are sent. */
struct configure_kit {
    int fds[LIMIT_LAYERS + 8];
    int n;
};

/* The run directory, the node's first connection (of which the other end is returned), the tree, the layers, the filter. On
 * failure the kit holds what was made. */
int configure_assemble(struct configure_kit *k, const struct keeper_create *m, uint32_t slot, int userns, int *ret_node_end,
                       struct err *e);
/* Takes processors for the sandbox, too. */
int configure_send(const struct configure_kit *k, const struct keeper_create *m, struct cpu_part *cpus, int chan, struct err *e);
void configure_kit_done(struct configure_kit *k);

#endif
