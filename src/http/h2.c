/*
 * h2.c - HTTP/2 sessions: connection life, nghttp2's callbacks
 *
 * Streams' calls are in h2_stream.c. Invariant: nghttp2's receive and send functions run only from net_conn's
 * callbacks, so that no call of a user ever runs a callback of a user.
 */
#include "http/h2.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/h2_internal.h"

#define CONNECTION_WINDOW (64 * 1024 * 1024)
#define FRAME_SIZE (64 * 1024)
/* Frames that wait for a peer that does not read them. */
#define OUTBOUND_MAX 20000
/* Streams that the peer may reset: a burst, then so many a second. */
#define RESET_BURST 4096
#define RESET_RATE 200
/* Malformed frames that cost a stream: the same from the other side. */
#define INVALID_BURST 256
#define INVALID_RATE 10
/* How long, at least and at most twice, a client may go on sending a body behind a complete response. */
#define GRACE_MS 1000
/* A peer that goes on that far over LIMIT_HTTP_HEAD means harm. */
#define HEAD_ABUSE (16 * (size_t)LIMIT_HTTP_HEAD)

/* --- life ------------------------------------------------------------------------------------ */

static void destroy(struct h2 *h)
{
    h->is_dead = true;
    while (h->streams != NULL) {
        struct http_stream *st = h->streams;
        enum http_close why = h->conf.on_request != NULL ? HTTP_CLOSE_CANCELLED : HTTP_CLOSE_ERROR;
        h2_unlink(h, st);
        if (st->close_errno == 0)
            st->close_errno = h->close_errno;
        stream_close(st, why);
    }
    nghttp2_session_del(h->session);
    net_conn_free(h->net);
    head_done(&h->head);
    loop_timer_free(h->grace);
    void (*on_gone)(void *) = h->conf.on_gone;
    void *owner = h->conf.owner;
    free(h);
    if (on_gone != NULL)
        on_gone(owner);
}

void h2_enter(struct h2 *h)
{
    h->depth++;
}

/* False: the connection is gone. */
bool h2_leave(struct h2 *h)
{
    if (--h->depth > 0 || !h->is_dead)
        return true;
    destroy(h);
    return false;
}

void h2_free(struct h2 *h)
{
    if (h->is_dead)
        return;
    h->is_dead = true;
    if (h->depth == 0) {
        /* A last word, if it can leave at once. A client needs none (and nghttp2 1.52 would leak requests that wait). */
        if (h->conf.on_request != NULL &&
            nghttp2_session_terminate_session(h->session, NGHTTP2_NO_ERROR) == 0)
            (void)nghttp2_session_send(h->session);
        if (h->net != NULL)
            net_conn_send_now(h->net);
        destroy(h);
    }
}

static void on_end(struct net_conn *c, int sys_errno, void *ctx)
{
    struct h2 *h = ctx;

    h->close_errno = sys_errno != 0 ? sys_errno : ECONNRESET;
    h2_enter(h);
    h->is_dead = true;
    (void)h2_leave(h);
}

void h2_read(struct h2 *h, const uint8_t *p, size_t n)
{
    h2_enter(h);
    ssize_t used = nghttp2_session_mem_recv(h->session, p, n);
    if (!h->is_dead) {
        bool is_flood = nghttp2_session_get_outbound_queue_size(h->session) > OUTBOUND_MAX;
        if (is_flood)
            (void)nghttp2_session_terminate_session(h->session, NGHTTP2_ENHANCE_YOUR_CALM);
        if (used < 0 || is_flood)
            h->is_failed = true;
        if (h->net == NULL)
            (void)nghttp2_session_send(h->session);
        if (!h->is_dead && h->net != NULL && (h->is_failed || nghttp2_session_want_write(h->session) ||
                                              !nghttp2_session_want_read(h->session)))
            net_conn_kick(h->net);
    }
    (void)h2_leave(h);
}

static void on_read(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
    h2_read(ctx, p, n);
}

