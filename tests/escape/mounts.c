/*
 * mounts.c - mounts, remounts and the ways around them
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape.h"

#define DETACH 2

static int k_mount(const char *from, const char *to, const char *type, unsigned long flags, const char *options)
{
    return outcome(syscall(SYS_mount, from, to, type, flags, options));
}

static const char *made_dir(const struct ctx *c, const char *name)
{
    const char *path = scratch_path(c, name);

    (void)mkdir(path, 0755);
    return path;
}

static int a_tmpfs(const struct ctx *c)
{
    return k_mount(c->token, made_dir(c, "m"), "tmpfs", 0, NULL);
}

static int a_proc(const struct ctx *c)
{
    return k_mount(c->token, made_dir(c, "m"), "proc", 0, NULL);
}

static int a_sysfs(const struct ctx *c)
{
    return k_mount(c->token, made_dir(c, "m"), "sysfs", 0, NULL);
}

static int a_devpts(const struct ctx *c)
{
    return k_mount(c->token, made_dir(c, "m"), "devpts", 0, NULL);
}

static int a_mqueue(const struct ctx *c)
{
    return k_mount(c->token, made_dir(c, "m"), "mqueue", 0, NULL);
}

static int an_overlay(const struct ctx *c)
{
    char options[512];

    snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s", made_dir(c, "l"), made_dir(c, "u"),
             made_dir(c, "w"));
    return k_mount(c->token, made_dir(c, "m"), "overlay", 0, options);
}

static int a_bind(const struct ctx *c)
{
    return k_mount("/proc", made_dir(c, "m"), NULL, MS_BIND | MS_REC, NULL);
}

static int remount_rw(const struct ctx *c)
{
    if (c->is_control &&
        (k_mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL) < 0 ||
         k_mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0))
        return -ENOTSUP;
    return k_mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL);
}

static int remount_dev(const struct ctx *c)
{
    const char *at = "/dev/null";

    if (c->is_control && k_mount(at, at, NULL, MS_BIND, NULL) < 0)
        return -ENOTSUP;
    return k_mount(NULL, at, NULL, MS_REMOUNT | MS_BIND, NULL);
}

static int unmask(const struct ctx *c)
{
    if (c->is_control && k_mount("/proc/version", "/proc/interrupts", NULL, MS_BIND, NULL) < 0)
        return -ENOTSUP;
    return outcome(syscall(SYS_umount2, "/proc/interrupts", DETACH));
}

static int umount_sys(const struct ctx *c)
{
    if (c->is_control && k_mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL) < 0)
        return -ENOTSUP;
    return outcome(syscall(SYS_umount2, "/proc/sys", DETACH));
}

static int umount_root(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_umount2, "/tmp", DETACH));
}

static int share(const struct ctx *c)
{
    (void)c;
    return k_mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL);
}

static int move(const struct ctx *c)
{
    (void)c;
    return k_mount("/proc", "/tmp", NULL, MS_MOVE, NULL);
}

static int pivot(const struct ctx *c)
{
    if (c->is_control && k_mount("t", made_dir(c, "m"), "tmpfs", 0, NULL) < 0)
        return -ENOTSUP;
    return outcome(chdir(made_dir(c, "m")) < 0 ? -1 : syscall(SYS_pivot_root, ".", "."));
}

static int tree(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE));
}

static int fs_open(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_fsopen, "tmpfs", 0));
}

static int fs_pick(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_fspick, AT_FDCWD, "/tmp", 0));
}

static int set_attr(const struct ctx *c)
{
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_NOSUID};

    (void)c;
    return outcome(syscall(SYS_mount_setattr, AT_FDCWD, "/proc", 0, &attr, sizeof attr));
}

static int move_mount_call(const struct ctx *c)
{
    return outcome(syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, made_dir(c, "m"), 0));
}

static int quota(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_quotactl, 0x80000100u | 0 /* Q_SYNC */, NULL, 0, NULL));
}

/* A file by its number in the file system, whatever directories lead there. */
static int by_handle(const struct ctx *c)
{
    struct {
        unsigned bytes;
        int type;
        unsigned char data[128];
    } h = {.bytes = sizeof h.data};
    int id, at = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)c;
    if (syscall(SYS_name_to_handle_at, AT_FDCWD, "/tmp", &h, &id, 0) < 0)
        h.bytes = 8;
    return outcome(syscall(SYS_open_by_handle_at, at, &h, O_RDONLY));
}

