/*
 * exec.c - start, get, list, signal, resize, kill and forget of execs
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/init_proto.h"
#include "ipc/monitor_proto.h"
#include "node/call.h"
#include "node/defaults.h"
#include "node/exec_env.h"
#include "node/map.h"
#include "node/network.h"
#include "node/ops.h"
#include "node/query.h"

/* --- the request of start and run ------------------------------------------------------------ */

static uint32_t flags_of(const Quicksand__Node__ExecStartRequest *rq)
{
    return (rq->tty ? MON_EXEC_TTY : 0) | (rq->stdin ? MON_EXEC_STDIN : 0) |
           (rq->drop_stdout ? MON_EXEC_NO_STDOUT : 0) | (rq->drop_stderr ? MON_EXEC_NO_STDERR : 0) |
           (rq->merge_stderr ? MON_EXEC_MERGE : 0) | (rq->hidden ? MON_EXEC_HIDDEN : 0);
}

int exec_request(struct node *n, const Quicksand__Node__ExecStartRequest *rq, struct mon_exec *ret,
                 struct buf *spec, struct err *e)
{
    struct mon_ref ref;

    if (rq == NULL || rq->command == NULL)
        return err_param(e, ERR_INVALID, "command", "no command given");
    if (call_ref(rq->ref, false, &ref, e) < 0)
        return -1;
    if (strcmp(ref.exec_id, ENTRY_EXEC_ID) == 0)
        return err_param(e, ERR_INVALID, "exec_id", "\"%s\" is the entry point", ENTRY_EXEC_ID);
    if (rq->rows > UINT16_MAX || rq->cols > UINT16_MAX)
        return err_param(e, ERR_INVALID, rq->rows > UINT16_MAX ? "rows" : "cols",
                         "a terminal has at most %d rows and columns", UINT16_MAX);
    const struct exec_env_input in = {
        .defaults = defaults_get(n->defaults, rq->ref->sandbox_id),
        .command = rq->command,
        .network = network_note(n->network, rq->ref->sandbox_id),
        .tty = rq->tty,
        .helper = rq->helper,
    };
    if (exec_env_build(&in, spec, e) < 0)
        return -1;
    struct mon_exec m = {
        .flags = flags_of(rq),
        .timeout_ms = rq->timeout_ms,
        .grace_ms = rq->grace_ms,
        .output_limit = rq->output_limit,
        .rows = (uint16_t)rq->rows,
        .cols = (uint16_t)rq->cols,
        .spec = (const uint8_t *)spec->data,
        .spec_len = spec->len,
    };
    memcpy(m.exec_id, ref.exec_id, sizeof m.exec_id);
    memcpy(m.container, ref.container, sizeof m.container);
    *ret = m;
    return 0;
}

void exec_program(const Quicksand__Node__Command *c, char *out, size_t size)
{
    size_t n = c->n_argv > 0 ? c->argv[0].len : 0;

    if (n >= size)
        n = size - 1;
    if (n > 0)
        memcpy(out, c->argv[0].data, n);
    out[n] = '\0';
}

void exec_failure(struct node *n, const char *sandbox, const Quicksand__Node__Command *c,
                  const struct exec_record *r, struct err *e)
{
    const Quicksand__Node__Defaults *d = defaults_get(n->defaults, sandbox);
    const ProtobufCBinaryData *from = c->has_cwd && c->cwd.len > 0 ? &c->cwd
                                      : d != NULL && d->has_cwd  ? &d->cwd
                                                                 : NULL;
    char program[128], cwd[128] = "";

    exec_program(c, program, sizeof program);
    if (from != NULL)
        (void)snprintf(cwd, sizeof cwd, "%.*s",
                       (int)(from->len < sizeof cwd ? from->len : sizeof cwd - 1),
                       (const char *)from->data);
    map_start_error(r, program, cwd, e);
}

static void reply_exec(struct op *op, const struct exec_record *r)
{
    Quicksand__Node__Exec m;

    map_exec(r, &m);
    op_reply(op, &m.base);
}

/* --- start ----------------------------------------------------------------------------------- */

