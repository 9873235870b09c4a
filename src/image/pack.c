/*
 * pack.c - a layer becomes a tar archive again, compressed into a file
 *
 * Two writers of libarchive one after the other: the first makes the tar, whose SHA-256 is the layer's diff id, the second
 * compresses what the first wrote. The process must stay in the "C" locale, as for unpack.c: names are bytes.
 */
#include "image/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "image/names.h"
#include "sys/fd.h"

#define CHUNK (256 * 1024)
#define DEPTH_MAX (LIMIT_PATH / 2)    /* of the deepest path there can be */
#define XATTR_VALUE_MAX 65536
#define OPAQUE ".wh..wh..opq"
#define WHITEOUT ".wh."

/* One end of a chain of bytes: hashed on the way. */
struct stage {
    struct archive *archive;            /* owned */
    EVP_MD_CTX *hash;                   /* owned; of what comes out */
};

struct pack {
    struct stage tar, file;
    int out;
    uint64_t size;
    struct map links;                   /* "dev:inode" of files with several names -> first path; owned */
    bool (*is_cancelled)(void *arg);
    void *arg;
    char *buffer;                       /* owned, CHUNK bytes */
    bool is_named;                      /* the error says which entry it is of */
    struct err failed;                  /* why a stage's output failed */
};

/* --- bytes ------------------------------------------------------------------------------------ */

static la_ssize_t file_out(struct archive *a, void *arg, const void *p, size_t n)
{
    struct pack *k = arg;
    int r = fd_write_all(k->out, p, n);

    if (r < 0 || EVP_DigestUpdate(k->file.hash, p, n) != 1) {
        (void)err_sys(&k->failed, r < 0 ? -r : EIO, "write the packed layer");
        archive_set_error(a, EIO, "output");
        return -1;
    }
    k->size += n;
    return (la_ssize_t)n;
}

static la_ssize_t tar_out(struct archive *a, void *arg, const void *p, size_t n)
{
    struct pack *k = arg;

    if (EVP_DigestUpdate(k->tar.hash, p, n) != 1 ||
        (k->file.archive != NULL && archive_write_data(k->file.archive, p, n) != (la_ssize_t)n)) {
        archive_set_error(a, EIO, "output");
        return -1;
    }
    return (la_ssize_t)n;
}

static int archive_failed(struct pack *k, struct archive *a, struct err *e)
{
    if (k->failed.code != ERR_OK) {
        *e = k->failed;
        return -1;
    }
    const char *why = archive_error_string(a);
    return err_set(e, ERR_INTERNAL, "libarchive cannot write the layer: %s", why != NULL ? why : "no reason given");
}

static int add_filter(struct archive *a, enum image_compression how)
{
    switch (how) {
    case IMAGE_GZIP:
        /* Without the time of day in its header. */
        return archive_write_add_filter_gzip(a) == ARCHIVE_OK &&
                       archive_write_set_filter_option(a, "gzip", "timestamp", NULL) == ARCHIVE_OK
                   ? 0
                   : -1;
    case IMAGE_ZSTD:
        return archive_write_add_filter_zstd(a) == ARCHIVE_OK ? 0 : -1;
    case IMAGE_PLAIN:
    case IMAGE_COMPRESSIONS_:
    default:
        return 0;
    }
}

static int open_file(struct pack *k, enum image_compression how, struct err *e)
{
    struct archive *file = k->file.archive;
    struct archive_entry *entry = archive_entry_new();

    if (entry == NULL || k->file.hash == NULL ||
        EVP_DigestInit_ex(k->file.hash, EVP_sha256(), NULL) != 1 ||
        archive_write_set_format_raw(file) != ARCHIVE_OK || add_filter(file, how) < 0 ||
        archive_write_set_bytes_per_block(file, CHUNK) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(file, 1) != ARCHIVE_OK ||
        archive_write_open(file, k, NULL, file_out, NULL) != ARCHIVE_OK) {
        archive_entry_free(entry);
        return archive_failed(k, file, e);
    }
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_pathname(entry, "layer");
    int r = archive_write_header(file, entry);
    archive_entry_free(entry);
    return r == ARCHIVE_OK ? 0 : archive_failed(k, file, e);
}

