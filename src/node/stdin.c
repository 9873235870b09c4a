/*
 * stdin.c - writing to the stdin of an exec
 */
#include <stdio.h>
#include <string.h>

#include "node/call.h"
#include "node/ops.h"
#include "node/query.h"
#include "node/stdin_feed.h"

static void free_feed(struct op *op)
{
    stdin_feed_free(op->state);
}

static void reply(struct op *op, const struct mon_stdin_r *r, const struct err *e)
{
    Quicksand__Node__StdinResponse m = QUICKSAND__NODE__STDIN_RESPONSE__INIT;

    if (e != NULL) {
        op_fail(op, e);
        return;
    }
    m.has_taken = m.has_closed = 1;
    m.taken = r->taken;
    m.closed = r->closed;
    op_reply(op, &m.base);
}

static int begin(struct op *op, const Quicksand__Node__StdinWriteRequest *rq, struct err *e)
{
    struct stdin_feed *f = op_state(op, sizeof *f);

    stdin_feed_init(f, op);
    f->done = reply;
    op->on_free = free_feed;
    op->on_gone = op_drop;
    if (call_ref(rq->ref, false, &f->ref, e) < 0)
        return -1;
    (void)snprintf(f->sandbox, sizeof f->sandbox, "%s", rq->ref->sandbox_id);
    f->placed = rq->has_offset;
    f->offset = rq->offset;
    return 0;
}

void op_stdin_message(struct op *op, const ProtobufCMessage *m, size_t size)
{
    const Quicksand__Node__StdinWriteRequest *rq = (const Quicksand__Node__StdinWriteRequest *)m;
    struct err e;

    if (op->state == NULL && begin(op, rq, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    struct stdin_feed *f = op->state;
    if (f->has_eof) {
        err_set(&e, ERR_INVALID, "a message follows the one with eof");
        op_fail(op, &e);
        return;
    }
    stdin_feed_add(f, rq->data.data, rq->data.len, rq->eof, size);
}

void op_stdin_end(struct op *op)
{
    struct stdin_feed *f = op->state;
    struct err e;

    if (f == NULL) {
        err_set(&e, ERR_MALFORMED, "the call has no request message");
        op_fail(op, &e);
        return;
    }
    stdin_feed_end(f);
}

static void on_status(void *arg, const struct mon_stdin_r *r, const struct err *e)
{
    reply(arg, r, e);
}

void op_stdin_status(struct op *op)
{
    const Quicksand__Node__ExecRef *rq = (Quicksand__Node__ExecRef *)op->rq;
    struct mon_ref ref;
    struct err e;

    if (call_ref(rq, false, &ref, &e) < 0)
        op_fail(op, &e);
    else
        query_stdin_status(op->node, &op->q[0], rq->sandbox_id, &ref, on_status, op);
}
