/*
 * operations.c - operation.* operations: work that goes on without its caller
 */
#include "api/rest/operations.h"

#include <string.h>

#include "api/rest/list.h"
#include "base/mem.h"

#define LINES_DEFAULT 1000
#define LINES_MAX 5000

static json_t *parsed(const char *text)
{
    json_t *o = text != NULL ? json_loads(text, 0, NULL) : NULL;

    return o != NULL ? o : json_object();
}

json_t *operation_json(const struct operation_view *view)
{
    const struct operation_row *r = &view->row;
    json_t *o = json_object();

    (void)json_object_set_new(o, "id", json_string(r->id));
    (void)json_object_set_new(o, "kind", json_string(r->kind));
    (void)json_object_set_new(o, "state", json_string(operation_state_name(r->state)));
    (void)json_object_set_new(o, "request", parsed(r->request));
    (void)json_object_set_new(o, "created_at", js_time_us(r->created_us));
    (void)json_object_set_new(o, "ended_at", js_time_us(r->ended_us));
    (void)json_object_set_new(o, "image", js_string_or_null(r->image[0] != '\0' ? r->image : NULL));
    (void)json_object_set_new(o, "result", r->state == OPERATION_SUCCEEDED ? parsed(r->result) : json_null());
    (void)json_object_set_new(o, "progress", view->progress != NULL ? json_incref(view->progress) : json_null());
    if (r->error_code[0] != '\0')
        (void)json_object_set_new(o, "error",
                                  json_pack("{s:s, s:s}", "code", r->error_code, "message",
                                            r->error != NULL ? r->error : ""));
    else
        (void)json_object_set_new(o, "error", json_null());
    return o;
}

static void on_accepted(void *ctx, const struct operation_view *view, const struct err *e)
{
    struct call *c = ctx;

    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    call_set_target(c, view->row.id);
    call_reply(c, 202, operation_json(view));
}

void operation_accepted(struct call *c, const char *id)
{
    (void)operation_get(c->core, id, -1, 0, on_accepted, c);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void on_gone(struct call *c)
{
    operation_wait_cancel(c->user);
    c->user = NULL;
    call_done(c, CALL_CLIENT_GONE);
}

static void wait_for(struct call *c, int64_t after, operation_fn fn)
{
    uint64_t wait_ms = (uint64_t)(call_query_number(c, "wait_s", 0) * 1000);

    c->on_gone = on_gone;
    /* Set by the callback too if it comes at once; then this is NULL and nobody looks at the call any more. */
    struct operation_wait *w = operation_get(c->core, call_param(c, "id"), after, wait_ms, fn, c);
    if (w != NULL)
        c->user = w;
}

static void on_got(void *ctx, const struct operation_view *view, const struct err *e)
{
    struct call *c = ctx;

    c->user = NULL;
    c->on_gone = NULL;
    if (e != NULL)
        call_fail(c, e);
    else
        call_reply(c, 200, operation_json(view));
}

static void get(struct call *c)
{
    wait_for(c, -1, on_got);
}

static void add_line(void *ctx, int64_t seq, int64_t at_ms, const char *text)
{
    json_t *line = json_object();

    (void)json_object_set_new(line, "seq", json_integer(seq));
    (void)json_object_set_new(line, "at", js_time_ms(at_ms));
    (void)json_object_set_new(line, "text", js_string_lossy(text));
    (void)json_array_append_new(ctx, line);
}

static void on_lines(void *ctx, const struct operation_view *view, const struct err *e)
{
    struct call *c = ctx;
    int64_t after = call_query_int(c, "after", 0), limit = call_query_int(c, "limit", LINES_DEFAULT);
    auto_json *lines = json_array();
    struct err local;

    c->user = NULL;
    c->on_gone = NULL;
    if (e == NULL && store_operation_lines(core_store(c->core), view->row.id, after, (size_t)limit, add_line, lines, &local) < 0)
        e = &local;
    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    size_t n = json_array_size(lines);
    json_t *o = json_object();
    (void)json_object_set_new(o, "state", json_string(operation_state_name(view->row.state)));
    /* After the last line of an ended operation nothing comes. */
    (void)json_object_set_new(o, "done", json_boolean(view->row.state != OPERATION_RUNNING && n < (size_t)limit));
    json_t *last = n > 0 ? json_object_get(json_array_get(lines, n - 1), "seq") : NULL;
    (void)json_object_set_new(o, "next", last != NULL ? json_incref(last) : json_integer(after));
    (void)json_object_set(o, "items", lines);
    call_reply(c, 200, o);
}

static void get_log(struct call *c)
{
    wait_for(c, call_query_int(c, "after", 0), on_lines);
}

static void cancel(struct call *c)
{
    struct err e;

    if (operation_cancel(c->core, call_param(c, "id"), &e) < 0)
        call_fail(c, &e);
    else
        operation_accepted(c, call_param(c, "id"));
}

static void add_row(void *ctx, const struct operation_row *r)
{
    struct operation_view view = {.row = *r};

    page_add(ctx, operation_json(&view), r->created_us, r->id);
}

static void list(struct call *c)
{
    struct page p;
    struct err e;

    if (page_init(&p, c, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    if (store_operation_list(core_store(c->core), p.cursor, p.cursor_id, page_limit(&p), add_row, &p, &e) < 0)
        page_fail(&p, c, &e);
    else
        page_reply(&p, c);
}

static const struct field list_query[] = {LIST_FIELDS};
static const struct field get_query[] = {
    {"wait_s", FIELD_NUMBER, 0, 0, LIMIT_WAIT_MAX, NULL, "wait until it has ended, at most so long"},
};
static const struct field log_query[] = {
    {"after", FIELD_INT, 0, 0, 1e15, NULL, "`next` of the lines before; default 0: from the first"},
    {"limit", FIELD_INT, 0, 1, LINES_MAX, NULL, "lines of an answer, default 1000"},
    {"wait_s", FIELD_NUMBER, 0, 0, LIMIT_WAIT_MAX, NULL, "wait for a line, or the end, at most so long"},
};

const struct op rest_operation_ops[] = {
    {"operation.list", "GET", "/v1/operations", "image:read", 0, "List operations, newest first",
     list_query, array_len(list_query), NULL, 0, 200, list},
    {"operation.get", "GET", "/v1/operations/{id}", "image:read", 0,
     "An operation, or wait for its end", get_query, array_len(get_query), NULL, 0, 200, get},
    {"operation.log", "GET", "/v1/operations/{id}/log", "image:read", 0,
     "Lines of its log, or wait for the next", log_query, array_len(log_query), NULL, 0, 200,
     get_log},
    {"operation.cancel", "POST", "/v1/operations/{id}/cancel", "image:write", 0, "End it early",
     NULL, 0, NULL, 0, 202, cancel},
};
const size_t rest_operation_nops = array_len(rest_operation_ops);
