/*
 * ptrace.c - reaching into PID 1 and into processes of the host
 *
 * In the control the victim stands in for both.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

static int attach(pid_t pid)
{
    long r = ptrace(PTRACE_ATTACH, pid, NULL, NULL);

    if (r == 0) {
        (void)waitpid(pid, NULL, __WALL);
        (void)ptrace(PTRACE_DETACH, pid, NULL, NULL);
    }
    return outcome(r);
}

static int seize(pid_t pid)
{
    return outcome(ptrace((int)0x4206, pid, NULL, NULL));
}

/* An address that is mapped in the control's victim, which is this very program. */
static char mark[64] = "mark";

static int vm_read(pid_t pid)
{
    char got[64];
    struct iovec to = {got, sizeof got}, from = {mark, sizeof mark};

    return outcome(process_vm_readv(pid, &to, 1, &from, 1, 0));
}

static int vm_write(pid_t pid)
{
    char put[64] = "changed";
    struct iovec from = {put, sizeof put}, to = {mark, sizeof mark};

    return outcome(process_vm_writev(pid, &from, 1, &to, 1, 0));
}

static int fetch_fd(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    return fd < 0 ? -errno : outcome(syscall(SYS_pidfd_getfd, fd, 0, 0));
}

#define BOTH(fn)                                                                                                      \
    static int fn##_init(const struct ctx *c)                                                                         \
    {                                                                                                                 \
        return fn(c->init);                                                                                           \
    }                                                                                                                 \
    static int fn##_host(const struct ctx *c)                                                                         \
    {                                                                                                                 \
        return fn(c->victim);                                                                                         \
    }
BOTH(attach)
BOTH(seize)
BOTH(vm_read)
BOTH(vm_write)
BOTH(fetch_fd)

static int join(const struct ctx *c, pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    (void)c;
    return fd < 0 ? -errno : outcome(setns(fd, 0x20000 | 0x40000000));
}

static int join_init(const struct ctx *c)
{
    return join(c, c->init);
}

static int join_host(const struct ctx *c)
{
    return join(c, c->victim);
}

/* Kills it in the control. Inside PID 1 takes no signal that it has not asked for. */
static int signal_init(const struct ctx *c, int sig)
{
    if (kill(c->init, sig) < 0)
        return -errno;
    for (int i = 0; i < 50; i++) {
        char path[64], text[512];
        snprintf(path, sizeof path, "/proc/%d/stat", (int)c->init);
        ssize_t n = read_text(path, text, sizeof text);
        const char *state = n > 0 ? strrchr(text, ')') : NULL;
        if (state == NULL || strchr("ZXT", state[2]) != NULL)
            return 0;
        (void)usleep(2000);
    }
    return SEEN_IGNORED;
}

static int kill_init(const struct ctx *c)
{
    return signal_init(c, SIGKILL);
}

static int stop_init(const struct ctx *c)
{
    return signal_init(c, SIGSTOP);
}

/* --- filters and tracing of one's own ------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <sys/user.h>

/* The tracer turns a harmless call into one that the filter refuses: the filter must look at what is called at last. */
static int rewrite(const struct ctx *c)
{
    struct user_regs_struct regs;
    int status;
    pid_t pid = fork_bound();

    (void)c;
    if (pid == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        (void)raise(SIGSTOP);
        (void)syscall(SYS_getppid, 0x04000000 /* as CLONE_NEWUTS of unshare */);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -errno;
    for (int i = 0; i < 16; i++) {
        if (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) < 0 || waitpid(pid, &status, 0) < 0 || WIFEXITED(status))
            return -ECHILD;
        if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) < 0)
            return -errno;
        if (regs.orig_rax != SYS_getppid)
            continue;
        regs.orig_rax = SYS_unshare;
        if (ptrace(PTRACE_SETREGS, pid, NULL, &regs) < 0 || ptrace(PTRACE_SYSCALL, pid, NULL, NULL) < 0 ||
            waitpid(pid, &status, 0) < 0 || ptrace(PTRACE_GETREGS, pid, NULL, &regs) < 0)
            return -errno;
        long r = (long)regs.rax;
        (void)kill(pid, SIGKILL);
        return r < 0 ? (int)r : 0;
    }
    return -ECHILD;
}
#else
static int rewrite(const struct ctx *c)
{
    (void)c;
    return -ENOSYS;
}
#endif

static pid_t stopped_child(void)
{
    pid_t pid = fork_bound();

    if (pid == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    return pid;
}

static int suspend_filter(const struct ctx *c)
{
    pid_t pid = stopped_child();

    (void)c;
    return outcome(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(1ul << 21) /* SUSPEND_SECCOMP */));
}

static int read_filter(const struct ctx *c)
{
    static unsigned char program[4096 * 8];
    pid_t pid = stopped_child();

    (void)c;
    return outcome(ptrace((int)0x420c /* SECCOMP_GET_FILTER */, pid, 0L, program));
}

const struct attempt ptrace_table[] = {
    {"ptrace-attach-init", "trace PID 1", "EPERM", NULL, attach_init, 0},
    {"ptrace-seize-init", "trace PID 1 without stopping it", "EPERM", NULL, seize_init, 0},
    {"ptrace-read-init", "read PID 1's memory (process_vm_readv)", "EPERM", NULL, vm_read_init, 0},
    {"ptrace-write-init", "write PID 1's memory (process_vm_writev)", "EPERM", NULL, vm_write_init, 0},
    {"ptrace-fetch-fd-init", "take a descriptor of PID 1 (pidfd_getfd)", "EPERM", NULL, fetch_fd_init, 0},
    {"ptrace-join-init", "join PID 1's namespaces (setns)", "EPERM", NULL, join_init, 0},
    {"ptrace-kill-init", "kill PID 1", "ignored", NULL, kill_init, 0},
    {"ptrace-stop-init", "stop PID 1", "ignored", NULL, stop_init, 0},
    {"ptrace-attach-host", "trace a process of the host by its number", "ESRCH", NULL, attach_host, 0},
    {"ptrace-seize-host", "trace a process of the host without stopping it", "ESRCH", NULL, seize_host, 0},
    {"ptrace-read-host", "read the memory of a process of the host", "ESRCH", NULL, vm_read_host, 0},
    {"ptrace-write-host", "write the memory of a process of the host", "ESRCH", NULL, vm_write_host, 0},
    {"ptrace-fetch-fd-host", "take a descriptor of a process of the host", "ESRCH", NULL, fetch_fd_host, 0},
    {"ptrace-join-host", "join the namespaces of a process of the host", "ESRCH", NULL, join_host, 0},
    {"ptrace-rewrite-call", "have a tracer turn a permitted call into a refused one", "EPERM", NULL, rewrite, NEEDS_X86},
    {"ptrace-suspend-filter", "have a tracer suspend the filter", "EPERM", "EINVAL", suspend_filter, 0},
    {"ptrace-read-filter", "have a tracer read the filter", "EACCES", "ENOENT|EINVAL", read_filter, 0},
    TABLE_END,
};
