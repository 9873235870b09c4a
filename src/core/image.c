/*
 * image.c - importing, naming and removing images
 */
#include "core/image.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/image_config.h"
#include "core/image_fold.h"
#include "core/internal.h"
#include "core/life.h"
#include "json/json.h"

#define CHUNK (128 * 1024) /* data of one message */
#define REMOVE_TIMEOUT_MS 60000

struct image_import {
    struct core *core;
    struct grpc_call *grpc; /* NULL once it has ended, and while a layer is being removed */
    const struct image_import_ops *ops;
    void *ctx;
    char *name;
    char *env; /* JSON object */
    char *workdir, *user;
    Quicksand__Node__ImageImportResponse *reply; /* owned */
    struct node_call *fold;                       /* under way, NULL = not */
    const Quicksand__Node__Layer *folded;         /* in place of the reply's layers, NULL = none; borrowed */
    bool is_bad_reply;
    bool is_cancelled;
    bool is_context;
    char suspect[128]; /* layer that was being removed when the import began, "" = none */
};

/* The spelling under which the store has a name; ids stay what they are, and so does what cannot be a name. */
static void spelling(const char *id_or_name, char out[IMAGE_REF_SIZE])
{
    struct err ignored;

    if (id_is(id_or_name, "im-") || image_name_normalize(id_or_name, out, &ignored) < 0)
        (void)snprintf(out, IMAGE_REF_SIZE, "%s", id_or_name);
}

int image_config_check(const struct image_config *cfg, struct err *e)
{
    char name[IMAGE_REF_SIZE];

    if (cfg->name != NULL && image_name_normalize(cfg->name, name, e) < 0)
        return -1;
    const struct sandbox_spec spec = {
        .image = "",
        .app = "default",
        .env = cfg->env,
        .workdir = cfg->workdir,
        .user = cfg->user,
    };
    return spec_check(&spec, e);
}

static void import_free(struct image_import *im)
{
    im->core->imports--;
    if (im->reply != NULL)
        quicksand__node__image_import_response__free_unpacked(im->reply, NULL);
    free(im->name);
    free(im->env);
    free(im->workdir);
    free(im->user);
    free(im);
}

/* A context is kept as if it were the result of a step. Who uploads the same files as another has an upload of one's own. */
static int keep_context(struct image_import *im, struct image_row *row, struct err *e)
{
    struct store *s = im->core->store;
    const char *layer = im->reply->layer;
    int64_t now = clock_wall_us();
    char id[ID_SIZE];

    id_make(id, "cx-");
    auto_free char *key = mem_printf(IMAGE_CONTEXT_KEY "%s:%s", layer, id);
    auto_json *layers = json_pack("[s]", layer);
    row->layers = js_text(layers, false);
    row->size_bytes = (int64_t)im->reply->bytes;
    row->files = (int64_t)im->reply->files;
    if (store_begin(s, STORE_FAST, e) < 0)
        return -1;
    if (store_layer_put(s, layer, row->size_bytes, row->files, now, e) < 0 || store_step_put(s, key, layer, now, e) < 0 ||
        store_commit(s, e) < 0) {
        store_rollback(s);
        return -1;
    }
    return 0;
}

int image_context_take(struct core *c, const char *layer, struct err *e)
{
    auto_free char *prefix = mem_printf(IMAGE_CONTEXT_KEY "%s:", layer);
    bool found = false;

    if (store_step_take(c->store, prefix, &found, e) < 0)
        return -1;
    return found ? 0
                 : err_param(e, ERR_NOT_FOUND, "context",
                             "there is no upload '%.16s...': each serves one build, within an hour",
                             layer);
}

