/*
 * export.c - an image of this node as one tar: an OCI layout, with the manifest.json that `docker load` looks for
 *
 * A blob's name and size come before its bytes, so each layer is packed into a nameless file in the staging directory first:
 * the disk holds one packed layer at a time, whatever the size of the image. The same image gives the same bytes.
 */
#include "image/export.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "image/confine.h"
#include "image/manifest.h"
#include "image/pack.h"
#include "json/json.h"
#include "sys/fd.h"

#define CHUNK (256 * 1024)
#define BLOB_DIR "blobs/sha256/"

struct export {
    const struct job *job;
    struct image_export request;
    int out;                            /* borrowed, does not block */
    struct archive *tar;                /* owned */
    char *buffer;                       /* owned */
    bool is_broken;                     /* nobody reads any more */
    struct packed layers[LIMIT_LAYERS]; /* bottom first */
    uint64_t bytes;                     /* that went out */
};

/* --- bytes ------------------------------------------------------------------------------------ */

static bool is_cancelled(void *arg)
{
    const struct export *x = arg;
    struct pollfd p[3] = {{.fd = x->job->conn, .events = POLLRDHUP}, {.fd = x->job->alive}, {.fd = x->out}};

    return poll(p, 3, 0) > 0 && ((p[0].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0 || p[1].revents != 0 || p[2].revents != 0);
}

static la_ssize_t write_out(struct archive *a, void *arg, const void *p, size_t n)
{
    struct export *x = arg;

    for (;;) {
        ssize_t w = write(x->out, p, n);
        if (w >= 0) {
            x->bytes += (uint64_t)w;
            return w;
        }
        if (errno == EINTR)
            continue;
        struct pollfd fds[3] = {{.fd = x->out, .events = POLLOUT},
                                {.fd = x->job->conn, .events = POLLRDHUP},
                                {.fd = x->job->alive}};
        if (errno != EAGAIN || (poll(fds, 3, -1) < 0 && errno != EINTR) || is_cancelled(x)) {
            x->is_broken = true;
            archive_set_error(a, EPIPE, "nobody reads the archive");
            return -1;
        }
    }
}

static int out_failed(struct export *x, struct err *e)
{
    if (x->is_broken)
        return err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
    const char *why = archive_error_string(x->tar);
    return err_set(e, ERR_INTERNAL, "libarchive cannot write: %s", why != NULL ? why : "no reason given");
}

static int put_header(struct export *x, const char *path, mode_t type, uint64_t size, struct err *e)
{
    struct archive_entry *entry = archive_entry_new();

    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, type);
    archive_entry_set_perm(entry, type == AE_IFDIR ? 0755 : 0644);
    archive_entry_set_mtime(entry, 0, 0);
    archive_entry_set_size(entry, (int64_t)size);
    int r = archive_write_header(x->tar, entry);
    archive_entry_free(entry);
    return r == ARCHIVE_OK ? 0 : out_failed(x, e);
}

static int put_text(struct export *x, const char *path, const char *text, struct err *e)
{
    size_t n = strlen(text);

    if (put_header(x, path, AE_IFREG, n, e) < 0)
        return -1;
    return archive_write_data(x->tar, text, n) == (la_ssize_t)n ? 0 : out_failed(x, e);
}

