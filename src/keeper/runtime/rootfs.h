/*
 * rootfs.h - the mounts of a sandbox: its layers and its writable tree, with its ids
 *
 * Called by sandbox.c. Everything is a detached mount; the host's mount table does not grow.
 */
#ifndef QS_KEEPER_RUNTIME_ROOTFS_H
#define QS_KEEPER_RUNTIME_ROOTFS_H

#include <stdint.h>

#include "base/err.h"

/* Is there a directory for this layer / delta? */
int rootfs_check_layer(const char *layer, struct err *e);
int rootfs_check_delta(const char *delta, struct err *e);

int rootfs_layer(const char *layer, int userns_fd, int *ret_fd, struct err *e);
int rootfs_scaffold(int userns_fd, int *ret_fd, struct err *e);

/* Makes the subvolume of a sandbox, empty or as a clone of a delta, and mounts it. */
int rootfs_tree_make(const char *sandbox, const char *delta, uint64_t disk_bytes, int userns_fd,
                     int *ret_fd, struct err *e);
/* What was written into it, read-only. */
int rootfs_tree_view(const char *sandbox, int userns_fd, int *ret_fd, struct err *e);
int rootfs_tree_remove(const char *sandbox, struct err *e); /* 0 also if there is none */

#endif
