/*
 * image_export.c - an image as a tar: from the image role's pipe to the caller
 *
 * A caller that does not read stops the pipe, and the role with it. The stream ends without an error only when the role has
 * said that it is done and its last byte has been passed on.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "node/image_link.h"
#include "node/ops.h"
#include "sys/fd.h"

#define PIPE_BYTES (1024 * 1024)
#define PIECE (128 * 1024)
#define TURN (8 * PIECE)                /* of one call of the loop */

struct output {
    struct image_link link;             /* first */
    int pipe;                           /* read end */
    struct loop_io *io;
    bool is_done;                       /* the role has said so */
    uint8_t piece[PIECE];
};

static void free_output(struct op *op)
{
    struct output *x = op->state;

    image_link_close(&x->link);
    loop_io_free(x->io);
    fd_close(&x->pipe);
}

static void close_pipe(struct output *x)
{
    loop_io_free(x->io);
    x->io = NULL;
    fd_close(&x->pipe);
}

static void on_pipe(int fd, unsigned what, void *arg)
{
    struct op *op = arg;
    struct output *x = op->state;

    (void)what;
    for (size_t sent = 0; sent < TURN && !op_is_full(op);) {
        Quicksand__Node__ImageExportEvent event = QUICKSAND__NODE__IMAGE_EXPORT_EVENT__INIT;
        ssize_t n = read(fd, x->piece, sizeof x->piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close_pipe(x);
            if (x->is_done)
                op_finish(op);
            return;
        }
        event.has_data = 1;
        event.data.data = x->piece;
        event.data.len = (size_t)n;
        op_send(op, &event.base);
        sent += (size_t)n;
    }
    if (op_is_full(op))
        loop_io_set(x->io, 0);
}

static void on_writable(struct op *op)
{
    struct output *x = op->state;

    if (x->io != NULL)
        loop_io_set(x->io, LOOP_READ);
}

static int on_done(struct op *op, const struct image_done *d)
{
    struct output *x = op->state;

    (void)d;
    x->is_done = true;
    if (x->pipe < 0)
        op_finish(op);
    return 0;
}

static const struct image_link_ops link_ops = {.done = on_done};

static int fill(const Quicksand__Node__ImageExportRequest *rq, struct image_export *m, struct err *e)
{
    if (rq->n_layers == 0 || rq->n_layers > LIMIT_LAYERS)
        return err_param(e, ERR_INVALID, "layers", "an image has 1 to %d layers, not %zu", LIMIT_LAYERS, rq->n_layers);
    if (rq->compression >= IMAGE_COMPRESSIONS_)
        return err_param(e, ERR_INVALID, "compression", "compression %u is not known", rq->compression);
    m->compression = (enum image_compression)rq->compression;
    for (size_t i = 0; i < rq->n_layers; i++)
        if (image_link_text("layers", rq->layers[i], m->layers[m->nlayers++], sizeof m->layers[0], e) < 0)
            return -1;
    m->config = rq->config != NULL ? rq->config : "{}";
    m->config_len = strlen(m->config);
    return image_link_text("name", rq->name, m->name, sizeof m->name, e);
}

static int begin(struct op *op, struct err *e)
{
    struct output *x = op->state;
    auto_free struct image_export *m = mem_zalloc(sizeof *m);
    auto_free uint8_t *packed = mem_alloc(LIMIT_CHANNEL_MESSAGE);
    int ends[2];

    if (fill((Quicksand__Node__ImageExportRequest *)op->rq, m, e) < 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    auto_close int write_end = ends[1];
    x->pipe = ends[0];
    /* A larger pipe means fewer wake-ups; a refusal costs only speed. */
    (void)fcntl(x->pipe, F_SETPIPE_SZ, PIPE_BYTES);
    int r = fd_set_nonblock(x->pipe, true);
    if (r < 0)
        return err_sys(e, -r, "set up a pipe");
    if (image_link_ask(op, IMAGE_EXPORT, packed, image_export_encode(m, packed, LIMIT_CHANNEL_MESSAGE), write_end, e) < 0)
        return -1;
    x->io = loop_io_new(op->node->loop, x->pipe, LOOP_READ, on_pipe, op);
    return 0;
}

void op_image_export(struct op *op)
{
    struct output *x = op_state(op, sizeof *x);
    struct err e;

    image_link_init(&x->link, &link_ops);
    x->pipe = -1;
    op->on_free = free_output;
    op->on_gone = op_drop;
    op->on_writable = on_writable;
    if (begin(op, &e) < 0)
        op_fail(op, &e);
}
