/*
 * tenant_filter.c - the syscall filter of sandboxes, compiled once at start
 *
 * Init installs it after it has entered the sandbox's root and before any tenant code. An allow-list:
 * calls it does not know answer ENOSYS, so libc and programs fall back as on an older kernel. Calls that
 * programs expect to exist but not to be permitted answer EPERM.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "keeper/filter.h"
#include "sys/seccomp_filter.h"

/* Not in every libc's header. */
#define PROTOCOL_L2TP 115
#define PROTOCOL_SMC 256
#define PROTOCOL_MPTCP 262

static const char *const allowed[] = {
    /* files */
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
    "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat",
    "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock",
    "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat", "getcwd",
    "getdents", "getdents64", "getxattr", "getxattrat", "inotify_add_watch", "inotify_init",
    "inotify_init1", "inotify_rm_watch", "fanotify_init", "fanotify_mark", "ioctl", "lchown", "lgetxattr",
    "link", "linkat", "listxattr", "listxattrat", "llistxattr", "lremovexattr", "lseek", "lsetxattr",
    "lstat", "mkdir", "mkdirat", "mknod", "mknodat", "name_to_handle_at", "newfstatat", "open", "openat",
    "openat2", "pipe", "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read",
    "readahead", "readlink", "readlinkat", "readv", "removexattr", "removexattrat", "rename", "renameat",
    "renameat2", "rmdir", "sendfile", "setxattr", "setxattrat", "splice", "stat", "statfs", "statx",
    "symlink", "symlinkat", "sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink",
    "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev", "chroot", "cachestat",
    "memfd_create", "listmount", "statmount",
    /* memory */
    "brk", "get_mempolicy", "madvise", "map_shadow_stack", "mbind", "membarrier", "mincore", "mlock",
    "mlock2", "mlockall", "mmap", "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall", "munmap",
    "pkey_alloc", "pkey_free", "pkey_mprotect", "process_madvise", "process_mrelease", "remap_file_pages",
    "set_mempolicy", "set_mempolicy_home_node",
    /* processes and threads; clone is below */
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "futex",
    "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "get_thread_area",
    "getcpu", "getegid", "geteuid", "getgid", "getgroups", "getitimer", "getpgid", "getpgrp", "getpid",
    "getppid", "getpriority", "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid",
    "getuid", "ioprio_get", "ioprio_set", "kcmp", "kill", "landlock_add_rule", "landlock_create_ruleset",
    "landlock_restrict_self", "pause", "pidfd_getfd", "pidfd_open", "pidfd_send_signal", "prctl",
    "prlimit64", "process_vm_readv", "process_vm_writev", "ptrace", "restart_syscall", "rseq",
    "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
    "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list", "set_thread_area",
    "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setitimer", "setpgid",
    "setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setuid",
    "sigaltstack", "signalfd", "signalfd4", "tgkill", "time", "times", "tkill", "vfork", "wait4",
    "waitid",
    /* waiting, clocks, System V and POSIX communication */
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create", "epoll_create1",
    "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old",
    "eventfd", "eventfd2", "gettimeofday", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents",
    "io_setup", "io_submit", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive",
    "mq_timedsend", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "nanosleep", "poll", "ppoll",
    "pselect6", "select", "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt",
    "shmget", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime",
    "timerfd_create", "timerfd_gettime", "timerfd_settime",
    /* sockets; socket and socketpair are below */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
    /* the machine, read; the host and domain name are the sandbox's own */
    "getrandom", "sysinfo", "uname", "sethostname", "setdomainname",
};

static const char *const denied[] = {
    /* mounts: the sandbox's tree is laid once */
    "mount", "umount2", "pivot_root", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr",
    /* other namespaces */
    "setns",
    /* the kernel itself: programs, modules, tracing, keys, direct hardware */
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "create_module", "delete_module",
    "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "iopl", "ioperm",
    "lookup_dcookie", "syslog",
    /* a large surface with a history of holes; libraries fall back to epoll */
    "io_uring_setup", "io_uring_enter", "io_uring_register",
    /* reaches any file of a file system by number */
    "open_by_handle_at",
    /* the machine, changed */
    "acct", "reboot", "swapon", "swapoff", "quotactl", "quotactl_fd", "settimeofday", "stime",
    "clock_settime", "clock_adjtime", "adjtimex", "vhangup", "move_pages", "migrate_pages",
};

/* With nested user namespaces: the kernel asks for a capability in the namespace at hand for each of these, and has taken
 * them out of the bounding set of the sandbox's own. */
static const char *const nested[] = {
    "mount", "umount2", "pivot_root", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "setns",
};

/* CLONE_NEWTIME shares its bit with the exit signal in clone(), where it has no meaning. */
#define NEW_NAMESPACES                                                                      \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |         \
     CLONE_NEWPID | CLONE_NEWNET)
#define NEWTIME 0x80

/*
 * The flags of clone3 are in memory, where no filter can read them. Init needs it to start a command in its control group
 * without a stall, and it opens nothing: the kernel allows no further user namespace in there, other namespaces need a
 * capability that is out of the bounding set, and there is no control group to name.
 */
