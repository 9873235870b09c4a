/*
 * h1.c - HTTP/1.1 connections, see h1.h
 *
 * Invariant: `stream` is set from the head of a request until its response is complete; meanwhile the input behind the
 * request waits in `in`.
 */
#include "http/h1.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "http/h1_parse.h"

#define HEAD_MS 30000           /* for a head, from its first byte (or from the connection's start) */
#define IDLE_MS 600000          /* between requests */
#define PIPELINE_MAX (64 * 1024)    /* bytes of later requests that are read ahead */
#define DISCARD_MAX (64 * 1024)     /* rest of a body that is read only to keep the connection */
#define RESPONSE_HEAD_MAX (256 * 1024)

enum state {
    HEAD,
    BODY,                       /* content-length */
    CHUNKED,
    WAIT,                       /* the request is complete, the response is not */
    UPGRADED,
    CLOSING,                    /* input is thrown away */
};

struct h1 {
    struct http_conn_config conf;
    struct net_conn *net;
    struct http_stream *stream;
    struct loop_job job;
    struct queue in;            /* input that waits */
    size_t scanned;
    struct h1_head head;
    char *head_mem;             /* owned; the texts of `head` */
    struct h1_chunked *chunked; /* owned; made at the first chunked request */
    enum state state;
    int depth;
    int64_t body_left;
    int64_t out_left;           /* of the announced content-length, -1 = none announced */
    int64_t deadline_ms;
    bool is_keep_alive;
    bool owes_continue;
    bool is_chunked_out;
    bool has_sent_all;          /* the response is complete */
    bool is_over_low;           /* more than HTTP_LOW waited */
    bool is_stalled;            /* too much output waits to begin another request */
    bool is_paused;
    bool is_aborted;            /* to be closed without more words */
    bool is_dead;               /* to be destroyed when depth is 0 */
};

static void run(struct h1 *h);

/* --- life ------------------------------------------------------------------------------------ */

static void close_stream(struct h1 *h, enum http_close why)
{
    struct http_stream *st = h->stream;

    h->stream = NULL;
    if (st != NULL)
        stream_close(st, why);
}

static void destroy(struct h1 *h)
{
    close_stream(h, h->has_sent_all ? HTTP_CLOSE_DONE : HTTP_CLOSE_CANCELLED);
    loop_job_cancel(&h->job);
    net_conn_free(h->net);
    queue_done(&h->in);
    free(h->head_mem);
    free(h->chunked);
    void (*on_gone)(void *) = h->conf.on_gone;
    void *owner = h->conf.owner;
    free(h);
    on_gone(owner);
}

static bool leave(struct h1 *h)
{
    if (--h->depth > 0 || !h->is_dead)
        return true;
    destroy(h);
    return false;
}

void h1_free(struct h1 *h)
{
    if (h->is_dead)
        return;
    h->is_dead = true;
    if (h->depth == 0) {
        net_conn_send_now(h->net);
        destroy(h);
    }
}

int64_t h1_deadline_ms(const struct h1 *h)
{
    return h->deadline_ms;
}

