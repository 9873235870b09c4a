/*
 * tar_in.c - TarIn: unpacks an archive from stdin below a directory
 *
 * The kernel resolves every name beneath that directory, so neither "..", nor a link that was there
 * before or came with the archive, leads out of it. What stands in the way of an entry is replaced, but
 * for directories with something in them. Times and modes of directories are set at the end, when nothing
 * more is put into them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "init/fs/input.h"
#include "init/fs/op.h"
#include "init/fs/path.h"
#include "init/fs/tar_format.h"
#include "init/kernel.h"
#include "sys/fd.h"

#define STEP_SIZE 4000
#define NAME_MAX_BYTES (64 * 1024)
#define BENEATH (RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)

struct late_dir {
    struct late_dir *next;
    struct tar_entry e;
    char path[];
};

struct unpacker {
    struct tar_reader reader;
    struct arena arena;
    int root;
    bool owner;                         /* we may set owners */
    struct late_dir *dirs;              /* the last one first */
    uint64_t entries, bytes;
};

static ssize_t read_input(void *context, void *p, size_t n)
{
    return input_read(context, p, n);
}

/* Removes "/" in front and "." components; NULL if a component is "..". "" is the directory itself. */
static char *name_clean(struct arena *a, const char *path)
{
    char *out = arena_alloc(a, strlen(path) + 1);
    size_t n = 0;

    for (const char *p = path; *p != '\0';) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.')
            return NULL;
        if (len > 0 && !(len == 1 && p[0] == '.')) {
            if (n > 0)
                out[n++] = '/';
            memcpy(out + n, p, len);
            n += len;
        }
        p += len;
        while (*p == '/')
            p++;
    }
    out[n] = '\0';
    return out;
}

static int open_step(int dirfd, const char *path, uint64_t flags)
{
    for (;;) {
        int fd = k_openat2(dirfd, path[0] != '\0' ? path : ".", flags | O_CLOEXEC, 0, BENEATH);
        if (fd >= 0)
            return fd;
        if (errno != EAGAIN && errno != EINTR)      /* somebody renamed meanwhile */
            return -errno;
    }
}

/* In steps that the kernel takes at once, because a name in an archive may be longer than a path. */
static int open_beneath(const struct unpacker *u, const char *path, uint64_t flags)
{
    auto_close int step = -1;
    char part[STEP_SIZE];

    while (strlen(path) >= sizeof part) {
        size_t n = sizeof part - 1;
        while (n > 0 && path[n] != '/')
            n--;
        if (n == 0)
            return -ENAMETOOLONG;
        memcpy(part, path, n);
        part[n] = '\0';
        int next = open_step(step >= 0 ? step : u->root, part, O_PATH | O_DIRECTORY);
        if (next < 0)
            return next;
        fd_close(&step);
        step = next;
        path += n + 1;
    }
    return open_step(step >= 0 ? step : u->root, path, flags);
}

/* The directory `path` with what is missing of it. */
static int make_beneath(const struct unpacker *u, char *path)
{
    auto_close int fd = open_beneath(u, "", O_PATH | O_DIRECTORY);
    const char *part = path;

    if (fd < 0)
        return fd;
    for (char *at = path;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char was = *at;
        *at = '\0';
        int next = open_beneath(u, path, O_PATH | O_DIRECTORY);
        if (next == -ENOENT) {
            next = mkdirat(fd, part, 0755) < 0 && errno != EEXIST ? -errno : 0;
            if (next == 0)
                next = open_beneath(u, path, O_PATH | O_DIRECTORY);
        }
        *at = was;
        if (next < 0)
            return next;
        fd_close(&fd);
        fd = next;
        part = at + 1;
        if (was == '\0')
            return take_fd(&fd);
    }
}

/* Descriptor of the directory that holds `name` (clean), which is made if needed; *last is its last part. */
static int open_parent(const struct unpacker *u, char *name, const char **last)
{
    char *slash = strrchr(name, '/');

    *last = slash != NULL ? slash + 1 : name;
    if (slash == NULL)
        return open_beneath(u, "", O_PATH | O_DIRECTORY);
    *slash = '\0';
    int fd = open_beneath(u, name, O_PATH | O_DIRECTORY);
    if (fd == -ENOENT)
        fd = make_beneath(u, name);
    *slash = '/';
    return fd;
}

/* Makes room for something that is no directory. */
static int clear(int dirfd, const char *name)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return -errno;
    return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static void set_xattrs(const struct unpacker *u, int fd)
{
    const char *name, *value;
    size_t at = 0, n, len;
    char text[256];

    while (tar_xattr(&u->reader, &at, &name, &n, &value, &len)) {
        if (n >= sizeof text)
            continue;
        memcpy(text, name, n);
        text[n] = '\0';
        /* Whoever may not set it does without; attributes of other kinds are not for archives to set. */
        if (strlen(text) == n && xattr_is_content(text))
            (void)fsetxattr(fd, text, value, len, 0);
    }
}

