/*
 * scribe.c - writing a layer out of entries of other trees, and naming it by what was written
 *
 * The name is a hash of a text that says each entry in a way that can be read in one way only: whatever is not of a fixed
 * length has its length before it, or ends with the byte it cannot have. Else one layer could be made to stand for another.
 * The text is no archive either, whose hash is the name of a layer that was pulled.
 */
#include "image/scribe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/secret_mark.h"
#include "image/names.h"
#include "image/source.h"
#include "sys/fd.h"

#define CHUNK (256 * 1024)
#define XATTR_NAMES_MAX 8192
#define XATTR_VALUE_MAX 65536

void scribe_begin(struct scribe *s, const struct job *job, int root, const struct unpack_limits *limits)
{
    uint8_t no_tar[512];                /* whose first header would be this */

    *s = (struct scribe){.job = job, .limits = *limits};
    tree_init(&s->tree, root);
    map_init(&s->links);
    sha256_init(&s->hash);
    memset(no_tar, 0xff, sizeof no_tar);
    sha256_add(&s->hash, no_tar, sizeof no_tar);
    s->buffer = mem_alloc(CHUNK);
}

void scribe_forget_links(struct scribe *s)
{
    struct map_iter it = MAP_ITER;
    const char *key;
    void *path;

    while (map_next(&s->links, &it, &key, &path))
        free(path);
    map_done(&s->links);
    map_init(&s->links);
}

void scribe_done(struct scribe *s)
{
    scribe_forget_links(s);
    map_done(&s->links);
    free(s->buffer);
    tree_done(&s->tree);
}

int scribe_end(struct scribe *s, char ret_layer[72], struct err *e)
{
    uint8_t sum[SHA256_SIZE];

    if (tree_finish(&s->tree, e) < 0)
        return -1;
    sha256_end(&s->hash, sum);
    sha256_hex(sum, ret_layer);
    return 0;
}

static void note_text(struct scribe *s, const char *text)
{
    sha256_add(&s->hash, text, strlen(text) + 1);
}

static void note(struct scribe *s, char kind, const char *path, const struct tree_attr *a)
{
    char line[64];

    (void)snprintf(line, sizeof line, "%c %u %u %o", kind, a->uid, a->gid, a->mode);
    note_text(s, line);
    note_text(s, path);
}

static void note_size(struct scribe *s, uint64_t n)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%" PRIu64, n);
    note_text(s, text);
}

void scribe_note(struct scribe *s, char kind, const char *path, const struct tree_attr *a, const void *content, size_t n)
{
    note(s, kind, path, a);
    note_size(s, n);
    sha256_add(&s->hash, content, n);
}

static int look(const struct scribe *s, struct err *e)
{
    return job_is_cancelled(s->job) ? err_set(e, ERR_UNAVAILABLE, "the job was cancelled") : 0;
}

static int count(struct scribe *s, uint64_t bytes, struct err *e)
{
    if (look(s, e) < 0)
        return -1;
    s->counts.files++;
    s->counts.bytes += bytes;
    if (s->limits.max_files > 0 && s->counts.files > s->limits.max_files)
        return err_set(e, ERR_TOO_LARGE, "there are more than %" PRIu64 " entries", s->limits.max_files);
    if (s->limits.max_bytes > 0 && s->counts.bytes > s->limits.max_bytes)
        return err_set(e, ERR_TOO_LARGE, "there are more than %" PRIu64 " bytes", s->limits.max_bytes);
    return 0;
}

struct tree_attr scribe_attr(const struct stat *st)
{
    return (struct tree_attr){.uid = st->st_uid, .gid = st->st_gid, .mode = st->st_mode & 07777, .mtime = st->st_mtim};
}

/* --- files ------------------------------------------------------------------------------------ */

static int copy_xattrs(struct scribe *s, int from, int to, struct err *e)
{
    char names[XATTR_NAMES_MAX];
    ssize_t n = flistxattr(from, names, sizeof names);

    if (n < 0)
        return errno == ENOTSUP ? 0 : err_sys(e, errno, "list extended attributes");
    for (const char *name = names; name < names + n; name += strlen(name) + 1) {
        if (!xattr_is_kept(name))
            continue;
        auto_free char *value = mem_alloc(XATTR_VALUE_MAX);
        ssize_t len = fgetxattr(from, name, value, XATTR_VALUE_MAX);
        if (len < 0)
            return err_sys(e, errno, "read the extended attribute '%.60s'", name);
        note_text(s, name);
        note_size(s, (uint64_t)len);
        sha256_add(&s->hash, value, (size_t)len);
        if (tree_xattr(to, name, value, (size_t)len, e) < 0)
            return -1;
    }
    return 0;
}

static int write_all(int fd, const char *p, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t w = pwrite(fd, p, n, at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -errno;
        p += w;
        n -= (size_t)w;
        at += w;
    }
    return 0;
}

