/*
 * devices.c - making device nodes, and misusing those that are there
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "escape.h"

/* Made and opened for reading; nothing is read. With the node made the wall is down: whether its driver answers on this
 * machine is no matter of ours. */
static int node(const struct ctx *c, mode_t type, unsigned major, unsigned minor)
{
    const char *path = scratch_path(c, "node");

    if (mknod(path, type | 0666, makedev(major, minor)) < 0)
        return -errno;
    (void)open_outcome(path, O_RDONLY);
    return 0;
}

#define NODE(fn, type, major, minor)                                                                                  \
    static int fn(const struct ctx *c)                                                                                \
    {                                                                                                                 \
        return node(c, type, major, minor);                                                                           \
    }
NODE(node_mem, S_IFCHR, 1, 1)
NODE(node_port, S_IFCHR, 1, 4)
NODE(node_kmsg, S_IFCHR, 1, 11)
NODE(node_null, S_IFCHR, 1, 3)
NODE(node_console, S_IFCHR, 5, 1)
NODE(node_tty0, S_IFCHR, 4, 0)
NODE(node_loop, S_IFBLK, 7, 0)
NODE(node_loop_control, S_IFCHR, 10, 237)
NODE(node_kvm, S_IFCHR, 10, 232)
NODE(node_fuse, S_IFCHR, 10, 229)
NODE(node_tun, S_IFCHR, 10, 200)
NODE(node_vsock, S_IFCHR, 10, 121)
NODE(node_btrfs, S_IFCHR, 10, 234)

/* The disk below the root, by the number that stat(2) tells. */
static int node_disk(const struct ctx *c)
{
    struct stat st;
    unsigned major = 254, minor = 0;

    if (c->is_control && stat("/etc", &st) == 0 && major(st.st_dev) != 0) {
        major = major(st.st_dev);
        minor = minor(st.st_dev);
    }
    return node(c, S_IFBLK, major, minor);
}

/* On the mount of /dev itself, where a node would not be hidden by nodev. */
static int node_in_dev(const struct ctx *c)
{
    char path[64];

    snprintf(path, sizeof path, "/dev/%s", c->token);
    int r = mknod(path, S_IFCHR | 0600, makedev(1, 3)) < 0 ? -errno : 0;
    if (r == 0)
        (void)unlink(path);
    return r;
}

/* In the control the node is one of its own. */
static const char *shared(const struct ctx *c)
{
    const char *path = scratch_path(c, "null");

    if (!c->is_control)
        return "/dev/null";
    return mknod(path, S_IFCHR | 0666, makedev(1, 3)) < 0 ? "/nonexistent" : path;
}

static int null_mode(const struct ctx *c)
{
    return outcome(chmod(shared(c), 04777));
}

static int null_owner(const struct ctx *c)
{
    return outcome(chown(shared(c), 1000, 1000));
}

static int null_times(const struct ctx *c)
{
    return outcome(utimensat(AT_FDCWD, shared(c), NULL, 0));
}

static int null_xattr(const struct ctx *c)
{
    const char *path = shared(c);

    return outcome(setxattr(path, "trusted.qse", "x", 1, 0));
}

static int null_link(const struct ctx *c)
{
    const char *path = shared(c);

    return outcome(link(path, scratch_path(c, "linked")));
}

static int null_remove(const struct ctx *c)
{
    return outcome(unlink(shared(c)));
}

static int null_replace(const struct ctx *c)
{
    const char *path = shared(c), *other = scratch_path(c, "other");

    if (mknod(other, S_IFREG | 0644, 0) < 0)
        return -errno;
    return outcome(rename(other, path));
}

/* Adds no bit of entropy, but may only be asked by who administers the machine. */
static int entropy(const struct ctx *c)
{
    int fd = open("/dev/random", O_RDWR | O_CLOEXEC), bits = 0;

    (void)c;
    return fd < 0 ? -errno : outcome(ioctl(fd, 0x40045201 /* RNDADDTOENTCNT */, &bits));
}

static int reseed(const struct ctx *c)
{
    int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);

    (void)c;
    return fd < 0 ? -errno : outcome(ioctl(fd, 0x5207 /* RNDRESEEDCRNG */, 0));
}

