/*
 * stdio_events.c - output and exit of a command as server-sent events
 *
 * The id of each event is "<stdout offset>.<stderr offset>" of what comes next, so Last-Event-ID resumes exactly. A
 * character that the node's pieces cut in two is held back until its rest has come, so text stays text.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/rest/exec_follow.h"
#include "api/shared/exec_reader.h"
#include "api/rest/handlers.h"
#include "api/rest/node_ask.h"
#include "api/rest/text.h"
#include "base/buf.h"
#include "base/mem.h"
#include "json/json.h"

struct side {
    uint64_t sent;              /* offset after the last byte in an event */
    uint8_t tail[4];            /* bytes after it, the beginning of a character */
    size_t ntail;
};

struct events {
    struct call *call;
    struct side sides[2];
    struct exec_follow *follow;
};

static void finish(struct events *ev, int status)
{
    struct call *c = ev->call;

    exec_follow_free(ev->follow);
    free(ev);
    c->user = NULL;
    call_done(c, status);
}

static void send_event(struct events *ev, const char *name, json_t *o)
{
    char id[48];
    auto_free char *text = js_text(o, false);

    (void)snprintf(id, sizeof id, "%" PRIu64 ".%" PRIu64, ev->sides[0].sent, ev->sides[1].sent);
    sse_send(ev->call->stream, name, id, text, strlen(text));
}

static void send_data(struct events *ev, int stream, uint64_t offset, const void *p, size_t n)
{
    json_t *o = json_object();

    json_object_set_new(o, "offset", json_integer((json_int_t)offset));
    if (text_is_utf8(p, n)) {
        json_object_set_new(o, "data", json_stringn_nocheck(p, n));
    } else {
        auto_free char *b64 = text_base64(p, n);
        json_object_set_new(o, "data_b64", json_string_nocheck(b64));
    }
    ev->sides[stream - 1].sent = offset + n;
    send_event(ev, stream == STREAM_STDOUT ? "stdout" : "stderr", o);
    json_decref(o);
}

static void flush_tail(struct events *ev, int stream)
{
    struct side *s = &ev->sides[stream - 1];
    size_t n = s->ntail;

    s->ntail = 0;
    if (n > 0)
        send_data(ev, stream, s->sent, s->tail, n);
}

static void on_data(void *ctx, int stream, uint64_t offset, const void *p, size_t n)
{
    struct events *ev = ctx;
    struct side *s = &ev->sides[stream - 1];
    auto_buf joined = {0};

    buf_init(&joined, n + sizeof s->tail);
    if (offset != s->sent + s->ntail)
        flush_tail(ev, stream);         /* bytes between were dropped; the next event's offset shows it */
    if (s->ntail > 0) {
        (void)buf_add(&joined, s->tail, s->ntail);
        (void)buf_add(&joined, p, n);
        offset -= s->ntail;
        p = joined.data;
        n = joined.len;
    }
    size_t cut = text_utf8_tail(p, n);
    memcpy(s->tail, (const uint8_t *)p + n - cut, cut);
    s->ntail = 0;
    if (n > cut)
        send_data(ev, stream, offset, p, n - cut);
    else
        s->sent = offset;
    s->ntail = cut;
    if (http_stream_queued(ev->call->stream) < HTTP_HIGH)
        exec_follow_consumed(ev->follow);
}

static void on_exit_seen(void *ctx, json_t *exec, const struct err *e)
{
    struct events *ev = ctx;

    if (exec == NULL) {
        http_stream_cancel(ev->call->stream);
        finish(ev, err_row(e->code)->http_status);
        return;
    }
    flush_tail(ev, STREAM_STDOUT);
    flush_tail(ev, STREAM_STDERR);
    send_event(ev, "exit", exec);
    http_stream_end(ev->call->stream, NULL, 0);
    finish(ev, 200);
}

static void on_writable(struct call *c)
{
    struct events *ev = c->user;

    exec_follow_consumed(ev->follow);
}

static void on_gone(struct call *c)
{
    finish(c->user, CALL_CLIENT_GONE);
}

/* "12.34"; false for anything else. */
static bool parse_event_id(const char *text, uint64_t *ret_out, uint64_t *ret_err)
{
    size_t a = strspn(text, "0123456789"), b = text[a] == '.' ? strspn(text + a + 1, "0123456789") : 0;

    if (a == 0 || a > 18 || b == 0 || b > 18 || text[a + 1 + b] != '\0')
        return false;
    *ret_out = strtoull(text, NULL, 10);
    *ret_err = strtoull(text + a + 1, NULL, 10);
    return true;
}

static void looked(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    static const struct exec_follow_ops ops = {.on_data = on_data, .on_exit = on_exit_seen};
    struct events *ev = state;
    struct http_header h[4];

    if (reply == NULL) {
        free(ev);
        call_fail(c, e);
        return;
    }
    c->user = ev;
    c->on_gone = on_gone;
    c->on_writable = on_writable;
    sse_start(c->stream, h, call_headers(c, h));
    ev->follow = exec_follow_new(c->core, call_param(c, "id"), call_param(c, "exec_id"), ev->sides[0].sent,
                                 ev->sides[1].sent, &ops, ev);
}

void exec_events(struct call *c)
{
    const char *last = call_header(c, "last-event-id");
    struct events *ev = mem_zalloc(sizeof *ev);
    struct err e;

    ev->call = c;
    ev->sides[0].sent = (uint64_t)call_query_int(c, "stdout_offset", 0);
    ev->sides[1].sent = (uint64_t)call_query_int(c, "stderr_offset", 0);
    if (last != NULL && *last != '\0' && !parse_event_id(last, &ev->sides[0].sent, &ev->sides[1].sent)) {
        (void)err_param(&e, ERR_INVALID, "last-event-id", "'%.60s' is not <stdout offset>.<stderr offset>", last);
        free(ev);
        call_fail(c, &e);
        return;
    }
    node_ask_exec(c, call_param(c, "exec_id"), 0, looked, ev);
}
