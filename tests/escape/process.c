/*
 * process.c - signals, limits and priorities of processes outside, and more rights for one's own
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "escape.h"

static int kill_host(const struct ctx *c)
{
    return outcome(kill(c->victim, SIGUSR1));
}

static int kill_group_host(const struct ctx *c)
{
    return outcome(kill(-c->victim, SIGUSR1));
}

static int thread_host(const struct ctx *c)
{
    return outcome(syscall(SYS_tgkill, c->victim, c->victim, SIGUSR1));
}

static int queue_host(const struct ctx *c)
{
    union sigval v = {.sival_int = 1};

    return outcome(sigqueue(c->victim, SIGUSR1, v));
}

static int pidfd_host(const struct ctx *c)
{
    int fd = (int)syscall(SYS_pidfd_open, c->victim, 0);

    return fd < 0 ? -errno : outcome(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0));
}

/* To everybody that can be seen; whether anybody outside heard it, the host asks its victims. */
static int kill_all(const struct ctx *c)
{
    (void)kill(-1, SIGURG);
    if (c->ask < 0)
        return SEEN_UNHEARD;
    (void)usleep(50000);
    return victim_ask(c->ask) ? 0 : SEEN_UNHEARD;
}

/* Signals by way of a descriptor's owner. */
static int own_host(const struct ctx *c)
{
    int fds[2];

    if (pipe(fds) < 0)
        return -errno;
    return outcome(fcntl(fds[0], F_SETOWN, c->victim));
}

static int timer_host(const struct ctx *c)
{
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t t;
    long clock = (~(long)c->victim << 3) | 2;       /* its processor time */

    return outcome(syscall(SYS_timer_create, clock, &ev, &t));
}

static int limit_host(const struct ctx *c)
{
    struct rlimit lim = {1, 1};

    return outcome(syscall(SYS_prlimit64, c->victim, RLIMIT_CORE, NULL, &lim));
}

static int nice_host(const struct ctx *c)
{
    return outcome(setpriority(PRIO_PROCESS, (id_t)c->victim, 19));
}

static int affinity_host(const struct ctx *c)
{
    unsigned long mask = 1;

    return outcome(syscall(SYS_sched_setaffinity, c->victim, sizeof mask, &mask));
}

static int scheduler_host(const struct ctx *c)
{
    int priority = 0;

    return outcome(syscall(SYS_sched_setscheduler, c->victim, SCHED_BATCH, &priority));
}

static int ioprio_host(const struct ctx *c)
{
    return outcome(syscall(SYS_ioprio_set, 1, c->victim, 3 << 13));
}

static int robust_host(const struct ctx *c)
{
    void *head;
    size_t size;

    return outcome(syscall(SYS_get_robust_list, c->victim, &head, &size));
}

static int kcmp_host(const struct ctx *c)
{
    return outcome(syscall(SYS_kcmp, getpid(), c->victim, 0, 0, 0));
}

static int session_host(const struct ctx *c)
{
    return outcome(getsid(c->victim));
}

static int advise_host(const struct ctx *c)
{
    char here[8];
    struct {
        void *base;
        size_t len;
    } v = {here, sizeof here};
    int fd = (int)syscall(SYS_pidfd_open, c->victim, 0);

    return fd < 0 ? -errno : outcome(syscall(SYS_process_madvise, fd, &v, 1, 20 /* COLD */, 0)) == -EINVAL ? 0 : outcome(-1);
}

/* --- more rights for oneself ---------------------------------------------------------------------------------------- */

static int real_time(const struct ctx *c)
{
    int priority = 1;

    (void)c;
    return outcome(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &priority));
}

static int less_nice(const struct ctx *c)
{
    (void)c;
    return outcome(setpriority(PRIO_PROCESS, 0, -10));
}

static int real_time_io(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_ioprio_set, 1, 0, 1 << 13));
}

static int more_files(const struct ctx *c)
{
    struct rlimit lim;

    (void)c;
    if (getrlimit(RLIMIT_NPROC, &lim) < 0)
        return -errno;
    if (lim.rlim_max == RLIM_INFINITY)
        lim.rlim_max = lim.rlim_cur = 100000;
    (void)setrlimit(RLIMIT_NPROC, &lim);
    lim.rlim_max += 1000;
    return outcome(setrlimit(RLIMIT_NPROC, &lim));
}

struct cap_header {
    uint32_t version;
    int pid;
};
struct cap_data {
    uint32_t effective, permitted, inheritable;
};

static int raise_caps(const struct ctx *c)
{
    struct cap_header h = {0x20080522, 0};
    struct cap_data d[2];

    (void)c;
    if (syscall(SYS_capget, &h, d) < 0)
        return -errno;
    d[0].effective |= 1u << 21;
    d[0].permitted |= 1u << 21;
    return outcome(syscall(SYS_capset, &h, d));
}

static int inherit_caps(const struct ctx *c)
{
    struct cap_header h = {0x20080522, 0};
    struct cap_data d[2];

    (void)c;
    if (syscall(SYS_capget, &h, d) < 0)
        return -errno;
    d[0].inheritable |= 1u << 21;
    return outcome(syscall(SYS_capset, &h, d));
}

static int ambient(const struct ctx *c)
{
    if (c->is_control && inherit_caps(c) < 0)
        return -ENOTSUP;
    return outcome(prctl(47 /* PR_CAP_AMBIENT */, 2 /* RAISE */, 21, 0, 0));
}

