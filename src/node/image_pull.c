/*
 * image_pull.c - asking the image role to pull, and passing on what it says
 *
 * Closing the connection cancels the job. Every wait ends: the role answers, or its connection breaks.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "ipc/channel.h"
#include "ipc/image_proto.h"
#include "node/layers.h"
#include "node/ops.h"
#include "sys/fd.h"

#define CONFIG_MAX (1024 * 1024)

struct pull {
    int link;
    struct loop_io *io;
    struct buf config;
    struct image_layers layers;
    bool has_layers;
    uint8_t space[LIMIT_CHANNEL_INLINE];
};

static void free_pull(struct op *op)
{
    struct pull *p = op->state;

    loop_io_free(p->io);
    fd_close(&p->link);
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

static void finish(struct op *op)
{
    Quicksand__Node__ImagePullEvent event = QUICKSAND__NODE__IMAGE_PULL_EVENT__INIT;
    struct pull *p = op->state;
    struct layer_messages layers;

    layer_messages_make(&layers, &p->layers);
    event.layers = layers.list;
    event.n_layers = p->layers.nlayers;
    event.digest = p->layers.digest;
    event.source = p->layers.source;
    event.config = (char *)(uintptr_t)buf_str(&p->config);
    op_send(op, &event.base);
    layer_messages_done(&layers);
    op_finish(op);
}

/* 1 = the call has been answered, -1 = the message cannot be read. */
static int on_done(struct op *op, const struct chan_msg *m)
{
    const struct pull *p = op->state;
    struct image_done d;
    struct err e;

    if (image_done_decode(&d, m->data, m->len) < 0)
        return -1;
    if (d.code != ERR_OK) {
        err_set(&e, d.code < ERR_MAX_ ? (enum err_code)d.code : ERR_INTERNAL, "%s", d.message);
        op_fail(op, &e);
        return 1;
    }
    if (!p->has_layers)
        return -1;
    finish(op);
    return 1;
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
        p->has_layers = true;
        return image_layers_decode(&p->layers, m->data, m->len);
    case IMAGE_DONE:
        return on_done(op, m);
    default:
        return -1;
    }
}

static void on_link(int fd, unsigned what, void *arg)
{
    struct op *op = arg;
    struct pull *p = op->state;
    struct chan_msg m;
    struct err e;

    (void)fd;
    (void)what;
    for (;;) {
        int r = chan_recv(p->link, p->space, sizeof p->space, CHAN_NO_FDS, &m);
        if (r == -EAGAIN)
            return;
        if (r <= 0) {
            err_set(&e, ERR_UNAVAILABLE, "the image role went away");
            op_fail(op, &e);
            return;
        }
        r = on_message(op, &m);
        if (r < 0) {
            err_set(&e, ERR_INTERNAL, "the image role sent a reply that cannot be read");
            op_fail(op, &e);
        }
        if (r != 0)
            return;
    }
}

static int copy_text(const char *field, const char *text, char *out, size_t size, struct err *e)
{
    if (text != NULL && strlen(text) >= size)
        return err_param(e, ERR_TOO_LARGE, field, "%s is longer than %zu bytes", field, size - 1);
    (void)snprintf(out, size, "%s", text != NULL ? text : "");
    return 0;
}

static int begin(struct op *op, struct pull *p, struct err *e)
{
    const Quicksand__Node__ImagePullRequest *rq = (Quicksand__Node__ImagePullRequest *)op->rq;
    struct image_pull m = {.max_bytes = rq->max_bytes, .max_files = rq->max_files};
    char path[256];

    if (copy_text("ref", rq->ref, m.ref, sizeof m.ref, e) < 0 || copy_text("arch", rq->arch, m.arch, sizeof m.arch, e) < 0 ||
        copy_text("user", rq->user, m.user, sizeof m.user, e) < 0 ||
        copy_text("password", rq->password, m.password, sizeof m.password, e) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/image.sock", op->node->conf.run_dir);
    int r = chan_connect(path, &p->link);
    if (r < 0)
        return err_set(e, ERR_UNAVAILABLE, "the image role cannot be reached: %s", strerror(-r));
    r = chan_send(p->link, IMAGE_PULL, 1, p->space, image_pull_encode(&m, p->space, sizeof p->space), NULL, 0);
    if (r < 0)
        return err_sys(e, -r, "ask the image role");
    p->io = loop_io_new(op->node->loop, p->link, LOOP_READ, on_link, op);
    return 0;
}

void op_image_pull(struct op *op)
{
    struct pull *p = op_state(op, sizeof *p);
    struct err e;

    p->link = -1;
    buf_init(&p->config, CONFIG_MAX + 1);
    op->on_free = free_pull;
    op->on_gone = op_drop;
    if (begin(op, p, &e) < 0)
        op_fail(op, &e);
}
