/*
 * files_watch.c - changes below a path as server-sent events
 */
#include <string.h>

#include "api/rest/fs_ask.h"
#include "api/rest/fs_helper.h"
#include "api/rest/handlers.h"
#include "base/buf.h"
#include "base/mem.h"
#include "json/json.h"

#define LINE_MAX_BYTES (256 * 1024)

struct watch {
    struct call *call;
    struct fs_helper *helper;
    bool responded;
    struct buf line;            /* of the helper's, until it is complete */
    size_t held;
};

static void finish(struct watch *w, int status)
{
    struct call *c = w->call;

    fs_helper_free(w->helper);
    buf_done(&w->line);
    free(w);
    c->user = NULL;
    call_done(c, status);
}

static void respond(struct watch *w)
{
    struct http_header h[4];

    if (!w->responded)
        sse_start(w->call->stream, h, call_headers(w->call, h));
    w->responded = true;
}

/* The helper's words for what happened to the API's. */
static const char *change_type(const char *event)
{
    static const struct {
        const char *event, *type;
    } types[] = {
        {"Create", "create"}, {"Modify", "modify"},     {"Remove", "remove"},   {"Rename", "rename"},
        {"RenameFrom", "rename"}, {"RenameTo", "rename"}, {"Access", "access"}, {"Overflow", "overflow"},
    };

    for (size_t i = 0; i < array_len(types); i++)
        if (strcmp(event, types[i].event) == 0)
            return types[i].type;
    return "overflow";          /* unknown: the client has to look for itself */
}

static void send_change(struct watch *w)
{
    json_t *o = json_loadb(buf_str(&w->line), w->line.len, 0, NULL);
    const char *event = json_string_value(json_object_get(o, "event_type"));

    if (event != NULL && strcmp(event, "Ready") != 0) {
        json_t *change = json_object(), *paths = json_object_get(o, "paths"), *b64 = json_object_get(o, "paths_b64");
        json_object_set_new(change, "type", json_string(change_type(event)));
        json_object_set_new(change, "paths", paths != NULL ? json_incref(paths) : json_array());
        if (b64 != NULL)
            json_object_set(change, "paths_b64", b64);
        auto_free char *text = js_text(change, false);
        json_decref(change);
        sse_send(w->call->stream, "change", NULL, text, strlen(text));
    }
    json_decref(o);
    buf_clear(&w->line);
}

static void give_credit(struct watch *w)
{
    if (http_stream_queued(w->call->stream) < HTTP_HIGH) {
        size_t n = w->held;
        w->held = 0;
        fs_helper_consumed(w->helper, n);
    }
}

static void on_data(void *ctx, const void *data, size_t n)
{
    struct watch *w = ctx;
    const char *p = data;

    respond(w);
    w->held += n;
    while (n > 0) {
        const char *end = memchr(p, '\n', n);
        size_t take = end != NULL ? (size_t)(end - p) : n;
        (void)buf_add(&w->line, p, take);
        if (end != NULL) {
            send_change(w);
            take++;
        }
        p += take;
        n -= take;
    }
    give_credit(w);
}

static void on_end(void *ctx, const struct err *e)
{
    struct watch *w = ctx;
    struct call *c = w->call;

    if (e != NULL && !w->responded) {
        fs_helper_free(w->helper);
        buf_done(&w->line);
        free(w);
        c->user = NULL;
        c->on_gone = NULL;
        call_fail(c, e);
        return;
    }
    if (e != NULL) {
        http_stream_cancel(c->stream);
        finish(w, err_row(e->code)->http_status);
        return;
    }
    respond(w);
    http_stream_end(c->stream, NULL, 0);
    finish(w, 200);
}

static void on_writable(struct call *c)
{
    give_credit(c->user);
}

static void on_gone(struct call *c)
{
    finish(c->user, CALL_CLIENT_GONE);
}

void file_watch(struct call *c)
{
    static const struct fs_helper_ops ops = {.on_data = on_data, .on_end = on_end};
    json_t *args = fs_query_path(c);
    struct watch *w = mem_zalloc(sizeof *w);

    json_object_set_new(args, "recursive", json_boolean(call_query_bool(c, "recursive", false)));
    if (call_query(c, "timeout_s") != NULL)
        json_object_set_new(args, "timeout_secs", json_real(call_query_number(c, "timeout_s", 0)));
    json_object_set_new(args, "ready", json_true());
    w->call = c;
    buf_init(&w->line, LINE_MAX_BYTES);
    c->user = w;
    c->on_gone = on_gone;
    c->on_writable = on_writable;
    w->helper = fs_helper_new(c->core, call_param(c, "id"), "Watch", args, call_query(c, "path"), FS_STDIN_SIGNS, &ops,
                              w);
}
