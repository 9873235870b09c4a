/*
 * image_verify.c - whether layers are still what they were
 */
#include "base/mem.h"
#include "node/image_link.h"
#include "node/ops.h"

struct check {
    struct image_link link;             /* first */
    uint32_t n;
    struct image_verdict verdicts[LIMIT_LAYERS];
};

static void free_check(struct op *op)
{
    struct check *c = op->state;

    image_link_close(&c->link);
}

static int on_message(struct op *op, const struct chan_msg *m)
{
    struct check *c = op->state;

    if (m->type != IMAGE_VERDICT || c->n == LIMIT_LAYERS)
        return -1;
    return image_verdict_decode(&c->verdicts[c->n++], m->data, m->len);
}

static int on_done(struct op *op, const struct image_done *d)
{
    struct check *c = op->state;
    Quicksand__Node__ImageVerifyResponse rs = QUICKSAND__NODE__IMAGE_VERIFY_RESPONSE__INIT;
    Quicksand__Node__LayerVerdict items[LIMIT_LAYERS], *list[LIMIT_LAYERS];

    (void)d;
    if (c->n != ((Quicksand__Node__ImageVerifyRequest *)op->rq)->n_layers)
        return -1;
    for (uint32_t i = 0; i < c->n; i++) {
        quicksand__node__layer_verdict__init(&items[i]);
        items[i].layer = c->verdicts[i].layer;
        items[i].has_state = 1;
        items[i].state = c->verdicts[i].state;
        items[i].message = c->verdicts[i].message;
        list[i] = &items[i];
    }
    rs.n_verdicts = c->n;
    rs.verdicts = list;
    op_reply(op, &rs.base);
    return 0;
}

static const struct image_link_ops link_ops = {.message = on_message, .done = on_done};

static int begin(struct op *op, struct err *e)
{
    const Quicksand__Node__ImageVerifyRequest *rq = (Quicksand__Node__ImageVerifyRequest *)op->rq;
    auto_free struct image_verify *m = mem_zalloc(sizeof *m);
    auto_free uint8_t *packed = mem_alloc(LIMIT_CHANNEL_INLINE);

    if (rq->n_layers == 0 || rq->n_layers > LIMIT_LAYERS)
        return err_param(e, ERR_INVALID, "layers", "an image has 1 to %d layers, not %zu", LIMIT_LAYERS, rq->n_layers);
    for (size_t i = 0; i < rq->n_layers; i++)
        if (image_link_text("layers", rq->layers[i], m->layers[m->nlayers++], sizeof m->layers[0], e) < 0)
            return -1;
    return image_link_ask(op, IMAGE_VERIFY, packed, image_verify_encode(m, packed, LIMIT_CHANNEL_INLINE), -1, e);
}

void op_image_verify(struct op *op)
{
    struct check *c = op_state(op, sizeof *c);
    struct err e;

    image_link_init(&c->link, &link_ops);
    op->on_free = free_check;
    op->on_gone = op_drop;
    if (begin(op, &e) < 0)
        op_fail(op, &e);
}
