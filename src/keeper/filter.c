/*
 * filter.c - the keeper's own syscall filter, and the spawner's
 *
 * The keeper's is installed once the spawner runs: the keeper then makes no process and executes nothing. What is not
 * listed fails with EPERM, so a forgotten call shows as an error in the log and not as a dead keeper.
 */
#include "keeper/filter.h"

#include <errno.h>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <stddef.h>
#include <sys/prctl.h>

#include "base/mem.h"
#include "sys/seccomp_filter.h"

static const char *const allowed[] = {
    /* the event loop and its clock */
    "epoll_wait", "epoll_pwait", "epoll_ctl", "poll", "ppoll", "clock_gettime", "gettimeofday",
    "restart_syscall", "rt_sigreturn", "rt_sigprocmask", "rt_sigaction",
    /* messages: accept, read and write them, hand over descriptors, see who is there */
    "accept4", "recvmsg", "sendmsg", "sendto", "socketpair", "getsockopt", "memfd_create",
    "ftruncate", "fcntl",
    /* files below our directories and the control groups */
    "read", "write", "writev", "pread64", "pwrite64", "openat", "close", "close_range", "lseek",
    "fstat", "newfstatat", "statx", "fstatfs", "statfs", "getdents64", "mkdirat", "unlinkat",
    "renameat", "renameat2", "fchown", "fchownat", "fchmod", "fchmodat", "faccessat", "faccessat2",
    "fsync", "fallocate", "dup", "dup2", "umask",
    /* mounts of sandboxes, and ours at a clean stop */
    "open_tree", "mount_setattr", "umount2",
    /* monitors and roles: tell whether they live, end them */
    "pidfd_open", "pidfd_send_signal", "kill", "getpid", "gettid", "tgkill",
    /* memory and randomness of libc */
    "brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "getrandom", "futex",
    "exit", "exit_group",
    /* the run time of the sanitizers, which tests build with; harmless */
    "sigaltstack", "sched_yield", "readlink",
};

/* ioctl is a door to every driver: subvolumes, and the growth of the file system they are in. */
static const unsigned long ioctls[] = {
    BTRFS_IOC_SUBVOL_CREATE, BTRFS_IOC_SNAP_CREATE_V2, BTRFS_IOC_SNAP_DESTROY,
    BTRFS_IOC_QUOTA_CTL,     BTRFS_IOC_QGROUP_LIMIT,   BTRFS_IOC_RESIZE,
    BTRFS_IOC_START_SYNC,    LOOP_SET_CAPACITY,
};

int filter_keeper_load(struct err *e)
{
    struct seccomp_filter *f = seccomp_filter_new(SECCOMP_ARCH_HERE, EPERM);
    int r = f == NULL ? -ENOMEM : 0;

    for (size_t i = 0; r == 0 && i < array_len(allowed); i++)
        r = seccomp_filter_add(f, 0, allowed[i]);
    for (size_t i = 0; r == 0 && i < array_len(ioctls); i++)
        r = seccomp_filter_add_if(f, 0, "ioctl", 1, SECCOMP_EQ, ioctls[i]);
    /* Names of mappings, for the same; every other prctl is refused. */
    if (r == 0)
        r = seccomp_filter_add_if(f, 0, "prctl", 0, SECCOMP_EQ, PR_SET_VMA);
    if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        r = -errno;
    if (r == 0)
        r = seccomp_filter_load(f);
    seccomp_filter_free(f);
    return r < 0 ? err_sys(e, -r, "install the keeper's filter") : 0;
}

/*
 * The spawner's is a list of what is refused, because everything in every sandbox inherits it and the kernel's list of calls that
 * programs may need is the tenants' own. What is here is refused to tenants and roles as well; it costs them nothing,
 * because the kernel remembers which calls all filters let through.
 */
static const char *const refused[] = {
    /* another kernel, more kernel, programs in the kernel */
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "create_module", "delete_module", "bpf", "reboot",
    /* looking into it: tracing, its log, its memory */
    "perf_event_open", "lookup_dcookie", "syslog", "userfaultfd",
    /* its keys */
    "keyctl", "add_key", "request_key",
    /* hardware */
    "iopl", "ioperm", "pciconfig_iobase", "pciconfig_read", "pciconfig_write",
    /* the machine's clock, swap, accounting, quotas, console */
    "settimeofday", "stime", "clock_settime", "clock_adjtime", "adjtimex", "swapon", "swapoff", "acct",
    "quotactl", "quotactl_fd", "vhangup", "nfsservctl",
    /* files by number, past every directory above them */
    "open_by_handle_at",
    /* work of the kernel's own that no filter sees */
    "io_uring_setup", "io_uring_enter", "io_uring_register",
    /* calls of another age */
    "uselib", "_sysctl", "sysfs", "ustat", "get_kernel_syms", "query_module",
};

int filter_spawner_load(struct err *e)
{
    struct seccomp_filter *f = seccomp_filter_new(SECCOMP_ARCH_HERE, 0);
    int r = f == NULL ? -ENOMEM : 0;

    for (size_t i = 0; r == 0 && i < array_len(refused); i++)
        r = seccomp_filter_add(f, EPERM, refused[i]);
    /* With CAP_SYS_ADMIN it asks for no no_new_privs, which setuid programs of sandboxes would inherit. */
    if (r == 0)
        r = seccomp_filter_load(f);
    seccomp_filter_free(f);
    return r < 0 ? err_sys(e, -r, "install the spawner's filter") : 0;
}
