/*
 * image_export.c - an image as a tar, for whoever asks
 *
 * Layers stay on the node while an export reads them: image_hold.
 */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "core/image.h"
#include "core/image_config.h"
#include "core/internal.h"

struct image_export {
    struct core *core;
    struct grpc_call *grpc;
    const struct image_export_ops *ops;
    void *ctx;
    bool is_bad_reply, is_cancelled;
};

static void export_free(struct image_export *x)
{
    struct core *c = x->core;

    free(x);
    image_release(c);
}

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    struct image_export *x = ctx;
    Quicksand__Node__ImageExportEvent *m = quicksand__node__image_export_event__unpack(NULL, n, p);

    if (m == NULL || x->is_cancelled) {
        x->is_bad_reply = x->is_bad_reply || m == NULL;
        grpc_call_consumed(c, n);
    } else {
        /* What the message itself took on the way is consumed at once, its content when it has gone on. */
        grpc_call_consumed(c, n - m->data.len);
        x->ops->data(x->ctx, m->data.data, m->data.len);
    }
    if (m != NULL)
        quicksand__node__image_export_event__free_unpacked(m, NULL);
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    struct image_export *x = ctx;
    struct err local = {0};

    (void)c;
    x->grpc = NULL;
    if (status != GRPC_OK && e == NULL)
        e = (err_set(&local, ERR_UNAVAILABLE, "the node did not answer"), &local);
    if (status == GRPC_OK)
        e = x->is_bad_reply ? (err_set(&local, ERR_INTERNAL, "the node's answer to an export could not be read"), &local) : NULL;
    if (!x->is_cancelled)
        x->ops->done(x->ctx, e);
    export_free(x);
}

static const struct grpc_ops grpc_ops = {.on_message = on_message, .on_end = on_end};

static void send_request(struct image_export *x, const struct image_row *row, unsigned compression, const json_t *layers)
{
    Quicksand__Node__ImageExportRequest m = QUICKSAND__NODE__IMAGE_EXPORT_REQUEST__INIT;
    auto_json *config = image_config_make(row, json_array_size(layers)), *names = json_loads(row->names, 0, NULL);
    auto_free char *text = js_text(config, true);
    auto_free char **list = mem_array(json_array_size(layers) + 1, sizeof *list);
    auto_buf b = {0};

    for (size_t i = 0; i < json_array_size(layers); i++)
        list[i] = (char *)(uintptr_t)json_string_value(json_array_get(layers, i));
    m.layers = list;
    m.n_layers = json_array_size(layers);
    m.config = text;
    m.name = (char *)(uintptr_t)json_string_value(json_array_get(names, 0));
    m.has_compression = 1;
    m.compression = compression;
    size_t n = quicksand__node__image_export_request__get_packed_size(&m);
    buf_init(&b, n + 1);
    (void)quicksand__node__image_export_request__pack(&m, buf_reserve(&b, n + 1));
    x->grpc = grpc_client_call(x->core->node, "/quicksand.node.Node/ImageExport", NULL, 0, 0, &grpc_ops, x);
    grpc_send(x->grpc, b.data, n);
    grpc_send_end(x->grpc);
}

struct image_export *image_export_begin(struct core *c, const char *id_or_name, unsigned compression,
                                        const struct image_export_ops *ops, void *ctx, struct err *e)
{
    auto_image_row row = {0};

    if (c->is_stopping) {
        err_set(e, ERR_UNAVAILABLE, "the service is stopping");
        return NULL;
    }
    if (image_get(c, id_or_name, &row, e) < 0)
        return NULL;
    auto_json *layers = js_parse(row.layers, strlen(row.layers), LIMIT_JSON_BODY, e);
    if (layers == NULL)
        return NULL;
    struct image_export *x = mem_zalloc(sizeof *x);
    image_hold(c);
    x->core = c;
    x->ops = ops;
    x->ctx = ctx;
    send_request(x, &row, compression, layers);
    return x;
}

void image_export_consumed(struct image_export *x, size_t n)
{
    if (x->grpc != NULL)
        grpc_call_consumed(x->grpc, n);
}

void image_export_cancel(struct image_export *x)
{
    x->is_cancelled = true;
    if (x->grpc != NULL)
        grpc_cancel(x->grpc);           /* freed when its end is reported */
}
