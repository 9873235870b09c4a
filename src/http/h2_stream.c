/*
 * h2_stream.c - what a stream's calls do on HTTP/2
 */
#include <string.h>

#include "base/mem.h"
#include "http/h2_internal.h"

/* More than this is allocated. */
#define NV_STACK 32

static ssize_t on_read_source(nghttp2_session *s, int32_t id, uint8_t *p, size_t n, uint32_t *flags,
                              nghttp2_data_source *source, void *arg);

static const nghttp2_data_provider body_source = {.read_callback = on_read_source};

static nghttp2_nv nv_of(const char *name, const char *value, size_t value_len)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = value_len};
}

/* Appends what may be sent; returns the count. */
static size_t add_fields(nghttp2_nv *nv, const struct http_header *h, size_t n)
{
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        if (!header_is_hop_by_hop(h[i].name))
            nv[used++] = nv_of(h[i].name, h[i].value, header_value_len(h[i].value));
    }
    return used;
}

static ssize_t on_read_source(nghttp2_session *s, int32_t id, uint8_t *p, size_t n, uint32_t *flags,
                              nghttp2_data_source *source, void *arg)
{
    struct http_stream *st = nghttp2_session_get_stream_user_data(s, id);

    if (st == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t len = queue_len(&st->out);
    if (len == 0 && !st->has_ended) {
        st->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (len > n)
        len = n;
    if (len > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (!st->has_ended || len < queue_len(&st->out))
        return (ssize_t)len;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (st->ntrailers > 0) {
        nghttp2_nv stack[NV_STACK];
        nghttp2_nv *nv = st->ntrailers <= NV_STACK ? stack : mem_array(st->ntrailers, sizeof *nv);
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        (void)nghttp2_submit_trailer(s, id, nv, add_fields(nv, st->trailers, st->ntrailers));
        if (nv != stack)
            free(nv);
    }
    return (ssize_t)len;
}

void h2_unlink(struct h2 *h, struct http_stream *st)
{
    if (st->prev != NULL)
        st->prev->next = st->next;
    else
        h->streams = st->next;
    if (st->next != NULL)
        st->next->prev = st->prev;
    st->prev = st->next = NULL;
    st->conn = NULL;
    h->nstreams--;
}

static void respond(struct http_stream *st, int status, const struct http_header *fields, size_t n,
                    bool ends)
{
    struct h2 *h = st->conn;
    nghttp2_nv stack[NV_STACK];
    nghttp2_nv *nv = n + 2 <= NV_STACK ? stack : mem_array(n + 2, sizeof *nv);
    char digits[4] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10),
                      (char)('0' + status % 10), '\0'};

    nv[0] = nv_of(":status", digits, 3);
    size_t used = 1 + add_fields(nv + 1, fields, n);
    const char *type = http_header_get(fields, n, "content-type");
    if (type == NULL || strncmp(type, "application/grpc", 16) != 0)
        nv[used++] = nv_of("date", date_now(), strlen(date_now()));
    (void)nghttp2_submit_response(h->session, st->id, nv, used, ends ? NULL : &body_source);
    if (nv != stack)
        free(nv);
    if (h->net != NULL)
        net_conn_kick(h->net);
}

static void resume(struct http_stream *st)
{
    struct h2 *h = st->conn;

    if (!st->is_deferred)
        return;
    st->is_deferred = false;
    (void)nghttp2_session_resume_data(h->session, st->id);
    if (h->net != NULL)
        net_conn_kick(h->net);
}

static void write_body(struct http_stream *st, const void *p, size_t n)
{
    queue_add(&st->out, p, n);
    resume(st);
}

static void end_body(struct http_stream *st, const struct http_header *trailers, size_t n)
{
    resume(st);
}

static void consume(struct http_stream *st, size_t n)
{
    struct h2 *h = st->conn;

    if (st->peer_ended)
        return;
    (void)nghttp2_session_consume_stream(h->session, st->id, n);
    if (h->net != NULL && nghttp2_session_want_write(h->session))
        net_conn_kick(h->net);
}

/* The stream leaves the session at once: a peer that reads nothing must not keep it. */
static void cancel(struct http_stream *st)
{
    struct h2 *h = st->conn;

    (void)nghttp2_session_set_stream_user_data(h->session, st->id, NULL);
    (void)nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_CANCEL);
    h2_unlink(h, st);
    if (h->net != NULL)
        net_conn_kick(h->net);
    stream_close_soon(st);
}

static size_t queued(const struct http_stream *st)
{
    return queue_len(&st->out);
}

static const struct http_transport transport = {
    .respond = respond,
    .write = write_body,
    .end = end_body,
    .consume = consume,
    .cancel = cancel,
    .queued = queued,
};

struct http_stream *h2_stream_new(struct h2 *h)
{
    struct http_stream *st = stream_new(h->conf.loop, &transport, h);

    st->next = h->streams;
    if (st->next != NULL)
        st->next->prev = st;
    h->streams = st;
    h->nstreams++;
    return st;
}

struct http_stream *h2_request(struct h2 *h, const char *method, const char *path, const char *authority,
                               const struct http_header *fields, size_t n, bool has_body)
{
    struct http_stream *st = h2_stream_new(h);
    nghttp2_nv stack[NV_STACK];
    nghttp2_nv *nv = n + 4 <= NV_STACK ? stack : mem_array(n + 4, sizeof *nv);

    st->is_client = true;
    st->is_mute = !has_body;
    st->has_ended = !has_body;
    nv[0] = nv_of(":method", method, strlen(method));
    nv[1] = nv_of(":scheme", "http", 4);
    nv[2] = nv_of(":path", path, strlen(path));
    nv[3] = nv_of(":authority", authority, strlen(authority));
    size_t used = 4 + add_fields(nv + 4, fields, n);
    st->id = nghttp2_submit_request(h->session, NULL, nv, used, has_body ? &body_source : NULL, st);
    if (nv != stack)
        free(nv);
    if (st->id < 0) {
        h->is_closing = true;   /* stream numbers are used up: the next request gets a new connection */
        h2_unlink(h, st);
        stream_close_soon(st);
        return st;
    }
    if (h->net != NULL)
        net_conn_kick(h->net);
    return st;
}
