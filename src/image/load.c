/*
 * load.c - archives that hold an image with its layers
 *
 * Runs in the job's process, which has neither the network nor children by then. Paths in the archive are looked up beneath its
 * unpacked tree, and links are not followed.
 */
#include "image/load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "image/layer.h"
#include "image/manifest.h"
#include "sys/fd.h"

#define INDEXES_MAX 3
#define PIECE (32 * 1024)

struct load {
    const struct job *job;
    int root;
    struct unpack_limits limits;
    struct manifest manifest;
    struct manifest_archive archive;    /* paths of config and layers, of either form */
    struct manifest_config config;
    struct image_layers layers;
    char digest[IMAGE_DIGEST_SIZE];
    uint64_t bytes, files;
};

static int open_file(int root, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    struct stat st;

    auto_close int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? take_fd(&fd) : -1;
}

bool load_is_image(int root)
{
    auto_close int layout = open_file(root, "oci-layout");
    auto_close int index = open_file(root, "index.json");
    auto_close int manifest = open_file(root, "manifest.json");
    bool yes = layout >= 0 && index >= 0;

    if (!yes && manifest >= 0) {
        auto_free char *text = mem_alloc(MANIFEST_BYTES_MAX);
        ssize_t n = fd_read_all(manifest, text, MANIFEST_BYTES_MAX);
        yes = n > 0 && manifest_is_archive(text, (size_t)n);
    }
    return yes;
}

/* A document of the archive; the caller frees. With a digest it must be what that says. */
static char *read_document(struct load *l, const char *path, const char *digest, size_t *ret_len, struct err *e)
{
    auto_close int fd = open_file(l->root, path);
    auto_free char *text = mem_alloc(MANIFEST_BYTES_MAX);
    char got[IMAGE_DIGEST_SIZE] = "sha256:";
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    ssize_t n = fd >= 0 ? fd_read_all(fd, text, MANIFEST_BYTES_MAX) : -ENOENT;
    if (n < 0) {
        (void)err_set(e, n == -EFBIG ? ERR_TOO_LARGE : ERR_INVALID, "the archive has no file '%.100s', or it is too long", path);
        return NULL;
    }
    sha256_init(&s);
    sha256_add(&s, text, (size_t)n);
    sha256_end(&s, sum);
    sha256_hex(sum, got + 7);
    if (digest != NULL && strcmp(got, digest) != 0) {
        (void)err_set(e, ERR_INVALID, "the file '%.100s' of the archive has another digest than its name", path);
        return NULL;
    }
    memcpy(l->digest, got, sizeof l->digest);
    *ret_len = (size_t)n;
    return take_ptr(&text);
}

static void blob_path(const char *digest, char out[256])
{
    static const char dir[] = "blobs/sha256/";

    memcpy(out, dir, sizeof dir);
    memcpy(out + sizeof dir - 1, digest + 7, 65);
}

static int read_layout(struct load *l, struct err *e)
{
    char path[256] = "index.json";
    char digest[IMAGE_DIGEST_SIZE] = "";

    for (int i = 0; i < INDEXES_MAX; i++) {
        size_t n = 0;
        auto_free char *text = read_document(l, path, digest[0] != '\0' ? digest : NULL, &n, e);
        if (text == NULL || (i == 0 && manifest_layout_check(text, n, e) < 0) ||
            manifest_read(text, n, manifest_machine(), &l->manifest, e) < 0)
            return -1;
        if (!l->manifest.is_index) {
            blob_path(l->manifest.config.digest, l->archive.config);
            l->archive.nlayers = l->manifest.nlayers;
            for (uint32_t k = 0; k < l->manifest.nlayers; k++)
                blob_path(l->manifest.layers[k].digest, l->archive.layers[k]);
            return 0;
        }
        memcpy(digest, l->manifest.chosen.digest, sizeof digest);
        blob_path(digest, path);
    }
    return err_set(e, ERR_UNSUPPORTED, "indexes of the archive name one another");
}

static int read_saved(struct load *l, struct err *e)
{
    size_t n = 0;
    auto_free char *text = read_document(l, "manifest.json", NULL, &n, e);

    return text != NULL ? manifest_archive_read(text, n, &l->archive, e) : -1;
}

static void no_progress(const struct unpack_counts *counts, void *arg)
{
}

/* The limits are those of the image, not of each of its layers. */
static int add_to_total(struct load *l, const struct unpack_counts *counts, struct err *e)
{
    l->bytes += counts->bytes;
    l->files += counts->files;
    if (l->limits.max_bytes > 0 && l->bytes > l->limits.max_bytes)
        return err_set(e, ERR_TOO_LARGE, "the image unpacks to more than %" PRIu64 " bytes", l->limits.max_bytes);
    if (l->limits.max_files > 0 && l->files > l->limits.max_files)
        return err_set(e, ERR_TOO_LARGE, "the image has more than %" PRIu64 " entries", l->limits.max_files);
    return 0;
}

