/*
 * procfs.c - what /proc tells of the host and of PID 1, and what can be written there
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape.h"

/* Reads a little; an empty file is a mask. */
static int readable(const char *path)
{
    static char text[65536];
    ssize_t n = read_text(path, text, sizeof text);

    return n < 0 ? (int)n : n == 0 ? SEEN_MASKED : 0;
}

#define READABLE(fn, path)                                                                                            \
    static int fn(const struct ctx *c)                                                                                \
    {                                                                                                                 \
        (void)c;                                                                                                      \
        return readable(path);                                                                                        \
    }
READABLE(kcore, "/proc/kcore")
READABLE(interrupts, "/proc/interrupts")
READABLE(softirqs, "/proc/softirqs")
READABLE(key_users, "/proc/key-users")
READABLE(partitions, "/proc/partitions")
READABLE(slabinfo, "/proc/slabinfo")
READABLE(vmallocinfo, "/proc/vmallocinfo")
READABLE(pagetypeinfo, "/proc/pagetypeinfo")
READABLE(timer_list, "/proc/timer_list")

/* Opened only; a mask lies on another file system. */
static int opened(const char *path)
{
    struct stat st, proc;
    int r = open_outcome(path, O_RDONLY);

    return r == 0 && stat(path, &st) == 0 && stat("/proc", &proc) == 0 && st.st_dev != proc.st_dev ? SEEN_MASKED : r;
}

static int kpagecount(const struct ctx *c)
{
    (void)c;
    return opened("/proc/kpagecount");
}

/* Reading would take messages from who is meant to have them. */
static int kmsg(const struct ctx *c)
{
    (void)c;
    return opened("/proc/kmsg");
}

/* Addresses of the kernel, which tell where to aim; zeros tell nothing. */
static int addresses(const char *path, const char *separators)
{
    static char text[65536];
    ssize_t n = read_text(path, text, sizeof text);

    if (n < 0)
        return (int)n;
    for (char *at = text; at != NULL && *at != '\0'; at = strchr(at, '\n')) {
        at += strspn(at, " \n");
        char *end;
        unsigned long long v = strtoull(at, &end, 16);
        if (v == 0 && strchr(separators, '-') != NULL && *end == '-')
            v = strtoull(end + 1, NULL, 16);
        if (v != 0)
            return 0;
    }
    return SEEN_MASKED;
}

static int kallsyms(const struct ctx *c)
{
    (void)c;
    return addresses("/proc/kallsyms", " ");
}

static int iomem(const struct ctx *c)
{
    (void)c;
    return addresses("/proc/iomem", "-");
}

static int keys(const struct ctx *c)
{
    (void)c;
    return readable("/proc/keys");
}

/* --- PID 1, which in the control is the victim ------------------------------------------------------------------------ */

static const char *of_init(const struct ctx *c, const char *name)
{
    static char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)c->init, name);
    return path;
}

static int init_mem(const struct ctx *c)
{
    return open_outcome(of_init(c, "mem"), O_RDWR);
}

static int init_environ(const struct ctx *c)
{
    return open_outcome(of_init(c, "environ"), O_RDONLY);
}

static int init_maps(const struct ctx *c)
{
    return open_outcome(of_init(c, "maps"), O_RDONLY);
}

static int init_auxv(const struct ctx *c)
{
    return open_outcome(of_init(c, "auxv"), O_RDONLY);
}

static int init_stack(const struct ctx *c)
{
    return readable(of_init(c, "stack"));
}

static int init_syscall(const struct ctx *c)
{
    return readable(of_init(c, "syscall"));
}

static int init_pagemap(const struct ctx *c)
{
    return open_outcome(of_init(c, "pagemap"), O_RDONLY);
}

static int init_root(const struct ctx *c)
{
    return open_outcome(of_init(c, "root/."), O_RDONLY | O_DIRECTORY);
}

static int init_cwd(const struct ctx *c)
{
    return open_outcome(of_init(c, "cwd/."), O_RDONLY | O_DIRECTORY);
}

static int init_exe(const struct ctx *c)
{
    return open_outcome(of_init(c, "exe"), O_RDONLY);
}