static void on_fill(struct net_conn *c, void *ctx)
{
    struct h2 *h = ctx;

    h2_enter(h);
    int r = nghttp2_session_send(h->session);
    if (!h->is_dead) {
        bool is_over = !nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session);
        if (r < 0 || h->is_failed || is_over)
            net_conn_finish(h->net);
    }
    (void)h2_leave(h);
}

static const struct net_conn_ops net_ops = {.on_read = on_read, .on_fill = on_fill, .on_end = on_end};

/* --- sending --------------------------------------------------------------------------------- */

static ssize_t on_send(nghttp2_session *s, const uint8_t *p, size_t n, int flags, void *arg)
{
    struct h2 *h = arg;

    if (h->net == NULL)
        return (ssize_t)n;
    if (net_conn_queued(h->net) >= NET_CONN_FILL)
        return NGHTTP2_ERR_WOULDBLOCK;
    net_conn_write(h->net, p, n);
    return (ssize_t)n;
}

static int on_send_data(nghttp2_session *s, nghttp2_frame *frame, const uint8_t *framehd, size_t n,
                        nghttp2_data_source *source, void *arg)
{
    struct h2 *h = arg;
    struct http_stream *st = nghttp2_session_get_stream_user_data(s, frame->hd.stream_id);

    if (st == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t before = queue_len(&st->out);
    if (h->net != NULL) {
        uint8_t *to = net_conn_reserve(h->net, n + 9);
        memcpy(to, framehd, 9);
        memcpy(to + 9, queue_data(&st->out), n);
        net_conn_wrote(h->net, n + 9);
    }
    queue_drop(&st->out, n);
    stream_sent(st, before, before - n);
    return 0;
}

static ssize_t on_read_length(nghttp2_session *s, uint8_t type, int32_t id, int32_t session_window,
                              int32_t stream_window, uint32_t max_frame, void *arg)
{
    return max_frame < FRAME_SIZE ? max_frame : FRAME_SIZE;
}

/* Resets the answered streams that were there at the last turn of this timer already. */
static void on_grace_over(void *arg)
{
    struct h2 *h = arg;

    h->is_grace_running = false;
    for (struct http_stream *st = h->streams; st != NULL; st = st->next) {
        if (!st->is_answered || st->peer_ended)
            continue;
        if (st->is_grace_over)
            (void)nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_NO_ERROR);
        else
            h->is_grace_running = true;
        st->is_grace_over = true;
    }
    if (h->is_grace_running)
        loop_timer_set(h->grace, GRACE_MS);
    if (h->net != NULL)
        net_conn_kick(h->net);
}

static int on_frame_send(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    struct h2 *h = arg;

    if ((frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) || h->conf.on_request == NULL)
        return 0;
    struct http_stream *st = nghttp2_session_get_stream_user_data(s, frame->hd.stream_id);
    /* The response is complete: what the peer would still send is of no use. But a reset that comes with the response
     * makes some clients (curl 7.88) forget the response, so they get a moment to read it and stop by themselves. */
    if (st != NULL && !st->peer_ended) {
        st->is_answered = true;
        if (h->grace == NULL)
            h->grace = loop_timer_new(h->conf.loop, on_grace_over, h);
        if (!h->is_grace_running)
            loop_timer_set(h->grace, GRACE_MS);
        h->is_grace_running = true;
    }
    return 0;
}