static void on_started(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    const Quicksand__Node__ExecStartRequest *rq = (Quicksand__Node__ExecStartRequest *)op->rq;
    struct err failure;

    if (e != NULL) {
        op_fail(op, e);
    } else if (r->state == EXEC_FAILED) {
        exec_failure(op->node, rq->ref->sandbox_id, rq->command, r, &failure);
        op_fail(op, &failure);
    } else {
        reply_exec(op, r);
    }
}

void op_exec_start(struct op *op)
{
    const Quicksand__Node__ExecStartRequest *rq = (Quicksand__Node__ExecStartRequest *)op->rq;
    struct mon_exec m;
    struct err e;
    auto_buf spec = {0};

    buf_init(&spec, LIMIT_CHANNEL_MESSAGE);
    if (exec_request(op->node, rq, &m, &spec, &e) < 0)
        op_fail(op, &e);
    else
        query_start(op->node, &op->q[0], rq->ref->sandbox_id, &m, on_started, op);
}

/* --- get ------------------------------------------------------------------------------------- */

static void poll_exec(struct exec_wait *w);

static void on_exec(void *arg, const struct exec_record *r, const struct err *e)
{
    struct exec_wait *w = arg;

    if (e != NULL || r->state >= EXEC_EXITED || clock_boot_ms() >= w->until_ms)
        w->done(w->op, r, e);
    else
        poll_exec(w);
}

static void poll_exec(struct exec_wait *w)
{
    int64_t left = w->until_ms == 0 ? 0 : w->until_ms - clock_boot_ms();

    query_exec(w->op->node, &w->op->q[0], w->sandbox, &w->ref, left > 0 ? (uint64_t)left : 0,
               on_exec, w);
}

void exec_wait(struct exec_wait *w)
{
    w->op->on_gone = op_drop;
    poll_exec(w);
}

static void on_got(struct op *op, const struct exec_record *r, const struct err *e)
{
    if (e != NULL)
        op_fail(op, e);
    else
        reply_exec(op, r);
}

