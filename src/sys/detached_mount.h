/*
 * detached_mount.h - detached mounts
 *
 * Called by the keeper and its spawner. A detached mount is held by a descriptor and has no place in
 * the host's tree, so nothing is left when the descriptor is closed. Descriptor or -errno.
 */
#ifndef QS_SYS_DETACHED_MOUNT_H
#define QS_SYS_DETACHED_MOUNT_H

#include <stddef.h>
#include <stdint.h>

/*
 * A clone of the directory `path` below `dirfd`, whose last component is not followed if it is a link,
 * with MOUNT_ATTR_* bits set and, if userns_fd >= 0, ids mapped to that user namespace.
 */
int mount_clone(int dirfd, const char *path, uint64_t attributes, int userns_fd);

struct mount_option {
    const char *key;
    const char *value; /* NULL = a flag */
};

/* A new instance of a file system, not attached anywhere. */
int mount_new(const char *type, const struct mount_option *options, size_t n, uint64_t attributes);

#endif
