/*
 * ws.c - WebSocket over an upgraded HTTP/1.1 stream (wslay does frames)
 *
 * Input comes by ws_input() from h1.c; output is produced in ws_fill() as the connection takes it.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <wslay/wslay.h>

#include "base/mem.h"
#include "http/h1.h"
#include "net/digest.h"

#define KEY_LEN 24
#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
/* A peer that does not answer our close frame. */
#define CLOSE_MS 5000

struct ws {
    struct http_stream *st;
    wslay_event_context_ptr wslay;
    const struct ws_ops *ops;
    void *ctx;
    const uint8_t *in;          /* input being taken */
    size_t in_len;
    struct loop_timer *timer;
    int close_code;             /* wanted, but not queued while messages wait: a close frame overtakes them; 0 = none */
    bool is_closing;            /* the close handshake is done, or given up */
};

/* --- wslay's callbacks ----------------------------------------------------------------------- */

static ssize_t on_recv(wslay_event_context_ptr w, uint8_t *p, size_t n, int flags, void *arg)
{
    struct ws *ws = arg;

    if (ws->in_len == 0) {
        wslay_event_set_error(w, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    if (n > ws->in_len)
        n = ws->in_len;
    memcpy(p, ws->in, n);
    ws->in += n;
    ws->in_len -= n;
    return (ssize_t)n;
}

static ssize_t on_send(wslay_event_context_ptr w, const uint8_t *p, size_t n, int flags, void *arg)
{
    struct ws *ws = arg;
    size_t room = h1_room(ws->st);

    if (room == 0) {
        wslay_event_set_error(w, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    if (n > room)
        n = room;
    h1_raw_write(ws->st, p, n);
    return (ssize_t)n;
}

static void on_msg(wslay_event_context_ptr w, const struct wslay_event_on_msg_recv_arg *msg, void *arg)
{
    struct ws *ws = arg;

    if (wslay_is_ctrl_frame(msg->opcode) || ws->st->is_cancelled)
        return;                 /* pings and close frames are answered by wslay */
    ws->ops->on_message(ws->st, msg->opcode == WSLAY_BINARY_FRAME, msg->msg, msg->msg_length, ws->ctx);
}

/* --- the stream's side ----------------------------------------------------------------------- */

static void on_close_over(void *arg)
{
    struct ws *ws = arg;

    ws->is_closing = true;
    h1_finish(ws->st);
}

/* The close frame that ws_close asked for, once everything before it has gone. */
static void queue_close(struct ws *ws)
{
    if (ws->close_code == 0 || wslay_event_want_write(ws->wslay))
        return;
    (void)wslay_event_queue_close(ws->wslay, (uint16_t)ws->close_code, NULL, 0);
    ws->close_code = 0;
    ws->timer = loop_timer_new(ws->st->loop, on_close_over, ws);
    loop_timer_set(ws->timer, CLOSE_MS);
}

static void check_end(struct ws *ws)
{
    if (ws->is_closing || wslay_event_want_read(ws->wslay) || wslay_event_want_write(ws->wslay))
        return;
    ws->is_closing = true;
    h1_finish(ws->st);
}

void ws_input(struct http_stream *st, const uint8_t *p, size_t n)
{
    struct ws *ws = st->ws;

    ws->in = p;
    ws->in_len = n;
    int r = wslay_event_recv(ws->wslay);
    ws->in_len = 0;
    if (r != 0) {
        ws->is_closing = true;
        h1_finish(st);
        return;
    }
    if (wslay_event_want_write(ws->wslay))
        h1_kick(st);
    else
        check_end(ws);
}

void ws_fill(struct http_stream *st)
{
    struct ws *ws = st->ws;

    if (ws->is_closing)
        return;
    int r = wslay_event_want_write(ws->wslay) ? wslay_event_send(ws->wslay) : 0;
    if (r == 0 && ws->close_code != 0) {
        queue_close(ws);
        r = wslay_event_want_write(ws->wslay) ? wslay_event_send(ws->wslay) : 0;
    }
    if (r != 0) {
        ws->is_closing = true;
        h1_finish(st);
        return;
    }
    check_end(ws);
}

size_t ws_queued(const struct http_stream *st)
{
    return wslay_event_get_queued_msg_length(st->ws->wslay);
}

static void on_writable(struct http_stream *st, void *ctx)
{
    struct ws *ws = ctx;

    if (ws->ops->on_writable != NULL)
        ws->ops->on_writable(st, ws->ctx);
}

static void on_close(struct http_stream *st, enum http_close why, void *ctx)
{
    struct ws *ws = ctx;
    int code = WSLAY_CODE_ABNORMAL_CLOSURE;

    if (wslay_event_get_close_received(ws->wslay))
        code = wslay_event_get_status_code_received(ws->wslay);
    else if (wslay_event_get_close_sent(ws->wslay))
        code = wslay_event_get_status_code_sent(ws->wslay);
    if (ws->ops->on_close != NULL)
        ws->ops->on_close(st, code, ws->ctx);
    st->ws = NULL;
    loop_timer_free(ws->timer);
    wslay_event_context_free(ws->wslay);
    free(ws);
}

static const struct http_ops stream_ops = {.on_writable = on_writable, .on_close = on_close};

/* --- calls ----------------------------------------------------------------------------------- */

static const char *key_of(const struct http_request *rq)
{
    const char *upgrade = http_header_get(rq->headers, rq->nheaders, "upgrade");
    const char *version = http_header_get(rq->headers, rq->nheaders, "sec-websocket-version");
    const char *key = http_header_get(rq->headers, rq->nheaders, "sec-websocket-key");

    if (upgrade == NULL || strcasecmp(upgrade, "websocket") != 0 || version == NULL ||
        strcmp(version, "13") != 0 || key == NULL || strlen(key) != KEY_LEN)
        return NULL;
    return key;
}

bool ws_is_upgrade(const struct http_request *rq)
{
    return rq->version == 11 && strcmp(rq->method, "GET") == 0 && !rq->has_body && key_of(rq) != NULL;
}

/* The first subprotocol that the client offers: a server of ours has no opinion, and clients insist on an answer. */
static int make_head(const struct http_request *rq, const char *accept, char *out, size_t size)
{
    const char *offered = http_header_get(rq->headers, rq->nheaders, "sec-websocket-protocol");
    size_t len = offered != NULL ? strcspn(offered, ", \t") : 0;

    return snprintf(out, size,
                    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
                    "sec-websocket-accept: %s\r\n%s%.*s%s\r\n",
                    accept, len > 0 ? "sec-websocket-protocol: " : "", (int)(len < 200 ? len : 0),
                    len > 0 ? offered : "", len > 0 ? "\r\n" : "");
}

int ws_accept(struct http_stream *st, const struct http_request *rq, size_t max_message,
              const struct ws_ops *ops, void *ctx, struct err *e)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = on_recv, .send_callback = on_send, .on_msg_recv_callback = on_msg};
    char text[KEY_LEN + sizeof GUID], accept[NET_SHA1_BASE64_SIZE], head[512];

    if (!ws_is_upgrade(rq))
        return err_set(e, ERR_MALFORMED, "the request is no WebSocket handshake of version 13");
    if (st->conn == NULL || st->has_responded)
        return err_set(e, ERR_UNAVAILABLE, "the client has gone");
    int n = snprintf(text, sizeof text, "%s" GUID, key_of(rq));
    if (net_sha1_base64(text, (size_t)n, accept) < 0)
        return err_set(e, ERR_INTERNAL, "cannot compute the handshake");
    struct ws *ws = mem_zalloc(sizeof *ws);
    if (wslay_event_context_server_init(&ws->wslay, &callbacks, ws) != 0) {
        free(ws);
        return err_set(e, ERR_INTERNAL, "cannot begin a WebSocket");
    }
    wslay_event_config_set_max_recv_msg_length(ws->wslay, max_message);
    ws->st = st;
    ws->ops = ops;
    ws->ctx = ctx;
    st->ws = ws;
    http_stream_set(st, &stream_ops, ws);
    n = make_head(rq, accept, head, sizeof head);
    h1_upgrade(st, head, (size_t)n);
    return 0;
}

void ws_send(struct http_stream *st, bool binary, const void *p, size_t n)
{
    struct wslay_event_msg msg = {.opcode = binary ? WSLAY_BINARY_FRAME : WSLAY_TEXT_FRAME,
                                  .msg = p,
                                  .msg_length = n};

    if (st->ws == NULL || st->ws->is_closing || st->ws->close_code != 0 || st->is_cancelled)
        return;
    (void)wslay_event_queue_msg(st->ws->wslay, &msg);   /* refused only once a close frame is queued */
    h1_kick(st);
}

void ws_close(struct http_stream *st, int code)
{
    struct ws *ws = st->ws;

    if (ws == NULL || ws->is_closing || st->is_cancelled)
        return;
    if (ws->timer == NULL)
        ws->close_code = code;
    queue_close(ws);
    h1_pause(st, false);        /* the peer's close frame must get in */
    h1_kick(st);
}

void ws_pause(struct http_stream *st, bool paused)
{
    if (st->ws != NULL)
        h1_pause(st, paused);
}
