/*
 * cgroups.c - leaving the control group, lifting its limits, reaching those of others
 */
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <dirent.h>

#include "escape.h"
#include "groups.h"

static int group_mount(const char *type, const char *option, char *out, size_t size)
{
    static char text[4 * 1024 * 1024];
    char dash[32];

    if (read_text("/proc/self/mountinfo", text, sizeof text) < 0)
        return -ENOENT;
    snprintf(dash, sizeof dash, " - %s ", type);
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        const char *kind = strstr(line, dash);
        if (kind == NULL)
            continue;
        const char *options = strrchr(line, ' ');
        if (option != NULL && (options == NULL || strstr(options, option) == NULL))
            continue;
        char where[256];
        if (sscanf(line, "%*s %*s %*s %*s %255s", where) == 1) {
            snprintf(out, size, "%s", where);
            return 0;
        }
    }
    return -ENOENT;
}

int groups_v2(char *out, size_t size)
{
    return group_mount("cgroup2", NULL, out, size);
}

int groups_v1(const char *controller, char *out, size_t size)
{
    return group_mount("cgroup", controller, out, size);
}

int groups_make(const char *name)
{
    char root[256], path[400];
    int r = groups_v2(root, sizeof root);

    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s/%s", root, name);
    return outcome(mkdir(path, 0755));
}

int groups_enter(const char *name)
{
    char root[256], path[400];
    int r = groups_make(name);

    if (r < 0 || groups_v2(root, sizeof root) < 0)
        return r;
    snprintf(path, sizeof path, "%s/%s/cgroup.procs", root, name);
    return write_text(path, "0");
}

void groups_sweep(void)
{
    char root[256], path[600];

    if (groups_v2(root, sizeof root) < 0)
        return;
    DIR *dir = opendir(root);
    const struct dirent *d;
    while (dir != NULL && (d = readdir(dir)) != NULL)
        if (strncmp(d->d_name, "qse-", 4) == 0 || strncmp(d->d_name, "qsc-", 4) == 0) {
            snprintf(path, sizeof path, "%s/%s", root, d->d_name);
            /* One in use is another run's; the last member may still be on its way out. */
            for (int i = 0; i < 50 && rmdir(path) < 0 && errno == EBUSY; i++)
                (void)usleep(2000);
        }
    if (dir != NULL)
        (void)closedir(dir);
}

static int mount_v1(const struct ctx *c)
{
    if (mkdir(scratch_path(c, "v1"), 0755) < 0)
        return -errno;
    return outcome(mount(c->token, scratch_path(c, "v1"), "cgroup", 0, "none,name=systemd"));
}

static int mount_v2(const struct ctx *c)
{
    if (mkdir(scratch_path(c, "v2"), 0755) < 0)
        return -errno;
    return outcome(mount(c->token, scratch_path(c, "v2"), "cgroup2", 0, NULL));
}

/* Opened for writing only; the control must not write. */
static int release_agent(const struct ctx *c)
{
    char root[256], path[300];
    int r = groups_v1("memory", root, sizeof root);

    (void)c;
    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s/release_agent", root);
    return open_outcome(path, O_WRONLY);
}

static int tree_list(const struct ctx *c)
{
    char root[256];
    int r = groups_v2(root, sizeof root);

    (void)c;
    return r < 0 ? r : open_outcome(root, O_RDONLY | O_DIRECTORY);
}

static int tree_by_path(const struct ctx *c)
{
    (void)c;
    static const char *const names[] = {"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs",
                                        "/sys/fs/cgroup/memory/cgroup.procs"};
    int r = -ENOENT;

    for (int i = 0; i < 3 && r == -ENOENT; i++)
        r = open_outcome(names[i], O_RDONLY);
    return r;
}

static int make_group(const struct ctx *c)
{
    return groups_enter(c->token);
}

static int to_root(const struct ctx *c)
{
    char root[256], path[300];
    int r = groups_v2(root, sizeof root);

    (void)c;
    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s/cgroup.procs", root);
    return write_text(path, "0");
}

/* Of the group that the victim is put in; the only thing killed in the control. */
static int kill_group(const struct ctx *c)
{
    char root[256], path[400], pid[16];
    int r = groups_v2(root, sizeof root);

    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s/%s", root, c->token);
    if (mkdir(path, 0755) < 0)
        return -errno;
    snprintf(path, sizeof path, "%s/%s/cgroup.procs", root, c->token);
    snprintf(pid, sizeof pid, "%d", (int)c->victim);
    r = write_text(path, pid);
    snprintf(path, sizeof path, "%s/%s/cgroup.kill", root, c->token);
    return r < 0 ? r : write_text(path, "1");
}

