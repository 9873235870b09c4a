/*
 * proc.c - the procfs of a slot: mounted, masked, and with nested user namespaces turned off
 *
 * Most of what is masked is refused already, because it belongs to the host's root; the masks are there
 * for the kernel that forgets.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/init.h"
#include "init/kernel.h"
#include "sys/fd.h"

/*
 * What tells of the host or of other sandboxes: addresses and keys of the kernel, its command line, its disks,
 * drivers, interrupts and memory zones, the pressure that others cause.
 */
static const char *const masked_files[] = {
    "proc/bootconfig", "proc/buddyinfo", "proc/cmdline", "proc/config.gz", "proc/consoles", "proc/diskstats",
    "proc/dma", "proc/interrupts", "proc/iomem", "proc/ioports", "proc/kallsyms", "proc/kcore",
    "proc/key-users", "proc/keys", "proc/kmsg", "proc/kpagecgroup", "proc/kpagecount", "proc/kpageflags",
    "proc/latency_stats", "proc/mdstat", "proc/modules", "proc/mtrr", "proc/pagetypeinfo", "proc/partitions",
    "proc/sched_debug", "proc/schedstat", "proc/slabinfo", "proc/softirqs", "proc/sysrq-trigger",
    "proc/timer_list", "proc/timer_stats", "proc/vmallocinfo", "proc/vmcore", "proc/zoneinfo",
};
static const char *const masked_dirs[] = {
    "proc/acpi", "proc/asound", "proc/bus", "proc/device-tree", "proc/driver", "proc/dynamic_debug",
    "proc/fs", "proc/irq", "proc/pressure", "proc/scsi",
};
static const char *const read_only[] = {"proc/sys"};

int cover(const char *from, const char *to, struct fault *f)
{
    if (access(to, F_OK) < 0 && errno == ENOENT)
        return 0;
    auto_close int tree = k_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE);
    if (tree < 0 ||
        k_mount_setattr(tree, "", AT_EMPTY_PATH,
                        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                            MOUNT_ATTR_NOEXEC) < 0 ||
        k_move_mount(tree, "", AT_FDCWD, to) < 0)
        return fault_set(f, to);
    return 0;
}

int proc_build(struct init *in, struct fault *f)
{
    if (k_mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return fault_set(f, "proc");

    /* The kernel itself refuses user namespaces below this one. So the filter can let clone3 through,
     * whose flags it cannot see, and which starts commands in their cgroup at once. */
    in->nesting = open("proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
    if (in->nesting < 0 || write(in->nesting, "0", 1) != 1)
        return fault_set(f, "max_user_namespaces");

    auto_close int empty = open("nothing", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (empty < 0)
        return fault_set(f, "staging");
    for (size_t i = 0; i < sizeof masked_files / sizeof masked_files[0]; i++)
        if (cover("nothing", masked_files[i], f) < 0)
            return -1;
    for (size_t i = 0; i < sizeof masked_dirs / sizeof masked_dirs[0]; i++)
        if (cover("empty", masked_dirs[i], f) < 0)
            return -1;
    for (size_t i = 0; i < sizeof read_only / sizeof read_only[0]; i++)
        if (cover(read_only[i], read_only[i], f) < 0)
            return -1;
    /* The id of the boot is the same for all of the host; each sandbox has booted for itself. */
    return identity_file("boot_id", true, f) < 0 ? -1 : cover("boot_id", "proc/sys/kernel/random/boot_id", f);
}
