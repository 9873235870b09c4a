/*
 * btrfs.h - subvolumes of one btrfs, by ioctl
 *
 * `dirfd` is the directory that holds the subvolume. 0 or -errno.
 */
#ifndef QS_SYS_BTRFS_H
#define QS_SYS_BTRFS_H

#include <stdbool.h>
#include <stdint.h>

bool btrfs_is(int fd); /* does fd live on a btrfs? */
int btrfs_create(int dirfd, const char *name);
int btrfs_snapshot(int dirfd, const char *name, int source_fd, bool read_only);
int btrfs_destroy(int dirfd, const char *name);

/* Turns accounting on, once a file system: simple quotas where the kernel has them, else the full ones. */
int btrfs_quota_enable(int fd);
/* Limit of the bytes that the subvolume of `fd` may refer to. */
int btrfs_quota_limit(int fd, uint64_t bytes);

#endif