static int freeze_group(const struct ctx *c)
{
    char root[256], path[400];
    int r = groups_v2(root, sizeof root);

    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s/%s", root, c->token);
    if (mkdir(path, 0755) < 0)
        return -errno;
    snprintf(path, sizeof path, "%s/%s/cgroup.freeze", root, c->token);
    return write_text(path, "1");
}

static int lift(const char *file_v2, const char *controller, const char *file_v1)
{
    char root[256], path[300];

    if (groups_v1(controller, root, sizeof root) == 0)
        snprintf(path, sizeof path, "%s/%s", root, file_v1);
    else if (groups_v2(root, sizeof root) == 0)
        snprintf(path, sizeof path, "%s/%s", root, file_v2);
    else
        return -ENOENT;
    return open_outcome(path, O_WRONLY);
}

static int lift_pids(const struct ctx *c)
{
    (void)c;
    return lift("cgroup.subtree_control", "pids", "cgroup.procs");
}

static int lift_memory(const struct ctx *c)
{
    (void)c;
    return lift("cgroup.subtree_control", "memory", "memory.limit_in_bytes");
}

static int lift_devices(const struct ctx *c)
{
    (void)c;
    return lift("cgroup.procs", "devices", "devices.allow");
}

/* A process that is born in another group; inside there is no group to name, so any directory is tried. */
static int clone_into(const struct ctx *c)
{
    char root[256], path[400];
    int fd;

    if (groups_v2(root, sizeof root) == 0) {
        snprintf(path, sizeof path, "%s/%s", root, c->token);
        if (mkdir(path, 0755) < 0)
            return -errno;
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else {
        fd = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    uint64_t args[11] = {0x200000000ull, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, (uint64_t)fd};
    long r = syscall(SYS_clone3, args, sizeof args);
    if (r == 0)
        _exit(0);
    return outcome(r);
}

/* Where the group lies in the host's tree. */
static int path_shown(const struct ctx *c)
{
    char text[4096];

    if (c->is_control) {
        int r = groups_enter(c->token);
        if (r < 0)
            return r;
    }
    ssize_t n = read_text("/proc/self/cgroup", text, sizeof text);
    if (n < 0)
        return (int)n;
    /* Every line must end in ":/" or in a path that begins there and never in one that leads up or names a group of ours. */
    return strstr(text, "/..") != NULL || strstr(text, "qse-") != NULL || strstr(text, "quicksand") != NULL ||
                   strstr(text, "/slot") != NULL || strstr(text, "sb-") != NULL
               ? 0
               : SEEN_NOTHING;
}

const struct attempt cgroups_table[] = {
    {"cgroup-mount-v1", "mount a v1 control group hierarchy", "EPERM", NULL, mount_v1, 0},
    {"cgroup-mount-v2", "mount the v2 control group tree", "EPERM", NULL, mount_v2, 0},
    {"cgroup-release-agent", "name a program that the host's kernel starts when a group empties", "ENOENT",
     "absent:ENOENT", release_agent, 0},
    {"cgroup-find-tree", "find the control group tree among the mounts and open it", "ENOENT", NULL, tree_list, 0},
    {"cgroup-open-tree", "find a group below /sys/fs/cgroup", "ENOENT", NULL, tree_by_path, 0},
    {"cgroup-make", "make a group beside one's own and move there", "ENOENT", NULL, make_group, 0},
    {"cgroup-leave", "move to the root group, out of every limit", "ENOENT", NULL, to_root, 0},
    {"cgroup-kill", "kill a neighbour by its group", "ENOENT", NULL, kill_group, 0},
    {"cgroup-freeze", "freeze a neighbour by its group", "ENOENT", NULL, freeze_group, 0},
    {"cgroup-lift-pids", "open the limit of processes for writing", "ENOENT", NULL, lift_pids, 0},
    {"cgroup-lift-memory", "open the limit of memory for writing", "ENOENT", NULL, lift_memory, 0},
    {"cgroup-lift-devices", "open the list of devices for writing", "ENOENT", NULL, lift_devices, 0},
    {"cgroup-clone-into", "start a process in another group (clone3)", "EBADF", NULL, clone_into, 0},
    {"cgroup-path", "learn where in the host's tree one's group lies", "nothing", NULL, path_shown, 0},
    TABLE_END,
};
