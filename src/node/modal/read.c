/*
 * read.c - TaskExecStdioRead and SandboxStdioReadV2
 *
 * A message never is empty: these clients take that for an error. The end of the stream is the end of the call.
 */
#include <string.h>

#include "node/modal/router.h"
#include "node/ops.h"
#include "node/query.h"

#define LOOK_AGAIN_MS 100       /* at a stream that is shorter than the reader's offset */

typedef Modal__TaskCommandRouter__TaskExecStdioReadRequest ExecRequest;
typedef Modal__TaskCommandRouter__TaskExecStdioReadResponse ExecResponse;
typedef Modal__TaskCommandRouter__SandboxStdioReadV2Request SandboxRequest;
typedef Modal__TaskCommandRouter__SandboxStdioReadV2Response SandboxResponse;

struct read {
    struct exec_reader rd;      /* first, as exec_read wants it */
    struct mon_ref ref;
    struct loop_timer *again;
};

static void free_read(struct op *op)
{
    struct read *s = op->state;

    loop_timer_free(s->again);
    exec_read_done(&s->rd);
}

/* --- an offset that is not there yet --------------------------------------------------------- */

static void on_record(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    struct read *s = op->state;

    if (e != NULL) {
        router_fail(op, e);
        return;
    }
    bool is_out = s->rd.m.stream == 1;
    uint64_t total = is_out ? r->out_total : r->err_total;
    if (total >= s->rd.m.offset)
        exec_read(&s->rd);
    else if (is_out ? r->out_eof : r->err_eof)
        op_finish(op);
    else
        loop_timer_set(s->again, LOOK_AGAIN_MS);
}

static void look(void *arg)
{
    struct op *op = arg;
    struct read *s = op->state;

    if (op->q[0] == NULL)       /* else the reader asks already */
        query_exec(op->node, &op->q[0], s->rd.sandbox, &s->ref, 0, on_record, op);
}

static void fail(struct op *op, const struct err *e)
{
    if (e->code == ERR_RANGE)
        look(op);
    else
        router_fail(op, e);
}

/* --- execs ----------------------------------------------------------------------------------- */

static void send_exec(struct op *op, const struct mon_read_r *r, bool last)
{
    ExecResponse m = MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIO_READ_RESPONSE__INIT;

    (void)last;
    if (r->len == 0)
        return;
    m.has_data = 1;
    m.data = (ProtobufCBinaryData){.len = r->len, .data = (uint8_t *)(uintptr_t)r->data};
    op_send(op, &m.base);
}

static void begin(struct op *op, int stream, uint64_t offset,
                  void (*send)(struct op *op, const struct mon_read_r *r, bool last))
{
    struct read *s = op->state;

    op->on_free = free_read;
    s->again = loop_timer_new(op->node->loop, look, op);
    s->rd.op = op;
    s->rd.follow = true;
    s->rd.data = send;
    s->rd.fail = fail;
    memcpy(s->rd.m.exec_id, s->ref.exec_id, sizeof s->rd.m.exec_id);
    s->rd.m.stream = (uint8_t)(stream == 0 ? 1 : 2);
    s->rd.m.offset = offset;
    exec_read(&s->rd);
}

static int check_stream(int stream, struct err *e)
{
    if (stream != 0 && stream != 1)
        return err_param(e, ERR_INVALID, "file_descriptor", "no such stream: %d", stream);
    return 0;
}

void router_exec_stdio_read(struct op *op)
{
    const ExecRequest *rq = (const ExecRequest *)op->rq;
    struct read *s = op_state(op, sizeof *s);
    struct err e;

    if (router_exec(op, rq->task_id, rq->exec_id, s->rd.sandbox, &s->ref, &e) < 0 ||
        check_stream((int)rq->file_descriptor, &e) < 0)
        op_fail(op, &e);
    else
        begin(op, (int)rq->file_descriptor, rq->offset, send_exec);
}

/* --- the entry point ------------------------------------------------------------------------- */

static void send_sandbox(struct op *op, const struct mon_read_r *r, bool last)
{
    SandboxResponse m = MODAL__TASK_COMMAND_ROUTER__SANDBOX_STDIO_READ_V2_RESPONSE__INIT;

    (void)last;
    if (r->len == 0)
        return;
    m.has_data = m.has_starting_offset = 1;
    m.starting_offset = r->offset;
    m.data = (ProtobufCBinaryData){.len = r->len, .data = (uint8_t *)(uintptr_t)r->data};
    op_send(op, &m.base);
}

/* A sandbox without an entry point prints nothing until it ends. */
static void on_sandbox(void *arg, const struct sandbox_record *r, const struct err *e)
{
    struct op *op = arg;
    struct read *s = op->state;

    if (e != NULL)
        router_fail(op, e);
    else if (r->state == SB_ENDED)
        op_finish(op);
    else
        query_sandbox(op->node, &op->q[0], s->rd.sandbox, QUERY_POLL_MS, on_sandbox, op);
}

static void on_entry(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    const SandboxRequest *rq = (const SandboxRequest *)op->rq;
    struct read *s = op->state;

    if (e != NULL && e->code == ERR_NOT_FOUND)
        query_sandbox(op->node, &op->q[0], s->rd.sandbox, QUERY_POLL_MS, on_sandbox, op);
    else if (e != NULL)
        router_fail(op, e);
    else
        begin(op, (int)rq->file_descriptor, rq->offset, send_sandbox);
}

void router_sandbox_stdio_read(struct op *op)
{
    const SandboxRequest *rq = (const SandboxRequest *)op->rq;
    struct read *s = op_state(op, sizeof *s);
    struct err e;

    s->ref = (struct mon_ref){.exec_id = ENTRY_EXEC_ID};
    if (router_sandbox(op, rq->task_id, NULL, s->rd.sandbox, &e) < 0 ||
        check_stream((int)rq->file_descriptor, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    op->on_gone = op_drop;
    query_exec(op->node, &op->q[0], s->rd.sandbox, &s->ref, 0, on_entry, op);
}
