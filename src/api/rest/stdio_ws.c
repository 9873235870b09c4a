/*
 * stdio_ws.c - a command over a WebSocket: stdin, size and signals inward, output and the exit outward
 *
 * Binary messages inward are stdin; outward they are a stream number (1 or 2) and output. Text messages are JSON. The
 * command belongs to the sandbox, not to the connection: a client that leaves ends nothing.
 */
#include <stdio.h>
#include <string.h>

#include "api/rest/exec_follow.h"
#include "api/rest/exec_model.h"
#include "api/rest/handlers.h"
#include "api/rest/node_ask.h"
#include "api/shared/signals.h"
#include "api/shared/stdin_pump.h"
#include "base/buf.h"
#include "base/mem.h"
#include "ipc/init_proto.h"
#include "json/json.h"

#define MESSAGE_MAX (1024 * 1024)
#define STDIN_HIGH (1024 * 1024)    /* stdin waiting for the program: the client is read no further above this */

enum { WS_OK = 1000, WS_BAD = 1008, WS_FAILED = 1011 };

struct ws {
    struct call *call;
    struct http_stream *stream;
    struct exec_follow *follow;
    struct stdin_pump *pump;        /* NULL when stdin is closed or the command has none */
    bool closing;
};

static void close_ws(struct ws *w, int code)
{
    if (w->closing)
        return;
    w->closing = true;
    ws_close(w->stream, code);
}

static void send_json(struct ws *w, json_t *o)
{
    auto_free char *text = js_text(o, false);

    if (!w->closing)
        ws_send(w->stream, false, text, strlen(text));
}

static void send_error(struct ws *w, const struct err *e)
{
    json_t *o = json_pack("{s:{s:s, s:s}}", "error", "code", err_row(e->code)->name, "message", e->message);

    send_json(w, o);
    json_decref(o);
}

static void on_data(void *ctx, int stream, uint64_t offset, const void *p, size_t n)
{
    struct ws *w = ctx;
    auto_buf message = {0};

    if (w->closing)
        return;
    buf_init(&message, n + 1);
    (void)buf_addc(&message, (char)stream);
    (void)buf_add(&message, p, n);
    ws_send(w->stream, true, message.data, message.len);
    if (http_stream_queued(w->stream) < HTTP_HIGH)
        exec_follow_consumed(w->follow);
}

static void on_exit_seen(void *ctx, json_t *exec, const struct err *e)
{
    struct ws *w = ctx;

    if (exec != NULL) {
        json_t *o = json_object();
        json_object_set(o, "exit", exec);
        send_json(w, o);
        json_decref(o);
    } else {
        send_error(w, e);
    }
    close_ws(w, exec != NULL ? WS_OK : WS_FAILED);
}

static void stdin_taken(void *ctx, size_t n)
{
    struct ws *w = ctx;

    if (stdin_pump_queued(w->pump) < STDIN_HIGH)
        ws_pause(w->stream, false);
}

static void stdin_done(void *ctx, const struct err *e, uint64_t taken, bool closed)
{
    struct ws *w = ctx;

    stdin_pump_free(w->pump);
    w->pump = NULL;
    ws_pause(w->stream, false);
    if (e != NULL)
        send_error(w, e);
}

/* A command that has ended meanwhile is no error: its exit is on the way. */
static void control_done(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
}

static void control(struct ws *w, const char *method, const ProtobufCMessage *rq)
{
    (void)node_unary(w->call->core, method, rq, &quicksand__node__empty__descriptor, NODE_ASK_MS, false,
                     control_done, NULL);
}

static void path_ref(const struct ws *w, Quicksand__Node__ExecRef *ret)
{
    quicksand__node__exec_ref__init(ret);
    ret->sandbox_id = (char *)(uintptr_t)call_param(w->call, "id");
    ret->exec_id = (char *)(uintptr_t)call_param(w->call, "exec_id");
}

static bool take_resize(struct ws *w, const json_t *v)
{
    Quicksand__Node__ExecResizeRequest rq = QUICKSAND__NODE__EXEC_RESIZE_REQUEST__INIT;
    Quicksand__Node__ExecRef ref;

    if (!exec_size_parse(v, &rq.rows, &rq.cols))
        return false;
    path_ref(w, &ref);
    rq.ref = &ref;
    rq.has_rows = rq.has_cols = true;
    control(w, "ExecResize", &rq.base);
    return true;
}

