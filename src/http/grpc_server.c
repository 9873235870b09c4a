/*
 * grpc_server.c - the server's side of gRPC calls
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "http/grpc_call.h"
#include "http/grpc_text.h"

static bool is_grpc_type(const char *type)
{
    if (type == NULL || strncmp(type, "application/grpc", 16) != 0)
        return false;
    return type[16] == '\0' || type[16] == '+' || type[16] == ';' || type[16] == ' ';
}

bool grpc_is_request(const struct http_request *rq)
{
    return is_grpc_type(http_header_get(rq->headers, rq->nheaders, "content-type"));
}

/* --- ends ------------------------------------------------------------------------------------ */

static void finish(struct grpc_call *c, enum grpc_status status, const char *message, const struct err *e)
{
    struct http_header h[GRPC_TRAILERS_MAX + 6];
    char number[12], text[1024], param[200], hint[500];
    size_t n = 0;

    c->is_over = true;
    c->ops = NULL;
    loop_timer_free(c->timer);
    c->timer = NULL;
    if (!c->has_head)
        h[n++] = (struct http_header){"content-type", "application/grpc"};
    (void)snprintf(number, sizeof number, "%d", (int)status);
    h[n++] = (struct http_header){"grpc-status", number};
    if (message != NULL && message[0] != '\0')
        h[n++] = (struct http_header){"grpc-message", grpc_encode(message, text, sizeof text)};
    if (e != NULL) {
        h[n++] = (struct http_header){"qs-error", err_row(e->code)->name};
        if (e->param[0] != '\0')
            h[n++] = (struct http_header){"qs-param", grpc_encode(e->param, param, sizeof param)};
        if (e->hint[0] != '\0')
            h[n++] = (struct http_header){"qs-hint", grpc_encode(e->hint, hint, sizeof hint)};
    }
    for (size_t i = 0; i < c->ntrailers; i++)
        h[n++] = c->trailers[i];
    if (c->has_head) {
        http_stream_end(c->st, h, n);
    } else {
        c->has_head = true;
        stream_respond(c->st, 200, h, n, true);
    }
}

void grpc_finish(struct grpc_call *c, enum grpc_status status, const char *message)
{
    if (!c->is_over)
        finish(c, status, message, NULL);
}

void grpc_finish_err(struct grpc_call *c, const struct err *e)
{
    if (!c->is_over)
        finish(c, (enum grpc_status)err_row(e->code)->grpc_status, e->message, e);
}

void grpc_reply(struct grpc_call *c, const void *p, size_t n)
{
    grpc_send(c, p, n);
    grpc_finish(c, GRPC_OK, NULL);
}

void grpc_call_trailer(struct grpc_call *c, const char *name, const char *value)
{
    if (c->is_over || c->ntrailers == GRPC_TRAILERS_MAX)
        return;
    size_t name_size = strlen(name) + 1, value_size = strlen(value) + 1;
    char *mem = mem_alloc(name_size + value_size);
    memcpy(mem, name, name_size);
    memcpy(mem + name_size, value, value_size);
    c->trailers[c->ntrailers++] = (struct http_header){mem, mem + name_size};
}

/* Not ended by the method: tell it, then the client. */
static void end(struct grpc_call *c, enum grpc_status status, const char *message)
{
    const struct grpc_ops *ops = c->ops;
    struct err e;

    if (c->is_over)
        return;
    c->is_over = true;
    c->ops = NULL;
    (void)err_set(&e, grpc_err_code(status), "%s", message);
    if (ops != NULL && ops->on_end != NULL)
        ops->on_end(c, status, &e, c->ctx);
    finish(c, status, message, NULL);
}

static void on_deadline(void *arg)
{
    end(arg, GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
}

/* --- stream events --------------------------------------------------------------------------- */

static void on_body(struct http_stream *st, const void *p, size_t n, void *ctx)
{
    struct grpc_call *c = ctx;
    const char *why;

    if (c->is_over) {
        http_stream_consume(st, n);
        return;
    }
    enum grpc_status status = grpc_call_feed(c, p, n, &why);
    if (status != GRPC_OK)
        end(c, status, why);
}

static void on_body_end(struct http_stream *st, const struct http_header *trailers, size_t n, void *ctx)
{
    struct grpc_call *c = ctx;

    if (c->is_over)
        return;
    if (grpc_frames_is_partial(&c->frames))
        end(c, GRPC_INTERNAL, "the last message is cut off");
    else if (c->ops != NULL && c->ops->on_half_close != NULL)
        c->ops->on_half_close(c, c->ctx);
}

static void on_writable(struct http_stream *st, void *ctx)
{
    struct grpc_call *c = ctx;

    if (c->ops != NULL && c->ops->on_writable != NULL)
        c->ops->on_writable(c, c->ctx);
}

static void on_close(struct http_stream *st, enum http_close why, void *ctx)
{
    struct grpc_call *c = ctx;

    end(c, GRPC_CANCELLED, "the client cancelled the call");
    grpc_call_free(c);
}

static const struct http_ops stream_ops = {
    .on_body = on_body, .on_body_end = on_body_end, .on_writable = on_writable, .on_close = on_close};

/* --- dispatch -------------------------------------------------------------------------------- */

static const struct grpc_method *find(const struct grpc_method *table, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].path, path) == 0)
            return &table[i];
    }
    return NULL;
}

void grpc_serve(struct http_stream *st, const struct http_request *rq, const struct grpc_method *table,
                size_t n, void *arg)
{
    const char *timeout = http_header_get(rq->headers, rq->nheaders, "grpc-timeout");
    const struct grpc_method *m = find(table, n, rq->path);

    if (!grpc_is_request(rq) || rq->version < 20 || strcmp(rq->method, "POST") != 0) {
        stream_error(st, 415, "invalid_argument", "gRPC needs HTTP/2, POST and application/grpc");
        return;
    }
    struct grpc_call *c = mem_zalloc(sizeof *c);
    c->st = st;
    c->metadata = headers_copy(rq->headers, rq->nheaders);
    c->nmetadata = rq->nheaders;
    c->authority = mem_strdup(rq->authority);
    http_stream_set(st, &stream_ops, c);
    if (m == NULL) {
        grpc_finish(c, GRPC_UNIMPLEMENTED, "no such method");
        return;
    }
    if (timeout != NULL) {
        int64_t timeout_ms = grpc_timeout_parse(timeout);
        if (timeout_ms < 0) {
            grpc_finish(c, GRPC_INVALID_ARGUMENT, "grpc-timeout is malformed");
            return;
        }
        c->timer = loop_timer_new(st->loop, on_deadline, c);
        loop_timer_set(c->timer, (uint64_t)timeout_ms);
    }
    m->fn(c, arg);
}

const char *grpc_call_metadata(const struct grpc_call *c, const char *name)
{
    return http_header_get(c->metadata, c->nmetadata, name);
}

const char *grpc_call_authority(const struct grpc_call *c)
{
    return c->authority;
}