/* --- responses ------------------------------------------------------------------------------- */

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } rows[] = {
        {200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"}, {206, "Partial Content"},
        {304, "Not Modified"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
        {404, "Not Found"}, {405, "Method Not Allowed"}, {408, "Request Timeout"}, {409, "Conflict"},
        {412, "Precondition Failed"}, {413, "Content Too Large"}, {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"}, {417, "Expectation Failed"}, {422, "Unprocessable Content"},
        {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"}, {501, "Not Implemented"}, {502, "Bad Gateway"},
        {503, "Service Unavailable"}, {504, "Gateway Timeout"}, {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        if (rows[i].status == status)
            return rows[i].text;
    }
    return "";
}

/* All that waits to be sent, a WebSocket's messages included. */
static size_t all_queued(const struct h1 *h)
{
    return h->stream != NULL ? http_stream_queued(h->stream) : net_conn_queued(h->net);
}

static void note_queued(struct h1 *h)
{
    if (all_queued(h) > HTTP_LOW)
        h->is_over_low = true;
}

static void send_continue(struct h1 *h)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";

    h->owes_continue = false;
    net_conn_write(h->net, text, sizeof text - 1);
}

/* A malformed request: say what is wrong, then close. */
static void refuse(struct h1 *h, int status, const char *why)
{
    char body[300], head[300];
    const char *code = status == 431 ? "too_large" : status == 408 ? "timeout" : "malformed_request";
    int n = snprintf(body, sizeof body, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}", code, why);
    int m = snprintf(head, sizeof head,
                     "HTTP/1.1 %d %s\r\ndate: %s\r\ncontent-type: application/json\r\n"
                     "content-length: %d\r\nconnection: close\r\n\r\n",
                     status, reason(status), date_now(), n);

    h->state = CLOSING;
    h->deadline_ms = 0;
    net_conn_write(h->net, head, (size_t)m);
    net_conn_write(h->net, body, (size_t)n);
    net_conn_finish(h->net);
}

void h1_timeout(struct h1 *h)
{
    h->deadline_ms = 0;
    if (queue_len(&h->in) > 0)
        refuse(h, 408, "the request head took too long");
    else
        h1_free(h);
}

/* Is the rest of the request's body too much to read for nothing? */
static bool body_is_long(const struct h1 *h)
{
    return h->state == CHUNKED || (h->state == BODY && h->body_left > DISCARD_MAX);
}

static void respond(struct http_stream *st, int status, const struct http_header *fields, size_t n, bool ends)
{
    struct h1 *h = st->conn;
    auto_buf b = {0};
    const char *length = http_header_get(fields, n, "content-length");

    if (h->owes_continue && status < 300)
        send_continue(h);
    if (h->owes_continue || body_is_long(h))
        h->is_keep_alive = false;
    buf_init(&b, RESPONSE_HEAD_MAX);
    (void)buf_addf(&b, "HTTP/1.1 %d %s\r\ndate: %s\r\n", status, reason(status), date_now());
    for (size_t i = 0; i < n; i++) {
        if (!header_is_hop_by_hop(fields[i].name))
            (void)buf_addf(&b, "%s: %.*s\r\n", fields[i].name, (int)header_value_len(fields[i].value),
                           fields[i].value);
    }
    h->out_left = -1;
    h->is_chunked_out = false;
    if (ends) {
        if (length == NULL && !st->is_head && status != 204 && status != 304)
            (void)buf_adds(&b, "content-length: 0\r\n");
    } else if (length != NULL) {
        h->out_left = strtoll(length, NULL, 10);
    } else if (h->head.version == 11) {
        h->is_chunked_out = true;
        (void)buf_adds(&b, "transfer-encoding: chunked\r\n");
    } else {
        h->is_keep_alive = false;
    }
    if (!h->is_keep_alive)
        (void)buf_adds(&b, "connection: close\r\n");
    else if (h->head.version == 10)
        (void)buf_adds(&b, "connection: keep-alive\r\n");
    (void)buf_adds(&b, "\r\n");
    if (b.failed) {
        http_stream_cancel(st);     /* a head of that size is a bug of the handler; half of it must not leave */
        return;
    }
    net_conn_write(h->net, b.data, b.len);
    if (ends) {
        h->has_sent_all = true;
        loop_job_soon(h->conf.loop, &h->job);
    }
}

static void write_body(struct http_stream *st, const void *p, size_t n)
{
    struct h1 *h = st->conn;
    char line[24];

    if (h->out_left >= 0) {
        /* More than was announced would be taken for the next response. */
        if ((uint64_t)n > (uint64_t)h->out_left) {
            n = (size_t)h->out_left;
            h->is_keep_alive = false;
        }
        h->out_left -= (int64_t)n;
    }
    if (h->is_chunked_out)
        net_conn_write(h->net, line, (size_t)snprintf(line, sizeof line, "%zx\r\n", n));
    net_conn_write(h->net, p, n);
    if (h->is_chunked_out)
        net_conn_write(h->net, "\r\n", 2);
    note_queued(h);
}

static void end_body(struct http_stream *st, const struct http_header *trailers, size_t n)
{
    struct h1 *h = st->conn;

    if (h->out_left > 0) {
        st->has_ended = false;
        http_stream_cancel(st);     /* shorter than announced: only a broken connection says so */
        return;
    }
    if (h->is_chunked_out) {
        auto_buf b = {0};
        buf_init(&b, RESPONSE_HEAD_MAX);
        (void)buf_adds(&b, "0\r\n");
        for (size_t i = 0; i < n; i++)
            (void)buf_addf(&b, "%s: %.*s\r\n", trailers[i].name,
                           (int)header_value_len(trailers[i].value), trailers[i].value);
        (void)buf_adds(&b, "\r\n");
        net_conn_write(h->net, b.data, b.len);
    }
    h->has_sent_all = true;
    loop_job_soon(h->conf.loop, &h->job);
}

static void set_paused(struct h1 *h, bool paused)
{
    if (h->is_paused == paused)
        return;
    h->is_paused = paused;
    net_conn_pause(h->net, paused);
}

static void consume(struct http_stream *st, size_t n)
{
    struct h1 *h = st->conn;

    if (h->is_paused && (h->state == BODY || h->state == CHUNKED) && st->unconsumed <= HTTP_WINDOW / 2)
        loop_job_soon(h->conf.loop, &h->job);
}

static void cancel(struct http_stream *st)
{
    struct h1 *h = st->conn;

    h->is_aborted = true;
    loop_job_soon(h->conf.loop, &h->job);
}

static size_t queued(const struct http_stream *st)
{
    const struct h1 *h = st->conn;

    return net_conn_queued(h->net);
}

static const struct http_transport transport = {
    .respond = respond,
    .write = write_body,
    .end = end_body,
    .consume = consume,
    .cancel = cancel,
    .queued = queued,
};

/* --- requests -------------------------------------------------------------------------------- */

static void end_of_request(struct h1 *h, const struct http_header *trailers, size_t n)
{
    h->state = WAIT;
    if (h->stream != NULL)
        stream_body_end(h->stream, trailers, n);
    if (h->has_sent_all)
        loop_job_soon(h->conf.loop, &h->job);
}

static void begin_request(struct h1 *h)
{
    struct h1_head *hd = &h->head;
    struct http_request rq = {
        .method = hd->method,
        .authority = hd->authority,
        .version = hd->version,
        .tls = net_conn_is_tls(h->net),
        .headers = hd->fields,
        .nheaders = hd->nfields,
        .has_body = hd->is_chunked || hd->content_length > 0,
        .content_length = hd->is_chunked ? -1 : hd->content_length > 0 ? hd->content_length : 0,
    };

    if (!target_split(hd->target, &rq.path, &rq.query)) {
        refuse(h, 400, "the request target has characters that must be escaped");
        return;
    }
    memcpy(rq.peer, h->conf.peer, sizeof rq.peer);
    struct http_stream *st = stream_new(h->conf.loop, &transport, h);
    st->is_head = strcmp(hd->method, "HEAD") == 0;
    h->stream = st;
    h->is_keep_alive = hd->is_keep_alive;
    h->has_sent_all = false;
    h->body_left = rq.content_length;
    h->owes_continue = hd->expects_continue && rq.has_body;
    h->state = hd->is_chunked ? CHUNKED : rq.has_body ? BODY : WAIT;
    if (hd->is_chunked) {
        if (h->chunked == NULL)
            h->chunked = mem_alloc(sizeof *h->chunked);
        h1_chunked_init(h->chunked);
    }
    h->conf.on_request(st, &rq, h->conf.request_arg);
    if (h->is_dead)
        return;
    if (h->owes_continue && !st->has_responded && !st->is_cancelled)
        send_continue(h);
    if (!rq.has_body && h->state != UPGRADED)
        end_of_request(h, NULL, 0);
}

/* 0: more input is needed. */
static size_t take_head(struct h1 *h, const char *p, size_t n)
{
    const char *why = "the request head is malformed";
    int64_t now_ms = clock_boot_ms();

    if (net_conn_queued(h->net) > HTTP_HIGH) {
        h->is_stalled = true;   /* a client that sends requests and reads no responses */
        return 0;
    }
    ssize_t len = h1_head_find(p, n, &h->scanned);
    if (len == 0) {
        if (h->deadline_ms == 0 || h->deadline_ms > now_ms + HEAD_MS)
            h->deadline_ms = now_ms + HEAD_MS;
        return 0;
    }
    h->scanned = 0;
    if (len < 0) {
        refuse(h, (int)-len, len == -431 ? "the request head is over the limit" : why);
        return n;
    }
    h->deadline_ms = 0;
    free(h->head_mem);
    h->head_mem = mem_dup(p, (size_t)len);
    int r = h1_head_parse(h->head_mem, (size_t)len, &h->head, &why);
    if (r < 0)
        refuse(h, -r, why);
    else
        begin_request(h);
    return (size_t)len;
}

static void give_body(struct h1 *h, const char *p, size_t n)
{
    if (h->stream == NULL)
        return;
    stream_body(h->stream, p, n);
    if (!h->is_dead && h->stream->unconsumed >= HTTP_WINDOW)
        set_paused(h, true);
}

static size_t take_chunked(struct h1 *h, const char *p, size_t n)
{
    size_t used, len;
    const char *body;
    int r = h1_chunked_next(h->chunked, p, n, &used, &body, &len);

    if (r == 0 && len > 0)
        give_body(h, body, len);
    if (h->is_dead)
        return n;
    if (r == 0 && h->chunked->state == H1_CHUNK_DONE) {
        struct http_header trailers[32];
        ssize_t count = h1_chunked_trailers(h->chunked, trailers, array_len(trailers));
        if (count >= 0) {
            end_of_request(h, trailers, (size_t)count);
            return used;
        }
        r = (int)count;
    }
    if (r == 0)
        return used;
    /* The framing is lost. If the response has begun there is no way left to say so but to close. */
    if (h->stream != NULL && h->stream->has_responded) {
        h->is_aborted = true;
        h->state = CLOSING;
        loop_job_soon(h->conf.loop, &h->job);
    } else {
        struct http_stream *st = h->stream;
        h->stream = NULL;
        refuse(h, -r, "the chunked body is malformed");
        if (st != NULL)
            stream_close(st, HTTP_CLOSE_ERROR);
    }
    return n;
}

/* One step of input: bytes taken; 0 = wait. */
static size_t take(struct h1 *h, const char *p, size_t n)
{
    size_t len = n;

    switch (h->state) {
    case HEAD:
        return take_head(h, p, n);
    case BODY:
        if ((uint64_t)len > (uint64_t)h->body_left)
            len = (size_t)h->body_left;
        h->body_left -= (int64_t)len;
        give_body(h, p, len);
        if (!h->is_dead && h->body_left == 0)
            end_of_request(h, NULL, 0);
        return len;
    case CHUNKED:
        return take_chunked(h, p, n);
    case UPGRADED:
        ws_input(h->stream, (const uint8_t *)p, n);
        return n;
    case CLOSING:
        return n;
    case WAIT:
        break;
    }
    return 0;
}

static size_t take_all(struct h1 *h, const char *p, size_t n)
{
    size_t used = 0;

    while (used < n && !h->is_dead && !h->is_aborted) {
        size_t step = take(h, p + used, n - used);
        if (step == 0)
            break;
        used += step;
    }
    return used;
}

void h1_read(struct h1 *h, const uint8_t *p, size_t n)
{
    bool was_head = h->state == HEAD;

    h->depth++;
    if (queue_len(&h->in) == 0) {
        size_t used = take_all(h, (const char *)p, n);
        if (!h->is_dead)
            queue_add(&h->in, p + used, n - used);
        if (!h->is_dead && was_head && (h->state == BODY || h->state == CHUNKED))
            net_conn_ack_now(h->net);
    } else {
        queue_add(&h->in, p, n);
        run(h);
    }
    if (!h->is_dead && queue_len(&h->in) > PIPELINE_MAX && (h->state == WAIT || h->is_stalled))
        set_paused(h, true);
    (void)leave(h);
}

/* Goes on with input that waited. */
static void run(struct h1 *h)
{
    size_t used = take_all(h, (const char *)queue_data(&h->in), queue_len(&h->in));

    if (!h->is_dead)
        queue_drop(&h->in, used);
}

/* --- events ---------------------------------------------------------------------------------- */

/* The response is complete: the next request, or the end. */
static void finish_exchange(struct h1 *h)
{
    bool is_complete = h->state == WAIT;

    if (!is_complete && !h->is_keep_alive)
        h->state = CLOSING;
    close_stream(h, HTTP_CLOSE_DONE);
    if (h->is_dead || (!is_complete && h->is_keep_alive))
        return;                 /* the short rest of the body is still to come */
    h->has_sent_all = false;
    if (!h->is_keep_alive) {
        h->state = CLOSING;
        net_conn_finish(h->net);
        return;
    }
    h->state = HEAD;
    h->deadline_ms = clock_boot_ms() + IDLE_MS;
    free(h->head_mem);
    h->head_mem = NULL;
}

static void on_job(void *arg)
{
    struct h1 *h = arg;

    h->depth++;
    if (h->is_aborted) {
        h->is_dead = true;
    } else {
        if (h->has_sent_all && (h->stream != NULL || h->state == WAIT))
            finish_exchange(h);
        if (!h->is_dead && h->is_paused && h->state != UPGRADED &&
            (h->stream == NULL || (h->stream->unconsumed <= HTTP_WINDOW / 2 && h->state != WAIT)))
            set_paused(h, false);
        if (!h->is_dead && queue_len(&h->in) > 0 && !h->is_stalled)
            run(h);
    }
    (void)leave(h);
}

static void on_read(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
    h1_read(ctx, p, n);
}

static void on_fill(struct net_conn *c, void *ctx)
{
    struct h1 *h = ctx;

    if (h->state != UPGRADED || h->stream == NULL)
        return;
    h->depth++;
    ws_fill(h->stream);
    (void)leave(h);
}

static void on_sent(struct net_conn *c, void *ctx)
{
    struct h1 *h = ctx;

    size_t now = all_queued(h);

    if (now > HTTP_LOW)
        return;
    if (h->is_over_low) {
        h->is_over_low = false;
        if (h->stream != NULL)
            stream_sent(h->stream, HTTP_LOW + 1, now);
    }
    if (h->is_stalled) {
        h->is_stalled = false;
        loop_job_soon(h->conf.loop, &h->job);
    }
}

static void on_end(struct net_conn *c, int sys_errno, void *ctx)
{
    struct h1 *h = ctx;
    bool has_last_words = net_conn_queued(c) > 0 && (h->stream == NULL || h->has_sent_all);

    if (sys_errno == 0 && has_last_words && h->state != CLOSING) {
        /* The client closed its direction and waits for the response, which is complete. */
        h->state = CLOSING;
        h->depth++;
        close_stream(h, HTTP_CLOSE_DONE);
        if (leave(h))
            net_conn_finish(c);
        return;
    }
    h->depth++;
    h->is_dead = true;
    (void)leave(h);
}

static const struct net_conn_ops net_ops = {
    .on_read = on_read, .on_fill = on_fill, .on_sent = on_sent, .on_end = on_end};

struct h1 *h1_new(const struct http_conn_config *conf, struct net_conn *net)
{
    struct h1 *h = mem_zalloc(sizeof *h);

    h->conf = *conf;
    h->net = net;
    h->job.cb = on_job;
    h->job.arg = h;
    h->deadline_ms = clock_boot_ms() + HEAD_MS;
    net_conn_set(net, &net_ops, h);
    return h;
}

/* --- WebSocket ------------------------------------------------------------------------------- */

void h1_upgrade(struct http_stream *st, const char *head, size_t n)
{
    struct h1 *h = st->conn;

    st->has_responded = true;
    h->state = UPGRADED;
    h->out_left = -1;
    h->is_chunked_out = false;
    net_conn_write(h->net, head, n);
}

void h1_kick(struct http_stream *st)
{
    struct h1 *h = st->conn;

    if (h == NULL)
        return;
    note_queued(h);
    net_conn_kick(h->net);
}

size_t h1_room(const struct http_stream *st)
{
    const struct h1 *h = st->conn;
    size_t queued_len = net_conn_queued(h->net);

    return queued_len < NET_CONN_FILL ? NET_CONN_FILL - queued_len : 0;
}

void h1_raw_write(struct http_stream *st, const void *p, size_t n)
{
    struct h1 *h = st->conn;

    net_conn_write(h->net, p, n);
}

void h1_finish(struct http_stream *st)
{
    struct h1 *h = st->conn;

    if (h == NULL || h->state == CLOSING)
        return;
    h->state = CLOSING;
    net_conn_finish(h->net);
}

void h1_pause(struct http_stream *st, bool paused)
{
    struct h1 *h = st->conn;

    if (h != NULL && h->state == UPGRADED)
        set_paused(h, paused);
}
