/*
 * write.c - WriteFile: the whole new content or the whole old one
 *
 * The content goes to a nameless file in the target's directory, which takes the target's place when all
 * of it has arrived. Where a file cannot be replaced (a bind mount, a directory we may not write
 * to, a file with several names, an owner we could not restore), the content is spooled and copied into it.
 */
#include "init/fs/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/secret_mark.h"
#include "init/fs/input.h"
#include "init/fs/op.h"
#include "init/fs/path.h"
#include "sys/fd.h"

#define LINKS_MAX 40
#define BATCH_MAX (1024 * 1024)

struct target {
    char *path;                         /* all links of the last component followed */
    const char *name;                   /* in its directory */
    int dirfd;
    bool exists;
    struct stat st;
};

struct writing {
    bool parents, exclusive, secret, mode_given;
    mode_t mode;
    int64_t uid, gid, expected;
    struct target to;
    int fd;                             /* the new content */
    char temporary[40];                 /* its name in the directory, "" if it has none */
    bool in_place;
    int64_t size;
};

static int args(struct op *o, struct writing *w, const char **path, struct fs_error *e)
{
    if (arg_path(o, "path", path, e) < 0 || arg_mode(o, "mode", &w->mode, &w->mode_given, e) < 0 ||
        arg_int(o, "uid", -1, -1, UINT32_MAX - 1, &w->uid, e) < 0 ||
        arg_int(o, "gid", -1, -1, UINT32_MAX - 1, &w->gid, e) < 0 ||
        arg_bool(o, "parents", true, &w->parents, e) < 0 ||
        arg_bool(o, "exclusive", false, &w->exclusive, e) < 0 ||
        arg_bool(o, "secret", false, &w->secret, e) < 0 ||
        arg_int(o, "expected_size", -1, 0, INT64_MAX, &w->expected, e) < 0)
        return -1;
    if ((*path)[strlen(*path) - 1] == '/')
        return fs_fail(e, EISDIR);
    return 0;
}

/* Follows the links of the last component by hand: the name to replace is the one behind them. */
static int resolve(struct op *o, const char *path, struct target *t, struct fs_error *e)
{
    char link[LIMIT_PATH];
    char *dir;

    t->path = arena_copy(o->arena, path, strlen(path));
    for (int i = 0;; i++) {
        t->exists = lstat(t->path, &t->st) == 0;
        if (!t->exists && errno != ENOENT)
            return fs_fail(e, errno);
        if (!t->exists || !S_ISLNK(t->st.st_mode))
            return 0;
        if (i == LINKS_MAX)
            return fs_fail(e, ELOOP);
        ssize_t n = readlink(t->path, link, sizeof link - 1);
        if (n < 0)
            return fs_fail(e, errno);
        if (link[0] == '/') {
            t->path = arena_copy(o->arena, link, (size_t)n);
        } else {
            path_split(o->arena, t->path, &dir, &t->name);
            size_t len = strlen(dir);
            char *p = arena_alloc(o->arena, len + (size_t)n + 2);
            memcpy(p, dir, len);
            p[len] = '/';
            memcpy(p + len + 1, link, (size_t)n);
            p[len + 1 + (size_t)n] = '\0';
            t->path = p;
        }
    }
}

