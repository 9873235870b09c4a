/*
 * files.c - keeping files by their content
 */
#include "core/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "net/digest.h"
#include "sys/fd.h"

#define SWEEP_MOST 500
/* Of the disk's own reserve, in which state and logs grow, uploads leave at least half. */
#define ROOM_SHARE 40
#define ROOM_MOST (1LL << 30)

struct files {
    struct core *core;
    int dir;
};

struct files *files_open(struct core *c, struct err *e)
{
    auto_free char *path = mem_printf("%s/control/uploads", core_data_dir(c));
    struct files *f = mem_zalloc(sizeof *f);

    f->core = c;
    f->dir = -1;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        (void)err_sys(e, errno, "make directory %s", path);
        files_free(f);
        return NULL;
    }
    f->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir < 0) {
        (void)err_sys(e, errno, "open %s", path);
        files_free(f);
        return NULL;
    }
    return f;
}

void files_free(struct files *f)
{
    if (f == NULL)
        return;
    fd_close(&f->dir);
    free(f);
}

bool files_is_hash(const char *text)
{
    return strspn(text, "0123456789abcdef") == FILE_HASH_SIZE - 1 && text[FILE_HASH_SIZE - 1] == '\0';
}

/* Its length as it is on disk, -1 when it is not there as it should be. */
static int64_t length_of(struct files *f, const char *hash)
{
    int64_t bytes = -1;
    struct stat st;
    struct err e;

    if (!files_is_hash(hash) || store_file_get(core_store(f->core), hash, &bytes, &e) < 0 || bytes < 0)
        return -1;
    return fstatat(f->dir, hash, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size == bytes ? bytes : -1;
}

bool files_has(struct files *f, const char *hash)
{
    struct err e;

    if (length_of(f, hash) < 0)
        return false;
    return store_file_used(core_store(f->core), hash, clock_wall_us(), &e) == 0;
}

int files_check_room(struct files *f, int64_t bytes, struct err *e)
{
    struct statfs s;

    if (fstatfs(f->dir, &s) < 0)
        return err_sys(e, errno, "ask how full the disk is");
    int64_t block = s.f_bsize, room = (int64_t)s.f_bavail * block, keep = (int64_t)s.f_blocks / ROOM_SHARE * block;
    if (keep > ROOM_MOST)
        keep = ROOM_MOST;
    if (room - bytes >= keep)
        return 0;
    return err_set(e, ERR_CAPACITY, "the disk has no room for an upload of %lld bytes", (long long)bytes);
}

int files_put(struct files *f, const char *hash, const void *p, size_t n, struct err *e)
{
    char hex[SHA256_HEX_SIZE];
    uint8_t sum[NET_SHA256_SIZE];
    struct net_digest *d = net_digest_new(NET_SHA256);

    bool ok = d != NULL && net_digest_add(d, p, n) == 0 && net_digest_end(d, sum) == 0;
    net_digest_free(d);
    if (!ok)
        return err_set(e, ERR_INTERNAL, "the hash of a file could not be computed");
    sha256_hex(sum, hex);
    if (strcmp(hex, hash) != 0)
        return err_set(
            e, ERR_INVALID,
            "the contents have the hash %.12s... and not %.12s...: the file changed while it was sent",
            hex, hash);
    if (files_has(f, hash))
        return 0;
    if (files_check_room(f, (int64_t)n, e) < 0 || store_file_put(core_store(f->core), hash, (int64_t)n, clock_wall_us(), e) < 0)
        return -1;
    int r = fd_replace_file(f->dir, hash, p, n, 0600, false);
    return r < 0 ? err_sys(e, -r, "keep a file") : 0;
}

int files_read(struct files *f, const char *hash, int *ret_fd, int64_t *ret_bytes, struct err *e)
{
    *ret_bytes = length_of(f, hash);
    if (*ret_bytes < 0)
        return err_set(e, ERR_NOT_FOUND, "the file %.12s... is not here any more: upload it again", hash);
    *ret_fd = openat(f->dir, hash, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return *ret_fd < 0 ? err_sys(e, errno, "open the file %.12s...", hash) : 0;
}

/* --- the sweep --------------------------------------------------------------------------------------- */

struct old {
    char hash[SWEEP_MOST][FILE_HASH_SIZE];
    size_t n;
};

static void add_old(void *ctx, const char *hash)
{
    struct old *o = ctx;

    if (o->n < SWEEP_MOST)
        (void)snprintf(o->hash[o->n++], FILE_HASH_SIZE, "%s", hash);
}

/* The file goes first: a row without a file is one that counts as missing. */
void files_sweep(struct files *f)
{
    struct store *s = core_store(f->core);
    auto_free struct old *o = mem_zalloc(sizeof *o);
    struct err e = {0};

    if (store_file_old(s, clock_wall_us() - FILES_KEEP_S * 1000000, SWEEP_MOST, add_old, o, &e) < 0)
        log_warn("files.sweep", "cause=\"%s\"", e.message);
    for (size_t i = 0; i < o->n; i++) {
        if (unlinkat(f->dir, o->hash[i], 0) < 0 && errno != ENOENT)
            log_warn("files.sweep", "file=%s errno=%d", o->hash[i], errno);
        else if (store_file_remove(s, o->hash[i], &e) < 0)
            log_warn("files.sweep", "cause=\"%s\"", e.message);
    }
}

/* --- parts of blobs ---------------------------------------------------------------------------------- */

int files_open_part(struct files *f, const char *name, int *ret_fd, struct err *e)
{
    *ret_fd = openat(f->dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *ret_fd < 0 ? err_sys(e, errno, "open an upload") : 0;
}

int files_adopt(struct files *f, const char *name, const char *hash, int64_t bytes, struct err *e)
{
    if (store_file_put(core_store(f->core), hash, bytes, clock_wall_us(), e) < 0)
        return -1;
    return renameat(f->dir, name, f->dir, hash) < 0 ? err_sys(e, errno, "keep an upload") : 0;
}

void files_remove_part(struct files *f, const char *name)
{
    if (unlinkat(f->dir, name, 0) < 0 && errno != ENOENT)
        log_warn("files.part", "name=%s errno=%d", name, errno);
}