static bool take_signal(struct ws *w, const json_t *v)
{
    Quicksand__Node__ExecSignalRequest rq = QUICKSAND__NODE__EXEC_SIGNAL_REQUEST__INIT;
    Quicksand__Node__ExecRef ref;
    json_int_t n = json_integer_value(v);

    rq.signal = json_is_string(v) ? signal_parse(json_string_value(v)) : n >= 1 && n <= SIGNAL_MAX ? (int)n : 0;
    if (rq.signal == 0)
        return false;
    path_ref(w, &ref);
    rq.ref = &ref;
    rq.has_signal = rq.has_scope = true;
    rq.scope = INIT_SIG_GROUP;
    control(w, "ExecSignal", &rq.base);
    return true;
}

static bool take_text(struct ws *w, const void *p, size_t n)
{
    auto_json *o = js_parse(p, n, MESSAGE_MAX, NULL);
    const char *name;
    json_t *v;

    if (!json_is_object(o))
        return false;
    json_object_foreach(o, name, v) {
        if (strcmp(name, "resize") == 0) {
            if (!take_resize(w, v))
                return false;
        } else if (strcmp(name, "signal") == 0) {
            if (!take_signal(w, v))
                return false;
        } else if (strcmp(name, "eof") == 0) {
            if (!json_is_boolean(v))
                return false;
            if (json_is_true(v) && w->pump != NULL)
                stdin_pump_end(w->pump, true);
        } else {
            return false;
        }
    }
    return true;
}

static void on_message(struct http_stream *st, bool binary, const void *p, size_t n, void *ctx)
{
    struct ws *w = ctx;
    struct err e;

    if (w->closing)
        return;
    if (!binary) {
        if (take_text(w, p, n))
            return;
        (void)err_set(&e, ERR_INVALID, "a text message must be {\"resize\": {rows, cols}}, {\"eof\": true} or "
                                       "{\"signal\": number or name}");
        send_error(w, &e);
        close_ws(w, WS_BAD);
        return;
    }
    if (w->pump == NULL || n == 0)
        return;                     /* as a pipe whose reader has gone: the exit will tell */
    (void)stdin_pump_write(w->pump, p, n);      /* far below its cap: the client is paused long before */
    if (stdin_pump_queued(w->pump) >= STDIN_HIGH)
        ws_pause(st, true);
}

static void on_writable(struct http_stream *st, void *ctx)
{
    struct ws *w = ctx;

    exec_follow_consumed(w->follow);
}

static void on_close(struct http_stream *st, int code, void *ctx)
{
    struct ws *w = ctx;
    struct call *c = w->call;

    exec_follow_free(w->follow);
    stdin_pump_free(w->pump);
    free(w);
    c->user = NULL;
    call_done(c, 101);
}

static void looked(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    static const struct ws_ops ops = {.on_message = on_message, .on_writable = on_writable, .on_close = on_close};
    static const struct exec_follow_ops follow_ops = {.on_data = on_data, .on_exit = on_exit_seen};
    static const struct stdin_pump_ops pump_ops = {.on_taken = stdin_taken, .on_done = stdin_done};
    const Quicksand__Node__Exec *x = (const Quicksand__Node__Exec *)reply;
    struct err refused;

    if (reply == NULL) {
        call_fail(c, e);
        return;
    }
    const char *id = call_param(c, "id"), *exec_id = call_param(c, "exec_id");
    struct ws *w = mem_zalloc(sizeof *w);
    w->call = c;
    w->stream = c->stream;
    if (ws_accept(c->stream, c->rq, MESSAGE_MAX, &ops, w, &refused) < 0) {
        free(w);
        call_fail(c, &refused);
        return;
    }
    c->user = w;
    if (!x->stdin_closed)
        w->pump = stdin_pump_new(c->core, id, exec_id, STDIN_APPEND, &pump_ops, w);
    w->follow = exec_follow_new(c->core, id, exec_id, (uint64_t)call_query_int(c, "stdout_offset", 0),
                                (uint64_t)call_query_int(c, "stderr_offset", 0), &follow_ops, w);
}

void exec_ws(struct call *c)
{
    struct err e;

    if (!ws_is_upgrade(c->rq)) {
        (void)err_set(&e, ERR_INVALID, "this path is for WebSocket upgrades over HTTP/1.1");
        call_fail(c, &e);
        return;
    }
    node_ask_exec(c, call_param(c, "exec_id"), 0, looked, NULL);
}