/* An archive with an image in it: what the caller gave goes before what the image says. */
static int fill_from_archive(struct image_import *im, struct image_row *row, struct err *e)
{
    char *workdir = row->workdir, *user = row->user;

    row->workdir = row->user = NULL;
    if (image_config_read(im->reply->config != NULL ? im->reply->config : "", row, e) < 0) {
        free(workdir);
        free(user);
        return -1;
    }
    auto_json *env = js_parse(row->env, strlen(row->env), 4 * LIMIT_JSON_BODY, e);
    auto_json *more = js_parse(im->env, strlen(im->env), 4 * LIMIT_JSON_BODY, e);
    (void)json_object_update(env, more);
    free(row->env);
    row->env = js_text(env, false);
    if (workdir != NULL) {
        free(row->workdir);
        row->workdir = workdir;
    }
    if (user != NULL) {
        free(row->user);
        row->user = user;
    }
    if (image_layers_put(im->core->store, im->reply->layers, im->reply->n_layers, im->folded, row, e) < 0)
        return -1;
    (void)snprintf(row->digest, sizeof row->digest, "%s", im->reply->digest != NULL ? im->reply->digest : "");
    return 0;
}

static int keep(struct image_import *im, struct image_row *row, struct err *e)
{
    struct store *s = im->core->store;
    bool is_archive = im->reply->n_layers > 0;

    if (im->is_context && is_archive)
        return err_set(e, ERR_INVALID, "the archive is an image with its layers, not the files of a build");
    if (im->is_context)
        return keep_context(im, row, e);

    id_make(row->id, "im-");
    row->created_us = clock_wall_us();
    row->size_bytes = (int64_t)im->reply->bytes;
    row->files = (int64_t)im->reply->files;
    auto_json *layers = json_pack("[s]", im->reply->layer);
    row->layers = js_text(layers, false);
    row->env = mem_strdup(im->env);
    row->workdir = im->workdir != NULL ? mem_strdup(im->workdir) : NULL;
    row->user = im->user != NULL ? mem_strdup(im->user) : NULL;
    if (store_begin(s, STORE_DURABLE, e) < 0)
        return -1;
    if ((is_archive ? fill_from_archive(im, row, e)
                    : store_layer_put(s, im->reply->layer, row->size_bytes, row->files, row->created_us, e)) < 0 ||
        store_image_insert(s, row, e) < 0 || (is_archive && store_image_measure(s, row->id, e) < 0) ||
        (im->name != NULL && store_image_name(s, im->name, row->id, e) < 0) ||
        store_commit(s, e) < 0) {
        store_rollback(s);
        return -1;
    }
    if (is_archive) {                   /* its size is that of layers which may have been here */
        char id[ID_SIZE];
        memcpy(id, row->id, sizeof id);
        image_row_done(row);
        return store_image_get(s, id, row, e);
    }
    auto_json *names = im->name != NULL ? json_pack("[s]", im->name) : json_array();
    row->names = js_text(names, false);
    log_info("image.imported", "id=%s bytes=%lld files=%lld", row->id, (long long)row->size_bytes,
             (long long)row->files);
    return 0;
}

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    struct image_import *im = ctx;

    if (im->reply == NULL)
        im->reply = quicksand__node__image_import_response__unpack(NULL, n, p);
    else
        im->is_bad_reply = true;
    grpc_call_consumed(c, n);
}

static void on_writable(struct grpc_call *c, void *ctx)
{
    struct image_import *im = ctx;

    if (!im->is_cancelled)
        im->ops->on_writable(im->ctx);
}

/* `e` = NULL: everything is there but the row. */
static void finish(struct image_import *im, const struct err *e)
{
    auto_image_row row = {0};
    struct err local = {0};
    struct core *c = im->core;

    if (e == NULL && keep(im, &row, &local) < 0)
        e = &local;
    if (!im->is_cancelled)
        im->ops->done(im->ctx, e == NULL ? &row : NULL, e);
    bool was_folded = im->folded != NULL;
    import_free(im);
    if (was_folded)
        images_sweep(c);
}