static int open_tar(struct pack *k, struct err *e)
{
    struct archive *tar = k->tar.archive;

    /* Attributes in the one form that every reader knows. */
    if (k->tar.hash == NULL || EVP_DigestInit_ex(k->tar.hash, EVP_sha256(), NULL) != 1 ||
        archive_write_set_format_pax(tar) != ARCHIVE_OK ||
        archive_write_set_format_option(tar, "pax", "xattrheader", "SCHILY") != ARCHIVE_OK ||
        archive_write_set_bytes_per_block(tar, CHUNK) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(tar, 512) != ARCHIVE_OK ||
        archive_write_open(tar, k, NULL, tar_out, NULL) != ARCHIVE_OK)
        return archive_failed(k, tar, e);
    return 0;
}

static int close_stage(struct pack *k, struct stage *stage, char ret_digest[IMAGE_DIGEST_SIZE], struct err *e)
{
    uint8_t sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (archive_write_close(stage->archive) != ARCHIVE_OK)
        return archive_failed(k, stage->archive, e);
    if (EVP_DigestFinal_ex(stage->hash, sum, &n) != 1 || n != SHA256_SIZE)
        return err_set(e, ERR_INTERNAL, "SHA-256 failed");
    memcpy(ret_digest, "sha256:", 7);
    sha256_hex(sum, ret_digest + 7);
    return 0;
}

/* --- entries ---------------------------------------------------------------------------------- */

static int write_header(struct pack *k, struct archive_entry *entry, struct err *e)
{
    int r = archive_write_header(k->tar.archive, entry);

    /* A warning says that a name is no UTF-8, which is marked in the archive. */
    return r == ARCHIVE_OK || r == ARCHIVE_WARN ? 0 : archive_failed(k, k->tar.archive, e);
}

static struct archive_entry *entry_new(const char *path, const struct stat *st)
{
    struct archive_entry *entry = archive_entry_new();

    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, st->st_mode & S_IFMT);
    archive_entry_set_perm(entry, st->st_mode & 07777);
    archive_entry_set_uid(entry, st->st_uid);
    archive_entry_set_gid(entry, st->st_gid);
    archive_entry_set_mtime(entry, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    archive_entry_set_size(entry, S_ISREG(st->st_mode) ? st->st_size : 0);
    return entry;
}

static int add_xattrs(struct archive_entry *entry, int fd, struct err *e)
{
    auto_free char *value = mem_alloc(XATTR_VALUE_MAX);
    char **names;
    size_t n;
    int r = xattrs_read(fd, &names, &n);

    if (r < 0)
        return err_sys(e, -r, "list extended attributes");
    for (size_t i = 0; r == 0 && i < n; i++) {
        ssize_t len = fgetxattr(fd, names[i], value, XATTR_VALUE_MAX);
        if (len < 0)
            r = err_sys(e, errno, "read the extended attribute '%.60s'", names[i]);
        else
            archive_entry_xattr_add_entry(entry, names[i], value, (size_t)len);
    }
    names_free(names, n);
    return r;
}

/* An empty file whose name says something of the layers below. */
static int mark(struct pack *k, const char *dir, const char *prefix, const char *name, struct err *e)
{
    const struct stat st = {.st_mode = S_IFREG};
    auto_free char *path = mem_printf("%s%s%s%s", dir, *dir != '\0' ? "/" : "", prefix, name);
    struct archive_entry *entry = entry_new(path, &st);
    int r = write_header(k, entry, e);

    archive_entry_free(entry);
    return r;
}