void op_exec_get(struct op *op)
{
    const Quicksand__Node__ExecGetRequest *rq = (Quicksand__Node__ExecGetRequest *)op->rq;
    struct exec_wait *w = op_state(op, sizeof *w);
    uint64_t wait_ms = rq->wait_ms;
    struct err e;

    if (call_ref(rq->ref, false, &w->ref, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (wait_ms > LIMIT_WAIT_MAX * 1000ULL)
        wait_ms = LIMIT_WAIT_MAX * 1000ULL;
    w->op = op;
    w->done = on_got;
    (void)snprintf(w->sandbox, sizeof w->sandbox, "%s", rq->ref->sandbox_id);
    w->until_ms = wait_ms > 0 ? clock_boot_ms() + (int64_t)wait_ms : 0;
    exec_wait(w);
}

/* --- list ------------------------------------------------------------------------------------ */

struct list {
    struct exec_record *r;      /* owned */
    size_t n, size;
};

static void free_list(struct op *op)
{
    struct list *l = op->state;

    free(l->r);
}

static void answer_list(struct op *op)
{
    struct list *l = op->state;
    Quicksand__Node__ExecListResponse rs = QUICKSAND__NODE__EXEC_LIST_RESPONSE__INIT;
    auto_free Quicksand__Node__Exec **ptrs = mem_array(l->n + 1, sizeof *ptrs);
    auto_free Quicksand__Node__Exec *execs = mem_array(l->n + 1, sizeof *execs);

    for (size_t i = 0; i < l->n; i++) {
        map_exec(&l->r[i], &execs[i]);
        ptrs[i] = &execs[i];
    }
    rs.n_execs = l->n;
    rs.execs = ptrs;
    op_reply(op, &rs.base);
}

static void on_page(void *arg, const struct exec_record *r, size_t n, uint32_t next,
                    const struct err *e)
{
    struct op *op = arg;
    struct list *l = op->state;
    const Quicksand__Node__ExecListRequest *rq = (Quicksand__Node__ExecListRequest *)op->rq;

    if (e != NULL) {
        op_fail(op, e);
        return;
    }
    if (l->n + n > l->size) {
        l->size = l->n + n + 64;
        l->r = mem_realloc(l->r, l->size * sizeof *l->r);
    }
    if (n > 0)
        memcpy(l->r + l->n, r, n * sizeof *r);
    l->n += n;
    /* A page that does not lead on would never end. */
    if (next == 0 || n == 0 || next <= r[n - 1].seq)
        answer_list(op);
    else
        query_list(op->node, &op->q[0], rq->sandbox_id, next, on_page, op);
}

void op_exec_list(struct op *op)
{
    const Quicksand__Node__ExecListRequest *rq = (Quicksand__Node__ExecListRequest *)op->rq;
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    (void)op_state(op, sizeof(struct list));
    op->on_free = free_list;
    op->on_gone = op_drop;
    query_list(op->node, &op->q[0], rq->sandbox_id, 0, on_page, op);
}

/* --- signal, resize, kill, forget ------------------------------------------------------------ */

static void on_done(void *arg, const struct err *e)
{
    struct op *op = arg;

    if (e != NULL)
        op_fail(op, e);
    else
        op_reply_empty(op);
}

static void ask(struct op *op, const char *sandbox, enum mon_type type, const void *p, size_t n)
{
    query_do(op->node, &op->q[0], sandbox, type, p, n, on_done, op);
}

void op_exec_signal(struct op *op)
{
    const Quicksand__Node__ExecSignalRequest *rq = (Quicksand__Node__ExecSignalRequest *)op->rq;
    struct mon_signal m = {.signal = rq->signal, .scope = (uint8_t)rq->scope};
    uint8_t space[256];
    struct mon_ref ref;
    struct err e;

    if (call_ref(rq->ref, true, &ref, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (rq->signal < 1 || rq->signal > 64) {
        err_param(&e, ERR_INVALID, "signal", "no such signal: %d", rq->signal);
        op_fail(op, &e);
        return;
    }
    if (rq->scope > INIT_SIG_ALL) {
        err_param(&e, ERR_INVALID, "scope", "no such scope: %u", rq->scope);
        op_fail(op, &e);
        return;
    }
    if (ref.exec_id[0] == '\0')
        m.scope = INIT_SIG_ALL;
    memcpy(m.exec_id, ref.exec_id, sizeof m.exec_id);
    ask(op, rq->ref->sandbox_id, MON_SIGNAL, space, mon_signal_encode(&m, space, sizeof space));
}

void op_exec_resize(struct op *op)
{
    const Quicksand__Node__ExecResizeRequest *rq = (Quicksand__Node__ExecResizeRequest *)op->rq;
    struct mon_resize m = {.rows = (uint16_t)rq->rows, .cols = (uint16_t)rq->cols};
    uint8_t space[256];
    struct mon_ref ref;
    struct err e;

    if (call_ref(rq->ref, false, &ref, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (rq->rows < 1 || rq->rows > UINT16_MAX || rq->cols < 1 || rq->cols > UINT16_MAX) {
        err_param(&e, ERR_INVALID, "rows", "a terminal has 1 to %d rows and columns", UINT16_MAX);
        op_fail(op, &e);
        return;
    }
    memcpy(m.exec_id, ref.exec_id, sizeof m.exec_id);
    ask(op, rq->ref->sandbox_id, MON_RESIZE, space, mon_resize_encode(&m, space, sizeof space));
}

void op_exec_kill(struct op *op)
{
    const Quicksand__Node__ExecKillRequest *rq = (Quicksand__Node__ExecKillRequest *)op->rq;
    struct mon_kill m = {.reason = END_KILLED};
    uint8_t space[256];
    struct mon_ref ref;
    struct err e;

    if (call_ref(rq->ref, false, &ref, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (rq->reason >= END_MAX_) {
        err_param(&e, ERR_INVALID, "reason", "no such reason: %u", rq->reason);
        op_fail(op, &e);
        return;
    }
    if (rq->reason != END_NONE)
        m.reason = (uint8_t)rq->reason;
    memcpy(m.exec_id, ref.exec_id, sizeof m.exec_id);
    ask(op, rq->ref->sandbox_id, MON_KILL, space, mon_kill_encode(&m, space, sizeof space));
}

void op_exec_forget(struct op *op)
{
    const Quicksand__Node__ExecRef *rq = (Quicksand__Node__ExecRef *)op->rq;
    uint8_t space[256];
    struct mon_ref ref;
    struct err e;

    if (call_ref(rq, false, &ref, &e) < 0)
        op_fail(op, &e);
    else
        ask(op, rq->sandbox_id, MON_FORGET, space, mon_ref_encode(&ref, space, sizeof space));
}
