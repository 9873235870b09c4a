/*
 * run.c - start, both streams and the exit in one call
 *
 * The monitor is asked for everything at once: MON_EXEC, a MON_READ a stream and MON_WAIT follow
 * each other without waiting for replies. Answers may come in any order; the client gets `started`
 * first, data in the order of its stream, and `exited` when both streams are complete. Repeating
 * the call with the same exec id starts nothing and goes on at the offsets given.
 */
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"
#include "node/call.h"
#include "node/map.h"
#include "node/ops.h"
#include "node/query.h"

#define WAIT_MS 10000

enum { Q_START, Q_OUT, Q_ERR, Q_WAIT };

struct side {
    struct op *op;
    int q;                      /* its query */
    struct mon_read m;
    bool eof;
    uint64_t seen;              /* end of the last bytes that came */
    struct buf held;            /* came before `started` */
    uint64_t held_offset;
};

struct run {
    struct mon_ref ref;
    struct side sides[2];
    bool started;
    bool exited;
    struct exec_record exit;
};

static const Quicksand__Node__ExecStartRequest *request(const struct op *op)
{
    return ((const Quicksand__Node__ExecRunRequest *)op->rq)->start;
}

static void free_run(struct op *op)
{
    struct run *run = op->state;

    buf_done(&run->sides[0].held);
    buf_done(&run->sides[1].held);
}

static void send_data(struct op *op, const struct side *s, uint64_t offset, const void *p, size_t n)
{
    Quicksand__Node__ExecRunResponse m = QUICKSAND__NODE__EXEC_RUN_RESPONSE__INIT;

    m.has_stream = m.has_offset = m.has_data = 1;
    m.stream = s->m.stream;
    m.offset = offset;
    m.data.data = (uint8_t *)(uintptr_t)p;
    m.data.len = n;
    op_send(op, &m.base);
}

static void ask_exit(struct op *op, uint64_t wait_ms);

/* Ends the call if everything is there. The op may be gone after it. */
static void check_end(struct op *op)
{
    struct run *run = op->state;
    const struct exec_record *r = &run->exit;
    Quicksand__Node__ExecRunResponse m = QUICKSAND__NODE__EXEC_RUN_RESPONSE__INIT;
    Quicksand__Node__Exec exec;

    if (!run->started || !run->exited || !run->sides[0].eof || !run->sides[1].eof ||
        op->q[Q_WAIT] != NULL)
        return;
    /* A record that is older than the last bytes does not count them. */
    if (r->out_total < run->sides[0].seen || r->err_total < run->sides[1].seen) {
        ask_exit(op, 0);
        return;
    }
    map_exec(r, &exec);
    m.exited = &exec;
    op_send(op, &m.base);
    op_finish(op);
}

/* --- streams --------------------------------------------------------------------------------- */

static void on_data(void *arg, const struct mon_read_r *r, const struct err *e);

static void ask_side(struct side *s)
{
    struct op *op = s->op;

    query_read(op->node, &op->q[s->q], request(op)->ref->sandbox_id, &s->m, on_data, s);
}

static void on_data(void *arg, const struct mon_read_r *r, const struct err *e)
{
    struct side *s = arg;
    struct op *op = s->op;
    struct run *run = op->state;

    if (e != NULL) {
        /* Before the start is answered: that answer says what is wrong, or we ask again. */
        if (run->started)
            op_fail(op, e);
        return;
    }
    s->m.offset = r->offset + r->len;
    s->eof = r->eof;
    if (r->len > 0)
        s->seen = s->m.offset;
    if (r->len > 0 && run->started) {
        send_data(op, s, r->offset, r->data, r->len);
    } else if (r->len > 0) {
        s->held_offset = r->offset;
        (void)buf_add(&s->held, r->data, r->len);   /* one chunk, below the cap */
        return;
    }
    if (!s->eof && !op_is_full(op))
        ask_side(s);
    check_end(op);
}