static void on_folded(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct image_import *im = ctx;

    im->fold = NULL;
    im->folded = (const Quicksand__Node__Layer *)reply;
    finish(im, e);
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    struct image_import *im = ctx;
    struct err local = {0};

    im->grpc = NULL;
    if (im->is_cancelled) {
        import_free(im);
        return;
    }
    if (status == GRPC_OK) {
        e = NULL;
        if (im->reply == NULL || im->is_bad_reply || im->reply->layer == NULL)
            e = (err_set(&local, ERR_INTERNAL, "the node's answer to an import could not be read"),
                 &local);
        else if (strcmp(im->suspect, im->reply->layer) == 0)
            /* The node may have found it there just before it went. */
            e = (err_set(&local, ERR_UNAVAILABLE,
                         "the same layer was being removed meanwhile: import it again"),
                 &local);
    } else if (e == NULL) {
        e = (err_set(&local, ERR_UNAVAILABLE, "the node did not answer"), &local);
    }
    if (e == NULL && im->reply->n_layers > IMAGE_LAYERS_FOLD)
        im->fold = image_fold(im->core, im->reply->layers, im->reply->n_layers, on_folded, im);
    else
        finish(im, e);
}

static const struct grpc_ops import_ops = {
    .on_message = on_message, .on_writable = on_writable, .on_end = on_end};

static void send_message(struct image_import *im, const Quicksand__Node__ImageImportRequest *m)
{
    auto_buf b = {0};
    size_t n = quicksand__node__image_import_request__get_packed_size(m);

    buf_init(&b, n + 1);
    (void)quicksand__node__image_import_request__pack(m, buf_reserve(&b, n + 1));
    grpc_send(im->grpc, b.data, n);
}

struct image_import *image_import(struct core *c, const struct image_config *cfg,
                                  const struct image_import_ops *ops, void *ctx)
{
    struct image_import *im = mem_zalloc(sizeof *im);
    Quicksand__Node__ImageImportRequest m = QUICKSAND__NODE__IMAGE_IMPORT_REQUEST__INIT;

    c->imports++;
    im->core = c;
    memcpy(im->suspect, c->removing, sizeof im->suspect);
    im->ops = ops;
    im->ctx = ctx;
    im->is_context = cfg->is_context;
    if (cfg->name != NULL) {
        im->name = mem_alloc(IMAGE_REF_SIZE);
        spelling(cfg->name, im->name);
    }
    im->env = cfg->env != NULL ? js_text(cfg->env, false) : mem_strdup("{}");
    im->workdir = cfg->workdir != NULL ? mem_strdup(cfg->workdir) : NULL;
    im->user = cfg->user != NULL ? mem_strdup(cfg->user) : NULL;
    im->grpc =
        grpc_client_call(c->node, "/quicksand.node.Node/ImageImport", NULL, 0, 0, &import_ops, im);
    m.has_max_bytes = m.has_max_files = true;
    m.max_bytes = IMAGE_BYTES_MAX;
    m.max_files = IMAGE_FILES_MAX;
    send_message(im, &m);
    return im;
}

void image_import_data(struct image_import *im, const void *p, size_t n)
{
    const uint8_t *at = p;

    while (n > 0 && im->grpc != NULL) {
        size_t part = n < CHUNK ? n : CHUNK;
        Quicksand__Node__ImageImportRequest m = QUICKSAND__NODE__IMAGE_IMPORT_REQUEST__INIT;
        m.has_data = true;
        m.data.data = (uint8_t *)(uintptr_t)at; /* packing only reads */
        m.data.len = part;
        send_message(im, &m);
        at += part;
        n -= part;
    }
}

bool image_import_is_full(const struct image_import *im)
{
    return im->grpc != NULL && grpc_queued(im->grpc) > HTTP_HIGH;
}

void image_import_end(struct image_import *im)
{
    if (im->grpc != NULL)
        grpc_send_end(im->grpc);
}

void image_import_cancel(struct image_import *im)
{
    im->is_cancelled = true;
    if (im->grpc != NULL) {
        grpc_cancel(im->grpc); /* freed when its end is reported */
    } else if (im->fold != NULL) {
        node_call_cancel(im->fold);
        import_free(im);
    }
}

