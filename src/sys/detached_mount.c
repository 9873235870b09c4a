/*
 * detached_mount.c - detached mounts
 */
#include "sys/detached_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "sys/fd.h"

int mount_clone(int dirfd, const char *path, uint64_t attributes, int userns_fd)
{
    auto_close int fd = open_tree(dirfd, path,
                                  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW |
                                      AT_NO_AUTOMOUNT | (*path == '\0' ? AT_EMPTY_PATH : 0));
    struct mount_attr attr = {.attr_set = attributes};
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)userns_fd;
    }
    if (attr.attr_set != 0 && mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return -errno;
    return take_fd(&fd);
}

int mount_new(const char *type, const struct mount_option *options, size_t n, uint64_t attributes)
{
    auto_close int fs = fsopen(type, FSOPEN_CLOEXEC);

    if (fs < 0)
        return -errno;
    for (size_t i = 0; i < n; i++) {
        unsigned command = options[i].value != NULL ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
        if (fsconfig(fs, command, options[i].key, options[i].value, 0) < 0)
            return -errno;
    }
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int fd = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attributes);
    return fd < 0 ? -errno : fd;
}