/* A program that carries CAP_SYS_ADMIN as a file capability. */
static int file_cap(const struct ctx *c)
{
    const char *path = scratch_path(c, "capable");
    const uint32_t admin[5] = {0x02000001, 1u << 21, 0, 0, 0};
    int status, r = copy_self(path);

    if (r < 0)
        return r;
    if (setxattr(path, "security.capability", admin, sizeof admin, 0) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl(path, path, "noop", (char *)NULL);
        _exit(errno);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -errno;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

/* An id that the sandbox does not have: one of the host's, or of a neighbour. */
static int foreign_uid(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_setresuid, 1000000, 1000000, 1000000));
}

static int foreign_gid(const struct ctx *c)
{
    gid_t groups[1] = {1000000};

    (void)c;
    return outcome(syscall(SYS_setgroups, 1, groups));
}

static int foreign_owner(const struct ctx *c)
{
    const char *path = scratch_path(c, "owned");

    if (mknod(path, S_IFREG | 0644, 0) < 0)
        return -errno;
    return outcome(chown(path, 1000000, 1000000));
}

/* A setuid program of an id outside. */
static int foreign_credentials(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_setfsuid, 1000000) < 0 ? -1 : 0) == 0 && syscall(SYS_setfsuid, -1) == 1000000 ? 0 : SEEN_IGNORED;
}

static int read_implies_exec(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_personality, 0x0400000));
}

static int memory_map(const struct ctx *c)
{
    (void)c;
    return outcome(prctl(35 /* PR_SET_MM */, 1, 0x1000, 0, 0)) == -EPERM ? -EPERM : 0;
}

const struct attempt process_table[] = {
    {"signal-host", "signal a process of the host", "ESRCH", NULL, kill_host, 0},
    {"signal-host-group", "signal a process group of the host", "ESRCH", NULL, kill_group_host, 0},
    {"signal-host-thread", "signal a thread of the host (tgkill)", "ESRCH", NULL, thread_host, 0},
    {"signal-host-queue", "queue a signal to a process of the host", "ESRCH", NULL, queue_host, 0},
    {"signal-host-pidfd", "signal a process of the host by a pidfd", "ESRCH", NULL, pidfd_host, 0},
    {"signal-everybody", "signal all that can be seen (kill -1)", "unheard", NULL, kill_all, 0},
    {"signal-by-owner", "make a process of the host the owner of a descriptor", "ESRCH", NULL, own_host, 0},
    {"signal-by-timer", "make a timer on a host process's clock", "EINVAL", NULL, timer_host, 0},
    {"process-limit", "change a limit of a process of the host", "ESRCH", NULL, limit_host, 0},
    {"process-nice", "change the priority of a process of the host", "ESRCH", NULL, nice_host, 0},
    {"process-affinity", "move a process of the host to one processor", "ESRCH", NULL, affinity_host, 0},
    {"process-scheduler", "change how a process of the host is scheduled", "ESRCH", NULL, scheduler_host, 0},
    {"process-ioprio", "change the I/O priority of a process of the host", "ESRCH", NULL, ioprio_host, 0},
    {"process-robust-list", "read the robust list of a process of the host", "ESRCH", NULL, robust_host, 0},
    {"process-kcmp", "compare kernel objects with a process of the host", "ESRCH", NULL, kcmp_host, 0},
    {"process-session", "learn the session of a process of the host", "ESRCH", NULL, session_host, 0},
    {"process-madvise", "advise about the memory of a process of the host", "ESRCH", NULL, advise_host, 0},
    {"rights-real-time", "run with real-time priority", "EPERM", NULL, real_time, 0},
    {"rights-priority", "run before everybody else", "EACCES", NULL, less_nice, 0},
    {"rights-real-time-io", "take the disk before everybody else", "EPERM", NULL, real_time_io, 0},
    {"rights-hard-limit", "raise a hard limit", "EPERM", NULL, more_files, NEEDS_SYS_RESOURCE},
    {"rights-capset", "take CAP_SYS_ADMIN", "EPERM", NULL, raise_caps, 0},
    {"rights-inherit", "make CAP_SYS_ADMIN inheritable", "EPERM", NULL, inherit_caps, 0},
    {"rights-ambient", "make CAP_SYS_ADMIN ambient", "EPERM", NULL, ambient, 0},
    {"rights-file-capability", "execute a program with CAP_SYS_ADMIN as its file capability", "EPERM", NULL, file_cap, 0},
    {"rights-foreign-uid", "become a uid outside of one's range", "EINVAL", NULL, foreign_uid, 0},
    {"rights-foreign-gid", "join a group outside of one's range", "EINVAL", NULL, foreign_gid, 0},
    {"rights-foreign-owner", "give a file to an id outside of one's range", "EINVAL", NULL, foreign_owner, 0},
    {"rights-foreign-fsuid", "use files as an id outside of one's range", "ignored", NULL, foreign_credentials, 0},
    {"rights-personality", "make all memory executable (personality)", "ENOSYS", NULL, read_implies_exec, 0},
    {"rights-memory-map", "change where the kernel thinks one's program lies", "EPERM", NULL, memory_map,
     NEEDS_SYS_RESOURCE},
    TABLE_END,
};
