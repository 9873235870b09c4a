/*
 * landlock.c - the files a configured monitor can still open
 *
 * Its run directory, its sandbox's groups and terminals. The uid alone would leave it all that everybody
 * may read on the host.
 */
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "monitor/monitor.h"
#include "sys/fd.h"

#define READ LANDLOCK_ACCESS_FS_READ_FILE
#define WRITE LANDLOCK_ACCESS_FS_WRITE_FILE

/* Everything of the first version, which Linux 5.13 brought. */
#define HANDLED                                                                              \
    (LANDLOCK_ACCESS_FS_EXECUTE | WRITE | READ | LANDLOCK_ACCESS_FS_READ_DIR |               \
     LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                        \
     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |                           \
     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)

static bool allow(int ruleset, int dir, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = dir};

    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
}

void landlock_install(void)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = HANDLED};
    auto_close int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);

    if (ruleset < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return;
    /* A rule that cannot be made would take away what the monitor needs: rather none than half of them. */
    if (allow(ruleset, mon.run_dir,
              READ | WRITE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE) &&
        allow(ruleset, MON_FD_CGROUP,
              READ | WRITE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                  LANDLOCK_ACCESS_FS_REMOVE_DIR) &&
        allow(ruleset, MON_FD_MEMORY, READ) && allow(ruleset, MON_FD_CPU, READ) &&
        allow(ruleset, MON_FD_PIDS, READ) && allow(ruleset, MON_FD_DEVPTS, READ | WRITE))
        (void)syscall(SYS_landlock_restrict_self, ruleset, 0);
}
