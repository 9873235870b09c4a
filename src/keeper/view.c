/*
 * view.c - a file tree of one's own
 *
 * Inherited mounts are locked to a less privileged namespace (mount_namespaces(7)), so they cannot be unmounted one by one:
 * the root is left instead.
 */
#include "keeper/view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/fd.h"

/* Makes the directories above an absolute path, below the working directory. */
static int make_parents(const char *path)
{
    char part[PATH_MAX];

    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - path);
        if (n >= sizeof part)
            return -ENAMETOOLONG;
        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part + 1, 0755) < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}

static int show_link(const char *path)
{
    char target[PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);

    if (n < 0)
        return -errno;
    target[n] = '\0';
    return symlink(target, path + 1) < 0 && errno != EEXIST ? -errno : 0;
}

static int make_place(const char *path, bool directory)
{
    struct stat st;

    if (directory)
        return mkdir(path + 1, 0755) < 0 && errno != EEXIST ? -errno : 0;
    if (lstat(path + 1, &st) == 0)
        return 0;
    int fd = open(path + 1, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    (void)close(fd);
    return 0;
}

/* Shown already, with a directory above it. */
static bool is_there(const struct view_entry *v, const struct stat *st)
{
    struct stat seen;

    return (v->flags & VIEW_WRITE) == 0 && stat(v->path + 1, &seen) == 0 && seen.st_dev == st->st_dev &&
           seen.st_ino == st->st_ino;
}

static int restrict_mount(int mount, unsigned flags)
{
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_NOSUID | ((flags & VIEW_WRITE) != 0 ? 0 : MOUNT_ATTR_RDONLY) |
                    ((flags & VIEW_NODES) != 0 ? 0 : MOUNT_ATTR_NODEV) |
                    ((flags & VIEW_EXEC) != 0 ? 0 : MOUNT_ATTR_NOEXEC),
    };

    return mount_setattr(mount, "", AT_EMPTY_PATH | ((flags & VIEW_TREE) != 0 ? AT_RECURSIVE : 0), &attr,
                         sizeof attr) < 0 ? -errno : 0;
}

static int show(const struct view_entry *v)
{
    struct stat st;
    auto_close int made = -1;

    if (v->path[0] != '/')
        return 0;
    int r = make_parents(v->path);
    if (r < 0)
        return r;
    if (v->mount > 0) {
        r = make_place(v->path, true);
        if (r < 0)
            return r;
        return move_mount(v->mount, "", AT_FDCWD, v->path + 1, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
    }
    if (lstat(v->path, &st) < 0)
        return errno == ENOENT && (v->flags & VIEW_NEEDED) == 0 ? 0 : -errno;
    /* The links of a merged /usr stay links; a file that is named by one is shown itself. */
    if (S_ISLNK(st.st_mode) && strchr(v->path + 1, '/') == NULL)
        return show_link(v->path);
    if (stat(v->path, &st) < 0)
        return errno == ENOENT && (v->flags & VIEW_NEEDED) == 0 ? 0 : -errno;
    if (is_there(v, &st))
        return 0;
    r = make_place(v->path, S_ISDIR(st.st_mode));
    if (r < 0)
        return r;
    made = open_tree(AT_FDCWD, v->path,
                     OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | ((v->flags & VIEW_TREE) != 0 ? AT_RECURSIVE : 0));
    if (made < 0)
        return -errno;
    r = restrict_mount(made, v->flags);
    if (r < 0)
        return r;
    return move_mount(made, "", AT_FDCWD, v->path + 1, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int view_enter(const char *base, const struct view_entry *entries, size_t n)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", base, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=1m") < 0 || chdir(base) < 0)
        return -errno;
    for (size_t i = 0; i < n; i++) {
        int r = show(&entries[i]);
        if (r < 0)
            return r;
    }
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return -errno;
    return 0;
}