static int init_fd(const struct ctx *c)
{
    char target[64];

    return outcome(readlink(of_init(c, "fd/0"), target, sizeof target));
}

static int init_fd_open(const struct ctx *c)
{
    char name[16];
    int r = -ENOENT;

    /* The first that can be opened by its name: sockets cannot. */
    for (int fd = 0; fd < 24 && r < 0 && r != -EACCES; fd++) {
        snprintf(name, sizeof name, "fd/%d", fd);
        r = open_outcome(of_init(c, name), O_RDONLY);
    }
    return r;
}

static int init_map_files(const struct ctx *c)
{
    int fd = open(of_init(c, "map_files"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char names[4096];

    long n = fd < 0 ? -1 : syscall(SYS_getdents64, fd, names, sizeof names);
    if (n < 0)
        return -errno;
    return n > 48 ? 0 : SEEN_NOTHING;       /* "." and ".." are 48 bytes */
}

static int init_ns(const struct ctx *c)
{
    return open_outcome(of_init(c, "ns/mnt"), O_RDONLY);
}

static int init_userns(const struct ctx *c)
{
    return open_outcome(of_init(c, "ns/user"), O_RDONLY);
}

static int init_sched(const struct ctx *c)
{
    return write_text(of_init(c, "timerslack_ns"), "50000");
}

/* --- what is written of oneself ---------------------------------------------------------------------------------------- */

static int uid_map(const struct ctx *c)
{
    /* Written once already: also real root cannot do it again, but in a namespace that it has just made. */
    if (c->is_control && unshare(0x10000000) < 0)
        return -errno;
    return write_text("/proc/self/uid_map", "0 0 1\n");
}

static int gid_map(const struct ctx *c)
{
    /* Without privileges outside one's own group alone may be named, and setgroups must be given up. */
    if (c->is_control && (unshare(0x10000000) < 0 || write_text("/proc/self/setgroups", "deny") < 0))
        return -errno;
    return write_text("/proc/self/gid_map", "0 0 1\n");
}

static int projid_map(const struct ctx *c)
{
    if (c->is_control && unshare(0x10000000) < 0)
        return -errno;
    return write_text("/proc/self/projid_map", "0 0 1\n");
}

static int setgroups_file(const struct ctx *c)
{
    if (c->is_control && unshare(0x10000000) < 0)
        return -errno;
    return write_text("/proc/self/setgroups", "deny");
}

static int timens(const struct ctx *c)
{
    if (c->is_control && unshare(0x80) < 0)
        return -errno;
    return write_text("/proc/self/timens_offsets", "monotonic 1000 0\n");
}

static int oom_lower(const struct ctx *c)
{
    (void)c;
    return write_text("/proc/self/oom_score_adj", "-999");
}

static int other_root(const struct ctx *c)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/root", (int)c->victim);
    return open_outcome(path, O_RDONLY | O_DIRECTORY);
}

static int other_environ(const struct ctx *c)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/environ", (int)c->victim);
    return open_outcome(path, O_RDONLY);
}

static int other_mem(const struct ctx *c)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/mem", (int)c->victim);
    return open_outcome(path, O_RDWR);
}

/* Directories in which drivers let themselves be set; in the control a tmpfs would prove nothing, so they are opened. */
static int irq_affinity(const struct ctx *c)
{
    (void)c;
    return open_outcome("/proc/irq/default_smp_affinity", O_WRONLY);
}

