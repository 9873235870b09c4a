/*
 * stdin_feed.c - bytes of a call on their way to the stdin of an exec
 */
#include "node/stdin_feed.h"

#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "node/query.h"

struct stdin_piece {
    struct stdin_piece *next;
    size_t size;                /* of the message, for flow control */
    size_t len, at;
    bool eof;
    uint8_t data[];
};

static void pump(struct stdin_feed *f);

void stdin_feed_init(struct stdin_feed *f, struct op *op)
{
    f->op = op;
    f->tail = &f->head;
}

void stdin_feed_free(struct stdin_feed *f)
{
    while (f->head != NULL) {
        struct stdin_piece *p = f->head;
        f->head = p->next;
        free(p);
    }
}

uint64_t stdin_feed_goal(const struct stdin_feed *f)
{
    uint64_t goal = f->offset;

    for (const struct stdin_piece *p = f->head; p != NULL; p = p->next)
        goal += p->len - p->at;
    return goal;
}

static void drop_head(struct stdin_feed *f)
{
    struct stdin_piece *p = f->head;

    f->head = p->next;
    if (f->head == NULL)
        f->tail = &f->head;
    if (f->op->call != NULL)
        grpc_call_consumed(f->op->call, p->size);
    free(p);
}

static void on_status(void *arg, const struct mon_stdin_r *r, const struct err *e)
{
    struct stdin_feed *f = arg;

    f->done(f->op, r, e);
}

static void on_taken(void *arg, const struct mon_stdin_r *r, const struct err *e)
{
    struct stdin_feed *f = arg;
    struct err stuck;

    if (e != NULL) {
        f->done(f->op, NULL, e);
        return;
    }
    f->state = *r;
    f->heard = true;
    if (!f->placed) {
        f->placed = true;
        f->offset = r->taken;
        pump(f);
        return;
    }
    if (r->closed) {            /* by us, or the program takes no more */
        f->done(f->op, r, NULL);
        return;
    }
    struct stdin_piece *p = f->head;
    size_t chunk = p->len - p->at > LIMIT_STDIN_CHUNK ? LIMIT_STDIN_CHUNK : p->len - p->at;
    if (chunk > 0 && r->taken <= f->offset) {
        err_set(&stuck, ERR_INTERNAL, "stdin stands at byte %" PRIu64 " and took nothing",
                r->taken);
        f->done(f->op, NULL, &stuck);
        return;
    }
    size_t done = r->taken - f->offset < chunk ? (size_t)(r->taken - f->offset) : chunk;
    p->at += done;
    f->offset += done;
    if (p->at == p->len)
        drop_head(f);
    pump(f);
}

static void pump(struct stdin_feed *f)
{
    struct op *op = f->op;
    struct mon_stdin m = {0};

    if (op->q[0] != NULL || f->held)
        return;
    if (!f->placed) {
        query_stdin_status(op->node, &op->q[0], f->sandbox, &f->ref, on_taken, f);
        return;
    }
    /* Empty messages have nothing to hand on. */
    while (f->head != NULL && f->head->len == 0 && !f->head->eof)
        drop_head(f);
    if (f->head == NULL) {
        if (!f->ended)
            return;
        if (f->heard)
            f->done(op, &f->state, NULL);
        else                    /* there was nothing to send: say where stdin stands */
            query_stdin_status(op->node, &op->q[0], f->sandbox, &f->ref, on_status, f);
        return;
    }
    struct stdin_piece *p = f->head;
    size_t left = p->len - p->at;
    memcpy(m.exec_id, f->ref.exec_id, sizeof m.exec_id);
    m.offset = f->offset;
    m.data = p->data + p->at;
    m.len = left > LIMIT_STDIN_CHUNK ? LIMIT_STDIN_CHUNK : left;
    m.eof = p->eof && m.len == left;
    query_stdin(op->node, &op->q[0], f->sandbox, &m, on_taken, f);
}

void stdin_feed_add(struct stdin_feed *f, const void *p, size_t n, bool eof, size_t size)
{
    struct stdin_piece *piece = mem_alloc(sizeof *piece + n);

    *piece = (struct stdin_piece){.size = size, .len = n, .eof = eof};
    if (n > 0)
        memcpy(piece->data, p, n);
    f->has_eof = f->has_eof || eof;
    *f->tail = piece;
    f->tail = &piece->next;
    pump(f);
}

void stdin_feed_end(struct stdin_feed *f)
{
    f->ended = true;
    pump(f);
}

void stdin_feed_go(struct stdin_feed *f)
{
    f->held = false;
    pump(f);
}
