/*
 * layer.c - a layer: made in the staging directory, seen under its name when it is complete and on disk
 */
#include "image/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sha256.h"
#include "image/pack.h"
#include "image/source.h"
#include "sys/fd.h"
#include "sys/rmtree.h"

#define SUM_SIZE 128

int layer_stage(const struct job *job, int *ret_staging, int *ret_root, struct err *e)
{
    auto_close int staging = openat(job->layers, STAGING, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (staging < 0)
        return err_sys(e, errno, "open the staging directory");
    if (mkdirat(staging, job->name, 0755) < 0)
        return err_sys(e, errno, "make a staging directory");
    int root = openat(staging, job->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, errno, "open a staging directory");
    /* What an archive without an entry for its root gets, whatever the mask. */
    if (fchmod(root, 0755) < 0) {
        fd_close(&root);
        return err_sys(e, errno, "mode of a staging directory");
    }
    *ret_staging = take_fd(&staging);
    *ret_root = root;
    return 0;
}

void layer_discard(const struct job *job, int staging)
{
    int r = rmtree(staging, job->name);

    if (r < 0)
        log_warn("image.staging_left", "name=%s error=%d", job->name, -r);
}

static int open_aside(const struct job *job, const char *name)
{
    if (mkdirat(job->layers, name, 0700) < 0 && errno != EEXIST)
        return -1;
    return openat(job->layers, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static bool never(void *arg)
{
    return false;
}

/* The sum of the staged tree and its size, "SUM BYTES FILES", under the job's name until it is clear that this tree is the
 * layer's. */
static int write_sum(const struct job *job, int sums, int root, const struct unpack_counts *counts, struct err *e)
{
    char sum[IMAGE_DIGEST_SIZE], text[SUM_SIZE];

    /* A tree deeper than any path reaches (by a link on the way) is none that can be packed: it has no sum, and is unknown
     * to verify. */
    if (pack_sum(root, never, NULL, sum, e) < 0) {
        if (e->code != ERR_UNSUPPORTED)
            return -1;
        (void)snprintf(sum, sizeof sum, "-");
    }
    (void)snprintf(text, sizeof text, "%s %" PRIu64 " %" PRIu64 "\n", sum, counts->bytes, counts->files);
    auto_close int fd = openat(sums, job->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd >= 0 ? fd_write_all(fd, text, strlen(text)) : -errno;
    return r < 0 ? err_sys(e, -r, "write the sum of a layer") : 0;
}

static bool read_sum(const struct job *job, const char *layer, char ret[SUM_SIZE])
{
    auto_close int sums = open_aside(job, SUMS);
    auto_close int fd = openat(sums, layer, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    memset(ret, 0, SUM_SIZE);
    return fd >= 0 && fd_read_all(fd, ret, SUM_SIZE - 1) > 0;
}

bool layer_sum_read(const struct job *job, const char *layer, char ret[IMAGE_DIGEST_SIZE])
{
    char text[SUM_SIZE];

    if (!read_sum(job, layer, text))
        return false;
    text[strcspn(text, " ")] = '\0';
    (void)snprintf(ret, IMAGE_DIGEST_SIZE, "%.*s", IMAGE_DIGEST_SIZE - 1, text);
    return image_digest_is_valid(ret);
}

void layer_size_read(const struct job *job, const char *layer, uint64_t *ret_bytes, uint64_t *ret_files)
{
    char text[SUM_SIZE], *end;

    *ret_bytes = *ret_files = 0;
    if (!read_sum(job, layer, text) || (end = strchr(text, ' ')) == NULL)
        return;
    *ret_bytes = strtoull(end, &end, 10);
    *ret_files = strtoull(end, NULL, 10);
}

bool layer_hides_all(const struct job *job, const char *layer)
{
    auto_close int dir = openat(job->layers, layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    char value = '\0';

    return dir >= 0 && fgetxattr(dir, "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

int layer_mark_damaged(const struct job *job, const char *layer, struct err *e)
{
    auto_close int dir = open_aside(job, DAMAGED);
    auto_close int fd = openat(dir, layer, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    return fd < 0 ? err_sys(e, errno, "mark layer %.12s as damaged", layer) : 0;
}

static bool is_damaged(const struct job *job, const char *layer)
{
    char path[96];

    (void)snprintf(path, sizeof path, DAMAGED "/%s", layer);
    return faccessat(job->layers, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void unmark(const struct job *job, const char *layer)
{
    char path[96];

    (void)snprintf(path, sizeof path, DAMAGED "/%s", layer);
    (void)unlinkat(job->layers, path, 0);
}

/* The tree takes the place of a damaged one, which stays aside: sandboxes may live on it. */
static int replace(const struct job *job, int staging, const char *layer, struct err *e)
{
    auto_close int aside = open_aside(job, REPLACED);
    char name[128];

    (void)snprintf(name, sizeof name, "%.64s.%s", layer, job->name);
    if (aside < 0 || renameat2(staging, job->name, job->layers, layer, RENAME_EXCHANGE) < 0 ||
        renameat(staging, job->name, aside, name) < 0)
        return err_sys(e, errno, "replace the damaged layer %.12s", layer);
    log_info("image.mended", "layer=%s", layer);
    return 0;
}

/* 1 = the tree has the name now, 0 = another one that is as good has it, -1. */
static int give_name(const struct job *job, int staging, const char *layer, struct err *e)
{
    if (renameat2(staging, job->name, job->layers, layer, RENAME_NOREPLACE) == 0)
        return 1;
    if (errno != EEXIST)
        return err_sys(e, errno, "name layer %s", layer);
    if (is_damaged(job, layer))
        return replace(job, staging, layer, e) < 0 ? -1 : 1;
    layer_discard(job, staging);
    return 0;
}

int layer_publish(const struct job *job, int staging, int root, const char *layer,
                  const struct unpack_counts *counts, struct err *e)
{
    auto_close int sums = open_aside(job, SUMS);

    if (write_sum(job, sums, root, counts, e) < 0)
        return -1;
    /* Rows of the database will say that the layer exists: after a power cut too. */
    int r = syncfs(root) < 0 ? err_sys(e, errno, "write layer %s to disk", layer) : give_name(job, staging, layer, e);
    if (r == 1 && renameat(sums, job->name, sums, layer) < 0 && errno != ENOENT)
        log_warn("image.sum", "layer=%s error=%d", layer, errno);
    if (r != 1)
        (void)unlinkat(sums, job->name, 0);
    if (r < 0)
        return -1;
    if (r == 1)
        unmark(job, layer);
    if (fsync(job->layers) < 0)
        return err_sys(e, errno, "write the name of layer %s to disk", layer);
    return 0;
}

bool layer_is_there(const struct job *job, const char *layer)
{
    struct stat st;

    return fstatat(job->layers, layer, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && !is_damaged(job, layer);
}

/* The tree of an archive whose names would mean something else in a layer is another one, so it has another name. */
static void name_as_root(char layer[72])
{
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, "root:", 5);
    sha256_add(&s, layer, strlen(layer));
    sha256_end(&s, sum);
    sha256_hex(sum, layer);
}

static int unpack_staged(const struct job *job, struct source *source, int root, enum unpack_kind kind,
                         const struct unpack_limits *limits, const char *expected, unpack_progress_cb progress, void *arg,
                         struct unpack_counts *counts, char layer[72], struct err *e)
{
    if (unpack_tar(source, root, kind, limits, progress, arg, counts, e) < 0 || source_digest(source, layer, e) < 0)
        return -1;
    if (source_cancelled(source))
        return err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
    if (expected != NULL && strcmp(expected, layer) != 0)
        return err_set(e, ERR_INVALID,
                       "the layer unpacks to sha256:%.12s..., but the image says sha256:%.12s...",
                       layer, expected);
    if (kind == UNPACK_ROOT && counts->whiteouts > 0)
        name_as_root(layer);
    return 0;
}

int layer_unpack_staged(const struct job *job, int fd, enum unpack_kind kind,
                        const struct unpack_limits *limits, const char *expected,
                        unpack_progress_cb progress, void *arg, struct unpack_counts *ret_counts,
                        char ret_layer[72], int *ret_staging, int *ret_root, struct err *e)
{
    auto_close int staging = -1;
    auto_close int root = -1;

    struct source *source = source_new(fd, job->conn, job->alive, e);
    if (source == NULL)
        return -1;
    int r = layer_stage(job, &staging, &root, e);
    if (r == 0)
        r = unpack_staged(job, source, root, kind, limits, expected, progress, arg, ret_counts, ret_layer, e);
    source_free(source);
    if (r < 0) {
        if (staging >= 0)
            layer_discard(job, staging);
        return -1;
    }
    *ret_staging = take_fd(&staging);
    *ret_root = take_fd(&root);
    return 0;
}

int layer_unpack(const struct job *job, int fd, enum unpack_kind kind, const struct unpack_limits *limits, const char *expected,
                 unpack_progress_cb progress, void *arg, struct unpack_counts *ret_counts, char ret_layer[72], struct err *e)
{
    auto_close int staging = -1;
    auto_close int root = -1;
    char layer[72];

    if (layer_unpack_staged(job, fd, kind, limits, expected, progress, arg, ret_counts, layer, &staging, &root, e) < 0)
        return -1;
    if (layer_publish(job, staging, root, layer, ret_counts, e) < 0) {
        layer_discard(job, staging);
        return -1;
    }
    if (ret_layer != NULL)
        memcpy(ret_layer, layer, 72);
    return 0;
}

int layer_make_empty(const struct job *job, struct err *e)
{
    auto_close int staging = -1;
    auto_close int root = -1;

    if (layer_is_there(job, LAYER_EMPTY))
        return 0;
    if (layer_stage(job, &staging, &root, e) < 0)
        return -1;
    return layer_publish(job, staging, root, LAYER_EMPTY, &(struct unpack_counts){0}, e);
}