static int add_clone(struct seccomp_filter *f, bool nest)
{
    int r = 0;

    if (!nest)
        r = seccomp_filter_add_if(f, EPERM, "clone", 0, SECCOMP_ANY, NEW_NAMESPACES);
    if (r == 0 && !nest)
        r = seccomp_filter_add_if(f, EPERM, "unshare", 0, SECCOMP_ANY, NEW_NAMESPACES | NEWTIME);
    if (r == 0)
        r = seccomp_filter_add(f, 0, "clone");
    if (r == 0)
        r = seccomp_filter_add(f, 0, "unshare");
    return r == 0 ? seccomp_filter_add(f, 0, "clone3") : r;
}

/*
 * Four address families; a number with other bits in its upper half equals none of them. Of the kernel's own protocols those for
 * interfaces, routes and sockets. The rest are doors to large parts of it, and one tells of the host: its device events go
 * to every network namespace that belongs to the host's root, which sandboxes' do. Of the internet's, not those that hardly
 * anybody needs and that have had holes.
 */
static int add_sockets(struct seccomp_filter *f, const char *call, bool nest)
{
    static const uint32_t kernel[] = {NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_NETFILTER, NETLINK_XFRM, NETLINK_GENERIC};
    static const int refused[] = {IPPROTO_DCCP, PROTOCOL_L2TP, IPPROTO_SCTP, PROTOCOL_SMC, PROTOCOL_MPTCP};
    static const int families[] = {AF_INET, AF_INET6};
    size_t nkernel = nest ? array_len(kernel) : 2;
    int r = seccomp_filter_add_if(f, 0, call, 0, SECCOMP_EQ, AF_UNIX);

    if (r == 0)
        r = seccomp_filter_add_if(f, EAFNOSUPPORT, call, 0, SECCOMP_ANY, ~(uint64_t)UINT32_MAX);
    for (size_t i = 0; r == 0 && i < nkernel; i++)
        r = seccomp_filter_add_if_both(f, 0, call, 0, AF_NETLINK, 2, kernel[i]);
    if (r == 0)
        r = seccomp_filter_add_if(f, EPROTONOSUPPORT, call, 0, SECCOMP_INT, AF_NETLINK);
    for (size_t i = 0; r == 0 && i < array_len(refused); i++)
        r = seccomp_filter_add_if(f, EPROTONOSUPPORT, call, 2, SECCOMP_INT, (uint64_t)refused[i]);
    for (size_t i = 0; r == 0 && i < array_len(families); i++)
        r = seccomp_filter_add_if(f, 0, call, 0, SECCOMP_EQ, (uint64_t)families[i]);
    return r == 0 ? seccomp_filter_add(f, EAFNOSUPPORT, call) : r;
}

/*
 * Typing into a terminal: what runs as one user inside would give commands to the shell of another that reads there next. Line
 * disciplines: naming one loads it into the kernel, and the rare ones have had holes.
 */
static int add_terminals(struct seccomp_filter *f)
{
    static const uint64_t refused[] = {TIOCSTI, TIOCLINUX, TIOCSETD};
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_len(refused); i++)
        r = seccomp_filter_add_if(f, EPERM, "ioctl", 1, SECCOMP_INT, refused[i]);
    return r;
}

/* What debuggers and 32-bit-minded programs set; 0xffffffff only asks. */
static int add_personality(struct seccomp_filter *f)
{
    static const uint64_t values[] = {PER_LINUX, PER_LINUX32, ADDR_NO_RANDOMIZE, UNAME26,
                                      PER_LINUX32 | UNAME26, 0xffffffff};
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_len(values); i++)
        r = seccomp_filter_add_if(f, 0, "personality", 0, SECCOMP_EQ, values[i]);
    return r;
}

static int add_list(struct seccomp_filter *f, int error, const char *const *names, size_t n)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++)
        r = seccomp_filter_add(f, error, names[i]);
    return r;
}

int filter_tenant_rules(struct seccomp_filter *f, bool nest)
{
    int r = add_list(f, 0, allowed, array_len(allowed));

    if (r == 0)
        r = add_list(f, EPERM, denied, array_len(denied));
    if (r == 0 && nest)
        r = add_list(f, 0, nested, array_len(nested));
    if (r == 0)
        r = add_clone(f, nest);
    if (r == 0)
        r = add_sockets(f, "socket", nest);
    if (r == 0)
        r = add_sockets(f, "socketpair", nest);
    if (r == 0)
        r = add_terminals(f);
    /* It would write back every file system of the host, as often as a sandbox likes. The sandbox's own promises nothing to
     * outlive the machine, so there is nothing for it to do. */
    if (r == 0)
        r = seccomp_filter_add(f, SECCOMP_LEFT_OUT, "sync");
    return r == 0 ? add_personality(f) : r;
}

int filter_tenant_compile(bool nest, int *ret_memfd, struct err *e)
{
    struct seccomp_filter *f = seccomp_filter_new(SECCOMP_ARCH_HERE, ENOSYS);
    int r = f == NULL ? -ENOMEM : filter_tenant_rules(f, nest);

    if (r == 0)
        r = seccomp_filter_export(f);
    seccomp_filter_free(f);
    if (r < 0)
        return err_sys(e, -r, "compile the filter of sandboxes");
    *ret_memfd = r;
    return 0;
}
