/*
 * call.c - one call: its inputs, its answer, its audit line, its end
 *
 * A call is freed once it has been answered and its stream has closed, whichever comes last.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/rest/call_impl.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/audit.h"
#include "core/idempotency.h"
#include "json/json.h"

#define IMPL(c) container_of(c, struct call_impl, pub)
#define IMPL_CONST(c) container_of((struct call *)(uintptr_t)(c), struct call_impl, pub)

static char *copy(char **at, const char *text)
{
    size_t n = strlen(text) + 1;
    char *out = *at;

    memcpy(out, text, n);
    *at += n;
    return out;
}

/* The client's own id if it is harmless in headers and logs, else a new one. */
static void choose_request_id(struct call_impl *ci)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *given = http_header_get(ci->rq.headers, ci->rq.nheaders, "x-request-id");

    if (given != NULL && *given != '\0' && strlen(given) < sizeof ci->request_id &&
        strspn(given, allowed) == strlen(given))
        (void)snprintf(ci->request_id, sizeof ci->request_id, "%s", given);
    else
        id_make(ci->request_id, "rq-");
}

struct call_impl *call_new(struct http_stream *st, const struct http_request *rq, struct core *core)
{
    struct call_impl *ci = mem_zalloc(sizeof *ci);
    size_t size = strlen(rq->method) + 2 * strlen(rq->path) + 2 * strlen(rq->query) +
                  strlen(rq->authority) + ROUTE_PARAMS + 8;

    for (size_t i = 0; i < rq->nheaders; i++)
        size += strlen(rq->headers[i].name) + strlen(rq->headers[i].value) + 2;
    ci->texts = mem_alloc(size);
    ci->headers = mem_array(rq->nheaders + 1, sizeof *ci->headers);
    char *at = ci->texts;
    ci->rq = *rq;
    ci->rq.method = copy(&at, rq->method);
    ci->rq.path = copy(&at, rq->path);
    ci->rq.query = copy(&at, rq->query);
    ci->rq.authority = copy(&at, rq->authority);
    ci->query_text = copy(&at, rq->query);
    for (size_t i = 0; i < rq->nheaders; i++) {
        ci->headers[i].name = copy(&at, rq->headers[i].name);
        ci->headers[i].value = copy(&at, rq->headers[i].value);
    }
    ci->rq.headers = ci->headers;
    for (size_t i = 0; i < ROUTE_PARAMS;
         i++) /* room for the decoded parameters: together no longer than the path */
        ci->params[i].value = at;
    choose_request_id(ci);
    buf_init(&ci->body, LIMIT_JSON_BODY);
    ci->started_ms = clock_boot_ms();
    ci->pub =
        (struct call){.core = core, .stream = st, .request_id = ci->request_id, .rq = &ci->rq};
    return ci;
}

static void call_free(struct call_impl *ci)
{
    json_decref(ci->pub.body);
    buf_done(&ci->body);
    free(ci->query);
    free(ci->headers);
    free(ci->texts);
    free(ci);
}

static void write_audit(struct call_impl *ci, int status)
{
    struct audit_row r = {.at_ms = clock_wall_ms(), .status = status};
    int64_t ms = clock_boot_ms() - ci->started_ms;
    const char *target = ci->target[0] != '\0' ? ci->target
                         : ci->nparams > 0     ? ci->params[0].value
                                               : "";

    r.at_ms -= ms;
    r.ms = ms < INT32_MAX ? (int32_t)ms : INT32_MAX;
    (void)snprintf(r.token, sizeof r.token, "%s", ci->pub.token != NULL ? ci->pub.token->id : "");
    (void)snprintf(r.method, sizeof r.method, "%s", ci->rq.method);
    (void)snprintf(r.path, sizeof r.path, "%s", ci->rq.path);
    (void)snprintf(r.op, sizeof r.op, "%s", ci->pub.op != NULL ? ci->pub.op->id : "");
    (void)snprintf(r.target, sizeof r.target, "%s", target);
    (void)snprintf(r.request_id, sizeof r.request_id, "%s", ci->request_id);
    audit_add(ci->pub.core, &r);
}

