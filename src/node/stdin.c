/*
 * stdin.c - writing to the stdin of an exec
 *
 * Messages are queued and handed to the monitor a chunk at a time. A message's bytes are consumed,
 * and so the client's window opened, when the program has them; the queue is no longer than that
 * window. The offset makes a repeated write harmless: bytes that were taken before are skipped.
 */
#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"
#include "node/call.h"
#include "node/ops.h"
#include "node/query.h"

struct piece {
    struct piece *next;
    size_t size;                /* of the message, for flow control */
    size_t len, at;
    bool eof;
    uint8_t data[];
};

struct in {
    char sandbox[ID_SIZE];
    struct mon_ref ref;
    bool begun;                 /* the first message was there */
    bool placed;                /* offset is known */
    bool ended;                 /* the client has sent everything */
    bool eof_sent;
    bool heard;                 /* state is filled in */
    uint64_t offset;            /* of the next byte to hand on */
    struct piece *head, **tail;
    struct mon_stdin_r state;   /* as last heard */
};

static void free_in(struct op *op)
{
    struct in *in = op->state;

    while (in->head != NULL) {
        struct piece *p = in->head;
        in->head = p->next;
        free(p);
    }
}

static void reply(struct op *op, const struct mon_stdin_r *r)
{
    Quicksand__Node__StdinResponse m = QUICKSAND__NODE__STDIN_RESPONSE__INIT;

    m.has_taken = m.has_closed = 1;
    m.taken = r->taken;
    m.closed = r->closed;
    op_reply(op, &m.base);
}

static void on_status(void *arg, const struct mon_stdin_r *r, const struct err *e)
{
    struct op *op = arg;

    if (e != NULL)
        op_fail(op, e);
    else
        reply(op, r);
}

static void pump(struct op *op);

static void drop_head(struct op *op)
{
    struct in *in = op->state;
    struct piece *p = in->head;

    in->head = p->next;
    if (in->head == NULL)
        in->tail = &in->head;
    if (op->call != NULL)
        grpc_call_consumed(op->call, p->size);
    free(p);
}

static void on_taken(void *arg, const struct mon_stdin_r *r, const struct err *e)
{
    struct op *op = arg;
    struct in *in = op->state;
    struct err stuck;

    if (e != NULL) {
        op_fail(op, e);
        return;
    }
    in->state = *r;
    in->heard = true;
    if (!in->placed) {
        in->placed = true;
        in->offset = r->taken;
        pump(op);
        return;
    }
    if (r->closed) {            /* by us, or the program takes no more */
        reply(op, r);
        return;
    }
    struct piece *p = in->head;
    size_t chunk = p->len - p->at > LIMIT_STDIN_CHUNK ? LIMIT_STDIN_CHUNK : p->len - p->at;
    if (chunk > 0 && r->taken <= in->offset) {
        err_set(&stuck, ERR_INTERNAL, "stdin stands at byte %" PRIu64 " and took nothing",
                r->taken);
        op_fail(op, &stuck);
        return;
    }
    size_t done = r->taken - in->offset < chunk ? (size_t)(r->taken - in->offset) : chunk;
    p->at += done;
    in->offset += done;
    if (p->at == p->len)
        drop_head(op);
    pump(op);
}

static void pump(struct op *op)
{
    struct in *in = op->state;
    struct mon_stdin m = {0};

    if (op->q[0] != NULL || !in->begun)
        return;
    if (!in->placed) {
        query_stdin_status(op->node, &op->q[0], in->sandbox, &in->ref, on_taken, op);
        return;
    }
    /* Empty messages have nothing to hand on. */
    while (in->head != NULL && in->head->len == 0 && !in->head->eof)
        drop_head(op);
    if (in->head == NULL) {
        if (!in->ended)
            return;
        if (in->heard)
            reply(op, &in->state);
        else                    /* there was nothing to send: say where stdin stands */
            query_stdin_status(op->node, &op->q[0], in->sandbox, &in->ref, on_status, op);
        return;
    }
    struct piece *p = in->head;
    size_t left = p->len - p->at;
    memcpy(m.exec_id, in->ref.exec_id, sizeof m.exec_id);
    m.offset = in->offset;
    m.data = p->data + p->at;
    m.len = left > LIMIT_STDIN_CHUNK ? LIMIT_STDIN_CHUNK : left;
    m.eof = p->eof && m.len == left;
    query_stdin(op->node, &op->q[0], in->sandbox, &m, on_taken, op);
}

static int begin(struct op *op, const Quicksand__Node__StdinWriteRequest *rq, struct err *e)
{
    struct in *in = op_state(op, sizeof *in);

    in->tail = &in->head;
    op->on_free = free_in;
    op->on_gone = op_drop;
    if (call_ref(rq->ref, false, &in->ref, e) < 0)
        return -1;
    memcpy(in->sandbox, rq->ref->sandbox_id,
           strlen(rq->ref->sandbox_id) + 1); /* its shape is checked */
    in->begun = true;
    in->placed = rq->has_offset;
    in->offset = rq->offset;
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
    struct in *in = op->state;
    if (in->eof_sent) {
        err_set(&e, ERR_INVALID, "a message follows the one with eof");
        op_fail(op, &e);
        return;
    }
    struct piece *p = mem_alloc(sizeof *p + rq->data.len);
    *p = (struct piece){.size = size, .len = rq->data.len, .eof = rq->eof};
    if (p->len > 0)
        memcpy(p->data, rq->data.data, p->len);
    in->eof_sent = rq->eof;
    *in->tail = p;
    in->tail = &p->next;
    pump(op);
}

void op_stdin_end(struct op *op)
{
    struct in *in = op->state;
    struct err e;

    if (in == NULL) {
        err_set(&e, ERR_MALFORMED, "the call has no request message");
        op_fail(op, &e);
        return;
    }
    in->ended = true;
    pump(op);
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
