/*
 * sys.c - the /sys tree of a slot
 *
 * No sysfs of its own, which would show the host's devices and cost a superblock. The keeper made one small read-only
 * tree for all sandboxes (keeper/objects.c); a few subtrees of the host's sysfs that programs look at are bound
 * into it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "init/init.h"
#include "init/kernel.h"
#include "sys/fd.h"

/* Processors and memory nodes as nproc, lscpu, hwloc and libnuma read them; page sizes for Go, Java and databases. */
static const char *const shown[] = {
    "sys/devices/system/clocksource", "sys/devices/system/cpu",   "sys/devices/system/node",
    "sys/kernel/mm/hugepages",        "sys/kernel/mm/transparent_hugepage",
};

int sys_build(struct fault *f)
{
    if (k_move_mount(INIT_FD_SYS, "", AT_FDCWD, "sys") < 0) {
        auto_close int tree = k_open_tree(INIT_FD_SYS, "", AT_EMPTY_PATH | OPEN_TREE_CLONE);
        if (tree < 0 || k_move_mount(tree, "", AT_FDCWD, "sys") < 0)
            return fault_set(f, "sys");
    }
    (void)close(INIT_FD_SYS);
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        char from[64];

        snprintf(from, sizeof from, "/%s", shown[i]);
        if (access(from, F_OK) == 0 && cover(from, shown[i], f) < 0)
            return -1;
    }
    return 0;
}
