/*
 * read.c - the output of one exec from an offset on
 *
 * One question to the monitor at a time, and none while the client has HTTP_HIGH bytes to take: a
 * slow reader costs one chunk of memory.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "ipc/monitor_proto.h"
#include "node/call.h"
#include "node/ops.h"
#include "node/query.h"

#define WAIT_MS 10000 /* a reader that left is noticed by the monitor after at most this */

static void next(struct exec_reader *rd);

static void on_data(void *arg, const struct mon_read_r *r, const struct err *e)
{
    struct exec_reader *rd = arg;
    struct op *op = rd->op;

    if (e != NULL) {
        rd->fail(op, e);
        return;
    }
    bool last = r->eof || (!rd->follow && r->offset + r->len >= r->total);
    rd->m.offset = r->offset + r->len;
    if (r->len > 0 || last)
        rd->data(op, r, last);
    if (last)
        op_finish(op);
    else if (!op_is_full(op))
        next(rd);
}

static void next(struct exec_reader *rd)
{
    struct op *op = rd->op;

    query_read(op->node, &op->q[0], rd->sandbox, &rd->m, on_data, rd);
}

static void on_writable(struct op *op)
{
    if (op->q[0] == NULL)
        next(op->state);
}

void exec_read(struct exec_reader *rd)
{
    rd->m.max = LIMIT_READ_CHUNK;
    rd->m.wait_ms = rd->follow ? WAIT_MS : 0;
    rd->op->on_gone = op_drop;
    rd->op->on_writable = on_writable;
    next(rd);
}

static void send_data(struct op *op, const struct mon_read_r *r, bool last)
{
    Quicksand__Node__ExecReadResponse m = QUICKSAND__NODE__EXEC_READ_RESPONSE__INIT;

    m.has_offset = m.has_data = 1;
    m.offset = r->offset;
    m.data.data = (uint8_t *)(uintptr_t)r->data;
    m.data.len = r->len;
    if (last) {
        m.has_eof = m.has_total = 1;
        m.eof = r->eof;
        m.total = r->total;
    }
    op_send(op, &m.base);
}

void op_exec_read(struct op *op)
{
    const Quicksand__Node__ExecReadRequest *rq = (Quicksand__Node__ExecReadRequest *)op->rq;
    struct exec_reader *rd = op_state(op, sizeof *rd);
    struct mon_ref ref;
    struct err e;

    if (call_ref(rq->ref, false, &ref, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (rq->stream != 1 && rq->stream != 2) {
        err_param(&e, ERR_INVALID, "stream", "stream is 1 (stdout) or 2 (stderr), not %u",
                  rq->stream);
        op_fail(op, &e);
        return;
    }
    rd->op = op;
    rd->follow = rq->follow;
    rd->data = send_data;
    rd->fail = op_fail;
    (void)snprintf(rd->sandbox, sizeof rd->sandbox, "%s", rq->ref->sandbox_id);
    memcpy(rd->m.exec_id, ref.exec_id, sizeof ref.exec_id);
    rd->m.stream = (uint8_t)rq->stream;
    rd->m.offset = rq->offset;
    exec_read(rd);
}
