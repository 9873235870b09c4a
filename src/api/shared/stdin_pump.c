/*
 * stdin_pump.c - stdin in pieces with offsets
 */
#include "api/shared/stdin_pump.h"

#include <stdio.h>
#include <string.h>

#include "api/shared/node_retry.h"
#include "api/shared/node_stream.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "node.pb-c.h"

#define PIECE_MAX (1024 * 1024)
#define BYTES_MAX (32 * 1024 * 1024)    /* far above what the credit of any caller allows */

struct stdin_pump {
    struct core *core;              /* borrowed */
    char sandbox[LIMIT_ID], exec_id[LIMIT_ID];
    bool append;
    uint64_t offset;                /* of the first byte of `bytes` */
    bool offset_known;
    struct buf bytes;               /* not yet taken; the first `piece` of them are under way */
    size_t piece;
    bool ended, eof;                /* no more bytes will come; close after them */
    bool eof_sent;
    bool answered;                  /* the piece's reply has come */
    bool done, busy, dead;
    uint64_t taken;
    bool closed;
    const struct stdin_pump_ops *ops;
    void *ctx;
    struct node_call *status_call;
    struct grpc_call *call;
    struct node_retry retry;
    struct stdin_pump *next;        /* waits for its turn after this one */
    bool holds_turn;
};

/* Turns of appending pumps: "sandbox/exec" to the first of a list; the first holds the turn. */
static struct map turns;

static void step(struct stdin_pump *p);

static void turn_key(const struct stdin_pump *p, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s", p->sandbox, p->exec_id);
}

/* True when the pump may send; else it is queued and stepped later. */
static bool turn_take(struct stdin_pump *p)
{
    char key[2 * LIMIT_ID + 2];

    if (!p->append || p->holds_turn)
        return true;
    turn_key(p, key, sizeof key);
    struct stdin_pump *first = map_get(&turns, key);
    if (first == NULL) {
        (void)map_put(&turns, key, p);
        p->holds_turn = true;
        return true;
    }
    for (; first != p && first->next != NULL; first = first->next)
        ;
    if (first != p)
        first->next = p;
    return false;
}

/* Leaves the queue, wherever in it; the next one goes on. */
static void turn_leave(struct stdin_pump *p)
{
    char key[2 * LIMIT_ID + 2];

    if (!p->append)
        return;
    turn_key(p, key, sizeof key);
    struct stdin_pump *first = map_get(&turns, key);
    if (first == p) {
        struct stdin_pump *next = p->next;
        p->next = NULL;
        p->holds_turn = false;
        if (next == NULL) {
            (void)map_del(&turns, key);
            return;
        }
        (void)map_put(&turns, key, next);
        next->holds_turn = true;
        step(next);
        return;
    }
    for (; first != NULL; first = first->next) {
        if (first->next == p) {
            first->next = p->next;
            p->next = NULL;
            return;
        }
    }
}

static void destroy(struct stdin_pump *p)
{
    node_retry_done(&p->retry);
    buf_done(&p->bytes);
    free(p);
}

static void finish(struct stdin_pump *p, const struct err *e)
{
    p->done = true;
    turn_leave(p);
    p->busy = true;
    p->ops->on_done(p->ctx, e, p->taken, p->closed);
    p->busy = false;
    if (p->dead)
        destroy(p);
}

static void fail(struct stdin_pump *p, const struct err *e)
{
    if (!node_retry_schedule(&p->retry, e))
        finish(p, e);
}

/* The reply of a piece has come, or that of a status when nothing was under way. */
static void piece_taken(struct stdin_pump *p)
{
    size_t n = p->piece;

    p->piece = 0;
    p->offset += n;
    buf_drop(&p->bytes, n);
    if (p->append)
        p->offset_known = false;
    turn_leave(p);
    if (p->closed || (p->ended && p->bytes.len == 0 && (!p->eof || p->eof_sent))) {
        finish(p, NULL);
        return;
    }
    p->busy = true;
    if (n > 0)
        p->ops->on_taken(p->ctx, n);
    p->busy = false;
    if (p->dead)
        destroy(p);
    else
        step(p);
}

static void on_message(struct grpc_call *call, const void *data, size_t n, void *ctx)
{
    struct stdin_pump *p = ctx;

    if (p->dead)
        return;
    Quicksand__Node__StdinResponse *m = quicksand__node__stdin_response__unpack(NULL, n, data);
    grpc_call_consumed(call, n);
    if (m == NULL) {
        grpc_cancel(call);
        return;
    }
    p->answered = true;
    p->taken = m->taken;
    p->closed = m->closed;
    quicksand__node__stdin_response__free_unpacked(m, NULL);
}

static void on_end(struct grpc_call *call, enum grpc_status status, const struct err *e, void *ctx)
{
    struct stdin_pump *p = ctx;
    struct err lost = {0};

    p->call = NULL;
    if (p->dead) {
        turn_leave(p);
        destroy(p);
        return;
    }
    if (status == GRPC_OK && p->answered) {
        node_retry_progress(&p->retry);
        piece_taken(p);
        return;
    }
    p->eof_sent = false;
    if (status == GRPC_OK || status == GRPC_CANCELLED) {
        (void)err_set(&lost, ERR_UNAVAILABLE, "the node ended the call early");
        e = &lost;
    }
    fail(p, e);
}

