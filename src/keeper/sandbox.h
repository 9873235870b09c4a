/*
 * sandbox.h - the life of a sandbox as the keeper sees it
 *
 * waiting -> configuring -> live -> ended -> leaving -> gone. A create that fails goes to leaving from
 * wherever it was; destroy goes there from anywhere. Ended: the monitor is gone, the tree, the run
 * directory and the ledger entry stay until destroy.
 */
#ifndef QS_KEEPER_SANDBOX_H
#define QS_KEEPER_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ipc/keeper_proto.h"
#include "keeper/ledger.h"
#include "keeper/request.h"

void sandbox_init(void);

/* Each answers `to` exactly once, now or later. */
void sandbox_create(const struct keeper_create *m, struct reply_to to);
void sandbox_destroy(const char *id, struct reply_to to);

/* *ret_cpus: where it runs from now on. */
int sandbox_set_limits(const struct keeper_limits *m, uint8_t ret_cpus[KEEPER_CPUS], struct err *e);
/* What an ended one wrote, as a mount that shows it to the image role and can change nothing. */
int sandbox_tree(const char *id, int *ret_fd, struct err *e);
bool sandbox_uses_layer(const char *layer);
bool sandbox_is_known(const char *id);
bool sandbox_uses_slot(
    uint32_t slot); /* also of one that has ended: its files have the slot's ids */
bool sandbox_holds_slot(uint32_t slot); /* its monitor lives */
uint32_t sandbox_waiting(void);         /* creates that wait for a slot */
uint32_t sandbox_count(void);           /* with any trace */
uint32_t sandbox_alive(void);           /* waiting, configuring or live */
/* Count and ids, encoded; returns the length, 0 if it does not fit. */
size_t sandbox_list(void *out, size_t size);

/* From the pool. */
void sandbox_slot_ready(void);
void sandbox_slot_failed(const char *why);
/* From sweep.c: the groups of some slot are gone. */
void sandbox_swept(void);
/* Removes the traces of one sandbox; returns whether another could be done now. */
bool sandbox_step(void);

/*
 * From recover.c. Takes the entry's memory. With a pidfd (>= 0, taken) the monitor lives; `destroy` sends it
 * on its way out at once.
 */
void sandbox_adopt(struct ledger_entry *l, int pidfd, bool destroy);

#endif
