/*
 * move.c - Move and Copy
 *
 * A move is a rename. Where the kernel refuses that (another mount, or a directory of the image,
 * which overlay cannot rename), it is a copy under a temporary name, a rename, and a removal.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/fs/op.h"
#include "init/fs/path.h"
#include "init/fs/remove.h"
#include "init/fs/walk.h"
#include "sys/fd.h"

#define K_RENAME_NOREPLACE 1

struct transfer {
    const char *from, *to;              /* trimmed */
    char *to_dir;
    bool overwrite;
};

static int transfer_args(struct op *o, struct transfer *t, struct fs_error *e)
{
    const char *from, *to, *name;
    bool parents;

    if (arg_path(o, "from", &from, e) < 0 || arg_path(o, "to", &to, e) < 0 ||
        arg_bool(o, "overwrite", true, &t->overwrite, e) < 0 ||
        arg_bool(o, "parents", true, &parents, e) < 0)
        return -1;
    t->from = path_trim(o->arena, from);
    t->to = path_trim(o->arena, to);
    path_split(o->arena, t->to, &t->to_dir, &name);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fs_fail_kind(e, "Refused", "cannot be replaced");
    if (parents && access(t->to_dir, F_OK) < 0 && errno == ENOENT) {
        struct stat st;
        if (lstat(t->from, &st) < 0)
            return fs_fail(e, errno);
        int r = path_make(o->arena, t->to_dir, 0777);
        if (r < 0)
            return fs_fail(e, -r);
    }
    return 0;
}

static int rename_to(const char *from, const char *to, bool overwrite)
{
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, overwrite ? 0 : K_RENAME_NOREPLACE) == 0)
        return 0;
    return -errno;
}

/* Owner, mode, attributes and times of a finished copy. What the user may not set is left. */
static void finish(int from, int fd, const struct stat *st)
{
    struct timespec times[2] = {st->st_atim, st->st_mtim};

    mode_t mode = st->st_mode & 07777;
    if (fchown(fd, st->st_uid, st->st_gid) < 0)
        mode &= 01777;
    (void)fchmod(fd, mode);
    copy_xattrs(from, fd);
    (void)futimens(fd, times);
}

static int copy_file(int from_dir, const char *from, int to_dir, const char *to, const struct stat *st)
{
    auto_close int in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (in < 0)
        return -errno;
    auto_close int out = openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return -errno;
    int r = copy_content(in, out, st->st_size);
    if (r == 0)
        finish(in, out, st);
    return r;
}

