/*
 * mounts.c - sets of a client's files, for builds
 *
 * Contents lie below control's directory, named by their SHA-256; a mount is a list of paths and hashes. As a build context they
 * are sent to the node as a tar.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/modal/images.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/image.h"
#include "sys/fd.h"

#define FILES_DIR "control/files"
#define FILE_MAX (4 * 1024 * 1024)
#define MOUNT_FILES_MAX 100000
#define BLOCK 512
#define CHUNK (128 * 1024)

static bool is_hash(const char *text)
{
    return strspn(text, "0123456789abcdef") == 64 && text[64] == '\0';
}

static char *path_of(const struct modal *m, const char *hash)
{
    return mem_printf("%s/" FILES_DIR "/%s", core_data_dir(m->core), hash);
}

static bool is_stored(const struct modal *m, const char *hash)
{
    auto_free char *path = path_of(m, hash);

    return access(path, R_OK) == 0;
}

static int keep_file(const struct modal *m, const char *hash, const void *p, size_t n, struct err *e)
{
    auto_free char *dir = mem_printf("%s/" FILES_DIR, core_data_dir(m->core));

    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make %s", dir);
    auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : fd_replace_file(fd, hash, p, n, 0600, false);
    return r < 0 ? err_sys(e, -r, "keep a file") : 0;
}

/* --- calls --------------------------------------------------------------------------------------------------------------------- */

void rpc_mount_batched_check_existence(struct mcall *c)
{
    const M(MountBatchedCheckExistenceRequest) *rq = REQ(c, MountBatchedCheckExistenceRequest);
    M(MountBatchedCheckExistenceResponse) rs = MODAL__CLIENT__MOUNT_BATCHED_CHECK_EXISTENCE_RESPONSE__INIT;
    auto_free char **missing = mem_array(rq->n_sha256_hex_hashes + 1, sizeof *missing);

    for (size_t i = 0; i < rq->n_sha256_hex_hashes; i++)
        if (!is_hash(rq->sha256_hex_hashes[i]) || !is_stored(c->m, rq->sha256_hex_hashes[i]))
            missing[rs.n_missing_sha256_hex_hashes++] = rq->sha256_hex_hashes[i];
    rs.missing_sha256_hex_hashes = missing;
    m_reply(c, &rs.base);
}

void rpc_mount_put_file(struct mcall *c)
{
    const M(MountPutFileRequest) *rq = REQ(c, MountPutFileRequest);
    M(MountPutFileResponse) rs = MODAL__CLIENT__MOUNT_PUT_FILE_RESPONSE__INIT;
    const char *hash = m_text(rq->sha256_hex);
    char hex[SHA256_HEX_SIZE];
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;
    struct err e;

    if (!is_hash(hash)) {
        m_refuse(c, GRPC_INVALID_ARGUMENT, "sha256_hex is not 64 hexadecimal digits");
        return;
    }
    if (m_text(rq->data_blob_id)[0] != '\0') {
        m_refuse(c, GRPC_UNIMPLEMENTED, "files of 4 MiB and more cannot be uploaded yet: fetch them in a RUN, or copy them in a Dockerfile build");
        return;
    }
    if (rq->has_data) {
        sha256_init(&s);
        sha256_add(&s, rq->data.data, rq->data.len);
        sha256_end(&s, sum);
        sha256_hex(sum, hex);
        if (strcmp(hex, hash) != 0) {
            m_refuse(c, GRPC_INVALID_ARGUMENT, "the contents have the hash %.12s... and not %.12s...", hex, hash);
            return;
        }
        if (keep_file(c->m, hash, rq->data.data, rq->data.len, &e) < 0) {
            m_fail(c, &e);
            return;
        }
    }
    rs.has_exists = true;
    rs.exists = is_stored(c->m, hash);
    m_reply(c, &rs.base);
}