/* The one place where a call becomes answered. */
static void finish(struct call_impl *ci, int status)
{
    struct call *c = &ci->pub;
    bool is_taken =
        status == 101; /* the stream's callbacks are the handler's: we shall not hear of its end */

    if (is_taken)
        c->stream = NULL;
    ci->is_answered = true;
    c->on_gone = NULL;
    c->on_body = NULL;
    c->on_body_end = NULL;
    c->on_writable = NULL;
    write_audit(ci, c->stream == NULL && !is_taken ? CALL_CLIENT_GONE : status);
    if (c->stream == NULL)
        call_free(ci);
}

void call_closed(struct call_impl *ci)
{
    ci->pub.stream = NULL;
    if (ci->is_answered) {
        call_free(ci);
        return;
    }
    if (ci->is_collecting) { /* no handler knows of it */
        finish(ci, CALL_CLIENT_GONE);
        return;
    }
    if (ci->pub.on_gone != NULL)
        ci->pub.on_gone(&ci->pub);
}

/* --- inputs ---------------------------------------------------------------------------------- */

const char *call_param(const struct call *c, const char *name)
{
    const struct call_impl *ci = IMPL_CONST(c);
    size_t n = strlen(name);

    for (size_t i = 0; i < ci->nparams; i++)
        if (ci->params[i].name_len == n && memcmp(ci->params[i].name, name, n) == 0)
            return ci->params[i].value;
    return "";
}

const char *call_query_nth(const struct call *c, const char *name, size_t nth)
{
    const struct call_impl *ci = IMPL_CONST(c);

    for (size_t i = 0; i < ci->nquery; i++)
        if (strcmp(ci->query[i].name, name) == 0 && nth-- == 0)
            return ci->query[i].value;
    return NULL;
}

const char *call_query(const struct call *c, const char *name)
{
    return call_query_nth(c, name, 0);
}

bool call_query_bool(const struct call *c, const char *name, bool fallback)
{
    const char *v = call_query(c, name);

    return v != NULL ? v[0] == 't' || v[0] == '1' : fallback;
}

int64_t call_query_int(const struct call *c, const char *name, int64_t fallback)
{
    const char *v = call_query(c, name);

    return v != NULL ? strtoll(v, NULL, 10) : fallback;
}

double call_query_number(const struct call *c, const char *name, double fallback)
{
    const char *v = call_query(c, name);

    return v != NULL ? strtod(v, NULL) : fallback;
}

const char *call_header(const struct call *c, const char *name)
{
    return http_header_get(c->rq->headers, c->rq->nheaders, name);
}

double call_number(const struct call *c, const char *name, double fallback)
{
    const json_t *v = json_object_get(c->body, name);

    return json_is_number(v) ? json_number_value(v) : fallback;
}

int64_t call_int(const struct call *c, const char *name, int64_t fallback)
{
    const json_t *v = json_object_get(c->body, name);

    return json_is_integer(v) ? json_integer_value(v) : fallback;
}

bool call_bool(const struct call *c, const char *name, bool fallback)
{
    const json_t *v = json_object_get(c->body, name);

    return json_is_boolean(v) ? json_boolean_value(v) : fallback;
}

const char *call_string(const struct call *c, const char *name, const char *fallback)
{
    const json_t *v = json_object_get(c->body, name);

    return json_is_string(v) ? json_string_value(v) : fallback;
}

int call_idem_key(struct call *c, const char **ret_key, uint8_t ret_hash[32], struct err *e)
{
    const char *key = call_header(c, "idempotency-key");
    struct sha256 h;

    if (key == NULL) {
        *ret_key = NULL;
        return 0;
    }
    size_t n = strlen(key);
    bool is_printable = true;
    for (size_t i = 0; i < n; i++)
        is_printable = is_printable && key[i] > ' ' && key[i] < 127;
    if (n == 0 || n > IDEM_KEY_MAX || !is_printable)
        return err_param(e, ERR_INVALID, "Idempotency-Key",
                         "the idempotency key has %zu bytes, but must be 1 to %d printable "
                         "ones without spaces",
                         n, IDEM_KEY_MAX);
    auto_free char *body = js_text(c->body, true);
    sha256_init(&h);
    sha256_add(&h, c->rq->method, strlen(c->rq->method) + 1);
    sha256_add(&h, c->rq->path, strlen(c->rq->path) + 1);
    sha256_add(&h, body, strlen(body));
    sha256_end(&h, ret_hash);
    *ret_key = key;
    return 0;
}