static int freeze(const struct ctx *c)
{
    int fd = open(c->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC), zero = 0;

    return fd < 0 ? -errno : outcome(ioctl(fd, 0xC0045877 /* FIFREEZE */, &zero));
}

static int immutable(const struct ctx *c)
{
    int fd = open(scratch_path(c, "flags"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    long flags = 0x10;

    if (fd < 0)
        return -errno;
    return outcome(ioctl(fd, 0x40086602 /* FS_IOC_SETFLAGS: immutable */, &flags));
}

static int overlay_attributes(const struct ctx *c)
{
    const char *path = scratch_path(c, "opaque");

    (void)mkdir(path, 0755);
    return outcome(setxattr(path, "trusted.overlay.redirect", "/", 1, 0));
}

/* A whiteout is a character device 0/0: made by hand it could hide what the layers below hold from others. */
static int whiteout(const struct ctx *c)
{
    const char *path = scratch_path(c, "whiteout");

    return outcome(mknod(path, S_IFCHR | 0600, makedev(0, 1)));
}

const struct attempt devices_table[] = {
    {"device-disk", "make a node of the host's disk", "EPERM|EACCES", NULL, node_disk, 0},
    {"device-mem", "make a node of the machine's memory", "EPERM", NULL, node_mem, 0},
    {"device-port", "make a node of the I/O ports", "EPERM", NULL, node_port, 0},
    {"device-kmsg", "make a node of the kernel's log", "EPERM", NULL, node_kmsg, 0},
    {"device-null", "make a node of a harmless device", "EPERM", NULL, node_null, 0},
    {"device-console", "make a node of the console", "EPERM", NULL, node_console, 0},
    {"device-tty0", "make a node of the screen", "EPERM", NULL, node_tty0, 0},
    {"device-loop", "make a node of a loop device", "EPERM|EACCES", NULL, node_loop, 0},
    {"device-loop-control", "make the node that adds loop devices", "EPERM", NULL, node_loop_control, 0},
    {"device-kvm", "make a node of KVM", "EPERM", NULL, node_kvm, 0},
    {"device-fuse", "make a node of FUSE", "EPERM", NULL, node_fuse, 0},
    {"device-tun", "make a node of TUN", "EPERM", NULL, node_tun, 0},
    {"device-vsock", "make a node of vsock", "EPERM", NULL, node_vsock, 0},
    {"device-btrfs", "make the node that controls btrfs", "EPERM", NULL, node_btrfs, 0},
    {"device-in-dev", "make a node in /dev", "EPERM", NULL, node_in_dev, 0},
    {"device-whiteout", "make an overlay whiteout by hand", "EPERM", NULL, whiteout, 0},
    {"device-null-mode", "change the mode of the shared /dev/null", "EROFS", NULL, null_mode, 0},
    {"device-null-owner", "change the owner of the shared /dev/null", "EROFS", NULL, null_owner, 0},
    {"device-null-times", "change the times of the shared /dev/null", "EROFS", NULL, null_times, 0},
    {"device-null-xattr", "put an attribute on the shared /dev/null", "EROFS|EPERM", NULL, null_xattr, 0},
    {"device-null-link", "link the shared /dev/null elsewhere", "EXDEV", NULL, null_link, 0},
    {"device-null-remove", "remove the shared /dev/null", "EBUSY", NULL, null_remove, 0},
    {"device-null-replace", "replace the shared /dev/null", "EBUSY|EXDEV", NULL, null_replace, 0},
    {"device-entropy", "credit the kernel's random pool", "EPERM", NULL, entropy, 0},
    {"device-reseed", "reseed the kernel's random numbers", "EPERM", NULL, reseed, 0},
    {"device-freeze", "freeze the file system", "EPERM", "EOPNOTSUPP", freeze, 0},
    {"device-immutable", "make a file immutable", "EPERM", "ENOTTY", immutable, 0},
    {"device-overlay-attribute", "redirect a directory of the overlay elsewhere", "EPERM", NULL, overlay_attributes, 0},
    TABLE_END,
};
