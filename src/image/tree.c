/*
 * tree.c - writes the entries of an archive below one directory, and nowhere else
 */
#include "image/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "image/path.h"
#include "sys/fd.h"
#include "sys/rmtree.h"

#define OVERLAY_OPAQUE "user.overlay.opaque"
/* Makes overlay look for whiteouts in a directory that only one layer has; else it would list them as broken files. */
#define OVERLAY_ORIGIN "user.overlay.origin"

struct tree_dir {
    char *path;                     /* owned */
    ino_t inode;                    /* it may have been replaced since */
    struct timespec mtime;
};

/* What the kernel says of an entry that no file system here could have is the archive's fault, not ours. */
static int entry_failed(struct err *e, int error, const char *what)
{
    bool is_bad = error == EINVAL || error == E2BIG || error == ERANGE || error == ENAMETOOLONG ||
                  error == EPERM || error == EMLINK;

    return is_bad ? err_set(e, ERR_INVALID, "%s: %s", what, strerror(error)) : err_sys(e, error, "%s", what);
}

void tree_init(struct tree *t, int root)
{
    *t = (struct tree){.root = root, .parent = -1};
}

static void forget_parent(struct tree *t)
{
    fd_close(&t->parent);
    t->parent_is_stale = false;
}

void tree_done(struct tree *t)
{
    forget_parent(t);
    for (size_t i = 0; i < t->ndirs; i++)
        free(t->dirs[i].path);
    free(t->dirs);
    t->dirs = NULL;
    t->ndirs = t->dirs_size = 0;
}

/* Opens below the root as if the root were "/". Returns the descriptor or -errno. */
static int open_in_root(int root, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    long fd;

    /* EAGAIN: a rename elsewhere on the file system while ".." was looked at. */
    do
        fd = syscall(SYS_openat2, root, *path != '\0' ? path : ".", &how, sizeof how);
    while (fd < 0 && (errno == EAGAIN || errno == EINTR));
    return fd < 0 ? -errno : (int)fd;
}

/* Opens the directory `path`, making what is missing of it. Returns the descriptor or -errno. */
static int open_parents(struct tree *t, const char *path)
{
    char part[LIMIT_PATH];
    int fd = open_in_root(t->root, path, O_PATH | O_DIRECTORY);

    if (fd != -ENOENT)
        return fd;
    fd = open_in_root(t->root, "", O_PATH | O_DIRECTORY);
    for (const char *at = path; fd >= 0 && *at != '\0';) {
        size_t n = strcspn(at, "/");
        size_t end = (size_t)(at - path) + n;
        memcpy(part, path, end);
        part[end] = '\0';
        int next = open_in_root(t->root, part, O_PATH | O_DIRECTORY);
        if (next == -ENOENT) {
            /* EEXIST here is a link that leads nowhere. */
            if (mkdirat(fd, part + (at - path), 0755) < 0)
                next = errno == EEXIST ? -ELOOP : -errno;
            else
                next = open_in_root(t->root, part, O_PATH | O_DIRECTORY);
        }
        fd_close(&fd);
        fd = next;
        at += n + (at[n] == '/');
    }
    return fd;
}

/* The directory of an entry, kept for the next one: archives list a directory's files in a row. */
static int parent_of(struct tree *t, const char *parent, struct err *e)
{
    if (t->parent >= 0 && !t->parent_is_stale && strcmp(t->parent_path, parent) == 0)
        return 0;
    forget_parent(t);
    int fd = open_parents(t, parent);
    if (fd == -ELOOP)
        return err_set(e, ERR_INVALID, "its directory is below a link that leads nowhere");
    if (fd == -ENOTDIR)
        return err_set(e, ERR_INVALID, "a part of its path is not a directory");
    if (fd < 0)
        return err_sys(e, -fd, "make its directory");
    t->parent = fd;
    memcpy(t->parent_path, parent, strlen(parent) + 1);
    return 0;
}

/* Where an entry goes: t->parent and the name in it. */
struct place {
    char text[LIMIT_PATH];
    const char *name;
};

static int place(struct tree *t, const char *path, struct place *ret, struct err *e)
{
    const char *parent;

    if (*path == '\0')
        return err_set(e, ERR_INVALID, "the root can only be a directory");
    memcpy(ret->text, path, strlen(path) + 1);
    ret->name = path_split(ret->text, &parent);
    return parent_of(t, parent, e);
}

enum kind { KIND_FILE, KIND_DIR, KIND_SYMLINK, KIND_LINK, KIND_FIFO, KIND_WHITEOUT };

