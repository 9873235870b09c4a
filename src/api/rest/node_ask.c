/*
 * node_ask.c - questions to the node
 */
#include "api/rest/node_ask.h"

#include "base/mem.h"

struct question {
    struct call *call;          /* borrowed; lives until it is answered */
    struct node_call *nc;
    node_answer_fn fn;
    void *state;                /* owned while the question is open */
};

static void on_reply(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct question q = *(struct question *)ctx;

    free(ctx);
    q.call->user = NULL;
    q.call->on_gone = NULL;
    q.fn(q.call, q.state, reply, e);
}

static void on_gone(struct call *c)
{
    struct question *q = c->user;

    node_call_cancel(q->nc);
    c->user = NULL;
    c->on_gone = NULL;
    free(q->state);
    free(q);
    call_done(c, CALL_CLIENT_GONE);
}

void node_ask(struct call *c, const char *method, const ProtobufCMessage *request,
              const ProtobufCMessageDescriptor *reply_type, uint64_t timeout_ms, bool idempotent, node_answer_fn fn,
              void *state)
{
    struct question *q = mem_zalloc(sizeof *q);

    q->call = c;
    q->fn = fn;
    q->state = state;
    c->user = q;
    c->on_gone = on_gone;
    q->nc = node_unary(c->core, method, request, reply_type, timeout_ms, idempotent, on_reply, q);
}

void node_ask_exec(struct call *c, const char *exec_id, uint32_t wait_ms, node_answer_fn fn, void *state)
{
    Quicksand__Node__ExecGetRequest rq = QUICKSAND__NODE__EXEC_GET_REQUEST__INIT;
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;

    ref.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    ref.exec_id = (char *)(uintptr_t)exec_id;
    rq.ref = &ref;
    rq.has_wait_ms = true;
    rq.wait_ms = wait_ms;
    node_ask(c, "ExecGet", &rq.base, &quicksand__node__exec__descriptor, wait_ms + NODE_ASK_MS, true, fn, state);
}

void node_answer_empty(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    free(state);
    if (reply == NULL)
        call_fail(c, e);
    else
        call_reply_empty(c, 204);
}
