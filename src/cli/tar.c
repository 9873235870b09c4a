/*
 * tar.c - the machine's own tar program, at one end of a pipe
 */
#include "cli/tar.h"

#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t tar_start(char *const argv[], int child_fd, int as_fd, struct err *e)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, child_fd, as_fd);
    int r = posix_spawnp(&pid, "tar", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (r != 0) {
        (void)err_sys(e, r, "start tar");
        return -1;
    }
    return pid;
}

int tar_end(pid_t pid, struct err *e)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(e, errno, "wait for tar");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(e, ERR_FS_IO, "tar failed");
    return 0;
}
