/*
 * unpack.c - a tar archive becomes a directory tree
 *
 * libarchive reads the headers; every decision about names, owners, attributes and limits is here, and every change on
 * disk is tree.c's. The process must stay in the "C" locale: in a UTF-8 one libarchive normalizes the names
 * of pax headers to NFC, so that a file would get another name than it had; in "C" it warns and keeps the bytes.
 */
#include "image/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "image/names.h"
#include "image/path.h"
#include "image/tree.h"
#include "sys/fd.h"

#define WHITEOUT ".wh."
#define WHITEOUT_OPAQUE ".wh..wh..opq"
#define ID_MAX 65535                /* what a sandbox's id range holds */
#define BLOCK 512
#define HEADROOM ((uint64_t)64 << 20)     /* of an archive over its contents: padding at the end */
#define HEADROOM_ENTRY ((uint64_t)64 << 10) /* headers, long names and attributes of one entry */

struct unpack {
    struct source *source;
    struct archive *tar;
    struct tree tree;
    enum unpack_kind kind;
    struct unpack_limits limits;
    struct unpack_counts counts;
    uint64_t entries;
    unpack_progress_cb progress;
    void *arg;
    struct err source_err;          /* why the source failed, if it did */
};

static la_ssize_t feed(struct archive *a, void *arg, const void **ret)
{
    struct unpack *u = arg;
    ssize_t n = source_read(u->source, ret, &u->source_err);

    if (n < 0) {
        archive_set_error(a, EIO, "source");
        return -1;
    }
    /* An endless archive of headers has no contents to count. */
    if (u->limits.max_bytes > 0 &&
        source_bytes(u->source) > u->limits.max_bytes + HEADROOM + u->entries * HEADROOM_ENTRY) {
        (void)err_set(&u->source_err, ERR_TOO_LARGE, "the archive is over %" PRIu64 " bytes",
                      u->limits.max_bytes);
        archive_set_error(a, EFBIG, "limit");
        return -1;
    }
    return n;
}

/* Text of a peer for a message: printable, cut. */
static const char *show(const char *text, char out[160])
{
    return log_escape(text, out, 160);
}

static int tar_error(struct unpack *u, struct err *e)
{
    if (u->source_err.code != ERR_OK) {
        *e = u->source_err;
        return -1;
    }
    const char *why = archive_error_string(u->tar);
    return err_set(e, ERR_INVALID, "the archive is not a complete tar: %s",
                   why != NULL ? why : "unknown format");
}

static int entry_name(const char *name, char out[LIMIT_PATH], struct err *e)
{
    int r = path_normalize(name, out, LIMIT_PATH);

    if (r == -EINVAL)
        return err_set(e, ERR_INVALID, "the path has a '..'");
    if (r < 0)
        return err_set(e, ERR_INVALID, "the path is longer than %d bytes, or a part of it than 255",
                       LIMIT_PATH - 1);
    return 0;
}

static int count_bytes(struct unpack *u, uint64_t n, struct err *e)
{
    u->counts.bytes += n;
    if (u->limits.max_bytes > 0 && (n > u->limits.max_bytes || u->counts.bytes > u->limits.max_bytes))
        return err_set(e, ERR_TOO_LARGE, "the archive unpacks to more than %" PRIu64 " bytes",
                       u->limits.max_bytes);
    return 0;
}

static int copy_contents(struct unpack *u, int fd, int64_t size, struct err *e)
{
    for (;;) {
        const void *data;
        size_t n;
        la_int64_t offset;
        int r = archive_read_data_block(u->tar, &data, &n, &offset);
        if (r == ARCHIVE_EOF)
            break;
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
            return tar_error(u, e);
        for (size_t done = 0; done < n;) {
            ssize_t w = pwrite(fd, (const char *)data + done, n - done, offset + (off_t)done);
            if (w < 0 && errno == EINTR)
                continue;
            if (w < 0)
                return err_sys(e, errno, "write");
            done += (size_t)w;
        }
        u->progress(&u->counts, u->arg);
    }
    /* Sparse: the hole at the end has no block. */
    if (ftruncate(fd, size) < 0)
        return err_sys(e, errno, "size");
    return 0;
}

