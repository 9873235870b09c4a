/*
 * mount_context.c - mounts and files of a definition as the context of a build
 *
 * They are sent to the node as a tar. Of files of the same path the last one counts.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/modal/images.h"
#include "base/buf.h"
#include "base/mem.h"
#include "core/image.h"
#include "sys/fd.h"

#define BLOCK 512
#define CHUNK (128 * 1024)
#define OCTAL_MAX 077777777777LL            /* what eleven octal digits hold; more is written in binary, as GNU does */

struct context {
    struct modal *m;
    json_t *files;                      /* of the mount; owned */
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

static void put_size(char out[12], uint64_t size)
{
    if (size <= OCTAL_MAX) {
        put_octal(out, 12, size);
        return;
    }
    out[0] = (char)0x80;
    for (size_t i = 11; i > 0; i--, size >>= 8)
        out[i] = (char)(size & 0xff);
}

static void put_block(struct buf *b, char type, const char *name, uint64_t size, unsigned mode)
{
    char h[BLOCK] = {0};
    unsigned sum = 0;

    (void)snprintf(h, 100, "%.99s", name);
    put_octal(h + 100, 8, mode);
    put_octal(h + 108, 8, 0);
    put_octal(h + 116, 8, 0);
    put_size(h + 124, size);
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
    auto_buf header = {0};

    if (files_read(x->m->files, json_string_value(json_array_get(f, 1)), &x->fd, &x->left, e) < 0)
        return err_wrap(e, "'%.100s' of a mount", name);
    x->pad = padding(x->left);
    buf_init(&header, 16 * 1024);
    put_header(&header, name, (uint64_t)x->left, (unsigned)json_integer_value(json_array_get(f, 2)));
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

/* All files of the mounts; of the same path the later one. NULL with the error. */
static json_t *merge(struct modal *m, char *const *ids, size_t n, struct err *e)
{
    if (n == 1)
        return mount_files(m, ids[0], e);
    auto_json *by_path = json_object();
    for (size_t i = 0; i < n; i++) {
        auto_json *files = mount_files(m, ids[i], e);
        size_t k;
        json_t *f;
        if (files == NULL)
            return NULL;
        json_array_foreach(files, k, f)
            (void)json_object_set(by_path, json_string_value(json_array_get(f, 0)), f);
    }
    json_t *all = json_array(), *f;
    const char *path;
    json_object_foreach(by_path, path, f)
        (void)json_array_append(all, f);
    return all;
}

void mounts_make_context(struct modal *m, char *const *ids, size_t nids,
                         M(ImageContextFile) *const *files, size_t n, context_fn fn, void *ctx)
{
    static const char zeros[BLOCK];
    const struct image_config cfg = {.is_context = true};
    struct err e;

    if (nids == 0 && n == 0) {
        fn(ctx, NULL, NULL);
        return;
    }
    json_t *all = merge(m, ids, nids, &e);
    if (all == NULL) {
        fn(ctx, NULL, &e);
        return;
    }
    struct context *x = mem_zalloc(sizeof *x);
    x->m = m;
    x->fd = -1;
    x->fn = fn;
    x->ctx = ctx;
    x->files = all;
    buf_init(&x->head, LIMIT_GRPC_MESSAGE);
    for (size_t i = 0; i < n; i++) {
        put_header(&x->head, m_text(files[i]->filename), files[i]->data.len, 0644);
        (void)buf_add(&x->head, files[i]->data.data, files[i]->data.len);
        (void)buf_add(&x->head, zeros, (size_t)padding((int64_t)files[i]->data.len));
    }
    x->import = image_import(m->core, &cfg, &import_ops, x);
    pump(x);
}
