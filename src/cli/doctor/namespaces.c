/*
 * namespaces.c - namespaces, and what is mounted in them: tried in children that end at once
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/doctor/doctor.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"
#include "sys/idmap.h"

static const struct {
    const char *name;
    uint64_t flag;
} kinds[] = {
    {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"pid", CLONE_NEWPID}, {"net", CLONE_NEWNET},
    {"ipc", CLONE_NEWIPC},   {"uts", CLONE_NEWUTS},
};

/* How many of a kind the host allows; -1 = no limit is to be seen. */
static long long most(const char *kind)
{
    char path[96];

    snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces", kind);
    return doctor_number(path);
}

/* The fix of a namespace that cannot be made. */
static void explain(const char *kind, int error, char *fix, size_t size)
{
    if (error == -ENOSPC || most(kind) == 0)
        snprintf(fix, size, "sysctl -w user.max_%s_namespaces=100000", kind);
    else if (error == -EPERM)
        snprintf(
            fix, size,
            "run quicksandd outside of a container, or in one with CAP_SYS_ADMIN and no filter of unshare and clone3");
    else
        snprintf(fix, size, "boot a kernel with namespaces of every kind (Debian's own have them)");
}

static bool try_kinds(struct doctor *d)
{
    bool good = true;

    for (size_t i = 0; i < array_len(kinds); i++) {
        struct doctor_child c;
        char fix[200], name[32];
        int r = doctor_child_start(&c, kinds[i].flag, d->conf.id_base_range << 16, NULL);
        doctor_child_end(&c);
        if (r == 0)
            continue;
        good = false;
        explain(kinds[i].name, r, fix, sizeof fix);
        snprintf(name, sizeof name, "%s_namespace", kinds[i].name);
        doctor_bad(d, name, FINDING_MISSING, "sandboxes do not start", fix, "cannot be made: %s (user.max_%s_namespaces = %lld)",
                   strerror(-r), kinds[i].name, most(kinds[i].name));
    }
    return good;
}

/* Every sandbox has one of each; others of the host count too. */
static void check_numbers(struct doctor *d)
{
    long long wanted = (long long)d->conf.max_sandboxes + d->conf.pool_size;
    char fix[200] = "";
    size_t n = 0;
    long long least = -1;

    for (size_t i = 0; i < array_len(kinds); i++) {
        long long allowed = most(kinds[i].name);
        if (allowed < 0 || allowed >= wanted)
            continue;
        if (least < 0 || allowed < least)
            least = allowed;
        n += (size_t)snprintf(fix + n, sizeof fix - n, "%suser.max_%s_namespaces=%lld", n == 0 ? "sysctl -w " : " ",
                              kinds[i].name, wanted * 2);
    }
    if (least >= 0)
        doctor_bad(d, "namespaces", FINDING_DEGRADED, "fewer sandboxes than max_sandboxes allows", fix,
                   "at most %lld of a kind, for max_sandboxes = %lld", least, wanted - d->conf.pool_size);
    else
        doctor_ok(d, "namespaces", "user, mnt, pid, net, ipc, uts: made, and enough for %lld sandboxes",
                  wanted - d->conf.pool_size);
}

/* In the child: an overlay mounted by root of the user namespace, as init does it. */
static int mount_overlay(void)
{
    static const char *const dirs[] = {"/tmp/l", "/tmp/u", "/tmp/w", "/tmp/m"};

    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/tmp", "tmpfs", 0, "mode=755") < 0)
        return -errno;
    for (size_t i = 0; i < array_len(dirs); i++)
        if (mkdir(dirs[i], 0755) < 0)
            return -errno;
    if (mount("overlay", "/tmp/m", "overlay", 0, "userxattr,lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w") < 0)
        return errno == ENODEV ? -ENODEV : -errno;
    return 0;
}

static void overlay(struct doctor *d, struct doctor_child *c)
{
    int r = doctor_child_act(c);

    if (r == 0)
        doctor_ok(d, "overlay", "mounted in a user namespace");
    else if (r == -ENODEV)
        doctor_bad(d, "overlay", FINDING_MISSING, "sandboxes do not start: their root is an overlay of the image",
                   "modprobe overlay && echo overlay >/etc/modules-load.d/overlay.conf", "not in this kernel");
    else
        doctor_bad(d, "overlay", FINDING_MISSING, "sandboxes do not start: their root is an overlay of the image",
                   "boot a kernel in which user namespaces may mount overlay (Debian's from 5.11 on)",
                   "cannot be mounted in a user namespace: %s", strerror(-r));
}

static void idmapped(struct doctor *d, const struct doctor_child *c)
{
    char place[sizeof d->conf.data_dir];

    doctor_existing_parent(d->conf.data_dir, place, sizeof place);
    auto_close int dir = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int userns = idmap_open_userns(c->pid);
    int r = dir < 0 ? -errno : userns;
    if (r >= 0)
        r = mount_clone(dir, "", MOUNT_ATTR_RDONLY, userns);
    if (r >= 0) {
        (void)close(r);
        doctor_ok(d, "idmapped_mounts", "work on the file system of %s", place);
    } else {
        doctor_bad(d, "idmapped_mounts", FINDING_MISSING, "layers of images cannot be given to sandboxes",
                   "set data_dir in the configuration to a directory on ext4, xfs or btrfs",
                   "not on the file system of %s: %s", place, strerror(-r));
    }
}

void doctor_check_namespaces(struct doctor *d)
{
    struct doctor_child c;
    long long unprivileged = doctor_number("/proc/sys/kernel/unprivileged_userns_clone");

    if (!try_kinds(d))
        return;
    check_numbers(d);
    if (unprivileged == 0)
        doctor_ok(d, "unprivileged_userns_clone", "0: does not matter, root makes the user namespaces");
    int r = doctor_child_start(&c, CLONE_NEWUSER | CLONE_NEWNS, d->conf.id_base_range << 16, mount_overlay);
    if (r < 0) {
        doctor_bad(d, "overlay", FINDING_MISSING, "sandboxes do not start", "", "no child for the trial: %s", strerror(-r));
        return;
    }
    idmapped(d, &c);
    overlay(d, &c);
    doctor_child_end(&c);
}