/* --- receiving ------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    struct h2 *h = arg;

    if (h->is_dead)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    head_clear(&h->head);
    if (h->conf.on_request != NULL && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        struct http_stream *st = h2_stream_new(h);
        st->id = frame->hd.stream_id;
        (void)nghttp2_session_set_stream_user_data(s, frame->hd.stream_id, st);
    }
    return 0;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
    struct h2 *h = arg;

    head_add(&h->head, name, name_len, value, value_len);
    return h->head.total > HEAD_ABUSE ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void on_request_head(struct h2 *h, struct http_stream *st, bool ends)
{
    struct h2_head *hd = &h->head;
    struct http_request rq = {
        .method = hd->method != 0 ? hd->mem + hd->method : "",
        .authority = hd->authority != 0 ? hd->mem + hd->authority : "",
        .version = 20,
        .tls = h->is_tls,
        .headers = hd->fields,
        .nheaders = hd->n,
        .has_body = !ends,
        .content_length = -1,
    };
    const char *host = http_header_get(hd->fields, hd->n, "host");
    const char *length = http_header_get(hd->fields, hd->n, "content-length");

    if (hd->is_over) {
        stream_error(st, 431, "too_large", "the header fields are over the limit");
        return;
    }
    st->is_head = strcmp(rq.method, "HEAD") == 0;
    if (strcmp(rq.method, "CONNECT") == 0) {
        stream_error(st, 405, "method_not_allowed", "CONNECT is not served");
        return;
    }
    if (hd->path == 0 || !target_split(hd->mem + hd->path, &rq.path, &rq.query)) {
        stream_error(st, 400, "malformed_request", "the path has characters that must be escaped");
        return;
    }
    if (hd->authority == 0 && host != NULL)
        rq.authority = host;
    if (length != NULL && strlen(length) <= 18)     /* nghttp2 has checked that it is a number */
        rq.content_length = strtoll(length, NULL, 10);
    if (ends)
        rq.content_length = 0;
    memcpy(rq.peer, h->conf.peer, sizeof rq.peer);
    h->conf.on_request(st, &rq, h->conf.request_arg);
}

static int on_headers(struct h2 *h, struct http_stream *st, const nghttp2_frame *frame)
{
    struct h2_head *hd = &h->head;
    bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

    head_finish(hd);
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        on_request_head(h, st, ends);
        if (ends && !h->is_dead)
            stream_body_end(st, NULL, 0);
        return 0;
    }
    if (st->is_client && !st->has_responded) {
        if (hd->status < 200)
            return 0;
        if (hd->is_over)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        struct http_response rs = {.status = hd->status, .headers = hd->fields, .nheaders = hd->n};
        st->has_responded = true;
        if (!st->is_cancelled && st->ops != NULL && st->ops->on_response != NULL)
            st->ops->on_response(st, &rs, st->ctx);
        if (ends && !h->is_dead)
            stream_body_end(st, NULL, 0);
        return 0;
    }
    if (ends)
        stream_body_end(st, hd->fields, hd->n);
    return 0;
}

