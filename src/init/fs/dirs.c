/*
 * dirs.c - MakeDirectory and Remove
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/fs/op.h"
#include "init/fs/path.h"
#include "init/fs/remove.h"
#include "init/fs/walk.h"
#include "sys/fd.h"

int op_mkdir(struct op *o, struct fs_error *e)
{
    const char *given;
    bool parents, has_mode;
    mode_t mode = 0777;
    char *dir;
    const char *name;
    struct stat st;

    if (arg_path(o, "path", &given, e) < 0 || arg_bool(o, "parents", true, &parents, e) < 0 ||
        arg_mode(o, "mode", &mode, &has_mode, e) < 0)
        return -1;
    const char *path = path_trim(o->arena, given);
    path_split(o->arena, path, &dir, &name);
    if (parents && name[0] != '\0') {
        int r = path_make(o->arena, dir, 0777);
        if (r < 0)
            return fs_fail(e, -r);
    }
    if (mkdir(path, mode) < 0) {
        int error = errno;
        if (parents && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            return 0;
        return fs_fail(e, error);
    }
    /* The mask does not apply to a mode that was asked for. */
    if (has_mode && chmod(path, mode) < 0)
        return fs_fail(e, errno);
    return 0;
}

int remove_tree(int dirfd, const char *name, struct fs_error *e)
{
    static struct walk walk;
    struct walk_entry w;
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return fs_fail(e, errno);
    int r = walk_begin(&walk, fd);
    while (r == 0) {
        r = walk_next(&walk, &w);
        if (r <= 0)
            break;
        if (r == WALK_ENTRY && S_ISDIR(w.st.st_mode)) {
            /* Nothing behind a mount point is ours to delete. */
            r = is_mount_root(w.dirfd, w.name) ? -EBUSY : walk_enter(&walk);
            if (r == -ENOENT)
                r = 0;
            continue;
        }
        r = unlinkat(w.dirfd, w.name, r == WALK_LEAVE ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT ? -errno : 0;
    }
    if (r < 0)
        (void)fs_fail_at(e, -r, walk.path);
    walk_done(&walk);
    if (r < 0)
        return -1;
    if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0)
        return fs_fail(e, errno);
    return 0;
}

int op_remove(struct op *o, struct fs_error *e)
{
    const char *given;
    bool recursive;
    struct stat st;

    if (arg_path(o, "path", &given, e) < 0 || arg_bool(o, "recursive", false, &recursive, e) < 0)
        return -1;
    /* Without its slash, a link to a directory is only the link. */
    const char *path = path_trim(o->arena, given);
    if (path_guard(path, e) < 0)
        return -1;
    if (lstat(path, &st) < 0)
        return fs_fail(e, errno);
    if (!S_ISDIR(st.st_mode))
        return unlink(path) < 0 ? fs_fail(e, errno) : 0;
    if (recursive)
        return remove_tree(AT_FDCWD, path, e);
    return rmdir(path) < 0 ? fs_fail(e, errno) : 0;
}
