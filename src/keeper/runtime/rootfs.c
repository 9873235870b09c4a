/*
 * rootfs.c - the mounts of a sandbox: its layers and its writable tree, with its ids
 */
#include "keeper/runtime/rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "sys/btrfs.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"
#include "sys/rmtree.h"

/* Layers keep their setuid programs: the ids are the sandbox's own. */
#define LAYER_ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV)
#define TREE_ATTRIBUTES (MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID)

static int check_directory(int at, const char *what, const char *name, struct err *e)
{
    struct stat st;

    int r = fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
    if (r != 0 && r != ENOENT)
        return err_sys(e, r, "look for %s %s", what, name);
    if (r == ENOENT || !S_ISDIR(st.st_mode))
        return err_set(e, ERR_NOT_FOUND, "%s %s is not on this node", what, name);
    return 0;
}

int rootfs_check_layer(const char *layer, struct err *e)
{
    return check_directory(keeper.layers_fd, "layer", layer, e);
}

int rootfs_check_delta(const char *delta, struct err *e)
{
    return check_directory(keeper.deltas_fd, "delta", delta, e);
}

int rootfs_layer(const char *layer, int userns_fd, int *ret_fd, struct err *e)
{
    int fd = mount_clone(keeper.layers_fd, layer, LAYER_ATTRIBUTES, userns_fd);

    if (fd < 0)
        return err_sys(e, -fd, "mount layer %s", layer);
    *ret_fd = fd;
    return 0;
}

int rootfs_scaffold(int userns_fd, int *ret_fd, struct err *e)
{
    int fd = mount_clone(keeper.scaffold_fd, "", LAYER_ATTRIBUTES, userns_fd);

    if (fd < 0)
        return err_sys(e, -fd, "mount the scaffold layer");
    *ret_fd = fd;
    return 0;
}

/* Accounting costs every write something, so it starts with the first sandbox that has a limit. */
static int limit_disk(int subvolume, const char *sandbox, uint64_t bytes, struct err *e)
{
    static bool enabled;

    if (!enabled) {
        int r = btrfs_quota_enable(keeper.trees_fd);
        if (r < 0)
            return err_sys(e, -r, "turn on disk accounting for the limit of %s", sandbox);
        enabled = true;
    }
    int r = btrfs_quota_limit(subvolume, bytes);
    return r < 0 ? err_sys(e, -r, "set the disk limit of %s", sandbox) : 0;
}

static int make_empty(const char *sandbox, int *ret_fd, struct err *e)
{
    int r = btrfs_create(keeper.sandboxes_fd, sandbox);

    if (r < 0)
        return err_sys(e, -r, "make the tree of %s", sandbox);
    auto_close int fd =
        openat(keeper.sandboxes_fd, sandbox, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || mkdirat(fd, "upper", 0755) < 0 || mkdirat(fd, "work", 0755) < 0)
        return err_sys(e, errno, "set up the tree of %s", sandbox);
    *ret_fd = take_fd(&fd);
    return 0;
}

/* The work directory is of the mount that the snapshot was taken from, and may be in any state. */
static int make_clone(const char *sandbox, const char *delta, int *ret_fd, struct err *e)
{
    auto_close int source =
        openat(keeper.deltas_fd, delta, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (source < 0)
        return err_sys(e, errno, "open delta %s", delta);
    int r = btrfs_snapshot(keeper.sandboxes_fd, sandbox, source, false);
    if (r < 0)
        return err_sys(e, -r, "clone delta %s for %s", delta, sandbox);
    auto_close int fd =
        openat(keeper.sandboxes_fd, sandbox, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_sys(e, errno, "open the tree of %s", sandbox);
    r = rmtree(fd, "work");
    if (r == 0 && mkdirat(fd, "work", 0755) < 0)
        r = -errno;
    if (r < 0)
        return err_sys(e, -r, "set up the tree of %s", sandbox);
    *ret_fd = take_fd(&fd);
    return 0;
}

int rootfs_tree_make(const char *sandbox, const char *delta, uint64_t disk_bytes, int userns_fd,
                     int *ret_fd, struct err *e)
{
    auto_close int tree = -1;

    if ((*delta == '\0' ? make_empty(sandbox, &tree, e) : make_clone(sandbox, delta, &tree, e)) < 0)
        return -1;
    if (disk_bytes > 0 && limit_disk(tree, sandbox, disk_bytes, e) < 0)
        return -1;
    int fd = mount_clone(tree, "", TREE_ATTRIBUTES, userns_fd);
    if (fd < 0)
        return err_sys(e, -fd, "mount the tree of %s", sandbox);
    *ret_fd = fd;
    return 0;
}

int rootfs_tree_view(const char *sandbox, int userns_fd, int *ret_fd, struct err *e)
{
    auto_close int tree = openat(keeper.sandboxes_fd, sandbox, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (tree < 0)
        return err_sys(e, errno, "open the tree of %s", sandbox);
    int fd = mount_clone(tree, "upper", TREE_ATTRIBUTES | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, userns_fd);
    if (fd < 0)
        return err_sys(e, -fd, "mount the tree of %s for the image role", sandbox);
    *ret_fd = fd;
    return 0;
}

int rootfs_tree_remove(const char *sandbox, struct err *e)
{
    int r = btrfs_destroy(keeper.sandboxes_fd, sandbox);

    /* What is there but no subvolume was not made by us; it goes all the same. */
    if (r == -EINVAL || r == -ENOTDIR)
        r = rmtree(keeper.sandboxes_fd, sandbox);
    return r < 0 && r != -ENOENT ? err_sys(e, -r, "remove the tree of %s", sandbox) : 0;
}
