/*
 * image.c - a tar stream to the image role, and removal of a layer
 *
 * The role reads the tar from a pipe; what it does not take stays with the client by flow control.
 * Closing the connection cancels the job. Every wait ends: the role answers, or its connection
 * breaks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/mem.h"
#include "ipc/keeper_proto.h"
#include "node/image_link.h"
#include "node/keeper_link.h"
#include "node/layers.h"
#include "node/ops.h"
#include "sys/fd.h"

#define PIPE_BYTES (1024 * 1024)
#define DELETE_MS 60000
#define CONFIG_MAX (1024 * 1024)

struct piece {
    struct piece *next;
    size_t size;                /* of the message, for flow control */
    size_t len, at;
    uint8_t data[];
};

struct import {
    struct image_link link;     /* first */
    int pipe;                   /* write end; -1 once everything is written or nobody reads */
    struct loop_io *pipe_io;
    bool ended;                 /* the client has sent everything */
    bool deaf;                  /* the role reads no more: its answer is on the way */
    struct piece *head, **tail;
    struct buf config;          /* of an archive with an image in it */
    struct image_layers layers; /* nlayers 0 = there was none */
};

static void close_pipe(struct import *im)
{
    loop_io_free(im->pipe_io);
    im->pipe_io = NULL;
    fd_close(&im->pipe);
}

static void free_import(struct op *op)
{
    struct import *im = op->state;

    close_pipe(im);
    image_link_close(&im->link);
    buf_done(&im->config);
    while (im->head != NULL) {
        struct piece *p = im->head;
        im->head = p->next;
        free(p);
    }
}

static void drop_head(struct op *op)
{
    struct import *im = op->state;
    struct piece *p = im->head;

    im->head = p->next;
    if (im->head == NULL)
        im->tail = &im->head;
    if (op->call != NULL)
        grpc_call_consumed(op->call, p->size);
    free(p);
}

/* Writes what the pipe takes. */
static void pump(struct op *op)
{
    struct import *im = op->state;

    while (im->head != NULL) {
        struct piece *p = im->head;
        ssize_t n =
            im->deaf ? (ssize_t)(p->len - p->at) : write(im->pipe, p->data + p->at, p->len - p->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            loop_io_set(im->pipe_io, LOOP_WRITE);
            return;
        }
        if (n < 0) {
            im->deaf = true;
            close_pipe(im);
            continue;
        }
        p->at += (size_t)n;
        if (p->at == p->len)
            drop_head(op);
    }
    if (im->pipe_io != NULL)
        loop_io_set(im->pipe_io, 0);
    if (im->ended)
        close_pipe(im);
}

static void on_pipe(int fd, unsigned what, void *arg)
{
    (void)fd;
    (void)what;
    pump(arg);
}

static void reply_image(struct op *op, Quicksand__Node__ImageImportResponse *rs)
{
    struct import *im = op->state;
    struct layer_messages layers;

    layer_messages_make(&layers, &im->layers);
    rs->layers = layers.list;
    rs->n_layers = im->layers.nlayers;
    rs->digest = im->layers.digest;
    rs->config = (char *)(uintptr_t)buf_str(&im->config);
    op_reply(op, &rs->base);
    layer_messages_done(&layers);
}

/* What an archive with an image in it tells before the end. */
static int on_message(struct op *op, const struct chan_msg *m)
{
    struct import *im = op->state;

    if (m->type == IMAGE_PROGRESS)
        return 0;
    if (m->type == IMAGE_PIECE)
        return memchr(m->data, '\0', m->len) == NULL ? buf_add(&im->config, m->data, m->len) : -1;
    return m->type == IMAGE_LAYERS ? image_layers_decode(&im->layers, m->data, m->len) : -1;
}

static int on_done(struct op *op, const struct image_done *d)
{
    const struct import *im = op->state;
    Quicksand__Node__ImageImportResponse rs = QUICKSAND__NODE__IMAGE_IMPORT_RESPONSE__INIT;

    rs.layer = (char *)(uintptr_t)d->layer;
    rs.has_bytes = rs.has_files = 1;
    rs.bytes = d->bytes;
    rs.files = d->files;
    if (im->layers.nlayers > 0)
        reply_image(op, &rs);
    else
        op_reply(op, &rs.base);
    return 0;
}

static const struct image_link_ops link_ops = {.message = on_message, .done = on_done};

static int begin(struct op *op, const Quicksand__Node__ImageImportRequest *rq, struct err *e)
{
    struct import *im = op_state(op, sizeof *im);
    struct image_unpack m = {.max_bytes = rq->max_bytes, .max_files = rq->max_files};
    uint8_t space[64];
    int ends[2];

    image_link_init(&im->link, &link_ops);
    im->pipe = -1;
    buf_init(&im->config, CONFIG_MAX);
    im->tail = &im->head;
    op->on_free = free_import;
    op->on_gone = op_drop;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    auto_close int read_end = ends[0];
    im->pipe = ends[1];
    /* A larger pipe means fewer wake-ups; a refusal costs only speed. */
    (void)fcntl(im->pipe, F_SETPIPE_SZ, PIPE_BYTES);
    int r = fd_set_nonblock(im->pipe, true);
    if (r < 0)
        return err_sys(e, -r, "set up a pipe");
    if (image_link_ask(op, IMAGE_UNPACK, space, image_unpack_encode(&m, space, sizeof space), read_end, e) < 0)
        return -1;
    im->pipe_io = loop_io_new(op->node->loop, im->pipe, 0, on_pipe, op);
    return 0;
}

void op_image_message(struct op *op, const ProtobufCMessage *m, size_t size)
{
    const Quicksand__Node__ImageImportRequest *rq = (const Quicksand__Node__ImageImportRequest *)m;
    struct err e;

    if (op->state == NULL && begin(op, rq, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    struct import *im = op->state;
    struct piece *p = mem_alloc(sizeof *p + rq->data.len);
    *p = (struct piece){.size = size, .len = rq->data.len};
    if (p->len > 0)
        memcpy(p->data, rq->data.data, p->len);
    *im->tail = p;
    im->tail = &p->next;
    pump(op);
}

void op_image_end(struct op *op)
{
    struct import *im = op->state;
    struct err e;

    if (im == NULL) {
        err_set(&e, ERR_MALFORMED, "the call has no request message");
        op_fail(op, &e);
        return;
    }
    im->ended = true;
    pump(op);
}

/* --- delete ---------------------------------------------------------------------------------- */

static void on_deleted(void *arg, const struct err *e, const uint8_t *payload, size_t len, int *fd)
{
    struct op *op = arg;

    (void)payload;
    (void)len;
    (void)fd;
    if (e != NULL && e->code != ERR_NOT_FOUND)
        op_fail(op, e);
    else
        op_reply_empty(op);
}

void op_layer_delete(struct op *op)
{
    const Quicksand__Node__LayerRef *rq = (Quicksand__Node__LayerRef *)op->rq;
    struct keeper_layer m = {{0}};
    uint8_t space[128];
    struct err e;

    if (rq->layer == NULL || strlen(rq->layer) != 64 ||
        strspn(rq->layer, "0123456789abcdef") != 64) {
        err_param(&e, ERR_INVALID, "layer", "a layer is named by 64 hex digits");
        op_fail(op, &e);
        return;
    }
    (void)snprintf(m.layer, sizeof m.layer, "%s", rq->layer);
    keeper_call(op->node->keeper, KEEPER_LAYER_DELETE, space,
                keeper_layer_encode(&m, space, sizeof space), DELETE_MS, on_deleted, op);
}
