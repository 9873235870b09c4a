/*
 * attr.c - Chmod, Chown, Symlink, ReadLink, Hash
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "init/fs/op.h"
#include "init/fs/path.h"
#include "init/fs/walk.h"
#include "sys/fd.h"

struct change {
    bool chown;
    mode_t mode;
    int64_t uid, gid;
};

static int change_at(const struct change *c, int dirfd, const char *name, const struct stat *st)
{
    if (c->chown)
        return fchownat(dirfd, name, (uid_t)c->uid, (gid_t)c->gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
    if (S_ISLNK(st->st_mode))
        return 0;                       /* links have no mode of their own */
    return fchmodat(dirfd, name, c->mode, 0) < 0 ? -errno : 0;
}

/* All below `path`, links themselves and not what they point to. */
static int change_tree(const struct change *c, const char *path, struct fs_error *e)
{
    static struct walk walk;
    struct walk_entry w;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return errno == ENOTDIR ? 0 : fs_fail(e, errno);
    int r = walk_begin(&walk, fd);
    while (r == 0) {
        r = walk_next(&walk, &w);
        if (r <= 0)
            break;
        if (r == WALK_LEAVE) {
            r = change_at(c, w.dirfd, w.name, &(struct stat){0});
        } else if (S_ISDIR(w.st.st_mode)) {
            r = walk_enter(&walk);      /* changed on the way back, or we might lock ourselves out */
        } else {
            r = change_at(c, w.dirfd, w.name, &w.st);
        }
    }
    if (r < 0)
        (void)fs_fail_at(e, -r, walk.path);
    walk_done(&walk);
    return r < 0 ? -1 : 0;
}

int op_chmod(struct op *o, struct fs_error *e)
{
    struct change c = {0};
    const char *path;
    bool given, recursive;

    if (arg_path(o, "path", &path, e) < 0 || arg_mode(o, "mode", &c.mode, &given, e) < 0 ||
        arg_bool(o, "recursive", false, &recursive, e) < 0)
        return -1;
    if (!given)
        return fs_fail_kind(e, "Invalid", "mode is missing");
    if (recursive && change_tree(&c, path, e) < 0)
        return -1;
    return chmod(path, c.mode) < 0 ? fs_fail(e, errno) : 0;
}

int op_chown(struct op *o, struct fs_error *e)
{
    struct change c = {.chown = true};
    const char *path;
    bool recursive, follow;

    if (arg_path(o, "path", &path, e) < 0 || arg_int(o, "uid", -1, -1, UINT32_MAX - 1, &c.uid, e) < 0 ||
        arg_int(o, "gid", -1, -1, UINT32_MAX - 1, &c.gid, e) < 0 ||
        arg_bool(o, "recursive", false, &recursive, e) < 0 || arg_bool(o, "follow", true, &follow, e) < 0)
        return -1;
    if (recursive && change_tree(&c, path, e) < 0)
        return -1;
    if (fchownat(AT_FDCWD, path, (uid_t)c.uid, (gid_t)c.gid, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        return fs_fail(e, errno);
    return 0;
}

int op_symlink(struct op *o, struct fs_error *e)
{
    const char *target, *given, *name;
    bool parents;
    char *dir;
    size_t n;

    if (arg_text(o, "target", &target, &n, e) < 0 || arg_path(o, "path", &given, e) < 0 ||
        arg_bool(o, "parents", true, &parents, e) < 0)
        return -1;
    if (target == NULL || n == 0 || memchr(target, '\0', n) != NULL)
        return fs_fail_kind(e, "Invalid", "target must be a path");
    const char *path = path_trim(o->arena, given);
    path_split(o->arena, path, &dir, &name);
    if (symlink(target, path) == 0)
        return 0;
    if (errno != ENOENT || !parents)
        return fs_fail(e, errno);
    int r = path_make(o->arena, dir, 0777);
    if (r < 0)
        return fs_fail(e, -r);
    return symlink(target, path) < 0 ? fs_fail(e, errno) : 0;
}

int op_readlink(struct op *o, struct fs_error *e)
{
    const char *path;
    char target[PATH_MAX];

    if (arg_path(o, "path", &path, e) < 0)
        return -1;
    ssize_t n = readlink(path, target, sizeof target);
    if (n < 0)
        return errno == EINVAL ? fs_fail_kind(e, "Invalid", "not a symbolic link") : fs_fail(e, errno);
    out_text(o->out, "{");
    out_named(o->out, "target", target, (size_t)n);
    out_text(o->out, "}");
    return 0;
}

int op_hash(struct op *o, struct fs_error *e)
{
    static char buffer[128 * 1024];
    const char *path;
    struct stat st;
    struct sha256 h;
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];
    int64_t size = 0;

    if (arg_path(o, "path", &path, e) < 0)
        return -1;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fs_fail(e, errno);
    if (S_ISDIR(st.st_mode))
        return fs_fail(e, EISDIR);
    if (!S_ISREG(st.st_mode))
        return fs_fail_kind(e, "SpecialFile", "not a regular file");
    sha256_init(&h);
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fs_fail(e, errno);
        if (n == 0)
            break;
        sha256_add(&h, buffer, (size_t)n);
        size += n;
    }
    sha256_end(&h, digest);
    sha256_hex(digest, hex);
    out_text(o->out, "{\"sha256\":\"");
    out_text(o->out, hex);
    out_text(o->out, "\",\"size\":");
    out_i64(o->out, size);
    out_text(o->out, "}");
    return 0;
}