static int copy_link(int from_dir, const char *from, int to_dir, const char *to, const struct stat *st)
{
    char target[LIMIT_PATH];
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    ssize_t n = readlinkat(from_dir, from, target, sizeof target - 1);

    if (n < 0)
        return -errno;
    target[n] = '\0';
    if (symlinkat(target, to_dir, to) < 0)
        return -errno;
    (void)fchownat(to_dir, to, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW);
    (void)utimensat(to_dir, to, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* Anything but a directory. */
static int copy_one(int from_dir, const char *from, int to_dir, const char *to, const struct stat *st)
{
    if (S_ISREG(st->st_mode))
        return copy_file(from_dir, from, to_dir, to, st);
    if (S_ISLNK(st->st_mode))
        return copy_link(from_dir, from, to_dir, to, st);
    if (S_ISSOCK(st->st_mode))
        return 0;                       /* nobody listens on a copy */
    return mknodat(to_dir, to, st->st_mode, st->st_rdev) < 0 ? -errno : 0;
}

static int finish_dir(int from, int to_dir, const char *to, const struct stat *st)
{
    auto_close int fd = openat(to_dir, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    finish(from, fd, st);
    return 0;
}

/* The content of directory `from` into the empty directory `to`. Names the entry at fault. */
static int copy_tree(int from, int to, dev_t dev, ino_t ino, struct fs_error *e)
{
    static struct walk walk;
    struct walk_entry w;
    struct stat st;
    int r = walk_begin(&walk, fcntl(from, F_DUPFD_CLOEXEC, 3));

    while (r == 0) {
        r = walk_next(&walk, &w);
        if (r <= 0)
            break;
        if (r == WALK_LEAVE) {
            auto_close int dir = openat(w.dirfd, w.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            r = dir < 0 || fstat(dir, &st) < 0 ? -errno : finish_dir(dir, to, w.path, &st);
        } else if (!S_ISDIR(w.st.st_mode)) {
            r = copy_one(w.dirfd, w.name, to, w.path, &w.st);
        } else if (w.st.st_dev == dev && w.st.st_ino == ino) {
            r = -EINVAL;                /* a tree into itself has no end */
        } else {
            r = mkdirat(to, w.path, 0700) < 0 ? -errno : walk_enter(&walk);
        }
    }
    if (r < 0)
        (void)fs_fail_at(e, -r, walk.path);
    walk_done(&walk);
    return r < 0 ? -1 : 0;
}

static int copy_any(const char *from, const char *to, struct fs_error *e)
{
    struct stat st, own;
    int r;

    if (lstat(from, &st) < 0)
        return fs_fail(e, errno);
    if (!S_ISDIR(st.st_mode)) {
        r = copy_one(AT_FDCWD, from, AT_FDCWD, to, &st);
        return r < 0 ? fs_fail(e, -r) : 0;
    }
    auto_close int source = open(from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (source < 0 || mkdir(to, 0700) < 0)
        return fs_fail(e, errno);
    auto_close int target = open(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (target < 0 || fstat(target, &own) < 0)
        return fs_fail(e, errno);
    if (copy_tree(source, target, own.st_dev, own.st_ino, e) < 0)
        return -1;
    finish(source, target, &st);
    return 0;
}

static void discard(const char *path)
{
    struct fs_error ignored;            /* the first error is the one to report */

    if (unlink(path) < 0 && errno != ENOENT)
        (void)remove_tree(AT_FDCWD, path, &ignored);
}

/* Copies under a name of its own, then renames: nobody sees half a copy. */
static int copy_and_rename(struct op *o, const struct transfer *t, struct fs_error *e)
{
    uint64_t r = 0;
    size_t size = strlen(t->to_dir) + 40;
    char *temporary = arena_alloc(o->arena, size);
    struct stat st;

    if (!t->overwrite && lstat(t->to, &st) == 0)
        return fs_fail(e, EEXIST);
    if (getrandom(&r, sizeof r, 0) < 0)
        r = (uint64_t)getpid();
    snprintf(temporary, size, "%s/.qs-%016llx.tmp", t->to_dir, (unsigned long long)r);
    if (copy_any(t->from, temporary, e) < 0) {
        discard(temporary);
        return -1;
    }
    int error = rename_to(temporary, t->to, t->overwrite);
    if (error < 0) {
        discard(temporary);
        return fs_fail(e, -error);
    }
    return 0;
}

/* The kernel refuses to move a directory below itself; so must the slow way. */
static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

int op_move(struct op *o, struct fs_error *e)
{
    struct transfer t;
    struct stat st;

    if (transfer_args(o, &t, e) < 0 || path_guard(t.from, e) < 0)
        return -1;
    int r = rename_to(t.from, t.to, t.overwrite);
    if (r == 0)
        return 0;
    if (r != -EXDEV)
        return fs_fail(e, -r);
    if (is_below(t.to, t.from))
        return fs_fail(e, EINVAL);
    if (copy_and_rename(o, &t, e) < 0)
        return -1;
    if (lstat(t.from, &st) < 0)
        return fs_fail(e, errno);
    if (S_ISDIR(st.st_mode))
        return remove_tree(AT_FDCWD, t.from, e);
    return unlink(t.from) < 0 ? fs_fail(e, errno) : 0;
}

int op_copy(struct op *o, struct fs_error *e)
{
    struct transfer t;
    bool recursive;
    struct stat st;

    if (transfer_args(o, &t, e) < 0 || arg_bool(o, "recursive", true, &recursive, e) < 0)
        return -1;
    if (lstat(t.from, &st) < 0)
        return fs_fail(e, errno);
    if (S_ISDIR(st.st_mode) && !recursive)
        return fs_fail(e, EISDIR);
    if (S_ISDIR(st.st_mode) && is_below(t.to, t.from))
        return fs_fail(e, EINVAL);
    return copy_and_rename(o, &t, e);
}
