/*
 * stdio_in.c - the body of a request into the stdin of a command
 */
#include <string.h>

#include "api/rest/handlers.h"
#include "api/rest/node_ask.h"
#include "api/shared/stdin_pump.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"

struct input {
    struct call *call;
    struct stdin_pump *pump;
    bool eof;
};

static json_t *status_json(uint64_t taken, bool closed)
{
    return json_pack("{s:I, s:b}", "taken", (json_int_t)taken, "closed", closed);
}

static void on_taken(void *ctx, size_t n)
{
    struct input *in = ctx;

    if (in->call->stream != NULL)
        http_stream_consume(in->call->stream, n);
}

static struct call *finish(struct input *in)
{
    struct call *c = in->call;

    stdin_pump_free(in->pump);
    free(in);
    c->user = NULL;
    c->on_body = NULL;
    c->on_body_end = NULL;
    c->on_gone = NULL;
    return c;
}

static void on_done(void *ctx, const struct err *e, uint64_t taken, bool closed)
{
    struct call *c = finish(ctx);

    if (e != NULL)
        call_fail(c, e);
    else
        call_reply(c, 200, status_json(taken, closed));
}

static void on_body(struct call *c, const void *p, size_t n)
{
    struct input *in = c->user;
    struct err e;

    if (stdin_pump_write(in->pump, p, n))
        return;
    (void)err_set(&e, ERR_TOO_LARGE, "more bytes than there was credit for");
    call_fail(finish(in), &e);
}

static void on_body_end(struct call *c)
{
    struct input *in = c->user;

    stdin_pump_end(in->pump, in->eof);
}

/* What had come is passed on as far as it was; eof belongs to a whole body and is not sent. */
static void on_gone(struct call *c)
{
    call_done(finish(c->user), CALL_CLIENT_GONE);
}

static void write_stdin(struct call *c, const char *exec_id)
{
    static const struct stdin_pump_ops ops = {.on_taken = on_taken, .on_done = on_done};
    struct input *in = mem_zalloc(sizeof *in);
    const char *offset = call_query(c, "offset");

    in->call = c;
    in->eof = call_query_bool(c, "eof", false);
    in->pump = stdin_pump_new(c->core, call_param(c, "id"), exec_id,
                              offset != NULL ? (uint64_t)call_query_int(c, "offset", 0) : STDIN_APPEND, &ops, in);
    c->user = in;
    c->on_body = on_body;
    c->on_body_end = on_body_end;
    c->on_gone = on_gone;
}

void exec_stdin(struct call *c)
{
    write_stdin(c, call_param(c, "exec_id"));
}

void sandbox_stdin(struct call *c)
{
    write_stdin(c, ENTRY_EXEC_ID);
}

static void status_answer(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__StdinResponse *m = (const Quicksand__Node__StdinResponse *)reply;

    if (reply == NULL)
        call_fail(c, e);
    else
        call_reply(c, 200, status_json(m->taken, m->closed));
}

void exec_stdin_status(struct call *c)
{
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;

    ref.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    ref.exec_id = (char *)(uintptr_t)call_param(c, "exec_id");
    node_ask(c, "StdinStatus", &ref.base, &quicksand__node__stdin_response__descriptor, NODE_ASK_MS, true,
             status_answer, NULL);
}
