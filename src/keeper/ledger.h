/*
 * ledger.h - what the keeper must know of a sandbox after it was killed itself: keeper/<sandbox id>
 *
 * Written before the slot is used and removed as the last trace, so a sandbox that has any trace has an
 * entry. Not synced: after a power cut no sandbox is alive, and the boot id says so.
 */
#ifndef QS_KEEPER_LEDGER_H
#define QS_KEEPER_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/limits.h"

enum ledger_state { LEDGER_CREATING = 1, LEDGER_LIVE };

struct ledger_entry {
    uint8_t state; /* enum ledger_state */
    char sandbox[ID_SIZE];
    char boot_id[40];
    uint32_t slot; /* 0 = none */
    int32_t monitor_pid;
    uint64_t monitor_start; /* with the pid it names the process */
    char delta[ID_SIZE];
    uint32_t nlayers;
    char (*layers)[72]; /* owned */
};

void ledger_entry_done(struct ledger_entry *l);

int ledger_write(int dirfd, const struct ledger_entry *l); /* 0 or -errno */
int ledger_mark_live(int dirfd, const char *sandbox);
int ledger_remove(int dirfd, const char *sandbox); /* 0 also if there is none */
int ledger_read(int dirfd, const char *sandbox, struct ledger_entry *ret);

/* Slot numbers are handed out in blocks, so that a file is written for each block alone. */
int ledger_read_next(int dirfd, uint32_t *ret); /* -ENOENT at the first start */
int ledger_write_next(int dirfd, uint32_t next);

#endif