static int on_frame_recv(nghttp2_session *s, const nghttp2_frame *frame, void *arg)
{
    struct h2 *h = arg;
    struct http_stream *st;
    int r = 0;

    if (h->is_dead)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        st = nghttp2_session_get_stream_user_data(s, frame->hd.stream_id);
        if (st != NULL)
            r = on_headers(h, st, frame);
        break;
    case NGHTTP2_DATA:
        st = nghttp2_session_get_stream_user_data(s, frame->hd.stream_id);
        if (st != NULL && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
            stream_body_end(st, NULL, 0);
        break;
    case NGHTTP2_RST_STREAM:
        st = nghttp2_session_get_stream_user_data(s, frame->hd.stream_id);
        if (st != NULL)
            st->peer_code = frame->rst_stream.error_code;
        break;
    case NGHTTP2_SETTINGS:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
            h->peer_streams =
                nghttp2_session_get_remote_settings(s, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
        break;
    case NGHTTP2_GOAWAY:
        h->is_closing = true;
        break;
    default:
        break;
    }
    return h->is_dead ? NGHTTP2_ERR_CALLBACK_FAILURE : r;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *arg)
{
    struct h2 *h = arg;
    struct http_stream *st = nghttp2_session_get_stream_user_data(s, id);

    (void)nghttp2_session_consume_connection(s, n);
    if (st == NULL)
        return 0;
    stream_body(st, p, n);
    return h->is_dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_close(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
    struct h2 *h = arg;
    struct http_stream *st = nghttp2_session_get_stream_user_data(s, id);
    enum http_close why = HTTP_CLOSE_DONE;

    if (st == NULL)
        return 0;
    bool is_complete = st->is_client ? st->peer_ended : st->has_ended || st->is_mute;
    if (st->peer_code == 0)
        st->peer_code = code;
    if (!is_complete || (code != NGHTTP2_NO_ERROR && !st->is_client))
        why = code == NGHTTP2_NO_ERROR || code == NGHTTP2_CANCEL || code == NGHTTP2_REFUSED_STREAM
                  ? HTTP_CLOSE_CANCELLED
                  : HTTP_CLOSE_ERROR;
    (void)nghttp2_session_set_stream_user_data(s, id, NULL);
    h2_unlink(h, st);
    stream_close(st, why);
    return h->is_dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_invalid_frame(nghttp2_session *s, const nghttp2_frame *frame, int code, void *arg)
{
    struct h2 *h = arg;
    int64_t now_ms = clock_boot_ms();
    int64_t refill = (now_ms - h->invalid_ms) * INVALID_RATE / 1000;

    if (code == NGHTTP2_ERR_REFUSED_STREAM)
        return 0;
    if (refill > 0) {
        h->invalid = h->invalid > refill ? h->invalid - (int)refill : 0;
        h->invalid_ms = now_ms;
    }
    if (++h->invalid > INVALID_BURST)
        (void)nghttp2_session_terminate_session(s, NGHTTP2_ENHANCE_YOUR_CALM);
    return 0;
}

/* --- making ---------------------------------------------------------------------------------- */

static nghttp2_session_callbacks *make_callbacks(void)
{
    nghttp2_session_callbacks *cb;

    if (nghttp2_session_callbacks_new(&cb) != 0)
        abort();                /* out of memory, as in mem.h */
    nghttp2_session_callbacks_set_send_callback(cb, on_send);
    nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(cb, on_read_length);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
    return cb;
}

static void make_session(struct h2 *h)
{
    static nghttp2_session_callbacks *callbacks;
    static nghttp2_option *option;
    bool is_server = h->conf.on_request != NULL;
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_SIZE},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, LIMIT_HTTP_HEAD},
        {is_server ? NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS : NGHTTP2_SETTINGS_ENABLE_PUSH,
         is_server ? LIMIT_STREAMS : 0},
    };

    if (callbacks == NULL) {
        callbacks = make_callbacks();
        if (nghttp2_option_new(&option) != 0)
            abort();
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_peer_max_concurrent_streams(option, LIMIT_STREAMS);
        nghttp2_option_set_stream_reset_rate_limit(option, RESET_BURST, RESET_RATE);
    }
    int r = is_server ? nghttp2_session_server_new2(&h->session, callbacks, h, option)
                      : nghttp2_session_client_new2(&h->session, callbacks, h, option);
    if (r != 0)
        abort();
    (void)nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, array_len(settings));
    (void)nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW);
}

struct h2 *h2_new_detached(const struct http_conn_config *conf)
{
    struct h2 *h = mem_zalloc(sizeof *h);

    h->conf = *conf;
    h->peer_streams = LIMIT_STREAMS;
    h->invalid_ms = clock_boot_ms();
    make_session(h);
    return h;
}

struct h2 *h2_new(const struct http_conn_config *conf, struct net_conn *net)
{
    struct h2 *h = h2_new_detached(conf);

    h->net = net;
    h->is_tls = net_conn_is_tls(net);
    net_conn_set(net, &net_ops, h);
    net_conn_kick(net);
    return h;
}

bool h2_is_closing(const struct h2 *h)
{
    return h->is_closing || h->is_failed || h->is_dead ||
           !nghttp2_session_check_request_allowed(h->session);
}

bool h2_has_room(const struct h2 *h)
{
    return !h2_is_closing(h) && h->nstreams < h->peer_streams;
}