/* Sends the first bytes, or the end alone. */
static void send_piece(struct stdin_pump *p)
{
    static const struct grpc_ops grpc_ops = {.on_message = on_message, .on_end = on_end};
    Quicksand__Node__StdinWriteRequest rq = QUICKSAND__NODE__STDIN_WRITE_REQUEST__INIT;
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;

    if (p->piece == 0)
        p->piece = p->bytes.len < PIECE_MAX ? p->bytes.len : PIECE_MAX;
    p->eof_sent = p->eof && p->ended && p->piece == p->bytes.len;
    p->answered = false;
    ref.sandbox_id = p->sandbox;
    ref.exec_id = p->exec_id;
    for (size_t at = 0; at == 0 || at < p->piece;) {
        size_t n = p->piece - at < LIMIT_STDIN_CHUNK ? p->piece - at : LIMIT_STDIN_CHUNK;
        quicksand__node__stdin_write_request__init(&rq);
        if (at == 0) {
            rq.ref = &ref;
            rq.has_offset = true;
            rq.offset = p->offset;
        }
        rq.has_data = true;
        rq.data.data = (uint8_t *)p->bytes.data + at;
        rq.data.len = n;
        at += n;
        rq.has_eof = true;
        rq.eof = p->eof_sent && at == p->piece;
        if (p->call == NULL)
            p->call = node_stream_new(p->core, "StdinWrite", &rq.base, &grpc_ops, p);
        else
            node_stream_send(p->call, &rq.base);
        if (n == 0)
            break;
    }
    grpc_send_end(p->call);
}

static void on_status(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct stdin_pump *p = ctx;

    p->status_call = NULL;
    if (e != NULL) {
        finish(p, e);
        return;
    }
    const Quicksand__Node__StdinResponse *m = (const Quicksand__Node__StdinResponse *)reply;
    p->taken = m->taken;
    p->closed = m->closed;
    if (p->closed || (p->ended && p->bytes.len == 0 && !p->eof)) {
        finish(p, NULL);
        return;
    }
    if (p->append) {
        p->offset = p->taken;
        p->offset_known = true;
    }
    step(p);
}

static void ask_status(struct stdin_pump *p)
{
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;

    ref.sandbox_id = p->sandbox;
    ref.exec_id = p->exec_id;
    p->status_call = node_unary(p->core, "StdinStatus", &ref.base, &quicksand__node__stdin_response__descriptor, 0,
                                true, on_status, p);
}

/* Does the next thing that can be done. */
static void step(struct stdin_pump *p)
{
    bool something = p->bytes.len > 0 || (p->ended && p->eof && !p->eof_sent);

    if (p->done || p->dead || p->busy || p->call != NULL || p->status_call != NULL || p->retry.since_ms != 0)
        return;
    if (!something) {
        if (p->ended)
            ask_status(p);              /* an empty body: nothing to send, but the answer needs the state */
        return;
    }
    if (!turn_take(p))
        return;
    if (!p->offset_known)
        ask_status(p);
    else
        send_piece(p);
}

static void again(void *ctx)
{
    struct stdin_pump *p = ctx;

    send_piece(p);
}

struct stdin_pump *stdin_pump_new(struct core *c, const char *sandbox, const char *exec_id, uint64_t offset,
                                  const struct stdin_pump_ops *ops, void *ctx)
{
    struct stdin_pump *p = mem_zalloc(sizeof *p);

    p->core = c;
    (void)snprintf(p->sandbox, sizeof p->sandbox, "%s", sandbox);
    (void)snprintf(p->exec_id, sizeof p->exec_id, "%s", exec_id);
    p->append = offset == STDIN_APPEND;
    p->offset_known = !p->append;
    p->offset = p->append ? 0 : offset;
    p->ops = ops;
    p->ctx = ctx;
    buf_init(&p->bytes, BYTES_MAX);
    node_retry_init(&p->retry, core_loop(c), again, p);
    return p;
}

bool stdin_pump_write(struct stdin_pump *p, const void *data, size_t n)
{
    if (p->ended || p->done)
        return true;
    if (buf_add(&p->bytes, data, n) < 0)
        return false;
    step(p);
    return true;
}

void stdin_pump_end(struct stdin_pump *p, bool eof)
{
    if (p->ended || p->done)
        return;
    p->ended = true;
    p->eof = eof;
    step(p);
}

size_t stdin_pump_queued(const struct stdin_pump *p)
{
    return p->bytes.len;
}

void stdin_pump_free(struct stdin_pump *p)
{
    if (p == NULL || p->dead)
        return;
    p->dead = true;
    loop_timer_clear(p->retry.timer);
    if (p->status_call != NULL)
        node_call_cancel(p->status_call);
    p->status_call = NULL;
    if (p->call != NULL) {
        grpc_cancel(p->call);
        return;
    }
    turn_leave(p);
    if (!p->busy)
        destroy(p);
}
