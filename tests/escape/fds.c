/*
 * fds.c - descriptors that came along, and what can be made of descriptors
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

/* Open descriptors that the program executed with, other than 0 to 2; the caller opened `own` itself. */
static int leaked(int own)
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *d;
    int found = 0;

    while (dir != NULL && (d = readdir(dir)) != NULL) {
        int fd = atoi(d->d_name);
        if (d->d_name[0] != '.' && fd > 2 && fd != dirfd(dir) && fd != own)
            found++;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return found;
}

/* What main() found, before anything was opened; the pipe of the attempt is closed on exec and not counted. */
static int inherited(const struct ctx *c)
{
    char text[16];
    int fds[2], status, leak = -1;

    if (c->is_control)
        leak = open("/proc/self/exe", O_RDONLY);    /* without close-on-exec: what the sandbox must never be started with */
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(fds[1], 1) < 0)
            _exit(1);
        (void)execl("/proc/self/exe", "quicksand-escape", "descriptors", (char *)NULL);
        _exit(1);
    }
    (void)close(fds[1]);
    ssize_t n = read(fds[0], text, sizeof text - 1);
    (void)waitpid(pid, &status, 0);
    (void)leak;
    text[n > 0 ? n : 0] = '\0';
    return atoi(text) > 0 ? 0 : SEEN_NOTHING;
}

/* Where the standard descriptors lead: pipes of the sandbox, never a file of the host. */
static int standard(const struct ctx *c)
{
    char path[32], target[256];

    if (c->is_control && dup2(open("/etc/passwd", O_RDONLY), 0) < 0)
        return -ENOTSUP;
    for (int fd = 0; fd < 3; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0)
            continue;
        target[n] = '\0';
        if (target[0] == '/' && strncmp(target, "/dev/", 5) != 0)
            return 0;
    }
    return SEEN_NOTHING;
}

/* A directory of the host, if anything at all leads there: by ".." from each descriptor. */
static int climb(const struct ctx *c)
{
    char path[64];

    for (int fd = 0; fd < 64; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d/../../../../../../../proc/%d", fd, (int)c->victim);
        if (access(path, F_OK) == 0)
            return 0;
    }
    snprintf(path, sizeof path, "/proc/self/cwd/../../../../../../proc/%d", (int)c->victim);
    return access(path, F_OK) == 0 ? 0 : SEEN_NOTHING;
}

/* /proc/self/root and friends are magic links: they must lead to our own root. */
static int magic_root(const struct ctx *c)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/root/proc/%d/comm", (int)c->victim);
    return open_outcome(path, O_RDONLY);
}

static int openat2_magic(const struct ctx *c)
{
    uint64_t how[3] = {O_RDONLY | O_CLOEXEC, 0, 0};
    char path[64];

    snprintf(path, sizeof path, "/proc/thread-self/root/../../proc/%d/comm", (int)c->victim);
    return outcome(syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how));
}

/* Descriptors to a process outside: there must be no socket that two sandboxes share. */
static int pass(const struct ctx *c)
{
    char path[64], target[256];
    struct stat st;
    int sockets = 0;

    if (c->is_control && dup2(socket(AF_UNIX, SOCK_STREAM, 0), 9) < 0)
        return -ENOTSUP;
    for (int fd = 0; fd < 64; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        sockets += n > 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    }
    return sockets > 0 ? 0 : SEEN_NOTHING;
}

/* What a program that was executed without any of its own finds open. */
int descriptors_main(void)
{
    printf("%d", leaked(-1));
    return 0;
}

const struct attempt fds_table[] = {
    {"fd-inherited", "find descriptors that came along with a command", "nothing", NULL, inherited, 0},
    {"fd-standard", "find a file of the host behind stdin, stdout or stderr", "nothing", NULL, standard, 0},
    {"fd-climb", "climb from an open directory to the host's root", "nothing", NULL, climb, 0},
    {"fd-magic-root", "go to the host by /proc/self/root", "ENOENT", NULL, magic_root, 0},
    {"fd-magic-openat2", "go to the host by a magic link and ..", "ENOENT", NULL, openat2_magic, 0},
    {"fd-sockets", "find a socket that leads to the monitor", "nothing", NULL, pass, 0},
    TABLE_END,
};
