/*
 * recover.c - what an earlier keeper left
 *
 * A live monitor is adopted: it runs on and never notices. A create that was not finished is destroyed:
 * nobody was told that it worked. A sandbox whose monitor is gone keeps its traces until destroy. Control
 * groups that belong to none of them are of slots nobody used.
 */
#include "keeper/recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/ids.h"
#include "base/log.h"
#include "keeper/keeper.h"
#include "keeper/ledger.h"
#include "keeper/sandbox.h"
#include "keeper/sweep.h"
#include "sys/fd.h"
#include "sys/process.h"

/* Calls `found` for every name in the directory that has the form of a sandbox id. */
static int each_id(int at, void (*found)(const char *id))
{
    int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *de;

    if (dir == NULL)
        return -errno;
    while ((de = readdir(dir)) != NULL)
        if (id_is(de->d_name, "sb-"))
            found(de->d_name);
    (void)closedir(dir);
    return 0;
}

/* A descriptor of the monitor if that very process still lives, else -1. */
static int find_monitor(const struct ledger_entry *l)
{
    uint64_t start;

    if (strcmp(l->boot_id, keeper.boot_id) != 0)
        return -1;
    auto_close int fd = process_pidfd(l->monitor_pid);
    /* The descriptor first: then the start time is that of the process it stands for. */
    if (fd < 0 || process_start_time(l->monitor_pid, &start) < 0 || start != l->monitor_start)
        return -1;
    return take_fd(&fd);
}

static void adopt(const char *id)
{
    struct ledger_entry l = {0};
    int r = ledger_read(keeper.ledger_fd, id, &l);

    if (r < 0) {
        /* Cut short while it was written: nothing was made yet that the sweep does not find. */
        log_warn("recover", "id=%s has an unreadable entry (errno=%d) and is removed", id, -r);
        memcpy(l.sandbox, id, strlen(id) + 1);
        sandbox_adopt(&l, -1, true);
        return;
    }
    int pidfd = find_monitor(&l);
    bool half_made = l.state == LEDGER_CREATING;
    log_info("recover", "id=%s %s", id,
             half_made    ? "was being created and is removed"
             : pidfd >= 0 ? "lives"
                          : "has ended");
    sandbox_adopt(&l, pidfd, half_made);
}

static void orphan(const char *id)
{
    struct ledger_entry l = {0};

    if (sandbox_is_known(id))
        return;
    log_warn("recover", "id=%s has traces but no entry and is removed", id);
    memcpy(l.sandbox, id, strlen(id) + 1);
    sandbox_adopt(&l, -1, true);
}

static void group_found(uint32_t slot)
{
    if (!sandbox_holds_slot(slot))
        sweep_add(slot);
}

int recover_groups(void)
{
    return cg_scan(&keeper.cg, group_found);
}

int recover(struct err *e)
{
    int r = each_id(keeper.ledger_fd, adopt);

    if (r == 0)
        r = each_id(keeper.runs_fd, orphan);
    if (r == 0)
        r = each_id(keeper.sandboxes_fd, orphan);
    if (r == 0)
        r = recover_groups();
    return r < 0 ? err_sys(e, -r, "read what an earlier start left") : 0;
}