static json_t *list_files(struct mcall *c, const M(MountGetOrCreateRequest) *rq, struct err *e)
{
    auto_json *files = json_array();

    if (rq->n_files > MOUNT_FILES_MAX) {
        (void)err_set(e, ERR_TOO_LARGE, "a mount has at most %d files", MOUNT_FILES_MAX);
        return NULL;
    }
    for (size_t i = 0; i < rq->n_files; i++) {
        const M(MountFile) *f = rq->files[i];
        const char *name = m_text(f->filename), *hash = m_text(f->sha256_hex);
        if (!is_hash(hash) || !is_stored(c->m, hash)) {
            (void)err_set(e, ERR_PRECONDITION, "the file '%.100s' of the mount was not uploaded", name);
            return NULL;
        }
        if (name[0] == '\0' || strlen(name) >= LIMIT_PATH) {
            (void)err_set(e, ERR_INVALID, "a path in the mount is empty or too long");
            return NULL;
        }
        (void)json_array_append_new(files, json_pack("[s, s, i]", name, hash, f->has_mode ? (int)(f->mode & 07777) : 0644));
    }
    return take_ptr(&files);
}

void rpc_mount_get_or_create(struct mcall *c)
{
    const M(MountGetOrCreateRequest) *rq = REQ(c, MountGetOrCreateRequest);
    M(MountGetOrCreateResponse) rs = MODAL__CLIENT__MOUNT_GET_OR_CREATE_RESPONSE__INIT;
    M(MountHandleMetadata) meta = MODAL__CLIENT__MOUNT_HANDLE_METADATA__INIT;
    const char *name = m_text(rq->deployment_name);
    struct environment_row env;
    char id[ID_SIZE];
    struct err e;

    if (m_environment(c, rq->environment_name, &env, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    if (name[0] != '\0' && rq->n_files == 0) {
        if (store_mount_by_name(m_store(c), m_env_key(&env), name, id, &e) < 0) {
            m_fail(c, &e);
            return;
        }
    } else {
        auto_json *files = list_files(c, rq, &e);
        auto_free char *text = files != NULL ? js_text(files, false) : NULL;
        id_make(id, "mo-");
        if (files == NULL || store_mount_put(m_store(c), id, m_env_key(&env), name, text, clock_wall_us(), &e) < 0) {
            m_fail(c, &e);
            return;
        }
    }
    rs.mount_id = id;
    rs.handle_metadata = &meta;
    m_reply(c, &rs.base);
}

/* --- as a build context ----------------------------------------------------------------------------------------------------------- */

struct context {
    struct modal *m;
    json_t *files;                      /* of the mount; owned */
    M(ImageContextFile) *const *extra;  /* borrowed: they are copied into `head` at once */
    struct buf head;                    /* tar of the extra files */
    size_t next;
    int fd;                             /* of the file that is being sent */
    int64_t left;
    int64_t pad;
    bool head_sent;
    struct image_import *import;
    context_fn fn;
    void *ctx;
};

static void context_free(struct context *x)
{
    json_decref(x->files);
    buf_done(&x->head);
    fd_close(&x->fd);
    free(x);
}

static void put_octal(char *out, size_t size, uint64_t v)
{
    for (size_t i = size - 1; i-- > 0; v >>= 3)
        out[i] = (char)('0' + (v & 7));
    out[size - 1] = '\0';
}

static void put_block(struct buf *b, char type, const char *name, uint64_t size, unsigned mode)
{
    char h[BLOCK] = {0};
    unsigned sum = 0;

    (void)snprintf(h, 100, "%.99s", name);
    put_octal(h + 100, 8, mode);
    put_octal(h + 108, 8, 0);
    put_octal(h + 116, 8, 0);
    put_octal(h + 124, 12, size);
    put_octal(h + 136, 12, 0);
    memset(h + 148, ' ', 8);
    h[156] = type;
    memcpy(h + 257, "ustar\0" "00", 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)h[i];
    put_octal(h + 148, 7, sum);
    (void)buf_add(b, h, sizeof h);
}

/* A header; a name that does not fit goes before it as GNU's long name. */
static void put_header(struct buf *b, const char *name, uint64_t size, unsigned mode)
{
    static const char zeros[BLOCK];

    while (*name == '/')
        name++;
    size_t n = strlen(name);
    if (n > 99) {
        put_block(b, 'L', "././@LongLink", n + 1, 0644);
        (void)buf_add(b, name, n + 1);
        (void)buf_add(b, zeros, (BLOCK - (n + 1) % BLOCK) % BLOCK);
    }
    put_block(b, '0', name, size, mode);
}

static int64_t padding(int64_t size)
{
    return (BLOCK - size % BLOCK) % BLOCK;
}

static int begin_file(struct context *x, struct err *e)
{
    const json_t *f = json_array_get(x->files, x->next++);
    const char *name = json_string_value(json_array_get(f, 0));
    auto_free char *path = path_of(x->m, json_string_value(json_array_get(f, 1)));
    auto_buf header = {0};
    struct stat st;

    x->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (x->fd < 0 || fstat(x->fd, &st) < 0)
        return err_sys(e, errno, "open the file '%.100s' of a mount", name);
    x->left = st.st_size;
    x->pad = padding(st.st_size);
    buf_init(&header, 16 * 1024);
    put_header(&header, name, (uint64_t)st.st_size, (unsigned)json_integer_value(json_array_get(f, 2)));
    image_import_data(x->import, header.data, header.len);
    return 0;
}

static int send_piece(struct context *x, struct err *e)
{
    static const char zeros[BLOCK];
    static char piece[CHUNK];
    ssize_t n = read(x->fd, piece, sizeof piece);

    if (n < 0)
        return err_sys(e, errno, "read a file of a mount");
    if (n > 0) {
        image_import_data(x->import, piece, (size_t)n);
        x->left -= n;
        return 0;
    }
    if (x->left != 0)
        return err_set(e, ERR_INTERNAL, "a file of a mount has another length than before");
    image_import_data(x->import, zeros, (size_t)x->pad);
    fd_close(&x->fd);
    return 0;
}

static void fail(struct context *x, const struct err *e)
{
    image_import_cancel(x->import);
    x->fn(x->ctx, NULL, e);
    context_free(x);
}

static void pump(struct context *x)
{
    static const char end[2 * BLOCK];
    struct err e;

    if (!x->head_sent) {
        x->head_sent = true;
        image_import_data(x->import, x->head.data, x->head.len);
    }
    while (!image_import_is_full(x->import)) {
        if (x->fd < 0 && x->next == json_array_size(x->files)) {
            image_import_data(x->import, end, sizeof end);
            image_import_end(x->import);
            return;
        }
        if ((x->fd < 0 ? begin_file(x, &e) : send_piece(x, &e)) < 0) {
            fail(x, &e);
            return;
        }
    }
}

static void on_writable(void *ctx)
{
    struct context *x = ctx;

    if (x->fd >= 0 || x->next < json_array_size(x->files))
        pump(x);
}

static void on_done(void *ctx, const struct image_row *image, const struct err *e)
{
    struct context *x = ctx;
    auto_json *layers = image != NULL ? json_loads(image->layers, 0, NULL) : NULL;

    x->fn(x->ctx, layers != NULL ? json_string_value(json_array_get(layers, 0)) : NULL, e);
    context_free(x);
}

static const struct image_import_ops import_ops = {.on_writable = on_writable, .done = on_done};

void mounts_make_context(struct modal *m, const char *mount_id, M(ImageContextFile) *const *files, size_t n, context_fn fn, void *ctx)
{
    static const char zeros[BLOCK];
    const struct image_config cfg = {.is_context = true};
    auto_free char *text = NULL;
    struct err e;

    if (mount_id[0] == '\0' && n == 0) {
        fn(ctx, NULL, NULL);
        return;
    }
    if (mount_id[0] != '\0' && store_mount_get(core_store(m->core), mount_id, &text, &e) < 0) {
        fn(ctx, NULL, &e);
        return;
    }
    struct context *x = mem_zalloc(sizeof *x);
    x->m = m;
    x->fd = -1;
    x->fn = fn;
    x->ctx = ctx;
    x->files = text != NULL ? json_loads(text, 0, NULL) : NULL;
    buf_init(&x->head, LIMIT_GRPC_MESSAGE);
    for (size_t i = 0; i < n; i++) {
        put_header(&x->head, m_text(files[i]->filename), files[i]->data.len, 0644);
        (void)buf_add(&x->head, files[i]->data.data, files[i]->data.len);
        (void)buf_add(&x->head, zeros, (size_t)padding((int64_t)files[i]->data.len));
    }
    x->import = image_import(m->core, &cfg, &import_ops, x);
    pump(x);
}
