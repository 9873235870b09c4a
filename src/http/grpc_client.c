/*
 * grpc_client.c - the client's side of gRPC calls
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "http/client.h"
#include "http/grpc_call.h"
#include "http/grpc_text.h"

/* Tells the caller once; the stream goes its own way. */
static void end(struct grpc_call *c, enum grpc_status status, const struct err *e)
{
    const struct grpc_ops *ops = c->ops;

    if (c->is_over)
        return;
    c->is_over = true;
    c->ops = NULL;
    loop_timer_free(c->timer);
    c->timer = NULL;
    if (ops != NULL && ops->on_end != NULL)
        ops->on_end(c, status, e, c->ctx);
    if (!c->st->peer_ended || !c->st->has_ended)
        http_stream_cancel(c->st);
}

static void end_with(struct grpc_call *c, enum grpc_status status, const char *message)
{
    struct err e;

    (void)err_set(&e, grpc_err_code(status), "%s", message);
    end(c, status, &e);
}

static void on_deadline(void *arg)
{
    end_with(arg, GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
}

/* --- what the server says -------------------------------------------------------------------- */

static void read_status(struct grpc_call *c, const struct http_header *h, size_t n)
{
    const char *number = http_header_get(h, n, "grpc-status");
    const char *message = http_header_get(h, n, "grpc-message");
    const char *code = http_header_get(h, n, "qs-error");
    const char *param = http_header_get(h, n, "qs-param");
    const char *hint = http_header_get(h, n, "qs-hint");

    if (number == NULL)
        return;
    size_t len = strlen(number);
    c->status = GRPC_UNKNOWN;
    if (len == 1 && number[0] >= '0' && number[0] <= '9')
        c->status = number[0] - '0';
    else if (len == 2 && number[0] == '1' && number[1] >= '0' && number[1] <= '6')
        c->status = 10 + number[1] - '0';
    if (c->status == GRPC_OK)
        return;
    if (c->err == NULL)
        c->err = mem_zalloc(sizeof *c->err);
    c->err->code = code != NULL ? err_code_from_name(code) : grpc_err_code((enum grpc_status)c->status);
    (void)grpc_decode(message != NULL ? message : "", c->err->message, sizeof c->err->message);
    if (param != NULL)
        (void)grpc_decode(param, c->err->param, sizeof c->err->param);
    if (hint != NULL)
        (void)grpc_decode(hint, c->err->hint, sizeof c->err->hint);
}

static void on_response(struct http_stream *st, const struct http_response *rs, void *ctx)
{
    struct grpc_call *c = ctx;
    const char *type = http_header_get(rs->headers, rs->nheaders, "content-type");
    char text[80];

    if (c->is_over)
        return;
    c->http_status = rs->status;
    read_status(c, rs->headers, rs->nheaders);
    if (c->status >= 0)
        return;                 /* trailers only: the end follows */
    if (rs->status != 200) {
        (void)snprintf(text, sizeof text, "the server answered with HTTP status %d", rs->status);
        end_with(c, grpc_status_from_http(rs->status), text);
    } else if (type == NULL || strncmp(type, "application/grpc", 16) != 0) {
        end_with(c, GRPC_UNKNOWN, "the server's answer is not gRPC");
    }
}

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
        end_with(c, status, why);
}

static void on_body_end(struct http_stream *st, const struct http_header *trailers, size_t n, void *ctx)
{
    struct grpc_call *c = ctx;

    if (c->is_over)
        return;
    read_status(c, trailers, n);
    if (c->status < 0)
        end_with(c, GRPC_INTERNAL, "the server ended the call without a status");
    else if (c->status != GRPC_OK)
        end(c, (enum grpc_status)c->status, c->err);
    else if (grpc_frames_is_partial(&c->frames))
        end_with(c, GRPC_INTERNAL, "the last message is cut off");
    else
        end(c, GRPC_OK, NULL);
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
    struct err e;

    if (c->is_over) {
        /* said already */
    } else if (c->is_cancelled) {
        end_with(c, GRPC_CANCELLED, "the call was cancelled");
    } else if (st->close_errno != 0) {
        (void)err_sys(&e, st->close_errno, "connection to the server");
        e.code = ERR_UNAVAILABLE;
        end(c, GRPC_UNAVAILABLE, &e);
    } else if (st->peer_code != 0) {
        end_with(c, grpc_status_from_h2(st->peer_code), "the server reset the call");
    } else {
        end_with(c, GRPC_UNAVAILABLE, "the call was cut off");
    }
    grpc_call_free(c);
}

static const struct http_ops stream_ops = {.on_response = on_response,
                                           .on_body = on_body,
                                           .on_body_end = on_body_end,
                                           .on_writable = on_writable,
                                           .on_close = on_close};

/* --- calls ----------------------------------------------------------------------------------- */

struct grpc_call *grpc_client_call(struct http_client *client, const char *path,
                                   const struct http_header *metadata, size_t n, uint64_t timeout_ms,
                                   const struct grpc_ops *ops, void *ctx)
{
    struct http_header stack[16];
    struct http_header *h = n + 4 <= array_len(stack) ? stack : mem_array(n + 4, sizeof *h);
    struct grpc_call *c = mem_zalloc(sizeof *c);
    char timeout[16];
    size_t used = 0;

    h[used++] = (struct http_header){"content-type", "application/grpc"};
    h[used++] = (struct http_header){"te", "trailers"};
    h[used++] = (struct http_header){"user-agent", "quicksand/" QS_VERSION};
    if (timeout_ms > 0) {
        grpc_timeout_format(timeout_ms, timeout, sizeof timeout);
        h[used++] = (struct http_header){"grpc-timeout", timeout};
        c->timer = loop_timer_new(http_client_loop(client), on_deadline, c);
        loop_timer_set(c->timer, timeout_ms);
    }
    for (size_t i = 0; i < n; i++)
        h[used++] = metadata[i];
    c->status = -1;
    c->ops = ops;
    c->ctx = ctx;
    c->st = http_client_request(client, "POST", path, h, used, true, &stream_ops, c);
    if (h != stack)
        free(h);
    return c;
}

void grpc_send_end(struct grpc_call *c)
{
    if (!c->is_over)
        http_stream_end(c->st, NULL, 0);
}

void grpc_cancel(struct grpc_call *c)
{
    if (c->is_over)
        return;
    c->is_cancelled = true;
    http_stream_cancel(c->st);
}
