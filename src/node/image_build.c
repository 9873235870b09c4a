/*
 * image_build.c - what builds ask of the image role: fold what a sandbox wrote, copy files between images, fetch files
 */
#include <stdio.h>

#include "base/mem.h"
#include "ipc/keeper_proto.h"
#include "node/call.h"
#include "node/image_link.h"
#include "node/keeper_link.h"
#include "node/ops.h"

#define TREE_MS 30000

struct ask {
    struct image_link link;             /* first */
    bool is_waiting;                    /* for the keeper, whose answer comes in any case */
    bool is_gone;                       /* the caller has left meanwhile */
};

static void free_ask(struct op *op)
{
    struct ask *a = op->state;

    image_link_close(&a->link);
}

static void on_gone(struct op *op)
{
    struct ask *a = op->state;

    a->is_gone = true;
    if (!a->is_waiting)
        op_drop(op);
}

static int on_done(struct op *op, const struct image_done *d)
{
    Quicksand__Node__Layer rs = QUICKSAND__NODE__LAYER__INIT;

    rs.layer = (char *)(uintptr_t)d->layer;
    rs.has_bytes = rs.has_files = 1;
    rs.bytes = d->bytes;
    rs.files = d->files;
    rs.path = (char *)(uintptr_t)d->path;
    rs.has_existing = 1;
    rs.existing = d->existing;
    op_reply(op, &rs.base);
    return 0;
}

static const struct image_link_ops link_ops = {.done = on_done};

static struct ask *begin(struct op *op)
{
    struct ask *a = op_state(op, sizeof *a);

    image_link_init(&a->link, &link_ops);
    op->on_free = free_ask;
    op->on_gone = on_gone;
    return a;
}

/* --- fold ------------------------------------------------------------------------------------- */

static int send_fold(struct op *op, int tree, struct err *e)
{
    const Quicksand__Node__ImageFoldRequest *rq = (Quicksand__Node__ImageFoldRequest *)op->rq;
    auto_free struct image_fold *m = mem_zalloc(sizeof *m);
    auto_free uint8_t *packed = mem_alloc(LIMIT_CHANNEL_MESSAGE);

    m->max_bytes = rq->max_bytes;
    m->max_files = rq->max_files;
    if (rq->n_exclude > IMAGE_EXCLUDE_MAX)
        return err_param(e, ERR_TOO_LARGE, "exclude", "more than %d paths are left out", IMAGE_EXCLUDE_MAX);
    for (size_t i = 0; i < rq->n_exclude; i++)
        if (image_link_text("exclude", rq->exclude[i], m->exclude[m->nexclude++], sizeof m->exclude[0], e) < 0)
            return -1;
    if (image_link_text("only", rq->only, m->only, sizeof m->only, e) < 0)
        return -1;
    if (rq->n_stubs > IMAGE_EXCLUDE_MAX)
        return err_param(e, ERR_TOO_LARGE, "stubs", "more than %d paths may be empty directories", IMAGE_EXCLUDE_MAX);
    for (size_t i = 0; i < rq->n_stubs; i++)
        if (image_link_text("stubs", rq->stubs[i], m->stubs[m->nstubs++], sizeof m->stubs[0], e) < 0)
            return -1;
    return image_link_ask(op, IMAGE_FOLD, packed, image_fold_encode(m, packed, LIMIT_CHANNEL_MESSAGE), tree, e);
}

static void on_tree(void *arg, const struct err *e, const uint8_t *payload, size_t len, int *fd)
{
    struct op *op = arg;
    struct ask *a = op->state;
    struct err local;

    (void)payload;
    (void)len;
    a->is_waiting = false;
    if (a->is_gone) {
        op_drop(op);
        return;
    }
    if (e == NULL && *fd < 0)
        e = (err_set(&local, ERR_INTERNAL, "the keeper gave no tree"), &local);
    if (e == NULL && send_fold(op, *fd, &local) < 0)
        e = &local;
    if (e != NULL)
        op_fail(op, e);
}

void op_image_fold(struct op *op)
{
    const Quicksand__Node__ImageFoldRequest *rq = (Quicksand__Node__ImageFoldRequest *)op->rq;
    struct ask *a = begin(op);
    struct keeper_tree m = {{0}};
    uint8_t space[64];
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    (void)snprintf(m.sandbox, sizeof m.sandbox, "%s", rq->sandbox_id);
    a->is_waiting = true;
    keeper_call(op->node->keeper, KEEPER_TREE, space, keeper_tree_encode(&m, space, sizeof space), TREE_MS, on_tree, op);
}