/* --- answers --------------------------------------------------------------------------------- */

void call_add_header(struct call *c, const char *name, const char *value)
{
    IMPL(c)->extra_name = name;
    IMPL(c)->extra_value = value;
}

void call_set_target(struct call *c, const char *id)
{
    (void)snprintf(IMPL(c)->target, sizeof IMPL(c)->target, "%s", id);
}

size_t call_headers(const struct call *c, struct http_header *out)
{
    const struct call_impl *ci = IMPL_CONST(c);
    size_t n = 0;

    out[n++] = (struct http_header){"x-request-id", ci->request_id};
    if (ci->extra_name != NULL)
        out[n++] = (struct http_header){ci->extra_name, ci->extra_value};
    return n;
}

static void respond(struct call_impl *ci, int status, const char *type, const char *text)
{
    struct http_header h[8];
    char length[24];
    size_t len = text != NULL ? strlen(text) : 0;
    size_t n = call_headers(&ci->pub, h);

    if (ci->pub.stream == NULL)
        return;
    if (text != NULL) {
        (void)snprintf(length, sizeof length, "%zu", len);
        h[n++] = (struct http_header){"content-type", type};
        h[n++] = (struct http_header){"content-length", length};
    }
    if (status == 401)
        h[n++] = (struct http_header){"www-authenticate", "Bearer"};
    if (status == 405)
        h[n++] = (struct http_header){"allow", ci->allow};
    if (status == 429 || status == 503)
        h[n++] = (struct http_header){"retry-after", "1"};
    http_respond(ci->pub.stream, status, h, n);
    if (len > 0)
        http_stream_write(ci->pub.stream, text, len);
    http_stream_end(ci->pub.stream, NULL, 0);
}

void call_reply(struct call *c, int status, json_t *body)
{
    struct call_impl *ci = IMPL(c);
    auto_free char *text = c->stream != NULL ? js_text(body, false) : NULL;

    json_decref(body);
    respond(ci, status, "application/json", text);
    finish(ci, status);
}

void call_reply_empty(struct call *c, int status)
{
    respond(IMPL(c), status, NULL, NULL);
    finish(IMPL(c), status);
}

/* The node names fields as node.proto does; callers know them by the names of this API. */
static const char *field_name(const char *param)
{
    if (strcmp(param, "argv") == 0)
        return "command";
    if (strcmp(param, "cwd") == 0 || strcmp(param, "defaults.cwd") == 0)
        return "workdir";
    if (strncmp(param, "defaults.", 9) == 0)
        return param + 9;
    return param;
}

static json_t *error_json(const struct err *e, const char *request_id)
{
    const struct err_row *row = err_row(e->code);
    json_t *o = json_object();

    (void)json_object_set_new(o, "code", json_string(row->name));
    (void)json_object_set_new(o, "message", js_string_lossy(e->message));
    (void)json_object_set_new(
        o, "param", e->param[0] != '\0' ? js_string_lossy(field_name(e->param)) : json_null());
    (void)json_object_set_new(o, "hint", js_string_lossy(e->hint[0] != '\0' ? e->hint : row->hint));
    (void)json_object_set_new(o, "retryable", json_boolean(row->retryable));
    (void)json_object_set_new(o, "request_id", json_string(request_id));
    if (e->sys_errno != 0)
        (void)json_object_set_new(o, "errno", json_integer(e->sys_errno));
    json_t *whole = json_object();
    (void)json_object_set_new(whole, "error", o);
    return whole;
}

json_t *call_error_json(const struct call *c, const struct err *e)
{
    return error_json(e, c->request_id);
}

void call_refuse(struct call_impl *ci, const struct err *e)
{
    auto_json *body = error_json(e, ci->request_id);
    auto_free char *text = js_text(body, false);
    int status = err_row(e->code)->http_status;

    respond(ci, status, "application/problem+json", text);
    finish(ci, status);
}

void call_fail(struct call *c, const struct err *e)
{
    call_refuse(IMPL(c), e);
}

void call_done(struct call *c, int status)
{
    finish(IMPL(c), status);
}
