/*
 * btrfs.c - subvolumes of one btrfs, by ioctl
 */
#include "sys/btrfs.h"

#include <errno.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#define QUOTA_ENABLE_SIMPLE 4 /* since Linux 6.7; older headers lack the name */

bool btrfs_is(int fd)
{
    struct statfs s;

    return fstatfs(fd, &s) == 0 && s.f_type == BTRFS_SUPER_MAGIC;
}

int btrfs_create(int dirfd, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};

    if (strlen(name) >= sizeof args.name)
        return -ENAMETOOLONG;
    memcpy(args.name, name, strlen(name));
    return ioctl(dirfd, BTRFS_IOC_SUBVOL_CREATE, &args) < 0 ? -errno : 0;
}

int btrfs_snapshot(int dirfd, const char *name, int source_fd, bool read_only)
{
    struct btrfs_ioctl_vol_args_v2 args = {
        .fd = source_fd,
        .flags = read_only ? BTRFS_SUBVOL_RDONLY : 0,
    };

    if (strlen(name) >= sizeof args.name)
        return -ENAMETOOLONG;
    memcpy(args.name, name, strlen(name));
    return ioctl(dirfd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0 ? -errno : 0;
}

int btrfs_destroy(int dirfd, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};

    if (strlen(name) >= sizeof args.name)
        return -ENAMETOOLONG;
    memcpy(args.name, name, strlen(name));
    return ioctl(dirfd, BTRFS_IOC_SNAP_DESTROY, &args) < 0 ? -errno : 0;
}

int btrfs_quota_enable(int fd)
{
    struct btrfs_ioctl_quota_ctl_args args = {.cmd = QUOTA_ENABLE_SIMPLE};

    if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) == 0)
        return 0;
    args = (struct btrfs_ioctl_quota_ctl_args){.cmd = BTRFS_QUOTA_CTL_ENABLE};
    return ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) < 0 && errno != EEXIST ? -errno : 0;
}

int btrfs_quota_limit(int fd, uint64_t bytes)
{
    struct btrfs_ioctl_qgroup_limit_args args = {
        .qgroupid = 0, /* the subvolume's own group */
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = bytes},
    };

    return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0 ? -errno : 0;
}