/* --- copy ------------------------------------------------------------------------------------- */

static int put_layers(const char *field, char *const *layers, size_t n, char (*out)[72], uint32_t *ret_n, struct err *e)
{
    if (n > IMAGE_LAYERS_MAX)
        return err_param(e, ERR_TOO_LARGE, field, "%s has %zu layers, at most %d are accepted", field, n, IMAGE_LAYERS_MAX);
    for (size_t i = 0; i < n; i++)
        if (image_link_text(field, layers[i], out[i], 72, e) < 0)
            return -1;
    *ret_n = (uint32_t)n;
    return 0;
}

static int fill_copy(const Quicksand__Node__ImageCopyRequest *rq, struct image_copy *m, struct err *e)
{
    m->keep_owner = rq->keep_owner;
    m->is_context = rq->is_context;
    m->keep_ignored = rq->keep_ignored;
    m->extract = rq->extract;
    m->dest_is_dir = rq->dest_is_dir;
    m->replace = rq->replace;
    m->parents = rq->parents;
    m->mode = rq->has_mode ? rq->mode : -1;
    m->max_bytes = rq->max_bytes;
    m->max_files = rq->max_files;
    if (image_link_text("exclude", rq->exclude, m->exclude, sizeof m->exclude, e) < 0 ||
        image_link_text("owner", rq->owner, m->owner, sizeof m->owner, e) < 0 ||
        image_link_text("dest", rq->dest, m->dest, sizeof m->dest, e) < 0 ||
        put_layers("source", rq->source, rq->n_source, m->source, &m->nsource, e) < 0 ||
        put_layers("onto", rq->onto, rq->n_onto, m->base, &m->nbase, e) < 0)
        return -1;
    if (rq->n_items > IMAGE_COPY_ITEMS || rq->n_texts > IMAGE_COPY_TEXTS)
        return err_param(e, ERR_TOO_LARGE, "items", "one step copies at most %d sources and %d texts", IMAGE_COPY_ITEMS,
                         IMAGE_COPY_TEXTS);
    for (size_t i = 0; i < rq->n_items; i++)
        if (image_link_text("items", rq->items[i], m->items[m->nitems++], sizeof m->items[0], e) < 0)
            return -1;
    for (size_t i = 0; i < rq->n_texts; i++) {
        if (image_link_text("texts", rq->texts[i]->name, m->texts[i].name, sizeof m->texts[i].name, e) < 0)
            return -1;
        m->texts[i].text = (const char *)rq->texts[i]->text.data;
        m->texts[i].len = rq->texts[i]->text.len;
    }
    m->ntexts = (uint32_t)rq->n_texts;
    return 0;
}

void op_image_copy(struct op *op)
{
    auto_free struct image_copy *m = mem_zalloc(sizeof *m);
    auto_free uint8_t *packed = mem_alloc(LIMIT_CHANNEL_MESSAGE);
    struct err e;

    (void)begin(op);
    if (fill_copy((Quicksand__Node__ImageCopyRequest *)op->rq, m, &e) < 0 ||
        image_link_ask(op, IMAGE_COPY, packed, image_copy_encode(m, packed, LIMIT_CHANNEL_MESSAGE), -1, &e) < 0)
        op_fail(op, &e);
}

/* --- fetch ------------------------------------------------------------------------------------ */

void op_image_fetch(struct op *op)
{
    const Quicksand__Node__ImageFetchRequest *rq = (Quicksand__Node__ImageFetchRequest *)op->rq;
    struct image_fetch m = {.max_bytes = rq->max_bytes,
                            .timeout_s = rq->timeout_s,
                            .policy = rq->policy.data,
                            .policy_len = rq->policy.len};
    auto_free uint8_t *packed = mem_alloc(LIMIT_CHANNEL_MESSAGE);
    struct err e;

    (void)begin(op);
    if (image_link_text("url", rq->url, m.url, sizeof m.url, &e) < 0 ||
        image_link_text("name", rq->name, m.name, sizeof m.name, &e) < 0 ||
        image_link_text("checksum", rq->checksum, m.checksum, sizeof m.checksum, &e) < 0 ||
        image_link_text("known", rq->known, m.known, sizeof m.known, &e) < 0 ||
        image_link_ask(op, IMAGE_FETCH, packed,
                       image_fetch_encode(&m, packed, LIMIT_CHANNEL_MESSAGE), -1, &e) < 0)
        op_fail(op, &e);
}
