/*
 * loopdev.h - a file as a block device
 *
 * The kernel lets two loop devices share one file, and a file system mounted from both is lost. So a
 * device is looked for before one is made; the caller holds a lock that keeps others from doing the same.
 */
#ifndef QS_SYS_LOOPDEV_H
#define QS_SYS_LOOPDEV_H

#include <stddef.h>

/* The device over the open file, which is made if there is none. 0 or -errno; *ret_fd keeps it alive
 * until it is mounted (it frees itself after its last use). */
int loopdev_get(int backing_fd, char *ret_path, size_t size, int *ret_fd);

#endif
