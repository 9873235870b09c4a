/*
 * stdin.c - TaskExecStdinWrite, TaskExecStdinWriteStream, TaskExecStdinStatus and SandboxStdinWriteV2
 *
 * Stdin is closed by an explicit end alone; a stream that breaks leaves it open where it stands. At most one stream an exec is
 * open: a newer one, or a question where stdin stands, ends it, so that its late bytes cannot come between.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "node/modal/router.h"
#include "node/query.h"
#include "node/stdin_feed.h"

#define EXIT_WAIT_MS 2000       /* stdin was closed early: its program's end is going to be seen so soon */

typedef Modal__TaskCommandRouter__TaskExecStdinWriteRequest WriteRequest;
typedef Modal__TaskCommandRouter__SandboxStdinWriteV2Request SandboxRequest;
typedef Modal__TaskCommandRouter__TaskExecStdinWriteStreamRequest StreamRequest;
typedef Modal__TaskCommandRouter__TaskExecStdinStatusRequest StatusRequest;

enum { Q_FEED, Q_OTHER };

struct in {
    struct stdin_feed feed;
    bool over;                  /* the answer is certain: what still comes is dropped */
    char key[ID_SIZE + LIMIT_ID];       /* in router.streams; "" = not there */
    struct err why;
    void (*reply)(struct op *op);
};

/* --- open streams ---------------------------------------------------------------------------- */

static void make_key(const char *sandbox, const char *exec_id, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s", sandbox, exec_id);
}

static void unlist(struct op *op)
{
    struct in *in = op->state;

    if (in->key[0] != '\0')
        (void)map_del(&op->node->router->streams, in->key);
    in->key[0] = '\0';
}

static void end_stream(struct node *n, const char *key)
{
    struct op *op = map_get(&n->router->streams, key);
    struct err e;

    if (op == NULL)
        return;
    err_set(&e, ERR_CONFLICT, "stdin was asked about or written to by another call meanwhile");
    op_fail(op, &e);            /* takes it out of the map */
}

static void free_in(struct op *op)
{
    struct in *in = op->state;

    unlist(op);
    stdin_feed_free(&in->feed);
}

/* --- answers --------------------------------------------------------------------------------- */

static void reply_exec(struct op *op)
{
    Modal__TaskCommandRouter__TaskExecStdinWriteResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_WRITE_RESPONSE__INIT;

    op_reply(op, &m.base);
}

static void reply_sandbox(struct op *op)
{
    Modal__TaskCommandRouter__SandboxStdinWriteV2Response m =
        MODAL__TASK_COMMAND_ROUTER__SANDBOX_STDIN_WRITE_V2_RESPONSE__INIT;

    op_reply(op, &m.base);
}

static void reply_stream(struct op *op)
{
    Modal__TaskCommandRouter__TaskExecStdinWriteStreamResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_WRITE_STREAM_RESPONSE__INIT;

    op_reply(op, &m.base);
}

static void on_exit_seen(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    struct in *in = op->state;

    (void)r;
    (void)e;
    op_fail(op, &in->why);
}

static void done(struct op *op, const struct mon_stdin_r *r, const struct err *e)
{
    struct in *in = op->state;
    struct stdin_feed *f = &in->feed;

    in->over = true;
    unlist(op);
    if (e != NULL) {
        router_fail(op, e);
        return;
    }
    if (r->taken >= stdin_feed_goal(f) && (f->has_eof || f->ended)) {
        in->reply(op);
        return;
    }
    /* The client looks at the exec next: if it has ended, that is there to be seen. */
    err_set(&in->why, ERR_PRECONDITION, "stdin is closed, after %" PRIu64 " bytes", r->taken);
    query_exec(op->node, &op->q[Q_OTHER], f->sandbox, &f->ref, EXIT_WAIT_MS, on_exit_seen, op);
}

/* --- one piece ------------------------------------------------------------------------------- */

static struct in *in_new(struct op *op, void (*reply)(struct op *op))
{
    struct in *in = op_state(op, sizeof *in);

    stdin_feed_init(&in->feed, op);
    in->feed.done = done;
    in->reply = reply;
    op->on_free = free_in;
    op->on_gone = op_drop;
    return in;
}

static void write_one(struct op *op, uint64_t offset, const ProtobufCBinaryData *data, bool eof)
{
    struct in *in = op->state;
    struct stdin_feed *f = &in->feed;

    f->placed = true;
    f->offset = data->len > 0 ? offset : 0;     /* an end of file counts whatever its offset */
    stdin_feed_add(f, data->data, data->len, eof, 0);
    stdin_feed_end(f);
}

void router_exec_stdin_write(struct op *op)
{
    const WriteRequest *rq = (const WriteRequest *)op->rq;
    struct in *in = in_new(op, reply_exec);
    struct err e;

    if (router_exec(op, rq->task_id, rq->exec_id, in->feed.sandbox, &in->feed.ref, &e) < 0)
        op_fail(op, &e);
    else
        write_one(op, rq->offset, &rq->data, rq->eof);
}