static int load_layer(struct load *l, uint32_t i, struct err *e)
{
    const char *name = l->config.diff_ids[i] + 7;
    struct unpack_counts counts = {0};
    /* One more than what is left, so that the last layer of an image that is too large is known by it. */
    const struct unpack_limits left = {l->limits.max_bytes > 0 ? l->limits.max_bytes - l->bytes + 1 : 0,
                                       l->limits.max_files > 0 ? l->limits.max_files - l->files + 1 : 0};
    struct job job = *l->job;

    for (uint32_t k = i + 1; k < l->archive.nlayers; k++)
        if (strcmp(l->config.diff_ids[i], l->config.diff_ids[k]) == 0)
            return 0;                   /* it lies above itself */
    if (!layer_is_there(l->job, name)) {
        auto_close int fd = open_file(l->root, l->archive.layers[i]);
        if (fd < 0)
            return err_set(e, ERR_INVALID, "the archive has no file '%.100s'", l->archive.layers[i]);
        (void)snprintf(job.name, sizeof job.name, "%.24s-%u", l->job->name, i);
        if (layer_unpack(&job, fd, UNPACK_LAYER, &left, name, no_progress, NULL, &counts, NULL, e) < 0)
            return err_wrap(e, "layer %u", i);
    } else {
        layer_size_read(l->job, name, &counts.bytes, &counts.files);
    }
    struct image_layers *m = &l->layers;
    memmove(&m->layers[1], &m->layers[0], m->nlayers * sizeof m->layers[0]);    /* top first */
    memset(&m->layers[0], 0, sizeof m->layers[0]);
    memcpy(m->layers[0].layer, name, 65);
    m->layers[0].bytes = counts.bytes;
    m->layers[0].files = counts.files;
    m->nlayers = layer_hides_all(l->job, name) ? 1 : m->nlayers + 1;
    return add_to_total(l, &counts, e);
}

static int tell(struct load *l, struct err *e)
{
    auto_free uint8_t *out = mem_alloc(LIMIT_CHANNEL_INLINE);
    const char *text = l->config.text;

    if (l->layers.nlayers == 0) {
        if (layer_make_empty(l->job, e) < 0)
            return -1;
        memcpy(l->layers.layers[l->layers.nlayers++].layer, LAYER_EMPTY, sizeof LAYER_EMPTY);
    }
    memcpy(l->layers.digest, l->digest, sizeof l->layers.digest);
    memcpy(l->layers.source, l->digest, sizeof l->layers.source);
    for (size_t left = strlen(text); left > 0;) {
        size_t n = left < PIECE ? left : PIECE;
        job_send(l->job->conn, IMAGE_PIECE, text, n);
        text += n;
        left -= n;
    }
    job_send(l->job->conn, IMAGE_LAYERS, out, image_layers_encode(&l->layers, out, LIMIT_CHANNEL_INLINE));
    return 0;
}

static int load(struct load *l, struct err *e)
{
    auto_close int layout = open_file(l->root, "oci-layout");
    size_t n = 0;

    if ((layout >= 0 ? read_layout(l, e) : read_saved(l, e)) < 0)
        return -1;
    char digest[IMAGE_DIGEST_SIZE];
    memcpy(digest, l->digest, sizeof digest);
    auto_free char *text = read_document(l, l->archive.config, layout >= 0 ? l->manifest.config.digest : NULL, &n, e);
    /* What `docker save` wrote has no manifest of its own: the configuration names the image. */
    if (layout >= 0)
        memcpy(l->digest, digest, sizeof digest);
    if (text == NULL || manifest_config_read(text, n, manifest_machine(), l->archive.nlayers, &l->config, e) < 0)
        return -1;
    for (uint32_t i = 0; i < l->archive.nlayers; i++)
        if (load_layer(l, i, e) < 0)
            return -1;
    return tell(l, e);
}

int load_image(const struct job *job, int root, const struct unpack_limits *limits, struct image_done *ret, struct err *e)
{
    struct load *l = mem_zalloc(sizeof *l);

    l->job = job;
    l->root = root;
    l->limits = *limits;
    int r = load(l, e);
    if (r == 0)
        (void)snprintf(ret->layer, sizeof ret->layer, "%s", l->layers.layers[0].layer);
    ret->bytes = l->bytes;
    ret->files = l->files;
    manifest_config_done(&l->config);
    free(l);
    return r;
}