const struct attempt procfs_table[] = {
    {"proc-kcore", "read the kernel's memory", "masked|EACCES|ENOENT", "EPERM|EIO|absent:ENOENT", kcore, 0},
    {"proc-kmsg", "open the kernel's log", "masked", NULL, kmsg, 0},
    {"proc-kallsyms", "read the kernel's addresses", "masked|ENOENT", "absent:ENOENT", kallsyms, 0},
    {"proc-iomem", "read where the machine's memory lies", "masked|EACCES|ENOENT", "absent:ENOENT", iomem, 0},
    {"proc-keys", "read the list of keys", "masked|EACCES|ENOENT", "absent:ENOENT", keys, 0},
    {"proc-key-users", "read who has keys", "masked|EACCES|ENOENT", "absent:ENOENT", key_users, 0},
    {"proc-interrupts", "read the host's interrupts", "masked", NULL, interrupts, 0},
    {"proc-softirqs", "read the host's soft interrupts", "masked", NULL, softirqs, 0},
    {"proc-partitions", "read the host's disks", "masked", NULL, partitions, 0},
    {"proc-timer-list", "read the host's timers", "masked|EACCES|ENOENT", "absent:ENOENT", timer_list, 0},
    {"proc-slabinfo", "read the kernel's caches", "masked|EACCES|ENOENT", "absent:ENOENT", slabinfo, 0},
    {"proc-vmallocinfo", "read the kernel's mappings", "masked|EACCES|ENOENT", "absent:ENOENT", vmallocinfo, 0},
    {"proc-pagetypeinfo", "read the kernel's pages", "masked|EACCES|ENOENT", "absent:ENOENT", pagetypeinfo, 0},
    {"proc-kpagecount", "read how pages are shared", "masked|EACCES|ENOENT", "absent:ENOENT", kpagecount, 0},
    {"proc-irq", "write the host's interrupt affinity", "EACCES|EROFS|ENOENT", NULL, irq_affinity, 0},
    {"proc-init-mem", "open PID 1's memory", "EACCES", NULL, init_mem, 0},
    {"proc-init-environ", "open PID 1's environment", "EACCES", NULL, init_environ, 0},
    {"proc-init-maps", "open PID 1's mappings", "EACCES", NULL, init_maps, 0},
    {"proc-init-auxv", "open PID 1's auxiliary vector", "EACCES", NULL, init_auxv, 0},
    {"proc-init-stack", "read PID 1's kernel stack", "EACCES|EPERM|ENOENT", "absent:ENOENT", init_stack, 0},
    {"proc-init-syscall", "read what PID 1 is waiting in", "EACCES|EPERM|ENOENT", "absent:ENOENT", init_syscall, 0},
    {"proc-init-pagemap", "open PID 1's page map", "EACCES|EPERM", NULL, init_pagemap, 0},
    {"proc-init-root", "go through PID 1's root", "EACCES", NULL, init_root, 0},
    {"proc-init-cwd", "go through PID 1's working directory", "EACCES", NULL, init_cwd, 0},
    {"proc-init-exe", "open PID 1's program", "EACCES", NULL, init_exe, 0},
    {"proc-init-fd", "learn where one of PID 1's descriptors leads", "EACCES", NULL, init_fd, 0},
    {"proc-init-fd-open", "open one of PID 1's descriptors", "EACCES", NULL, init_fd_open, 0},
    {"proc-init-map-files", "list the files that PID 1 has mapped", "nothing|EACCES|EPERM|ENOENT", "absent:ENOENT",
     init_map_files, 0},
    {"proc-init-ns-mnt", "open PID 1's mount namespace", "EACCES", NULL, init_ns, 0},
    {"proc-init-ns-user", "open PID 1's user namespace", "EACCES", NULL, init_userns, 0},
    {"proc-init-timerslack", "change PID 1's timer slack", "EPERM|EACCES", NULL, init_sched, 0},
    {"proc-uid-map", "write a uid map for oneself", "EPERM", NULL, uid_map, 0},
    {"proc-gid-map", "write a gid map for oneself", "EPERM", NULL, gid_map, 0},
    {"proc-projid-map", "write a map of project ids for oneself", "EPERM", NULL, projid_map, 0},
    {"proc-setgroups", "forbid setgroups for oneself", "EPERM|EACCES", NULL, setgroups_file, 0},
    {"proc-timens", "move the clocks of the time namespace", "EACCES|EPERM|ENOENT", "absent:ENOENT", timens, 0},
    {"proc-oom-score", "be the last to be killed when memory runs out", "EACCES", NULL, oom_lower, NEEDS_SYS_RESOURCE},
    {"proc-host-root", "go through the root of a process of the host", "ENOENT", NULL, other_root, 0},
    {"proc-host-environ", "open the environment of a process of the host", "ENOENT", NULL, other_environ, 0},
    {"proc-host-mem", "open the memory of a process of the host", "ENOENT", NULL, other_mem, 0},
    TABLE_END,
};