static int copy_contents(struct pack *k, int fd, int64_t size, struct err *e)
{
    for (int64_t at = 0; at < size;) {
        ssize_t n = pread(fd, k->buffer, size - at < CHUNK ? (size_t)(size - at) : CHUNK, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read");
        if (n == 0)
            return err_set(e, ERR_CONFLICT, "it became shorter while it was read");
        if (archive_write_data(k->tar.archive, k->buffer, (size_t)n) != n)
            return archive_failed(k, k->tar.archive, e);
        at += n;
        if (k->is_cancelled(k->arg))
            return err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
    }
    return 0;
}

/* The path under which the same file has been packed, NULL if it comes for the first time. */
static const char *linked(struct pack *k, const char *path, const struct stat *st)
{
    char key[48];

    if (st->st_nlink < 2)
        return NULL;
    (void)snprintf(key, sizeof key, "%" PRIu64 ":%" PRIu64, (uint64_t)st->st_dev, (uint64_t)st->st_ino);
    const char *first = map_get(&k->links, key);
    if (first == NULL)
        (void)map_put(&k->links, key, mem_strdup(path));
    return first;
}

static int regular(struct pack *k, int dir, const char *name, const char *path, const struct stat *st, struct err *e)
{
    const char *first = linked(k, path, st);
    struct archive_entry *entry = entry_new(path, st);
    auto_close int fd = -1;
    int r = 0;

    if (first != NULL) {
        archive_entry_set_size(entry, 0);
        archive_entry_set_hardlink(entry, first);
        r = write_header(k, entry, e);
        archive_entry_free(entry);
        return r;
    }
    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        r = err_sys(e, errno, "open");
    if (r == 0)
        r = add_xattrs(entry, fd, e);
    if (r == 0)
        r = write_header(k, entry, e);
    archive_entry_free(entry);
    return r == 0 ? copy_contents(k, fd, st->st_size, e) : -1;
}

static int symlink_entry(struct pack *k, int dir, const char *name, const char *path, const struct stat *st, struct err *e)
{
    char target[LIMIT_PATH];
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);

    if (n <= 0)
        return err_sys(e, n < 0 ? errno : EINVAL, "read the link");
    target[n] = '\0';
    struct archive_entry *entry = entry_new(path, st);
    archive_entry_set_symlink(entry, target);
    int r = write_header(k, entry, e);
    archive_entry_free(entry);
    return r;
}

static int pack_dir(struct pack *k, int dir, const char *path, int depth, struct err *e);

static int directory(struct pack *k, int fd, const char *path, const struct stat *st, int depth, struct err *e)
{
    struct archive_entry *entry = entry_new(*path != '\0' ? path : "./", st);
    char value = '\0';
    int r = add_xattrs(entry, fd, e);

    if (r == 0)
        r = write_header(k, entry, e);
    archive_entry_free(entry);
    if (r == 0 && fgetxattr(fd, "user.overlay.opaque", &value, 1) == 1 && value == 'y')
        r = mark(k, path, OPAQUE, "", e);
    return r == 0 ? pack_dir(k, fd, path, depth + 1, e) : -1;
}

static int fifo(struct pack *k, const char *path, const struct stat *st, struct err *e)
{
    struct archive_entry *entry = entry_new(path, st);
    int r = write_header(k, entry, e);

    archive_entry_free(entry);
    return r;
}

static int pack_entry(struct pack *k, int dir, const char *above, const char *name, const char *path, int depth, struct err *e)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at it");
    if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0))
        return mark(k, above, WHITEOUT, name, e);
    /* Of an imported root file system. Whoever reads the archive would take it for a whiteout. */
    if (k->file.archive != NULL && strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0)
        return err_set(e, ERR_UNSUPPORTED, "its name means something else in a layer: such an image cannot be exported");
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        return regular(k, dir, name, path, &st, e);
    case S_IFLNK:
        return symlink_entry(k, dir, name, path, &st, e);
    case S_IFIFO:
        return fifo(k, path, &st, e);
    case S_IFDIR: {
        auto_close int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        return fd < 0 ? err_sys(e, errno, "open") : directory(k, fd, path, &st, depth, e);
    }
    default:
        return err_set(e, ERR_INTERNAL, "it is of a kind that no layer has");
    }
}