/* Everything that can be known before the content: so that it is said before the content is sent. */
static int check(struct op *o, struct writing *w, const char *path, struct fs_error *e)
{
    struct target *t = &w->to;
    char *dir;

    if (w->exclusive) {
        struct stat st;
        if (lstat(path, &st) == 0)
            return fs_fail(e, EEXIST);
    }
    if (resolve(o, path, t, e) < 0)
        return -1;
    if (t->exists && S_ISDIR(t->st.st_mode))
        return fs_fail(e, EISDIR);
    if (t->exists && !S_ISREG(t->st.st_mode))
        return fs_fail_kind(e, "SpecialFile", "not a regular file");
    if (t->exists && access(t->path, W_OK) < 0)
        return fs_fail(e, errno);
    path_split(o->arena, t->path, &dir, &t->name);
    if (t->name[0] == '\0' || strcmp(t->name, ".") == 0 || strcmp(t->name, "..") == 0)
        return fs_fail(e, EISDIR);
    if (strlen(t->name) > 255)
        return fs_fail(e, ENAMETOOLONG);
    t->dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (t->dirfd < 0 && errno == ENOENT && w->parents) {
        int r = path_make(o->arena, dir, 0755);
        if (r < 0)
            return fs_fail(e, -r);
        t->dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    return t->dirfd < 0 ? fs_fail(e, errno) : 0;
}

static void temporary_name(char *out, size_t size)
{
    uint64_t r = 0;

    if (getrandom(&r, sizeof r, 0) < 0)
        r = (uint64_t)getpid();         /* O_EXCL guards against meeting another */
    snprintf(out, size, ".qs-%016llx.tmp", (unsigned long long)r);
}

static int content_open(struct writing *w, struct fs_error *e)
{
    struct target *t = &w->to;

    w->in_place = t->exists && t->st.st_nlink > 1;
    if (!w->in_place) {
        w->fd = openat(t->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (w->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
            temporary_name(w->temporary, sizeof w->temporary);
            w->fd = openat(t->dirfd, w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
            if (w->fd < 0)
                w->temporary[0] = '\0';
        }
        if (w->fd < 0 && !t->exists)
            return fs_fail(e, errno);
        w->in_place = w->fd < 0;
    }
    /* Only the owner's own file, or root, can be given back its owner. */
    if (!w->in_place && t->exists && fchown(w->fd, t->st.st_uid, t->st.st_gid) < 0) {
        if (w->temporary[0] != '\0')
            (void)unlinkat(t->dirfd, w->temporary, 0);
        w->temporary[0] = '\0';
        fd_close(&w->fd);
        w->in_place = true;
    }
    if (w->in_place) {
        w->fd = spool_open();
        if (w->fd < 0)
            return fs_fail(e, errno);
    }
    return 0;
}

static int put(struct writing *w, const void *p, size_t n, struct fs_error *e)
{
    int r = fd_write_all(w->fd, p, n);

    if (r < 0)
        return fs_fail(e, -r);
    w->size += (int64_t)n;
    if (w->expected >= 0 && w->size > w->expected)
        return fs_fail_kind(e, "Incomplete", "more content than announced");
    return 0;
}

static int receive(struct writing *w, struct input *in, struct fs_error *e)
{
    static char buffer[128 * 1024];

    for (;;) {
        ssize_t n = input_read(in, buffer, sizeof buffer);
        if (n < 0)
            return input_fail((int)-n, e);
        if (n == 0)
            return 0;
        if (put(w, buffer, (size_t)n, e) < 0)
            return -1;
    }
}

static int inline_content(struct op *o, struct writing *w, struct fs_error *e)
{
    const char *p;
    size_t n;

    if (arg_text(o, "text", &p, &n, e) < 0)
        return -1;
    if (p == NULL) {
        const struct json *b64 = json_get(o->args, "b64");
        if (b64 == NULL || b64->type != JSON_STRING)
            return fs_fail_kind(e, "Invalid", "text or b64 is missing");
        char *bytes = arena_alloc(o->arena, b64->len + 1);
        if (!base64_decode(b64->text, b64->len, bytes, &n))
            return fs_fail_kind(e, "Invalid", "b64 must be base64");
        p = bytes;
    }
    if (n > BATCH_MAX)
        return fs_fail(e, EFBIG);
    return put(w, p, n, e);
}

static mode_t final_mode(const struct writing *w)
{
    if (w->mode_given)
        return w->mode;
    if (!w->to.exists) {
        mode_t mask = umask(0);
        (void)umask(mask);
        return 0666 & ~mask;
    }
    /* New content of somebody without privileges must not run with another's. */
    return geteuid() == 0 ? w->to.st.st_mode & 07777 : w->to.st.st_mode & 01777;
}

static int attributes(struct writing *w, int fd, bool fresh, struct fs_error *e)
{
    if ((w->uid >= 0 || w->gid >= 0) && fchown(fd, (uid_t)w->uid, (gid_t)w->gid) < 0)
        return fs_fail(e, errno);
    if ((fresh || w->mode_given) && fchmod(fd, final_mode(w)) < 0)
        return fs_fail(e, errno);
    return 0;
}

static int commit_in_place(struct writing *w, struct fs_error *e)
{
    auto_close int fd = openat(w->to.dirfd, w->to.name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return fs_fail(e, errno);
    /* No room is found out while the old content is still whole. */
    if (w->size > 0 && fallocate(fd, 1 /* keep size */, 0, w->size) < 0 && (errno == ENOSPC || errno == EDQUOT))
        return fs_fail(e, errno);
    int r = copy_content(w->fd, fd, w->size);
    if (r < 0)
        return fs_fail(e, -r);
    return attributes(w, fd, false, e);
}

/* Gives the nameless file a name. 0 or -errno. */
static int name_it(struct writing *w, const char *name)
{
    char self[32];

    snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
    if (linkat(AT_FDCWD, self, w->to.dirfd, name, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    return -errno;
}

/* A previous owner's attributes go over to the new content. */
static void inherit_xattrs(struct writing *w)
{
    auto_close int old = openat(w->to.dirfd, w->to.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (old >= 0)
        copy_xattrs(old, w->fd);
}

static int commit(struct writing *w, struct fs_error *e)
{
    if (w->in_place)
        return commit_in_place(w, e);
    if (w->to.exists)
        inherit_xattrs(w);
    if (attributes(w, w->fd, true, e) < 0)
        return -1;
    if (w->temporary[0] == '\0') {
        int r = w->to.exists ? -EEXIST : name_it(w, w->to.name);
        if (r == 0)
            return 0;
        if (r != -EEXIST || w->exclusive)
            return fs_fail(e, -r);
        temporary_name(w->temporary, sizeof w->temporary);
        r = name_it(w, w->temporary);
        if (r < 0) {
            w->temporary[0] = '\0';
            return fs_fail(e, -r);
        }
    } else if (w->exclusive) {
        int r = linkat(w->to.dirfd, w->temporary, w->to.dirfd, w->to.name, 0) < 0 ? -errno : 0;
        return r < 0 ? fs_fail(e, -r) : 0;      /* the other name goes in op_write */
    }
    if (renameat(w->to.dirfd, w->temporary, w->to.dirfd, w->to.name) == 0) {
        w->temporary[0] = '\0';
        return 0;
    }
    int error = errno;
    if (!w->to.exists || (error != EBUSY && error != EXDEV && error != EPERM && error != EACCES))
        return fs_fail(e, error);
    return commit_in_place(w, e);
}

/*
 * A secret is to be where it was said, and nowhere else: no link leads it to another name, no other name has it. The mark
 * goes with the file wherever it is moved to, so that no layer keeps it. Of a file system without marks no layer is made.
 */
static int make_room(const char *path, struct fs_error *e)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : fs_fail(e, errno);
    if (S_ISDIR(st.st_mode))
        return fs_fail(e, EISDIR);
    return unlink(path) < 0 ? fs_fail(e, errno) : 0;
}

static int set_mark(int fd, struct fs_error *e)
{
    return fsetxattr(fd, SECRET_MARK, "", 0, 0) < 0 && errno != EOPNOTSUPP ? fs_fail(e, errno) : 0;
}

static void writing_done(struct writing *w)
{
    if (w->temporary[0] != '\0')
        (void)unlinkat(w->to.dirfd, w->temporary, 0);
    fd_close(&w->fd);
    fd_close(&w->to.dirfd);
}

int write_content(struct op *o, const char *path, const void *p, size_t n, struct fs_error *e)
{
    struct writing w = {.fd = -1, .to.dirfd = -1, .parents = true, .mode = 0644, .uid = -1, .gid = -1, .expected = -1};
    int r = check(o, &w, path, e);

    w.mode_given = !w.to.exists;
    if (r == 0)
        r = content_open(&w, e);
    if (r == 0)
        r = put(&w, p, n, e);
    if (r == 0)
        r = commit(&w, e);
    writing_done(&w);
    return r;
}

int op_write(struct op *o, struct fs_error *e)
{
    struct writing w = {.fd = -1, .to.dirfd = -1};
    struct input in;
    const char *path;

    if (args(o, &w, &path, e) < 0 || input_init(&in, o, e) < 0)
        return -1;
    int r = w.secret ? make_room(path, e) : 0;
    if (r == 0)
        r = check(o, &w, path, e);
    if (r == 0)
        r = content_open(&w, e);
    if (r == 0 && w.secret)
        r = set_mark(w.fd, e);
    if (r == 0)
        r = o->batch ? inline_content(o, &w, e) : receive(&w, &in, e);
    if (r == 0 && w.expected >= 0 && w.size != w.expected)
        r = fs_fail_kind(e, "Incomplete", "less content than announced");
    if (r == 0)
        r = commit(&w, e);
    writing_done(&w);
    if (r < 0)
        return -1;
    out_text(o->out, "{\"created\":");
    out_text(o->out, w.to.exists ? "false" : "true");
    out_text(o->out, ",\"size\":");
    out_i64(o->out, w.size);
    out_text(o->out, "}");
    return 0;
}