/* The old way out of chroot; what it leads to is the root of the mount namespace. */
static int chroot_out(const struct ctx *c)
{
    char host[64];
    struct stat st;

    if (mkdir(scratch_path(c, "jail"), 0755) < 0)
        return -errno;
    if (c->is_control) {
        /* The jail of the control is chroot alone; the victim's file lies outside of it. */
        if (chroot(c->scratch) < 0 || mkdir("/in", 0755) < 0 || chdir("/") < 0)
            return -errno;
        if (chroot("/in") < 0)
            return -errno;
    } else if (chroot(scratch_path(c, "jail")) < 0) {
        return -errno;
    }
    for (int i = 0; i < 64; i++)
        (void)!chdir("..");
    if (chroot(".") < 0)
        return -errno;
    snprintf(host, sizeof host, "/../../../proc/%d", (int)c->victim);
    return outcome(stat(host, &st));
}

static int statmount_other(const struct ctx *c)
{
    /* The identity of the first mount namespace, which is the host's. */
    struct {
        uint32_t size, spare;
        uint64_t mnt_id, param, mnt_ns_id;
    } req = {.size = sizeof req, .mnt_id = ~0ull};
    uint64_t ids[16];
    int fd = open(c->is_control ? "/proc/self/ns/mnt" : "/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    (void)close(fd);
    return outcome(syscall(458, &req, ids, 16, 0));
}

const struct attempt mounts_table[] = {
    {"mount-tmpfs", "mount a tmpfs", "EPERM", NULL, a_tmpfs, 0},
    {"mount-proc", "mount a procfs without masks", "EPERM", NULL, a_proc, 0},
    {"mount-sysfs", "mount a sysfs", "EPERM", NULL, a_sysfs, 0},
    {"mount-devpts", "mount another devpts", "EPERM", NULL, a_devpts, 0},
    {"mount-mqueue", "mount another mqueue", "EPERM", NULL, a_mqueue, 0},
    {"mount-overlay", "mount an overlay", "EPERM", NULL, an_overlay, 0},
    {"mount-bind", "bind /proc elsewhere, without its masks", "EPERM", NULL, a_bind, 0},
    {"mount-remount-proc-sys", "make /proc/sys writable again", "EPERM", NULL, remount_rw, 0},
    {"mount-remount-dev", "make the shared device nodes writable again", "EPERM", NULL, remount_dev, 0},
    {"mount-unmask", "take the mask off /proc/interrupts", "EPERM", NULL, unmask, 0},
    {"mount-umount-proc-sys", "take the read-only cover off /proc/sys", "EPERM", NULL, umount_sys, 0},
    {"mount-umount", "unmount a directory", "EPERM", NULL, umount_root, 0},
    {"mount-share", "make mounts propagate", "EPERM", NULL, share, 0},
    {"mount-move", "move a mount", "EPERM", NULL, move, 0},
    {"mount-pivot", "change the root (pivot_root)", "EPERM", NULL, pivot, 0},
    {"mount-open-tree", "clone the tree (open_tree)", "EPERM", NULL, tree, 0},
    {"mount-fsopen", "open a new file system (fsopen)", "EPERM", NULL, fs_open, 0},
    {"mount-fspick", "reconfigure a file system (fspick)", "EPERM", NULL, fs_pick, 0},
    {"mount-setattr", "change a mount's attributes (mount_setattr)", "EPERM", NULL, set_attr, 0},
    {"mount-move-call", "move a mount (move_mount)", "EPERM", NULL, move_mount_call, 0},
    {"mount-quota", "set quotas", "EPERM", "ENOSYS|ENODEV|EINVAL|EFAULT", quota, 0},
    {"mount-by-handle", "open a file by its number (open_by_handle_at)", "EPERM", NULL, by_handle, 0},
    {"mount-chroot-out", "leave a chroot for the host's root", "ENOENT", NULL, chroot_out, 0},
    {"mount-list-init", "open the mount namespace of PID 1 and list it", "EACCES", "ENOSYS", statmount_other, 0},
    TABLE_END,
};