static void on_writable(struct op *op)
{
    struct run *run = op->state;

    for (int i = 0; run->started && i < 2; i++)
        if (!run->sides[i].eof && op->q[run->sides[i].q] == NULL)
            ask_side(&run->sides[i]);
}

/* --- start and exit -------------------------------------------------------------------------- */

static void on_exited(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    struct run *run = op->state;

    if (e != NULL) {
        if (run->started)
            op_fail(op, e);
        return;
    }
    if (r->state < EXEC_EXITED) {
        ask_exit(op, QUERY_POLL_MS);
        return;
    }
    run->exited = true;
    run->exit = *r;
    check_end(op);
}

static void ask_exit(struct op *op, uint64_t wait_ms)
{
    struct run *run = op->state;

    query_exec(op->node, &op->q[Q_WAIT], request(op)->ref->sandbox_id, &run->ref, wait_ms,
               on_exited, op);
}

static void on_started(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    struct run *run = op->state;
    Quicksand__Node__ExecRunResponse m = QUICKSAND__NODE__EXEC_RUN_RESPONSE__INIT;
    Quicksand__Node__Exec exec;
    struct err failure;

    if (e != NULL) {
        op_fail(op, e);
        return;
    }
    if (r->state == EXEC_FAILED) {
        exec_failure(op->node, request(op)->ref->sandbox_id, request(op)->command, r, &failure);
        op_fail(op, &failure);
        return;
    }
    map_exec(r, &exec);
    m.started = &exec;
    op_send(op, &m.base);
    run->started = true;
    for (int i = 0; i < 2; i++) {
        struct side *s = &run->sides[i];
        if (s->held.len > 0)
            send_data(op, s, s->held_offset, s->held.data, s->held.len);
        buf_done(&s->held);
    }
    on_writable(op);
    if (!run->exited && op->q[Q_WAIT] == NULL)
        ask_exit(op, QUERY_POLL_MS);
    check_end(op);
}

static void init_side(struct op *op, int i, uint64_t offset, bool empty)
{
    struct run *run = op->state;
    struct side *s = &run->sides[i];

    s->op = op;
    s->q = i == 0 ? Q_OUT : Q_ERR;
    s->eof = empty;
    memcpy(s->m.exec_id, run->ref.exec_id, sizeof s->m.exec_id);
    s->m.stream = (uint8_t)(i + 1);
    s->m.offset = offset;
    s->m.max = LIMIT_READ_CHUNK;
    s->m.wait_ms = WAIT_MS;
    s->m.lazy = ((const Quicksand__Node__ExecRunRequest *)op->rq)->lazy;
    buf_init(&s->held, 1024 * 1024);
}

void op_exec_run(struct op *op)
{
    const Quicksand__Node__ExecRunRequest *rq = (Quicksand__Node__ExecRunRequest *)op->rq;
    const Quicksand__Node__ExecStartRequest *start = rq->start;
    struct run *run = op_state(op, sizeof *run);
    struct mon_exec m;
    struct err e;
    auto_buf spec = {0};

    op->on_free = free_run;
    op->on_gone = op_drop;
    op->on_writable = on_writable;
    buf_init(&spec, LIMIT_CHANNEL_MESSAGE);
    if (exec_request(op->node, start, &m, &spec, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    m.lazy = rq->lazy;
    memcpy(run->ref.exec_id, m.exec_id, sizeof run->ref.exec_id);
    init_side(op, 0, rq->stdout_offset, start->drop_stdout);
    init_side(op, 1, rq->stderr_offset, start->drop_stderr || start->merge_stderr || start->tty);
    query_start(op->node, &op->q[Q_START], start->ref->sandbox_id, &m, on_started, op);
    for (int i = 0; i < 2; i++)
        if (!run->sides[i].eof)
            ask_side(&run->sides[i]);
    ask_exit(op, QUERY_POLL_MS);
}
