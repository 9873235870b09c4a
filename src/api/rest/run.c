/*
 * run.c - POST .../run: start a command, wait, answer everything
 *
 * The first stdout_max_bytes and stderr_max_bytes are kept, each stream with its own budget; all bytes are counted. A
 * client that leaves ends the call, not the command. After HEARTBEAT_MS the head goes out with a blank, and a blank
 * every HEARTBEAT_MS more, so that proxies keep the connection; a failure after that is an error object in the body.
 */
#include <stdio.h>
#include <string.h>

#include "api/rest/exec_model.h"
#include "api/shared/exec_reader.h"
#include "api/rest/exec_runner.h"
#include "api/rest/handlers.h"
#include "api/shared/stdin_pump.h"
#include "api/rest/text.h"
#include "base/buf.h"
#include "base/mem.h"
#include "json/json.h"

#define HEARTBEAT_MS 15000
#define OUTPUT_DEFAULT 1048576

struct run {
    struct call *call;
    char exec_id[ID_SIZE];
    struct exec_runner *runner;
    struct stdin_pump *pump;        /* NULL without stdin */
    uint8_t *input;                 /* stdin's bytes, owned */
    size_t input_len;
    struct buf out[2];              /* capped */
    uint64_t total[2];
    struct loop_timer *heartbeat;
    bool head_sent;
};

static struct call *done(struct run *r)
{
    struct call *c = r->call;

    exec_runner_free(r->runner);
    stdin_pump_free(r->pump);
    loop_timer_free(r->heartbeat);
    buf_done(&r->out[0]);
    buf_done(&r->out[1]);
    free(r->input);
    free(r);
    c->user = NULL;
    c->on_gone = NULL;
    return c;
}

static void on_gone(struct call *c)
{
    call_done(done(c->user), CALL_CLIENT_GONE);
}

static void on_heartbeat(void *ctx)
{
    struct run *r = ctx;
    struct http_header h[6];

    if (!r->head_sent) {
        size_t n = call_headers(r->call, h);
        h[n++] = (struct http_header){"content-type", "application/json"};
        http_respond(r->call->stream, 200, h, n);
        r->head_sent = true;
    }
    http_stream_write(r->call->stream, " ", 1);
    loop_timer_set(r->heartbeat, HEARTBEAT_MS);
}

/* `body` is consumed. */
static void answer(struct run *r, json_t *body)
{
    bool head_sent = r->head_sent;
    struct call *c = done(r);

    if (!head_sent) {
        call_reply(c, 200, body);
        return;
    }
    auto_free char *text = js_text(body, false);
    json_decref(body);
    http_stream_write(c->stream, text, strlen(text));
    http_stream_end(c->stream, NULL, 0);
    call_done(c, 200);
}

static void fail(struct run *r, const struct err *e)
{
    if (r->head_sent)
        answer(r, call_error_json(r->call, e));
    else
        call_fail(done(r), e);
}

static void on_data(void *ctx, int stream, const void *p, size_t n)
{
    struct run *r = ctx;
    struct buf *b = &r->out[stream - 1];
    size_t room = b->max - b->len;

    (void)buf_add(b, p, n < room ? n : room);
    r->total[stream - 1] += n;
    exec_runner_consumed(r->runner, n);
}

static void put_stream(json_t *o, struct run *r, int stream)
{
    const char *name = stream == STREAM_STDOUT ? "stdout" : "stderr";
    struct buf *b = &r->out[stream - 1];
    uint64_t total = r->total[stream - 1];
    char key[32];
    size_t n = b->len;

    /* A cut inside a character would make text of it that is none. */
    if (total > n)
        n -= text_utf8_tail(buf_str(b), n);
    text_set(o, name, buf_str(b), n);
    (void)snprintf(key, sizeof key, "%s_truncated", name);
    json_object_set_new(o, key, json_boolean(total > n));
    (void)snprintf(key, sizeof key, "%s_bytes", name);
    json_object_set_new(o, key, json_integer((json_int_t)total));
}

static void on_end(void *ctx, const Quicksand__Node__Exec *x, const struct err *e)
{
    struct run *r = ctx;

    if (x == NULL) {
        fail(r, e);
        return;
    }
    json_t *o = json_object();
    json_object_set_new(o, "exec", exec_json(x, call_param(r->call, "id")));
    put_stream(o, r, STREAM_STDOUT);
    put_stream(o, r, STREAM_STDERR);
    answer(r, o);
}

static void stdin_taken(void *ctx, size_t n)
{
}

/* A program that does not read all of its stdin is no failure of the run; its exit is the answer. */
static void stdin_done(void *ctx, const struct err *e, uint64_t taken, bool closed)
{
    struct run *r = ctx;

    stdin_pump_free(r->pump);
    r->pump = NULL;
}

static void on_started(void *ctx, const Quicksand__Node__Exec *x)
{
    static const struct stdin_pump_ops pump_ops = {.on_taken = stdin_taken, .on_done = stdin_done};
    struct run *r = ctx;

    if (r->input == NULL)
        return;
    r->pump = stdin_pump_new(r->call->core, call_param(r->call, "id"), r->exec_id, 0, &pump_ops, r);
    (void)stdin_pump_write(r->pump, r->input, r->input_len);
    stdin_pump_end(r->pump, true);
}

static int take_input(struct run *r, const json_t *body, struct err *e)
{
    const json_t *text = json_object_get(body, "stdin"), *b64 = json_object_get(body, "stdin_b64");

    if (json_is_string(text) && json_is_string(b64))
        return err_param(e, ERR_INVALID, "stdin_b64", "stdin and stdin_b64 exclude each other");
    if (json_is_string(text)) {
        r->input_len = json_string_length(text);
        r->input = mem_dup(json_string_value(text), r->input_len + 1);
    } else if (json_is_string(b64)) {
        r->input = text_unbase64(json_string_value(b64), json_string_length(b64), &r->input_len);
        if (r->input == NULL)
            return err_param(e, ERR_INVALID, "stdin_b64", "stdin_b64 is not base64");
    }
    return 0;
}

void exec_run(struct call *c)
{
    static const struct exec_runner_ops ops = {.on_started = on_started, .on_data = on_data, .on_end = on_end};
    struct run *r = mem_zalloc(sizeof *r);
    struct exec_request rq = {0};
    struct err e;

    r->call = c;
    id_make(r->exec_id, "ex-");
    buf_init(&r->out[0], (size_t)call_int(c, "stdout_max_bytes", OUTPUT_DEFAULT));
    buf_init(&r->out[1], (size_t)call_int(c, "stderr_max_bytes", OUTPUT_DEFAULT));
    if (take_input(r, c->body, &e) < 0 || exec_request_init(&rq, call_param(c, "id"), r->exec_id, c->body, &e) < 0) {
        exec_request_done(&rq);
        call_fail(done(r), &e);
        return;
    }
    rq.start.stdin = r->input != NULL;
    c->user = r;
    c->on_gone = on_gone;
    r->heartbeat = loop_timer_new(core_loop(c->core), on_heartbeat, r);
    loop_timer_set(r->heartbeat, HEARTBEAT_MS);
    r->runner = exec_runner_new(c->core, &rq.start, r->input == NULL, &ops, r);
    exec_request_done(&rq);
}
