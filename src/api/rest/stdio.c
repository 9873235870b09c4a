/*
 * stdio.c - one output stream of a command as the body of a response
 *
 * The head goes out once the node has said where the stream begins; the body is the bytes from there, each once. When
 * that cannot be kept (bytes were dropped while they were being read, the node stays away) the response is broken off,
 * never ended, and the client goes on with a new offset.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/shared/exec_reader.h"
#include "api/rest/handlers.h"
#include "api/rest/node_ask.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"

struct output {
    struct call *call;
    int stream;
    const char *exec_id;        /* the call's, or a constant */
    uint64_t next;              /* offset of the next byte of the body */
    struct exec_reader *reader;
    size_t held;                /* bytes written to the client for which the node has no credit back yet */
};

static void finish(struct output *o, int status)
{
    struct call *c = o->call;

    exec_reader_free(o->reader);
    free(o);
    c->user = NULL;
    call_done(c, status);
}

static void break_off(struct output *o, int status)
{
    http_stream_cancel(o->call->stream);
    finish(o, status);
}

static void on_data(void *ctx, uint64_t offset, const void *p, size_t n)
{
    struct output *o = ctx;

    if (offset != o->next) {
        break_off(o, err_row(ERR_RANGE)->http_status);
        return;
    }
    o->next += n;
    o->held += n;
    http_stream_write(o->call->stream, p, n);
    if (http_stream_queued(o->call->stream) < HTTP_HIGH) {
        exec_reader_consumed(o->reader, o->held);
        o->held = 0;
    }
}

static void on_end(void *ctx, const struct err *e)
{
    struct output *o = ctx;

    if (e != NULL) {
        break_off(o, err_row(e->code)->http_status);
        return;
    }
    http_stream_end(o->call->stream, NULL, 0);
    finish(o, 200);
}

static void on_writable(struct call *c)
{
    struct output *o = c->user;

    exec_reader_consumed(o->reader, o->held);
    o->held = 0;
}

static void on_gone(struct call *c)
{
    finish(c->user, CALL_CLIENT_GONE);
}

static void respond(struct output *o)
{
    struct http_header h[6];
    char first[24];
    size_t n = call_headers(o->call, h);

    (void)snprintf(first, sizeof first, "%" PRIu64, o->next);
    h[n++] = (struct http_header){"content-type", "application/octet-stream"};
    h[n++] = (struct http_header){"x-offset", first};
    http_respond(o->call->stream, 200, h, n);
}

static void looked(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    static const struct exec_reader_ops ops = {.on_data = on_data, .on_end = on_end};
    const Quicksand__Node__Exec *x = (const Quicksand__Node__Exec *)reply;
    struct output *o = state;
    struct err range, none;

    if (reply == NULL) {
        bool entry = strcmp(o->exec_id, ENTRY_EXEC_ID) == 0;
        free(o);
        if (entry && e->code == ERR_NOT_FOUND && strcmp(e->param, "exec_id") == 0) {
            (void)err_set(&none, ERR_NOT_FOUND,
                          "sandbox %s was made without a command, so it has no output of its own",
                          call_param(c, "id"));
            err_hint(&none, "what its execs wrote is at /v1/sandboxes/{id}/execs/{exec_id}/stdout and stderr");
            e = &none;
        }
        call_fail(c, e);
        return;
    }
    uint64_t total = o->stream == STREAM_STDOUT ? x->out_total : x->err_total;
    uint64_t first = o->stream == STREAM_STDOUT ? x->out_first : x->err_first;
    if (o->next > total) {
        (void)err_param(&range, ERR_RANGE, "offset", "offset %" PRIu64 " is past the %" PRIu64 " bytes written so far",
                        o->next, total);
        err_hint(&range, "start at %" PRIu64 " or before", total);
        free(o);
        call_fail(c, &range);
        return;
    }
    if (o->next < first)
        o->next = first;
    c->user = o;
    c->on_gone = on_gone;
    c->on_writable = on_writable;
    respond(o);
    o->reader = exec_reader_new(c->core, call_param(c, "id"), o->exec_id, o->stream, o->next,
                                call_query_bool(c, "follow", true), &ops, o);
}

static void read_output(struct call *c, const char *exec_id, int stream)
{
    struct output *o = mem_zalloc(sizeof *o);

    o->call = c;
    o->stream = stream;
    o->exec_id = exec_id;
    o->next = (uint64_t)call_query_int(c, "offset", 0);
    node_ask_exec(c, exec_id, 0, looked, o);
}

void exec_stdout(struct call *c)
{
    read_output(c, call_param(c, "exec_id"), STREAM_STDOUT);
}

void exec_stderr(struct call *c)
{
    read_output(c, call_param(c, "exec_id"), STREAM_STDERR);
}

void sandbox_logs(struct call *c)
{
    const char *stream = call_query(c, "stream");
    bool err = stream != NULL && strcmp(stream, "stderr") == 0;

    read_output(c, ENTRY_EXEC_ID, err ? STREAM_STDERR : STREAM_STDOUT);
}
