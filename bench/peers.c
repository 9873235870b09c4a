/*
 * peers.c - timing of peers
 */
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stats.h"
#include "sys/fd.h"

extern char **environ;

static int wait_zero(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static double run(const char *const *argv, const char *expect)
{
    posix_spawn_file_actions_t fa;
    char got[256] = "";
    int out[2] = {-1, -1};
    pid_t pid;

    if (pipe2(out, O_CLOEXEC) < 0)
        return -1;
    (void)posix_spawn_file_actions_init(&fa);
    (void)posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    double t0 = now_ms();
    int r = posix_spawnp(&pid, argv[0], &fa, NULL, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    fd_close(&out[1]);
    if (r != 0) {
        fd_close(&out[0]);
        return -1;
    }
    ssize_t n = fd_read_all(out[0], got, sizeof got - 1);
    int rc = wait_zero(pid);
    double t1 = now_ms();
    fd_close(&out[0]);
    if (rc < 0 || n < 0)
        return -1;
    if (expect != NULL && strcmp(got, expect) != 0)
        return -1;
    return t1 - t0;
}

double peer_time(const char *const *argv)
{
    return run(argv, NULL);
}

double peer_time_output(const char *const *argv, const char *expect)
{
    return run(argv, expect);
}

int peer_run(const char *const *argv)
{
    posix_spawn_file_actions_t fa;
    pid_t pid;

    (void)posix_spawn_file_actions_init(&fa);
    (void)posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
    int r = posix_spawnp(&pid, argv[0], &fa, NULL, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    return r == 0 ? wait_zero(pid) : -1;
}

double peer_vfork_exec(const char *path)
{
    char *const argv[] = {(char *)path, NULL};
    double t0 = now_ms();
    pid_t pid = vfork();

    if (pid == 0) {
        (void)execve(path, argv, environ);
        _exit(127);
    }
    if (pid < 0 || wait_zero(pid) < 0)
        return -1;
    return now_ms() - t0;
}