static int copy_xattrs(struct archive_entry *entry, int fd, struct err *e)
{
    const char *name;
    const void *value;
    size_t len;

    (void)archive_entry_xattr_reset(entry);
    while (archive_entry_xattr_next(entry, &name, &value, &len) == ARCHIVE_OK)
        if (name != NULL && xattr_is_kept(name) && tree_xattr(fd, name, value, len, e) < 0)
            return -1;
    return 0;
}

static int attributes(struct archive_entry *entry, struct tree_attr *ret, struct err *e)
{
    int64_t uid = archive_entry_uid(entry);
    int64_t gid = archive_entry_gid(entry);

    if (uid < 0 || uid > ID_MAX || gid < 0 || gid > ID_MAX)
        return err_set(e, ERR_INVALID, "it belongs to %" PRId64 ":%" PRId64 ", but ids end at %d", uid, gid,
                       ID_MAX);
    ret->uid = (uid_t)uid;
    ret->gid = (gid_t)gid;
    ret->mode = archive_entry_perm(entry) & 07777;
    ret->mtime.tv_sec = archive_entry_mtime(entry);
    ret->mtime.tv_nsec = archive_entry_mtime_nsec(entry);
    if (ret->mtime.tv_nsec < 0 || ret->mtime.tv_nsec > 999999999)
        ret->mtime.tv_nsec = 0;
    return 0;
}

static int regular(struct unpack *u, struct archive_entry *entry, const char *path,
                   const struct tree_attr *a, struct err *e)
{
    auto_close int fd = -1;
    int64_t size = archive_entry_size(entry);

    if (size < 0)
        return err_set(e, ERR_INVALID, "its size is negative");
    if (count_bytes(u, (uint64_t)size, e) < 0)
        return -1;
    if (tree_file(&u->tree, path, &fd, e) < 0)
        return -1;
    if (copy_contents(u, fd, size, e) < 0)
        return -1;
    if (tree_file_end(fd, a, e) < 0)
        return -1;
    if (copy_xattrs(entry, fd, e) < 0)
        return -1;
    return tree_times(fd, a, e);
}

static int hard_link(struct unpack *u, const char *target, const char *path, struct err *e)
{
    char to[LIMIT_PATH];

    if (entry_name(target, to, e) < 0)
        return err_wrap(e, "target of the hard link");
    return tree_link(&u->tree, path, to, e);
}

static int directory(struct unpack *u, struct archive_entry *entry, const char *path,
                     const struct tree_attr *a, struct err *e)
{
    auto_close int fd = -1;

    if (tree_dir(&u->tree, path, a, &fd, e) < 0)
        return -1;
    return copy_xattrs(entry, fd, e);
}

/* The last part of a normalized path if it means a whiteout, else NULL. */
static const char *whiteout_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;

    return strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0 ? name : NULL;
}