int image_get(struct core *c, const char *id_or_name, struct image_row *ret, struct err *e)
{
    char name[IMAGE_REF_SIZE];

    spelling(id_or_name, name);
    return store_image_get(c->store, name, ret, e);
}

void image_hold(struct core *c)
{
    c->imports++;
}

void image_release(struct core *c)
{
    c->imports--;
    images_sweep(c);
}

int image_unname(struct core *c, const char *name, struct err *e)
{
    char stored[IMAGE_REF_SIZE];

    spelling(name, stored);
    return store_image_unname(c->store, stored, e);
}

int image_set_name(struct core *c, const char *name, const char *id_or_name, struct image_row *ret,
                   struct err *e)
{
    auto_image_row row = {0};
    char stored[IMAGE_REF_SIZE];

    if (image_name_normalize(name, stored, e) < 0 || image_get(c, id_or_name, &row, e) < 0 ||
        store_image_name(c->store, stored, row.id, e) < 0)
        return -1;
    return store_image_get(c->store, stored, ret, e);
}

int image_remove(struct core *c, const char *id_or_name, struct err *e)
{
    auto_image_row row = {0};
    bool is_used = false;

    if (image_get(c, id_or_name, &row, e) < 0)
        return -1;
    if (store_begin(c->store, STORE_FAST, e) < 0)
        return -1;
    if (store_image_is_used(c->store, row.id, &is_used, e) < 0)
        goto fail;
    if (is_used) {
        err_set(e, ERR_CONFLICT, "the image %s is in use by a live sandbox", row.id);
        goto fail;
    }
    if (store_image_remove(c->store, row.id, e) < 0 || store_commit(c->store, e) < 0)
        goto fail;
    log_info("image.removed", "id=%s", row.id);
    images_sweep(c);
    return 0;
fail:
    store_rollback(c->store);
    return -1;
}

struct removal {
    struct core *core;
    char layer[128];
};

struct removal_wait {
    struct removal_wait *next;
    void (*fn)(void *arg);
    void *arg;
};

void images_when_quiet(struct core *c, void (*fn)(void *arg), void *arg)
{
    if (c->removing[0] == '\0') {
        fn(arg);
        return;
    }
    struct removal_wait *w = mem_zalloc(sizeof *w);
    *w = (struct removal_wait){c->removal_waits, fn, arg};
    c->removal_waits = w;
}

static void tell_waiting(struct core *c)
{
    struct removal_wait *list = c->removal_waits;

    c->removal_waits = NULL;
    while (list != NULL) {
        struct removal_wait *w = list;
        list = w->next;
        w->fn(w->arg);
        free(w);
    }
}

static void on_removed(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct removal *r = ctx;
    struct core *c = r->core;
    struct err local;
    bool is_done = false;

    c->removing[0] = '\0';
    if (e != NULL && e->code != ERR_NOT_FOUND)
        core_log(LOG_L_WARN, "layer.remove", r->layer, e); /* the sweep tries again */
    else if (store_garbage_remove(c->store, r->layer, &local) < 0)
        core_log(LOG_L_WARN, "layer.remove", r->layer, &local);
    else
        is_done = true;
    free(r);
    tell_waiting(c);
    if (is_done)
        images_sweep(c);
}

void images_sweep(struct core *c)
{
    Quicksand__Node__LayerRef rq = QUICKSAND__NODE__LAYER_REF__INIT;
    struct err e;

    if (c->imports > 0 || c->removing[0] != '\0' || c->is_stopping)
        return;
    struct removal *r = mem_zalloc(sizeof *r);
    r->core = c;
    if (store_garbage_next(c->store, r->layer, sizeof r->layer, &e) < 0 || r->layer[0] == '\0') {
        free(r);
        return;
    }
    memcpy(c->removing, r->layer, sizeof c->removing);
    rq.layer = r->layer;
    (void)node_unary(c, "LayerDelete", &rq.base, &quicksand__node__empty__descriptor,
                     REMOVE_TIMEOUT_MS, true, on_removed, r);
}
