/*
 * process.c - thin wrappers over clone3, pidfds and exec by descriptor
 */
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/fd.h"

pid_t process_clone(uint64_t flags, int cgroup_fd, int *ret_pidfd)
{
    int pidfd = -1;
    struct clone_args args = {.flags = flags, .exit_signal = SIGCHLD};

    if (cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup_fd;
    }
    if (ret_pidfd != NULL) {
        args.flags |= CLONE_PIDFD;
        args.pidfd = (uint64_t)(uintptr_t)&pidfd;
    }
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0)
        return -errno;
    if (pid > 0 && ret_pidfd != NULL)
        *ret_pidfd = pidfd;
    return (pid_t)pid;
}

int process_pidfd(pid_t pid)
{
    long fd = syscall(SYS_pidfd_open, pid, 0);

    return fd < 0 ? -errno : (int)fd;
}

int process_pidfd_signal(int pidfd, int sig)
{
    return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

int process_start_time(pid_t pid, uint64_t *ret)
{
    char name[32], text[1024];

    snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
    ssize_t n = fd_read_at(AT_FDCWD, name, text, sizeof text);
    if (n < 0)
        return (int)n;
    /* Field 22. The name in field 2 may hold anything, so count from its closing bracket. */
    char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at == NULL)
        return -EBADMSG;
    *ret = strtoull(at + 1, NULL, 10);
    return 0;
}

int process_exec(int fd, char *const argv[], char *const envp[])
{
    (void)syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH);
    return -errno;
}

int process_place_fds(const int *from, int n)
{
    int high[32];

    if (n > (int)(sizeof high / sizeof high[0]))
        return -EINVAL;
    /* First out of the way of the targets, so that no move overwrites what is still to be moved. */
    for (int i = 0; i < n; i++) {
        high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 64);
        if (high[i] < 0)
            return -errno;
    }
    for (int i = 0; i < n; i++)
        if (dup2(high[i], 3 + i) < 0)
            return -errno;
    return syscall(SYS_close_range, 3 + n, ~0U, 0) < 0 ? -errno : 0;
}
