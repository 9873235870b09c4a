/*
 * stream.c - the calls of http.h that do not depend on the transport
 */
#include "http/stream.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "http/h1.h"

const char *http_header_get(const struct http_header *h, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(h[i].name, name) == 0)
            return h[i].value;
    }
    return NULL;
}

struct http_header *headers_copy(const struct http_header *h, size_t n)
{
    size_t size = n * sizeof *h;

    for (size_t i = 0; i < n; i++)
        size += strlen(h[i].name) + strlen(h[i].value) + 2;
    struct http_header *copy = mem_alloc(size);
    char *at = (char *)(copy + n);
    for (size_t i = 0; i < n; i++) {
        size_t name_size = strlen(h[i].name) + 1, value_size = strlen(h[i].value) + 1;
        copy[i].name = memcpy(at, h[i].name, name_size);
        copy[i].value = memcpy(at + name_size, h[i].value, value_size);
        at += name_size + value_size;
    }
    return copy;
}

bool header_is_hop_by_hop(const char *name)
{
    static const char *const names[] = {"connection", "keep-alive", "proxy-connection",
                                        "transfer-encoding", "upgrade"};

    for (size_t i = 0; i < array_len(names); i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

size_t header_value_len(const char *value)
{
    return strcspn(value, "\r\n");
}

bool target_split(char *target, const char **ret_path, const char **ret_query)
{
    char *query = NULL;

    if (target[0] != '/' && strcmp(target, "*") != 0)
        return false;
    for (char *p = target; *p != '\0'; p++) {
        unsigned char ch = (unsigned char)*p;
        if (ch <= 0x20 || ch >= 0x7f || ch == '#')
            return false;
        if (ch == '?' && query == NULL)
            query = p;
    }
    *ret_path = target;
    *ret_query = "";
    if (query != NULL) {
        *query = '\0';
        *ret_query = query + 1;
    }
    return true;
}

const char *date_now(void)
{
    static time_t made;
    static char text[40];
    time_t now = time(NULL);
    struct tm tm;

    if (now != made && gmtime_r(&now, &tm) != NULL &&
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm) > 0)
        made = now;
    return text;
}

/* --- life ------------------------------------------------------------------------------------ */

static void on_job(void *arg)
{
    struct http_stream *st = arg;

    if (st->is_cancelled && st->conn == NULL) {
        stream_close(st, st->close_errno != 0 ? HTTP_CLOSE_ERROR : HTTP_CLOSE_CANCELLED);
        return;
    }
    if (st->is_writable_due) {
        st->is_writable_due = false;
        if (st->ops != NULL && st->ops->on_writable != NULL && !st->is_cancelled && !st->has_ended)
            st->ops->on_writable(st, st->ctx);
    }
}

struct http_stream *stream_new(struct loop *l, const struct http_transport *tp, void *conn)
{
    struct http_stream *st = mem_zalloc(sizeof *st);

    st->tp = tp;
    st->conn = conn;
    st->loop = l;
    st->job.cb = on_job;
    st->job.arg = st;
    return st;
}

void stream_close(struct http_stream *st, enum http_close why)
{
    loop_job_cancel(&st->job);
    st->conn = NULL;
    st->is_cancelled = true;
    if (st->sse != NULL)
        sse_done(st);
    if (st->ops != NULL && st->ops->on_close != NULL)
        st->ops->on_close(st, why, st->ctx);
    loop_job_cancel(&st->job);
    queue_done(&st->out);
    free(st->trailers);
    free(st);
}

void stream_close_soon(struct http_stream *st)
{
    st->conn = NULL;
    st->is_cancelled = true;
    loop_job_soon(st->loop, &st->job);
}

void stream_body(struct http_stream *st, const void *p, size_t n)
{
    if (st->is_cancelled || n == 0)
        return;
    st->unconsumed += n;
    bool is_wanted = st->is_client || !st->has_ended;   /* behind a complete response nobody waits for it */
    if (is_wanted && st->ops != NULL && st->ops->on_body != NULL)
        st->ops->on_body(st, p, n, st->ctx);
    else
        http_stream_consume(st, n);
}

void stream_body_end(struct http_stream *st, const struct http_header *trailers, size_t n)
{
    if (st->peer_ended)
        return;
    st->peer_ended = true;
    if (!st->is_cancelled && st->ops != NULL && st->ops->on_body_end != NULL)
        st->ops->on_body_end(st, trailers, n, st->ctx);
}

void stream_sent(struct http_stream *st, size_t before, size_t now)
{
    if (before <= HTTP_LOW || now > HTTP_LOW || st->has_ended)
        return;
    st->is_writable_due = true;
    loop_job_soon(st->loop, &st->job);
}

/* --- calls of the user ----------------------------------------------------------------------- */

void http_stream_set(struct http_stream *st, const struct http_ops *ops, void *ctx)
{
    st->ops = ops;
    st->ctx = ctx;
}

void http_stream_consume(struct http_stream *st, size_t n)
{
    if (n > st->unconsumed)
        n = st->unconsumed;
    st->unconsumed -= n;
    if (st->conn != NULL && n > 0)
        st->tp->consume(st, n);
}

void http_stream_write(struct http_stream *st, const void *p, size_t n)
{
    assert(st->is_client || st->has_responded);
    if (st->conn == NULL || st->is_cancelled || st->has_ended || st->is_mute || n == 0)
        return;
    st->tp->write(st, p, n);
}

void http_stream_end(struct http_stream *st, const struct http_header *trailers, size_t n)
{
    assert(st->is_client || st->has_responded);
    if (st->conn == NULL || st->is_cancelled || st->has_ended)
        return;
    st->has_ended = true;
    if (st->is_mute)
        return;
    if (n > 0) {
        st->trailers = headers_copy(trailers, n);
        st->ntrailers = n;
    }
    st->tp->end(st, st->trailers, n);
}

size_t http_stream_queued(const struct http_stream *st)
{
    if (st->conn == NULL)
        return 0;
    return st->tp->queued(st) + (st->ws != NULL ? ws_queued(st) : 0);
}

void http_stream_cancel(struct http_stream *st)
{
    if (st->is_cancelled)
        return;
    st->is_cancelled = true;
    if (st->conn != NULL)
        st->tp->cancel(st);
}

void stream_respond(struct http_stream *st, int status, const struct http_header *h, size_t n, bool ends)
{
    assert(!st->is_client);
    if (st->has_responded)
        return;
    st->has_responded = true;
    if (st->conn == NULL || st->is_cancelled)
        return;
    if (st->is_head || status == 204 || status == 304)
        ends = true;
    st->is_mute = ends;
    st->tp->respond(st, status, h, n, ends);
}

void http_respond(struct http_stream *st, int status, const struct http_header *h, size_t n)
{
    stream_respond(st, status, h, n, false);
}

void http_respond_all(struct http_stream *st, int status, const char *content_type, const void *p, size_t n)
{
    char length[24];
    struct http_header h[2];
    size_t nh = 0;

    (void)snprintf(length, sizeof length, "%zu", n);
    if (content_type != NULL)
        h[nh++] = (struct http_header){"content-type", content_type};
    if (status != 204 && status != 304)
        h[nh++] = (struct http_header){"content-length", length};
    stream_respond(st, status, h, nh, n == 0);
    http_stream_write(st, p, n);
    http_stream_end(st, NULL, 0);
}

void stream_error(struct http_stream *st, int status, const char *code, const char *message)
{
    char text[256];
    int n = snprintf(text, sizeof text, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}", code, message);

    http_respond_all(st, status, "application/json", text, (size_t)n);
}