static int put_file(struct export *x, const char *path, int fd, uint64_t size, struct err *e)
{
    if (put_header(x, path, AE_IFREG, size, e) < 0)
        return -1;
    for (uint64_t at = 0; at < size;) {
        ssize_t n = pread(fd, x->buffer, CHUNK, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(e, n < 0 ? errno : EIO, "read a packed layer");
        if (archive_write_data(x->tar, x->buffer, (size_t)n) != n)
            return out_failed(x, e);
        at += (uint64_t)n;
    }
    return 0;
}

/* --- blobs ------------------------------------------------------------------------------------ */

static void blob_path(const char *digest, char out[96])
{
    (void)snprintf(out, 96, BLOB_DIR "%s", digest + 7);
}

static int scratch(const struct job *job, struct err *e)
{
    auto_close int staging = openat(job->layers, STAGING, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = staging >= 0 ? openat(staging, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;

    return fd < 0 ? err_sys(e, errno, "make a file for a packed layer") : fd;
}

static bool was_put(const struct export *x, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (strcmp(x->layers[k].digest, x->layers[i].digest) == 0)
            return true;
    return false;
}

/* The i-th layer from below. */
static int put_layer(struct export *x, uint32_t i, struct err *e)
{
    const char *name = x->request.layers[x->request.nlayers - 1 - i];
    char path[96];
    auto_close int layer = openat(x->job->layers, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (layer < 0)
        return err_sys(e, errno, "open layer %.12s", name);
    auto_close int file = scratch(x->job, e);
    if (file < 0)
        return -1;
    if (pack_layer(layer, x->request.compression, file, is_cancelled, x, &x->layers[i], e) < 0)
        return err_wrap(e, "layer %.12s", name);
    blob_path(x->layers[i].digest, path);
    return was_put(x, i) ? 0 : put_file(x, path, file, x->layers[i].size, e);
}

/* A document as a blob. Takes the reference to `doc`; *ret describes it. */
static int put_document(struct export *x, json_t *doc, const char *media, json_t **ret, struct err *e)
{
    auto_free char *text = js_text(doc, true);
    char digest[IMAGE_DIGEST_SIZE] = "sha256:", path[96];
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    json_decref(doc);
    sha256_init(&s);
    sha256_add(&s, text, strlen(text));
    sha256_end(&s, sum);
    sha256_hex(sum, digest + 7);
    blob_path(digest, path);
    *ret = json_pack("{s:s, s:s, s:I}", "mediaType", media, "digest", digest, "size", (json_int_t)strlen(text));
    return put_text(x, path, text, e);
}

static json_t *config_of(const struct export *x, struct err *e)
{
    json_t *config = js_parse(x->request.config, x->request.config_len, LIMIT_CHANNEL_MESSAGE, e);
    json_t *ids = json_array();

    for (uint32_t i = 0; i < x->request.nlayers; i++)
        (void)json_array_append_new(ids, json_string(x->layers[i].diff_id));
    if (config != NULL)
        (void)json_object_set_new(config, "rootfs", json_pack("{s:s, s:O}", "type", "layers", "diff_ids", ids));
    /* An imported root file system does not say what it is for. */
    if (config != NULL && !json_is_string(json_object_get(config, "architecture")))
        (void)json_object_set_new(config, "architecture", json_string(manifest_machine()));
    if (config != NULL && !json_is_string(json_object_get(config, "os")))
        (void)json_object_set_new(config, "os", json_string("linux"));
    json_decref(ids);
    return config;
}

static json_t *manifest_of(const struct export *x, const json_t *config)
{
    static const char *const media[IMAGE_COMPRESSIONS_] = {
        [IMAGE_GZIP] = "application/vnd.oci.image.layer.v1.tar+gzip",
        [IMAGE_ZSTD] = "application/vnd.oci.image.layer.v1.tar+zstd",
        [IMAGE_PLAIN] = "application/vnd.oci.image.layer.v1.tar",
    };
    json_t *layers = json_array();

    for (uint32_t i = 0; i < x->request.nlayers; i++)
        (void)json_array_append_new(layers, json_pack("{s:s, s:s, s:I}", "mediaType", media[x->request.compression], "digest",
                                                      x->layers[i].digest, "size", (json_int_t)x->layers[i].size));
    return json_pack("{s:i, s:s, s:O, s:o}", "schemaVersion", 2, "mediaType",
                     "application/vnd.oci.image.manifest.v1+json", "config", config, "layers",
                     layers);
}

/* --- the archive ------------------------------------------------------------------------------ */

/* index.json: the manifest, under the image's name as other tools spell it. */
static int put_index(struct export *x, json_t *manifest, struct err *e)
{
    const char *name = x->request.name, *slash = strrchr(name, '/'), *colon = strrchr(name, ':');
    bool has_tag = colon != NULL && (slash == NULL || colon > slash);
    json_t *notes = json_object();

    if (*name != '\0') {
        auto_free char *full = has_tag ? mem_strdup(name) : mem_printf("%s:latest", name);
        (void)json_object_set_new(notes, "org.opencontainers.image.ref.name", json_string(has_tag ? colon + 1 : "latest"));
        (void)json_object_set_new(notes, "io.containerd.image.name", json_string(full));
        (void)json_object_set(manifest, "annotations", notes);
    }
    json_decref(notes);
    json_t *index = json_pack("{s:i, s:s, s:[O]}", "schemaVersion", 2, "mediaType", "application/vnd.oci.image.index.v1+json",
                              "manifests", manifest);
    auto_free char *text = js_text(index, true);
    json_decref(index);
    return put_text(x, "index.json", text, e);
}

/* manifest.json, by which `docker load` and `podman load` find the same blobs. */
static int put_saved(struct export *x, const json_t *config, struct err *e)
{
    json_t *layers = json_array(), *tags = json_array();
    const char *name = x->request.name, *slash = strrchr(name, '/'), *colon = strrchr(name, ':');
    char path[96];

    for (uint32_t i = 0; i < x->request.nlayers; i++) {
        blob_path(x->layers[i].digest, path);
        (void)json_array_append_new(layers, json_string(path));
    }
    if (*name != '\0') {
        auto_free char *full = mem_printf("%s%s", name, colon != NULL && (slash == NULL || colon > slash) ? "" : ":latest");
        (void)json_array_append_new(tags, json_string(full));
    }
    blob_path(json_string_value(json_object_get(config, "digest")), path);
    json_t *list = json_pack("[{s:s, s:o, s:o}]", "Config", path, "RepoTags", tags, "Layers", layers);
    auto_free char *text = js_text(list, true);
    json_decref(list);
    return put_text(x, "manifest.json", text, e);
}

static int put_all(struct export *x, struct err *e)
{
    auto_json *config = NULL, *manifest = NULL;

    if (put_text(x, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", e) < 0 || put_header(x, "blobs", AE_IFDIR, 0, e) < 0 ||
        put_header(x, "blobs/sha256", AE_IFDIR, 0, e) < 0)
        return -1;
    for (uint32_t i = 0; i < x->request.nlayers; i++)
        if (put_layer(x, i, e) < 0)
            return -1;
    json_t *document = config_of(x, e);
    if (document == NULL || put_document(x, document, "application/vnd.oci.image.config.v1+json", &config, e) < 0 ||
        put_document(x, manifest_of(x, config), "application/vnd.oci.image.manifest.v1+json", &manifest, e) < 0 ||
        put_index(x, manifest, e) < 0 || put_saved(x, config, e) < 0)
        return -1;
    return archive_write_close(x->tar) == ARCHIVE_OK ? 0 : out_failed(x, e);
}

static int export(struct export *x, struct err *e)
{
    for (uint32_t i = 0; i < x->request.nlayers; i++)   /* before the first byte, after which an error has no good place */
        if (faccessat(x->job->layers, x->request.layers[i], F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(e, errno, "open layer %.12s", x->request.layers[i]);
    x->tar = archive_write_new();
    if (x->tar == NULL || archive_write_set_format_pax_restricted(x->tar) != ARCHIVE_OK ||
        archive_write_set_bytes_per_block(x->tar, 64 * 1024) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(x->tar, 512) != ARCHIVE_OK ||
        archive_write_open(x->tar, x, NULL, write_out, NULL) != ARCHIVE_OK)
        return err_set(e, ERR_INTERNAL, "libarchive cannot be set up");
    return put_all(x, e);
}

int export_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e)
{
    struct export *x = mem_zalloc(sizeof *x);
    int r = -1;

    x->job = job;
    if (m->nfds != 1 || image_export_decode(&x->request, m->data, m->len) < 0)
        (void)err_set(e, ERR_MALFORMED, "not a request of this version, or without its pipe");
    else if (fd_set_nonblock(m->fds[0], true) < 0)
        (void)err_set(e, ERR_MALFORMED, "what came with the request is no pipe");
    else if (confine_unpacker(e) == 0) {
        x->out = m->fds[0];
        x->buffer = mem_alloc(CHUNK);
        r = export(x, e);
    }
    if (x->tar != NULL) {
        (void)archive_write_fail(x->tar);       /* or its end would go out although something failed */
        (void)archive_write_free(x->tar);
    }
    ret->bytes = x->bytes;
    ret->files = x->request.nlayers;
    free(x->buffer);
    free(x);
    return r;
}