static int pack_dir(struct pack *k, int dir, const char *path, int depth, struct err *e)
{
    char shown[160];
    char **names;
    size_t n;
    int r = names_read(dir, &names, &n);

    if (r < 0)
        return err_sys(e, -r, "list a directory of the layer");
    if (depth > DEPTH_MAX)
        r = err_set(e, ERR_UNSUPPORTED, "directories are nested deeper than %d", DEPTH_MAX);
    for (size_t i = 0; r == 0 && i < n; i++) {
        auto_free char *below = mem_printf("%s%s%s", path, *path != '\0' ? "/" : "", names[i]);
        r = pack_entry(k, dir, path, names[i], below, depth, e);
        if (r < 0 && !k->is_named) {
            k->is_named = true;         /* not the directories above as well */
            (void)err_wrap(e, "'%s'", log_escape(below, shown, sizeof shown));
        }
        if (r == 0 && k->is_cancelled(k->arg))
            r = err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
    }
    names_free(names, n);
    return r;
}

static void pack_done(struct pack *k)
{
    struct map_iter it = MAP_ITER;
    const char *key;
    void *path;

    while (map_next(&k->links, &it, &key, &path))
        free(path);
    map_done(&k->links);
    /* Freed unclosed, libarchive would write on. */
    if (k->tar.archive != NULL) {
        (void)archive_write_fail(k->tar.archive);
        (void)archive_write_free(k->tar.archive);
    }
    if (k->file.archive != NULL) {
        (void)archive_write_fail(k->file.archive);
        (void)archive_write_free(k->file.archive);
    }
    EVP_MD_CTX_free(k->tar.hash);
    EVP_MD_CTX_free(k->file.hash);
    free(k->buffer);
}

static int pack(struct pack *k, int layer, struct err *e)
{
    struct stat st;

    if (fstat(layer, &st) < 0)
        return err_sys(e, errno, "look at the layer");
    return open_tar(k, e) < 0 ? -1 : directory(k, layer, "", &st, -1, e);
}

int pack_layer(int layer, enum image_compression how, int out, bool (*is_cancelled)(void *arg), void *arg, struct packed *ret,
               struct err *e)
{
    struct pack k = {.out = out, .is_cancelled = is_cancelled, .arg = arg, .buffer = mem_alloc(CHUNK)};
    int r = -1;

    k.tar = (struct stage){archive_write_new(), EVP_MD_CTX_new()};
    k.file = (struct stage){archive_write_new(), EVP_MD_CTX_new()};
    map_init(&k.links);
    if (k.tar.archive == NULL || k.file.archive == NULL)
        (void)err_set(e, ERR_INTERNAL, "libarchive cannot be set up");
    else if (open_file(&k, how, e) == 0 && pack(&k, layer, e) == 0 && close_stage(&k, &k.tar, ret->diff_id, e) == 0)
        r = close_stage(&k, &k.file, ret->digest, e);
    ret->size = k.size;
    pack_done(&k);
    return r;
}

int pack_sum(int layer, bool (*is_cancelled)(void *arg), void *arg, char ret_digest[IMAGE_DIGEST_SIZE], struct err *e)
{
    struct pack k = {.out = -1, .is_cancelled = is_cancelled, .arg = arg, .buffer = mem_alloc(CHUNK)};
    int r = -1;

    k.tar = (struct stage){archive_write_new(), EVP_MD_CTX_new()};
    map_init(&k.links);
    if (k.tar.archive == NULL)
        (void)err_set(e, ERR_INTERNAL, "libarchive cannot be set up");
    else if (pack(&k, layer, e) == 0)
        r = close_stage(&k, &k.tar, ret_digest, e);
    pack_done(&k);
    return r;
}
