/*
 * image_pull.c - asking the image role to pull, and passing on what it says
 */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "node/image_link.h"
#include "node/layers.h"
#include "node/ops.h"

#define CONFIG_MAX (1024 * 1024)

struct pull {
    struct image_link link;     /* first */
    struct buf config;
    struct image_layers layers;
    bool has_layers;
};

static void free_pull(struct op *op)
{
    struct pull *p = op->state;

    image_link_close(&p->link);
    buf_done(&p->config);
}

static void send_log(struct op *op, const struct chan_msg *m)
{
    Quicksand__Node__ImagePullEvent event = QUICKSAND__NODE__IMAGE_PULL_EVENT__INIT;
    auto_free char *line = mem_strndup((const char *)m->data, m->len);

    event.log = line;
    op_send(op, &event.base);
}

static int send_progress(struct op *op, const struct chan_msg *m)
{
    Quicksand__Node__ImagePullEvent event = QUICKSAND__NODE__IMAGE_PULL_EVENT__INIT;
    struct image_progress progress;

    if (image_progress_decode(&progress, m->data, m->len) < 0)
        return -1;
    event.has_bytes = event.has_total_bytes = 1;
    event.bytes = progress.bytes;
    event.total_bytes = progress.files;
    if (!op_is_full(op))                /* a reader that is behind misses a number */
        op_send(op, &event.base);
    return 0;
}

static void send_layers(struct op *op, bool is_last)
{
    Quicksand__Node__ImagePullEvent event = QUICKSAND__NODE__IMAGE_PULL_EVENT__INIT;
    struct pull *p = op->state;
    struct layer_messages layers;

    layer_messages_make(&layers, &p->layers);
    event.layers = layers.list;
    event.n_layers = p->layers.nlayers;
    if (is_last) {
        event.digest = p->layers.digest;
        event.source = p->layers.source;
        event.config = (char *)(uintptr_t)buf_str(&p->config);
    }
    op_send(op, &event.base);
    layer_messages_done(&layers);
}

static int on_done(struct op *op, const struct image_done *d)
{
    const struct pull *p = op->state;

    (void)d;
    if (!p->has_layers)
        return -1;
    send_layers(op, true);
    op_finish(op);
    return 0;
}

static int on_message(struct op *op, const struct chan_msg *m)
{
    struct pull *p = op->state;

    switch (m->type) {
    case IMAGE_LOG:
        send_log(op, m);
        return 0;
    case IMAGE_PROGRESS:
        return send_progress(op, m);
    case IMAGE_PIECE:
        if (p->config.len + m->len > CONFIG_MAX || memchr(m->data, '\0', m->len) != NULL)
            return -1;
        return buf_add(&p->config, m->data, m->len);
    case IMAGE_LAYERS:
        if (image_layers_decode(&p->layers, m->data, m->len) < 0)
            return -1;
        if (!p->has_layers)             /* those that are to come */
            send_layers(op, false);
        p->has_layers = true;
        return 0;
    default:
        return -1;
    }
}

static const struct image_link_ops link_ops = {.message = on_message, .done = on_done};

static int begin(struct op *op, struct err *e)
{
    const Quicksand__Node__ImagePullRequest *rq = (Quicksand__Node__ImagePullRequest *)op->rq;
    struct image_pull m = {.max_bytes = rq->max_bytes, .max_files = rq->max_files, .auth = (uint16_t)rq->auth};
    auto_free uint8_t *packed = mem_alloc(LIMIT_CHANNEL_INLINE);

    if (image_link_text("ref", rq->ref, m.ref, sizeof m.ref, e) < 0 ||
        image_link_text("arch", rq->arch, m.arch, sizeof m.arch, e) < 0 ||
        image_link_text("user", rq->user, m.user, sizeof m.user, e) < 0 ||
        image_link_text("password", rq->password, m.password, sizeof m.password, e) < 0 ||
        image_link_text("session", rq->session, m.session, sizeof m.session, e) < 0 ||
        image_link_text("region", rq->region, m.region, sizeof m.region, e) < 0)
        return -1;
    int r = image_link_ask(op, IMAGE_PULL, packed, image_pull_encode(&m, packed, LIMIT_CHANNEL_INLINE), -1, e);
    explicit_bzero(packed, LIMIT_CHANNEL_INLINE);
    explicit_bzero(&m, sizeof m);
    return r;
}

void op_image_pull(struct op *op)
{
    struct pull *p = op_state(op, sizeof *p);
    struct err e;

    image_link_init(&p->link, &link_ops);
    buf_init(&p->config, CONFIG_MAX + 1);
    op->on_free = free_pull;
    op->on_gone = op_drop;
    if (begin(op, &e) < 0)
        op_fail(op, &e);
}