static int set_attributes(const struct unpacker *u, int fd, const struct tar_entry *e, bool xattrs)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, e->mtime};

    if (u->owner && fchown(fd, e->uid, e->gid) < 0)
        return -errno;
    if (fchmod(fd, u->owner ? e->mode : e->mode & 01777) < 0)
        return -errno;
    if (xattrs)
        set_xattrs(u, fd);              /* after the owner, whose change drops capabilities */
    return futimens(fd, times) < 0 ? -errno : 0;
}

/* `length` bytes of content to `at`. */
static int content(struct unpacker *u, int fd, int64_t at, int64_t length)
{
    static char buffer[128 * 1024];

    while (length > 0) {
        size_t want = length < (int64_t)sizeof buffer ? (size_t)length : sizeof buffer;
        ssize_t n = tar_content(&u->reader, buffer, want);
        if (n <= 0)
            return n == 0 ? -ENODATA : (int)n;
        for (ssize_t done = 0; done < n;) {
            ssize_t w = pwrite(fd, buffer + done, (size_t)(n - done), at + done);
            if (w < 0 && errno != EINTR)
                return -errno;
            if (w > 0)
                done += w;
        }
        at += n;
        length -= n;
        u->bytes += (uint64_t)n;
    }
    return 0;
}

static int file_content(struct unpacker *u, int fd, const struct tar_entry *e)
{
    if (!e->sparse)
        return content(u, fd, 0, e->size);
    for (size_t i = 0; i < u->reader.nsegments; i++) {
        int r = content(u, fd, u->reader.segments[i].offset, u->reader.segments[i].length);
        if (r < 0)
            return r;
    }
    return ftruncate(fd, e->size) < 0 ? -errno : 0;
}

static int unpack_file(struct unpacker *u, int dirfd, const char *name, const struct tar_entry *e)
{
    int r = clear(dirfd, name);

    if (r < 0)
        return r;
    auto_close int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    r = file_content(u, fd, e);
    if (r == 0)
        r = set_attributes(u, fd, e, true);
    if (r < 0)
        (void)unlinkat(dirfd, name, 0);         /* no half file under its name */
    return r;
}

