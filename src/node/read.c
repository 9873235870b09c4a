/*
 * read.c - the output of one exec from an offset on
 *
 * One question to the monitor at a time, and none while the client has HTTP_HIGH bytes to take: a
 * slow reader costs one chunk of memory.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "ipc/monitor_proto.h"
#include "node/call.h"
#include "node/ops.h"
#include "node/query.h"
#include "node/spool.h"

#define WAIT_MS 10000 /* a reader that left is noticed by the monitor after at most this */

static uint8_t space[256 * 1024];       /* one piece of a file, sent before the next */

static void next(struct exec_reader *rd);

/* One piece to the client. False: it was the last. */
static bool deliver(struct exec_reader *rd, const struct mon_read_r *r)
{
    bool last = r->eof || (!rd->follow && r->offset + r->len >= r->total);

    rd->m.offset = r->offset + r->len;
    if (r->len > 0 || last)
        rd->data(rd->op, r, last);
    if (last)
        op_finish(rd->op);
    return !last;
}

static void close_file(struct exec_reader *rd)
{
    if (rd->has_file)
        (void)close(rd->file);
    rd->has_file = false;
}

/*
 * Bytes at rd->m.offset from the file; 0 if they cannot be had this way. Old bytes become a hole while we look: only if the
 * first is no hole afterwards, none was when we read.
 */
static size_t read_file(struct exec_reader *rd)
{
    off_t offset = (off_t)rd->m.offset;
    uint64_t left = rd->file_end - rd->m.offset;
    ssize_t n = pread(rd->file, space, left < sizeof space ? (size_t)left : sizeof space, offset);

    return n > 0 && lseek(rd->file, offset, SEEK_DATA) == offset ? (size_t)n : 0;
}

/* What the file has, then on with the monitor. */
static void pump(struct exec_reader *rd)
{
    while (rd->has_file && rd->m.offset < rd->file_end) {
        struct mon_read_r r = {.offset = rd->m.offset, .total = rd->file_end, .data = space};
        if (op_is_full(rd->op))
            return;
        r.len = read_file(rd);
        if (r.len == 0) {
            close_file(rd);
            rd->m.file_ok = false;      /* the monitor knows what is left of it */
        } else if (!deliver(rd, &r)) {
            return;
        }
    }
    if (!op_is_full(rd->op))
        next(rd);
}

static void use_file(struct exec_reader *rd, const struct mon_read_r *r)
{
    rd->m.offset = r->offset;
    rd->file_end = r->total;
    if (rd->has_file)
        return;
    rd->file = spool_open(rd->op->node->run_fd, rd->sandbox, r->file_seq, rd->m.stream);
    rd->has_file = rd->m.file_ok = rd->file >= 0;
}

static void on_data(void *arg, const struct mon_read_r *r, const struct err *e)
{
    struct exec_reader *rd = arg;

    if (e != NULL) {
        rd->fail(rd->op, e);
        return;
    }
    if (r->file_seq != 0)
        use_file(rd, r);
    else if (!deliver(rd, r))
        return;
    pump(rd);
}

static void next(struct exec_reader *rd)
{
    struct op *op = rd->op;

    query_read(op->node, &op->q[0], rd->sandbox, &rd->m, on_data, rd);
}

static void on_writable(struct op *op)
{
    if (op->q[0] == NULL)
        pump(op->state);
}

void exec_read(struct exec_reader *rd)
{
    rd->m.max = LIMIT_READ_CHUNK;
    rd->m.wait_ms = rd->follow ? WAIT_MS : 0;
    rd->m.file_ok = true;
    rd->op->on_gone = op_drop;
    rd->op->on_writable = on_writable;
    next(rd);
}

void exec_read_done(struct exec_reader *rd)
{
    close_file(rd);
}

static void free_reader(struct op *op)
{
    exec_read_done(op->state);
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
    op->on_free = free_reader;
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