void router_sandbox_stdin_write(struct op *op)
{
    const SandboxRequest *rq = (const SandboxRequest *)op->rq;
    struct in *in = in_new(op, reply_sandbox);
    struct err e;

    in->feed.ref = (struct mon_ref){.exec_id = ENTRY_EXEC_ID};
    if (router_sandbox(op, rq->task_id, NULL, in->feed.sandbox, &e) < 0)
        op_fail(op, &e);
    else
        write_one(op, rq->offset, &rq->data, rq->eof);
}

/* --- where stdin stands ---------------------------------------------------------------------- */

/*
 * An empty write: like any newer one it takes the place of a write that waits for the program, so that the answer stays true
 * until somebody writes again.
 */
static void settle(struct op *op, const char *sandbox, const struct mon_ref *ref, query_stdin_cb cb)
{
    struct mon_stdin m = {.data = (const uint8_t *)""};

    memcpy(m.exec_id, ref->exec_id, sizeof m.exec_id);
    query_stdin(op->node, &op->q[Q_OTHER], sandbox, &m, cb, op);
}

static void on_status(void *arg, const struct mon_stdin_r *r, const struct err *e)
{
    struct op *op = arg;
    Modal__TaskCommandRouter__TaskExecStdinStatusResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_STATUS_RESPONSE__INIT;

    if (e != NULL) {
        router_fail(op, e);
        return;
    }
    m.has_num_bytes_written = m.has_closed = 1;
    m.num_bytes_written = r->taken;
    m.closed = r->closed;
    op_reply(op, &m.base);
}

void router_exec_stdin_status(struct op *op)
{
    const StatusRequest *rq = (const StatusRequest *)op->rq;
    char sandbox[ID_SIZE], key[ID_SIZE + LIMIT_ID];
    struct mon_ref ref;
    struct err e;

    if (router_exec(op, rq->task_id, rq->exec_id, sandbox, &ref, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    make_key(sandbox, ref.exec_id, key, sizeof key);
    end_stream(op->node, key);
    op->on_gone = op_drop;
    settle(op, sandbox, &ref, on_status);
}

/* --- streams --------------------------------------------------------------------------------- */

static void refuse(struct op *op, enum err_code code, const char *why)
{
    struct err e;

    err_set(&e, code, "%s", why);
    op_fail(op, &e);
}

static void on_settled(void *arg, const struct mon_stdin_r *r, const struct err *e)
{
    struct op *op = arg;
    struct in *in = op->state;
    struct err wrong;

    if (e != NULL) {
        router_fail(op, e);
    } else if (r->taken != in->feed.offset) {
        err_param(&wrong, ERR_PRECONDITION, "offset", "stdin stands at byte %" PRIu64 ", not %" PRIu64,
                  r->taken, in->feed.offset);
        op_fail(op, &wrong);
    } else {
        stdin_feed_go(&in->feed);
    }
}

static void start(struct op *op, const Modal__TaskCommandRouter__TaskExecStdinWriteStreamStart *rq,
                  size_t size)
{
    struct in *in = in_new(op, reply_stream);
    struct err e;

    if (router_exec(op, rq->task_id, rq->exec_id, in->feed.sandbox, &in->feed.ref, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    char key[sizeof in->key];
    make_key(in->feed.sandbox, in->feed.ref.exec_id, key, sizeof key);
    end_stream(op->node, key);
    memcpy(in->key, key, sizeof in->key);
    (void)map_put(&op->node->router->streams, in->key, op);
    in->feed.held = true;
    in->feed.placed = true;
    in->feed.offset = rq->offset;
    grpc_call_consumed(op->call, size);
    settle(op, in->feed.sandbox, &in->feed.ref, on_settled);
}

void router_stream_message(struct op *op, const ProtobufCMessage *m, size_t size)
{
    const StreamRequest *rq = (const StreamRequest *)m;
    struct in *in = op->state;

    if (in != NULL && in->over) {
        grpc_call_consumed(op->call, size);
        return;
    }
    switch (rq->payload_case) {
    case MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_WRITE_STREAM_REQUEST__PAYLOAD_START:
        if (in != NULL)
            refuse(op, ERR_INVALID, "the stream has a second start");
        else
            start(op, rq->start, size);
        return;
    case MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_WRITE_STREAM_REQUEST__PAYLOAD_DATA:
    case MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_WRITE_STREAM_REQUEST__PAYLOAD_END:
        break;
    case MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_WRITE_STREAM_REQUEST__PAYLOAD__NOT_SET:
    case _MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_WRITE_STREAM_REQUEST__PAYLOAD__CASE_IS_INT_SIZE:
        refuse(op, ERR_INVALID, "a message of the stream has neither start nor data nor end");
        return;
    }
    if (in == NULL)
        refuse(op, ERR_INVALID, "the stream does not begin with its start");
    else if (in->feed.has_eof)
        refuse(op, ERR_INVALID, "a message follows the end of the stream");
    else if (rq->payload_case ==
             MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDIN_WRITE_STREAM_REQUEST__PAYLOAD_END)
        stdin_feed_add(&in->feed, NULL, 0, true, size);
    else
        stdin_feed_add(&in->feed, rq->data.data, rq->data.len, false, size);
}

void router_stream_end(struct op *op)
{
    struct in *in = op->state;

    if (in == NULL)
        refuse(op, ERR_INVALID, "the stream does not begin with its start");
    else if (!in->over)
        stdin_feed_end(&in->feed);
}
