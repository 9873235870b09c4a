/*
 * exe.c - overwriting the programs that the host runs inside: PID 1 and the file helper
 *
 * While `inside` runs, the self-test keeps a file helper busy in the sandbox, so that there is one to attack. In the control
 * a copy of this program in the scratch directory stands in for it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

#define HELPER "modal-sandbox-fs-tools"

/* A process whose command line names the helper; 0 = none. */
static pid_t helper_running(void)
{
    DIR *dir = opendir("/proc");
    const struct dirent *d;
    char path[300], text[512];
    pid_t found = 0;

    while (dir != NULL && found == 0 && (d = readdir(dir)) != NULL) {
        snprintf(path, sizeof path, "/proc/%s/cmdline", d->d_name);
        if (atoi(d->d_name) > 1 && read_text(path, text, sizeof text) > 0 && strstr(text, HELPER) != NULL)
            found = (pid_t)atoi(d->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    return found;
}

static pid_t helper_find(const struct ctx *c)
{
    const char *path = scratch_path(c, HELPER);

    if (!c->is_control)
        return helper_running();
    if (copy_self(path) < 0)
        return 0;
    pid_t pid = fork_bound();
    if (pid == 0) {
        (void)execl(path, path, "pause", (char *)NULL);
        _exit(1);
    }
    for (int i = 0; i < 500 && helper_running() == 0; i++)
        (void)usleep(2000);
    return pid;
}

/* The program's file is held open, the process ended, and the file then opened for writing: nobody executes it any more. */
static int overwrite(const struct ctx *c)
{
    char path[64];
    pid_t pid = helper_find(c);

    if (pid <= 0)
        return -ENOTSUP;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = -ETXTBSY;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    (void)kill(pid, c->is_control ? SIGKILL : 0);
    if (c->is_control)
        (void)waitpid(pid, NULL, 0);
    for (int i = 0; i < 100 && r == -ETXTBSY; i++) {
        r = open_outcome(path, O_WRONLY);
        (void)usleep(2000);
    }
    return r;
}

/* The same by name: mode and owner of what it is. */
static int change_mode(const struct ctx *c)
{
    char path[64];
    pid_t pid = helper_find(c);

    if (pid <= 0)
        return -ENOTSUP;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return outcome(chmod(path, 0777));
}

/* Descriptors of the helper that are neither pipes nor files of the sandbox. */
static int helper_fds(const struct ctx *c)
{
    char path[300], target[300], fds[64];
    pid_t pid = c->is_control ? c->victim : helper_find(c);
    int found = 0;

    if (pid <= 0)
        return -ENOTSUP;
    snprintf(fds, sizeof fds, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(fds);
    if (dir == NULL)
        return -errno;
    const struct dirent *d;
    while ((d = readdir(dir)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", fds, d->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        struct stat at;
        /* A name that leads nowhere here is one of the host. */
        found += strncmp(target, "socket:", 7) == 0 || strncmp(target, "/memfd:", 7) == 0 ||
                 (target[0] == '/' && stat(target, &at) < 0);
    }
    (void)closedir(dir);
    return found > 0 ? 0 : SEEN_NOTHING;
}

static int helper_root(const struct ctx *c)
{
    char path[96];
    pid_t pid = helper_find(c);

    if (pid <= 0)
        return -ENOTSUP;
    snprintf(path, sizeof path, "/proc/%d/root/../../../proc/%d/comm", (int)pid, (int)c->victim);
    return open_outcome(path, O_RDONLY);
}

static int init_overwrite(const struct ctx *c)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/exe", (int)c->init);
    return open_outcome(path, O_WRONLY);
}

static int binfmt(const struct ctx *c)
{
    /* A fresh instance in the control's own mounts; it is opened, and nothing is registered. */
    if (c->is_control && mount("binfmt_misc", "/proc/sys/fs/binfmt_misc", "binfmt_misc", 0, NULL) < 0)
        return -ENODEV;
    return open_outcome("/proc/sys/fs/binfmt_misc/register", O_WRONLY);
}

/* A file of a layer that all sandboxes share: what is changed must be one's own copy. */
static int layer_change(const struct ctx *c)
{
    const char *path = c->is_control ? scratch_path(c, "layer") : "/__modal/.bin/" HELPER;
    const char *seen = c->is_control ? scratch_path(c, "bound") : path;
    struct stat st;

    if (c->is_control && (copy_self(path) < 0 || mknod(seen, S_IFREG | 0644, 0) < 0 ||
                          mount(path, seen, NULL, MS_BIND, NULL) < 0))
        return -ENOTSUP;
    if (chmod(path, 0700) < 0)
        return -errno;
    return c->is_control && stat(seen, &st) == 0 && (st.st_mode & 07777) == 0700 ? 0 : SEEN_UNHEARD;
}

const struct attempt exe_table[] = {
    {"exe-init-overwrite", "overwrite PID 1's program", "EACCES", "ETXTBSY", init_overwrite, 0},
    {"exe-helper-overwrite", "overwrite the file helper's program through /proc/PID/exe", "EACCES|ETXTBSY", NULL,
     overwrite, 0},
    {"exe-helper-mode", "change the mode of the file helper's program", "EPERM|EROFS", NULL, change_mode, 0},
    {"exe-helper-fds", "find a descriptor of the host in the file helper", "nothing", NULL, helper_fds, 0},
    {"exe-helper-root", "go to the host by the file helper's root", "ENOENT", NULL, helper_root, 0},
    {"exe-binfmt", "register a program format with an interpreter", "ENOENT|EACCES|EROFS", "ENODEV", binfmt, 0},
    {"exe-layer-change", "change a file that other sandboxes have too", "unheard", NULL, layer_change, 0},
    TABLE_END,
};