static int whiteout(struct unpack *u, char *path, const char *name, struct err *e)
{
    size_t at = (size_t)(name - path);
    const char *hidden = name + strlen(WHITEOUT);

    if (strcmp(name, WHITEOUT_OPAQUE) == 0) {
        path[at > 0 ? at - 1 : 0] = '\0';
        return tree_opaque(&u->tree, path, e);
    }
    /* What aufs kept for itself. */
    if (strncmp(hidden, WHITEOUT, strlen(WHITEOUT)) == 0)
        return 0;
    if (*hidden == '\0' || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
        return err_set(e, ERR_INVALID, "it is a whiteout of nothing");
    memmove(path + at, hidden, strlen(hidden) + 1);
    return tree_whiteout(&u->tree, path, e);
}

static int one_entry(struct unpack *u, struct archive_entry *entry, const char *name, struct err *e)
{
    char path[LIMIT_PATH];
    struct tree_attr a;

    if (entry_name(name, path, e) < 0)
        return -1;
    u->entries++;
    if (u->limits.max_files > 0 && u->entries > u->limits.max_files)
        return err_set(e, ERR_TOO_LARGE, "the archive has more than %" PRIu64 " entries",
                       u->limits.max_files);
    u->counts.files++;
    const char *hiding = whiteout_name(path);
    if (hiding != NULL) {
        u->counts.whiteouts++;
        if (u->kind == UNPACK_LAYER)
            return whiteout(u, path, hiding, e);
    }
    const char *link = archive_entry_hardlink(entry);
    if (link != NULL)
        return hard_link(u, link, path, e);
    if (attributes(entry, &a, e) < 0)
        return -1;
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return regular(u, entry, path, &a, e);
    case AE_IFDIR:
        return directory(u, entry, path, &a, e);
    case AE_IFLNK:
        link = archive_entry_symlink(entry);
        if (link == NULL || *link == '\0')
            return err_set(e, ERR_INVALID, "it is a symbolic link to nothing");
        return tree_symlink(&u->tree, path, link, &a, e);
    case AE_IFIFO:
        return tree_fifo(&u->tree, path, &a, e);
    case AE_IFCHR:
    case AE_IFBLK:
        u->counts.files--;
        u->counts.devices++;        /* a sandbox has a /dev of its own */
        return 0;
    case AE_IFSOCK:
        u->counts.files--;
        u->counts.sockets++;        /* a socket without its listener is nothing */
        return 0;
    default:
        return err_set(e, ERR_INVALID, "it is of a kind that is not known");
    }
}

/*
 * An archive cut off between two entries looks like one that ends there; only the zero block at its end tells. It is
 * asked for, and whatever follows it is read, because it is part of the digest.
 */
static int end_of_archive(struct unpack *u, struct err *e)
{
    const void *rest;
    ssize_t n;
    uint64_t at = (uint64_t)archive_read_header_position(u->tar);

    u->entries++;
    while ((n = source_read(u->source, &rest, e)) > 0)
        if (u->limits.max_bytes > 0 && source_bytes(u->source) > at + u->limits.max_bytes + HEADROOM)
            return err_set(e, ERR_TOO_LARGE, "the archive is followed by more than %" PRIu64 " bytes",
                           u->limits.max_bytes + HEADROOM);
    if (n < 0)
        return -1;
    if (source_bytes(u->source) < at + BLOCK)
        return err_set(e, ERR_INVALID, "the archive is not a complete tar: its end is missing");
    return 0;
}

static int all_entries(struct unpack *u, struct err *e)
{
    struct archive_entry *entry;
    char shown[160];

    for (;;) {
        int r = archive_read_next_header(u->tar, &entry);
        if (r == ARCHIVE_EOF)
            return end_of_archive(u, e);
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
            return tar_error(u, e);
        const char *name = archive_entry_pathname(entry);
        if (name == NULL)
            return err_set(e, ERR_INVALID, "an entry has no name");
        if (one_entry(u, entry, name, e) < 0)
            return u->source_err.code != ERR_OK ? -1 : err_wrap(e, "entry '%s'", show(name, shown));
        if (source_cancelled(u->source))
            return err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
        u->progress(&u->counts, u->arg);
    }
}

int unpack_tar(struct source *s, int root, enum unpack_kind kind, const struct unpack_limits *limits,
               unpack_progress_cb progress, void *arg, struct unpack_counts *ret, struct err *e)
{
    struct unpack u = {.source = s, .kind = kind, .limits = *limits, .progress = progress, .arg = arg};
    int r = -1;

    tree_init(&u.tree, root);
    u.tar = archive_read_new();
    if (u.tar == NULL || archive_read_support_format_tar(u.tar) != ARCHIVE_OK)
        (void)err_set(e, ERR_INTERNAL, "libarchive cannot read tar");
    else if (archive_read_open(u.tar, &u, NULL, feed, NULL) != ARCHIVE_OK)
        r = tar_error(&u, e);
    else if (all_entries(&u, e) == 0)
        r = tree_finish(&u.tree, e);
    *ret = u.counts;
    if (u.tar != NULL)
        (void)archive_read_free(u.tar);
    tree_done(&u.tree);
    return r;
}