static bool is_zero(const char *p, size_t n)
{
    return n > 0 && p[0] == '\0' && memcmp(p, p + 1, n - 1) == 0;
}

static int copy_contents(struct scribe *s, int from, int to, off_t size, struct err *e)
{
    off_t at = 0;

    while (at < size) {
        ssize_t n = pread(from, s->buffer, CHUNK, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read");
        if (n == 0)
            return err_set(e, ERR_CONFLICT, "it became shorter while it was read");
        if (look(s, e) < 0)
            return -1;
        sha256_add(&s->hash, s->buffer, (size_t)n);
        /* Zeros are left as a hole. */
        int r = is_zero(s->buffer, (size_t)n) ? 0 : write_all(to, s->buffer, (size_t)n, at);
        if (r < 0)
            return err_sys(e, -r, "write");
        at += n;
    }
    if (ftruncate(to, size) < 0)
        return err_sys(e, errno, "size");
    return 0;
}

static int copy_file(struct scribe *s, const char *path, int from, const struct stat *st,
                     const struct tree_attr *a, struct err *e)
{
    auto_close int to = -1;

    if (count(s, (uint64_t)st->st_size, e) < 0)
        return -1;
    note(s, 'f', path, a);
    note_size(s, (uint64_t)st->st_size);
    if (tree_file(&s->tree, path, &to, e) < 0 || copy_contents(s, from, to, st->st_size, e) < 0 || tree_file_end(to, a, e) < 0 ||
        copy_xattrs(s, from, to, e) < 0)
        return -1;
    return tree_times(to, a, e);
}

/* The path that the same file was written to, NULL if it comes for the first time. */
static const char *linked(struct scribe *s, const char *path, const struct stat *st)
{
    char key[48];

    if (st->st_nlink < 2)
        return NULL;
    (void)snprintf(key, sizeof key, "%" PRIu64 ":%" PRIu64, (uint64_t)st->st_dev, (uint64_t)st->st_ino);
    const char *first = map_get(&s->links, key);
    if (first == NULL)
        (void)map_put(&s->links, key, mem_strdup(path));
    return first;
}

static int open_file(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

static int regular(struct scribe *s, const char *path, int dir, const char *name,
                   const struct stat *st, const struct tree_attr *a, struct err *e)
{
    auto_close int from = -1;

    if (s->drops_secrets) {
        from = open_file(dir, name);
        if (from < 0)
            return err_sys(e, errno, "open");
        if (fgetxattr(from, SECRET_MARK, NULL, 0) >= 0)
            return 0;
    }
    const char *first = linked(s, path, st);
    if (first != NULL) {
        if (count(s, 0, e) < 0)
            return -1;
        note(s, 'h', path, a);
        note_text(s, first);
        return tree_link(&s->tree, path, first, e);
    }
    if (from < 0)
        from = open_file(dir, name);
    if (from < 0)
        return err_sys(e, errno, "open");
    return copy_file(s, path, from, st, a, e);
}

static int symlink_entry(struct scribe *s, const char *path, int dir, const char *name, const struct tree_attr *a, struct err *e)
{
    char target[LIMIT_PATH];
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);

    if (n <= 0)
        return err_sys(e, n < 0 ? errno : EINVAL, "read the link");
    target[n] = '\0';
    if (count(s, 0, e) < 0)
        return -1;
    note(s, 'l', path, a);
    note_text(s, target);
    return tree_symlink(&s->tree, path, target, a, e);
}

int scribe_dir(struct scribe *s, const char *path, const struct tree_attr *a, struct err *e)
{
    if (count(s, 0, e) < 0)
        return -1;
    note(s, 'd', path, a);
    return tree_dir(&s->tree, path, a, NULL, e);
}

int scribe_opaque(struct scribe *s, const char *path, struct err *e)
{
    note_text(s, "opaque");
    note_text(s, path);
    return tree_opaque(&s->tree, path, e);
}

static int device(struct scribe *s, const char *path, const struct stat *st, struct err *e)
{
    if (st->st_rdev != makedev(0, 0)) {
        s->counts.devices++;
        return 0;
    }
    s->counts.whiteouts++;
    note_text(s, "whiteout");
    note_text(s, path);
    return tree_whiteout(&s->tree, path, e);
}

int scribe_entry(struct scribe *s, const char *path, int dir, const char *name, const struct stat *st, const struct tree_attr *a,
                 struct err *e)
{
    switch (st->st_mode & S_IFMT) {
    case S_IFREG:
        return regular(s, path, dir, name, st, a, e);
    case S_IFDIR:
        return scribe_dir(s, path, a, e);
    case S_IFLNK:
        return symlink_entry(s, path, dir, name, a, e);
    case S_IFIFO:
        if (count(s, 0, e) < 0)
            return -1;
        note(s, 'p', path, a);
        return tree_fifo(&s->tree, path, a, e);
    case S_IFCHR:
        return device(s, path, st, e);
    default:
        s->counts.sockets++;
        return 0;
    }
}
