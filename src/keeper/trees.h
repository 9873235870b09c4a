/*
 * trees.h - the btrfs that holds the writable trees of sandboxes
 *
 * Mounted at <data_dir>/trees: a file system that the administrator mounted there, or an image
 * made at first start, which grows. A btrfs that holds the data directory is not used for it: base layers must be
 * on another superblock than the trees, or overlay shows colliding inode numbers.
 */
#ifndef QS_KEEPER_TREES_H
#define QS_KEEPER_TREES_H

#include <stdint.h>

#include "base/conf.h"
#include "base/err.h"

/* The caller holds the lock of the data directory. */
int trees_mount(const struct conf *c, int data_fd, struct err *e);
/* From now on it grows when it must, in the keeper's loop. */
void trees_watch(void);
/* Bytes by which it may grow yet. */
uint64_t trees_growable(void);
/* In a child that must not hold the image. */
void trees_close(void);
/* At a clean stop with no sandbox left; fails harmlessly if the file system is in use. */
void trees_unmount(const struct conf *c);

#endif
