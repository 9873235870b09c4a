/*
 * read.c - the output of one exec from an offset on
 *
 * One question to the monitor at a time, and none while the client has HTTP_HIGH bytes to take: a
 * slow reader costs one chunk of memory.
 */
#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "ipc/monitor_proto.h"
#include "node/call.h"
#include "node/ops.h"
#include "node/query.h"

#define WAIT_MS 10000 /* a reader that left is noticed by the monitor after at most this */

struct read {
    struct mon_read m;
};

static void next(struct op *op);

static void on_data(void *arg, const struct mon_read_r *r, const struct err *e)
{
    struct op *op = arg;
    const Quicksand__Node__ExecReadRequest *rq = (Quicksand__Node__ExecReadRequest *)op->rq;
    struct read *rd = op->state;
    Quicksand__Node__ExecReadResponse m = QUICKSAND__NODE__EXEC_READ_RESPONSE__INIT;

    if (e != NULL) {
        op_fail(op, e);
        return;
    }
    bool last = r->eof || (!rq->follow && r->offset + r->len >= r->total);
    rd->m.offset = r->offset + r->len;
    if (r->len > 0 || last) {
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
    if (last)
        op_finish(op);
    else if (!op_is_full(op))
        next(op);
}

static void next(struct op *op)
{
    const Quicksand__Node__ExecReadRequest *rq = (Quicksand__Node__ExecReadRequest *)op->rq;
    struct read *rd = op->state;

    query_read(op->node, &op->q[0], rq->ref->sandbox_id, &rd->m, on_data, op);
}

static void on_writable(struct op *op)
{
    if (op->q[0] == NULL)
        next(op);
}

void op_exec_read(struct op *op)
{
    const Quicksand__Node__ExecReadRequest *rq = (Quicksand__Node__ExecReadRequest *)op->rq;
    struct read *rd = op_state(op, sizeof *rd);
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
    memcpy(rd->m.exec_id, ref.exec_id, sizeof ref.exec_id);
    rd->m.stream = (uint8_t)rq->stream;
    rd->m.offset = rq->offset;
    rd->m.max = LIMIT_READ_CHUNK;
    rd->m.wait_ms = rq->follow ? WAIT_MS : 0;
    op->on_gone = op_drop;
    op->on_writable = on_writable;
    next(op);
}