static int unpack_dir(struct unpacker *u, int dirfd, const char *name, const struct tar_entry *e)
{
    struct stat st;

    if (name[0] != '\0' && mkdirat(dirfd, name, 0700) < 0) {
        if (errno != EEXIST)
            return -errno;
        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        /* A link to a directory stays, as an image's /bin does; its target is not the entry. */
        if (S_ISLNK(st.st_mode) && fstatat(dirfd, name, &st, 0) == 0 && S_ISDIR(st.st_mode))
            return 0;
        if (!S_ISDIR(st.st_mode)) {
            int r = clear(dirfd, name);
            if (r < 0)
                return r;
            if (mkdirat(dirfd, name, 0700) < 0)
                return -errno;
        }
    }
    auto_close int fd = openat(dirfd, name[0] != '\0' ? name : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    set_xattrs(u, fd);
    return 0;
}

static int unpack_symlink(struct unpacker *u, int dirfd, const char *name, const struct tar_entry *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, e->mtime};
    int r = clear(dirfd, name);

    if (r < 0)
        return r;
    if (symlinkat(e->link, dirfd, name) < 0)
        return -errno;
    if (u->owner && fchownat(dirfd, name, e->uid, e->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    (void)utimensat(dirfd, name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int unpack_hardlink(struct unpacker *u, int dirfd, const char *name, const struct tar_entry *e)
{
    char *target = name_clean(&u->arena, e->link);
    const char *last;
    struct stat a, b;

    if (target == NULL || target[0] == '\0')
        return -EXDEV;
    auto_close int from = open_parent(u, target, &last);
    if (from < 0)
        return from;
    /* Onto itself it is done already, and clearing the way would destroy it. */
    if (fstatat(from, last, &a, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (fstatat(dirfd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return 0;
    int r = clear(dirfd, name);
    if (r < 0)
        return r;
    return linkat(from, last, dirfd, name, 0) < 0 ? -errno : 0;
}

static int unpack_node(struct unpacker *u, int dirfd, const char *name, const struct tar_entry *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, e->mtime};
    mode_t type = e->type == TAR_FIFO ? S_IFIFO : e->type == TAR_CHAR ? S_IFCHR : S_IFBLK;
    int r = clear(dirfd, name);

    if (r < 0)
        return r;
    if (mknodat(dirfd, name, type | 0600, makedev(e->major, e->minor)) < 0)
        return errno == EPERM ? -EOPNOTSUPP : -errno;
    if (u->owner && fchownat(dirfd, name, e->uid, e->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (fchmodat(dirfd, name, e->mode, 0) < 0)
        return -errno;
    (void)utimensat(dirfd, name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int unpack(struct unpacker *u, const struct tar_entry *e)
{
    if (strlen(e->path) > NAME_MAX_BYTES || strlen(e->link) > NAME_MAX_BYTES)
        return -ENAMETOOLONG;
    char *name = name_clean(&u->arena, e->path);
    const char *last;
    if (name == NULL)
        return -EXDEV;
    if (name[0] == '\0' && e->type != TAR_DIRECTORY)
        return -EISDIR;
    auto_close int dirfd = open_parent(u, name, &last);
    if (dirfd < 0)
        return dirfd;
    switch (e->type) {
    case TAR_FILE:
        return unpack_file(u, dirfd, last, e);
    case TAR_HARDLINK:
        return unpack_hardlink(u, dirfd, last, e);
    case TAR_SYMLINK:
        return unpack_symlink(u, dirfd, last, e);
    case TAR_DIRECTORY:
        return unpack_dir(u, dirfd, last, e);
    case TAR_CHAR:
    case TAR_BLOCK_DEVICE:
    case TAR_FIFO:
        return unpack_node(u, dirfd, last, e);
    }
    return -EOPNOTSUPP;
}

static void remember_dir(struct unpacker *u, const struct tar_entry *e)
{
    char *name = name_clean(&u->arena, e->path);
    size_t n = strlen(name) + 1;
    struct late_dir *d = arena_alloc(&u->arena, sizeof *d + n);

    *d = (struct late_dir){.next = u->dirs, .e = *e};
    memcpy(d->path, name, n);
    u->dirs = d;
}

static int finish_dirs(struct unpacker *u, struct fs_error *e)
{
    for (struct late_dir *d = u->dirs; d != NULL; d = d->next) {
        /* One that a later entry has replaced is not there any more. */
        auto_close int fd = open_beneath(u, d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (fd < 0)
            continue;
        int r = set_attributes(u, fd, &d->e, false);
        if (r < 0)
            return fs_fail_at(e, -r, d->path);
    }
    return 0;
}

static int fail_entry(const struct unpacker *u, int r, const char *entry, struct fs_error *e)
{
    if (r == -ETIMEDOUT)
        return fs_fail_kind_at(e, "Incomplete", "nothing more came", entry);
    if (r == -ENODATA)
        return fs_fail_kind_at(e, "Incomplete", "the archive ends too early", entry);
    if (r == -EXDEV)
        return fs_fail_kind_at(e, "Refused", "an entry leads out of the directory", entry);
    if ((r == -EBADMSG || r == -EOPNOTSUPP) && u->reader.problem[0] != '\0')
        return fs_fail_kind_at(e, r == -EBADMSG ? "Invalid" : "NotSupported", u->reader.problem, entry);
    return fs_fail_at(e, -r, entry);
}

int op_tar_in(struct op *o, struct fs_error *e)
{
    static struct unpacker u;
    struct tar_entry entry;
    const char *path;
    struct input in;
    bool parents;
    int r;

    if (arg_path(o, "path", &path, e) < 0 || input_init(&in, o, e) < 0 || arg_bool(o, "parents", true, &parents, e) < 0 ||
        arg_bool(o, "owner", geteuid() == 0, &u.owner, e) < 0)
        return -1;
    if (parents) {
        r = path_make(o->arena, path, 0755);
        if (r < 0)
            return fs_fail(e, -r);
    }
    u.root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (u.root < 0)
        return fs_fail(e, errno);
    (void)umask(0);                     /* the archive's modes are meant */
    tar_reader_init(&u.reader, read_input, &in);
    while ((r = tar_next(&u.reader, &entry)) > 0) {
        struct arena_mark mark = arena_mark(&u.arena);
        r = unpack(&u, &entry);
        if (r < 0)
            return fail_entry(&u, r, entry.path, e);
        arena_reset(&u.arena, mark);
        if (entry.type == TAR_DIRECTORY)
            remember_dir(&u, &entry);
        u.entries++;
    }
    if (r < 0)
        return fail_entry(&u, r, "", e);
    if (finish_dirs(&u, e) < 0)
        return -1;
    /* Padding, and the commit: without it the archive may be another's beginning. */
    r = input_finish(&in);
    if (r < 0)
        return input_fail(-r, e);
    out_text(o->out, "{\"entries\":");
    out_u64(o->out, u.entries);
    out_text(o->out, ",\"bytes\":");
    out_u64(o->out, u.bytes);
    out_text(o->out, "}");
    return 0;
}
