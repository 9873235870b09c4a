/*
 * cgroup_mounts.h - which cgroup hierarchies this host has, and where
 *
 * Read once at the keeper's start from /proc/self/mountinfo.
 */
#ifndef QS_SYS_CGROUP_MOUNTS_H
#define QS_SYS_CGROUP_MOUNTS_H

struct cgroup_mounts {
    char v2[256];  /* "" = not mounted */
    char cpu[256]; /* v1 mounts; "" = the controller is not on v1 */
    char memory[256];
    char pids[256];
    char io[256]; /* v1 calls it blkio */
};

int cgroup_mounts_find(struct cgroup_mounts *ret); /* 0 or -errno */

#endif
