/*
 * layer_list.c - a page of the layers that lie on this node
 */
#include "base/mem.h"
#include "node/image_link.h"
#include "node/layers.h"
#include "node/ops.h"

struct listing {
    struct image_link link;             /* first */
    struct image_layers layers;
    bool is_there;
};

static void free_listing(struct op *op)
{
    struct listing *l = op->state;

    image_link_close(&l->link);
}

static int on_message(struct op *op, const struct chan_msg *m)
{
    struct listing *l = op->state;

    if (m->type != IMAGE_LAYERS || l->is_there)
        return -1;
    l->is_there = true;
    return image_layers_decode(&l->layers, m->data, m->len);
}

static int on_done(struct op *op, const struct image_done *d)
{
    struct listing *l = op->state;
    Quicksand__Node__LayerListResponse rs = QUICKSAND__NODE__LAYER_LIST_RESPONSE__INIT;
    struct layer_messages layers;

    (void)d;
    if (!l->is_there)
        return -1;
    layer_messages_make(&layers, &l->layers);
    rs.n_layers = l->layers.nlayers;
    rs.layers = layers.list;
    op_reply(op, &rs.base);
    layer_messages_done(&layers);
    return 0;
}

static const struct image_link_ops link_ops = {.message = on_message, .done = on_done};

static int begin(struct op *op, struct err *e)
{
    const Quicksand__Node__LayerListRequest *rq = (Quicksand__Node__LayerListRequest *)op->rq;
    struct image_list m = {.age_s = rq->age_s};
    uint8_t packed[128];

    if (image_link_text("after", rq->after, m.after, sizeof m.after, e) < 0)
        return -1;
    return image_link_ask(op, IMAGE_LIST, packed, image_list_encode(&m, packed, sizeof packed), -1, e);
}

void op_layer_list(struct op *op)
{
    struct listing *l = op_state(op, sizeof *l);
    struct err e;

    image_link_init(&l->link, &link_ops);
    op->on_free = free_listing;
    op->on_gone = op_drop;
    if (begin(op, &e) < 0)
        op_fail(op, &e);
}
