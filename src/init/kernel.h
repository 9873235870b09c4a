/*
 * kernel.h - system calls and constants that musl does not wrap
 *
 * Used by PID 1 and by the file helper. Every wrapper returns what the kernel says: a value, or -1
 * with errno. Mount constants come from the kernel's header; <sys/mount.h> must not be included
 * beside it.
 */
#ifndef QS_INIT_KERNEL_H
#define QS_INIT_KERNEL_H

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif
#define KERNEL_MNT_DETACH 2
#define KERNEL_CLONE_NEWCGROUP 0x02000000

static inline int k_mount(const char *source, const char *target, const char *type,
                          unsigned long flags, const char *options)
{
    return (int)syscall(SYS_mount, source, target, type, flags, options);
}

static inline int k_umount2(const char *target, int flags)
{
    return (int)syscall(SYS_umount2, target, flags);
}

static inline int k_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int k_fsopen(const char *type)
{
    return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

static inline int k_fsconfig(int fd, unsigned cmd, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fd, cmd, key, value, 0);
}

static inline int k_fsmount(int fd, unsigned attributes)
{
    return (int)syscall(SYS_fsmount, fd, FSMOUNT_CLOEXEC, attributes);
}

static inline int k_open_tree(int dirfd, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dirfd, path, flags | OPEN_TREE_CLOEXEC);
}

static inline int k_move_mount(int from, const char *from_path, int to, const char *to_path)
{
    unsigned flags = (*from_path == '\0' ? MOVE_MOUNT_F_EMPTY_PATH : 0) |
                     (*to_path == '\0' ? MOVE_MOUNT_T_EMPTY_PATH : 0);

    return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

static inline int k_mount_setattr(int fd, const char *path, unsigned flags, uint64_t set)
{
    struct mount_attr attr = {.attr_set = set};

    return (int)syscall(SYS_mount_setattr, fd, path, flags, &attr, sizeof attr);
}

static inline int k_openat2(int dirfd, const char *path, uint64_t flags, uint64_t mode,
                            uint64_t resolve)
{
    struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};

    return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
}

static inline int k_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

#endif