struct node {
    enum kind kind;
    const char *target;             /* of a symbolic link; the name of a hard link's target */
    int target_dir;                 /* directory of a hard link's target */
};

/* The descriptor of a file, 0 for the other kinds, or -errno. */
static int make_node(int dir, const char *name, const struct node *n)
{
    int r = -1;

    switch (n->kind) {
    case KIND_FILE:
        r = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        break;
    case KIND_DIR:
        r = mkdirat(dir, name, 0700);
        break;
    case KIND_SYMLINK:
        r = symlinkat(n->target, dir, name);
        break;
    case KIND_LINK:
        r = linkat(n->target_dir, n->target, dir, name, 0);
        break;
    case KIND_FIFO:
        r = mknodat(dir, name, S_IFIFO | 0600, 0);
        break;
    case KIND_WHITEOUT:
        /* This one device may be made by anybody, because it opens nothing. */
        r = mknodat(dir, name, S_IFCHR | 0600, 0);
        break;
    }
    return r < 0 ? -errno : r;
}

static int set_opaque(int dir, const char *name)
{
    auto_close int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 || fsetxattr(fd, OVERLAY_OPAQUE, "y", 1, 0) < 0 ? -errno : 0;
}

/* Makes the entry at its place, instead of what an earlier one made there. As make_node. */
static int make_or_replace(struct tree *t, const struct place *at, const struct node *n)
{
    struct stat st;
    int r = make_node(t->parent, at->name, n);

    if (r != -EEXIST)
        return r;
    if (fstatat(t->parent, at->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode)) {
        if (n->kind == KIND_DIR)
            return 0;
        t->parent_is_stale = true;
        auto_close int dir = openat(t->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = dir < 0 ? -errno : rmtree(dir, at->name);
    } else {
        t->parent_is_stale = t->parent_is_stale || S_ISLNK(st.st_mode);
        r = unlinkat(t->parent, at->name, 0) < 0 ? -errno : 0;
    }
    if (r == 0)
        r = make_node(t->parent, at->name, n);
    /* A directory where the layer has hidden what was below: it must not show again through the new one. */
    if (r >= 0 && n->kind == KIND_DIR && S_ISCHR(st.st_mode))
        r = set_opaque(t->parent, at->name);
    return r;
}

static void remember_dir(struct tree *t, const char *path, ino_t inode, const struct timespec *mtime)
{
    if (t->ndirs == t->dirs_size) {
        t->dirs_size = t->dirs_size > 0 ? t->dirs_size * 2 : 256;
        t->dirs = mem_realloc(t->dirs, t->dirs_size * sizeof *t->dirs);
    }
    t->dirs[t->ndirs++] = (struct tree_dir){mem_strdup(path), inode, *mtime};
}

static int open_dir(struct tree *t, const char *path, struct err *e)
{
    struct place at;

    if (*path == '\0')
        return openat(t->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place(t, path, &at, e) < 0)
        return -1;
    int r = make_or_replace(t, &at, &(struct node){.kind = KIND_DIR});
    if (r < 0)
        return err_sys(e, -r, "directory");
    int fd = openat(t->parent, at.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "directory");
    return fd;
}

static int set_owner(int fd, const struct tree_attr *a, struct err *e)
{
    /* The mode after the owner: a change of owner clears setuid. */
    if (fchown(fd, a->uid, a->gid) < 0)
        return err_sys(e, errno, "owner %u:%u", a->uid, a->gid);
    if (fchmod(fd, a->mode) < 0)
        return err_sys(e, errno, "mode %04o", a->mode);
    return 0;
}

int tree_dir(struct tree *t, const char *path, const struct tree_attr *a, int *ret_fd, struct err *e)
{
    auto_close int fd = open_dir(t, path, e);
    struct stat st;

    if (fd < 0)
        return -1;
    if (set_owner(fd, a, e) < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "directory");
    remember_dir(t, path, st.st_ino, &a->mtime);
    if (ret_fd != NULL)
        *ret_fd = take_fd(&fd);
    return 0;
}

int tree_file(struct tree *t, const char *path, int *ret_fd, struct err *e)
{
    struct place at;

    if (place(t, path, &at, e) < 0)
        return -1;
    int fd = make_or_replace(t, &at, &(struct node){.kind = KIND_FILE});
    if (fd < 0)
        return err_sys(e, -fd, "file");
    *ret_fd = fd;
    return 0;
}

int tree_file_end(int fd, const struct tree_attr *a, struct err *e)
{
    return set_owner(fd, a, e);
}

int tree_xattr(int fd, const char *name, const void *value, size_t len, struct err *e)
{
    char what[160];

    if (fsetxattr(fd, name, value, len, 0) == 0)
        return 0;
    int error = errno;
    (void)snprintf(what, sizeof what, "extended attribute '%.80s' of %zu bytes", name, len);
    return entry_failed(e, error, what);
}

int tree_times(int fd, const struct tree_attr *a, struct err *e)
{
    struct timespec times[2] = {a->mtime, a->mtime};

    if (futimens(fd, times) < 0)
        return err_sys(e, errno, "time");
    return 0;
}

static int set_attr_at(struct tree *t, const struct place *at, const struct tree_attr *a,
                       struct err *e)
{
    struct timespec times[2] = {a->mtime, a->mtime};

    if (fchownat(t->parent, at->name, a->uid, a->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "owner %u:%u", a->uid, a->gid);
    if (utimensat(t->parent, at->name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "time");
    return 0;
}

int tree_symlink(struct tree *t, const char *path, const char *target, const struct tree_attr *a,
                 struct err *e)
{
    struct place at;

    if (place(t, path, &at, e) < 0)
        return -1;
    int r = make_or_replace(t, &at, &(struct node){.kind = KIND_SYMLINK, .target = target});
    if (r < 0)
        return entry_failed(e, -r, "symbolic link");
    return set_attr_at(t, &at, a, e);
}

int tree_link(struct tree *t, const char *path, const char *target, struct err *e)
{
    char text[LIMIT_PATH];
    char shown[128];
    const char *parent;
    struct place at;

    if (strcmp(path, target) == 0)
        return 0;
    if (place(t, path, &at, e) < 0)
        return -1;
    memcpy(text, target, strlen(target) + 1);
    const char *name = path_split(text, &parent);
    auto_close int dir = open_in_root(t->root, parent, O_PATH | O_DIRECTORY);
    /* The target first: a missing one must not cost what is at the link's own place. */
    if (dir < 0 || *name == '\0' || faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(e, ERR_INVALID, "it is a hard link to '%s', which is not in the archive",
                       log_escape(target, shown, sizeof shown));
    int r = make_or_replace(t, &at, &(struct node){KIND_LINK, name, dir});
    if (r < 0) {
        auto_free char *what = mem_printf("hard link to '%s'", log_escape(target, shown, sizeof shown));
        return entry_failed(e, -r, what);
    }
    return 0;
}

int tree_fifo(struct tree *t, const char *path, const struct tree_attr *a, struct err *e)
{
    struct place at;

    if (place(t, path, &at, e) < 0)
        return -1;
    int r = make_or_replace(t, &at, &(struct node){.kind = KIND_FIFO});
    if (r < 0)
        return err_sys(e, -r, "FIFO");
    if (set_attr_at(t, &at, a, e) < 0)
        return -1;
    /* The name was made by us a moment ago and nobody else is here: there is no link to follow. */
    if (fchmodat(t->parent, at.name, a->mode, 0) < 0)
        return err_sys(e, errno, "mode %04o", a->mode);
    return 0;
}

int tree_whiteout(struct tree *t, const char *path, struct err *e)
{
    struct place at;
    struct stat st;

    if (place(t, path, &at, e) < 0)
        return -1;
    int r = make_node(t->parent, at.name, &(struct node){.kind = KIND_WHITEOUT});
    /* What this layer has itself stays, in whatever order the two came. */
    if (r == -EEXIST && fstatat(t->parent, at.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        r = S_ISDIR(st.st_mode) ? set_opaque(t->parent, at.name) : 0;
    if (r < 0)
        return err_sys(e, -r, "whiteout");
    auto_close int dir = openat(t->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fsetxattr(dir, OVERLAY_ORIGIN, "", 0, 0) < 0)
        return err_sys(e, errno, "whiteout");
    return 0;
}

int tree_opaque(struct tree *t, const char *path, struct err *e)
{
    auto_close int fd = open_parents(t, path);

    if (fd < 0)
        return err_set(e, ERR_INVALID, "its directory cannot be made: %s", strerror(-fd));
    int r = set_opaque(fd, ".");
    return r < 0 ? err_sys(e, -r, "opaque directory") : 0;
}

int tree_finish(struct tree *t, struct err *e)
{
    for (size_t i = 0; i < t->ndirs; i++) {
        const struct tree_dir *d = &t->dirs[i];
        struct timespec times[2] = {d->mtime, d->mtime};
        struct stat st;

        /* Replaced, or moved behind another link, by a later entry: then it is not ours to date. */
        auto_close int fd = open_in_root(t->root, d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != d->inode)
            continue;
        if (futimens(fd, times) < 0)
            return err_sys(e, errno, "time of a directory");
    }
    return 0;
}
