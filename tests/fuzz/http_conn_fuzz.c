/*
 * http_conn_fuzz.c - a whole connection: first bytes, HTTP/1.1 requests, WebSocket
 *
 * The input goes through a socket to a server of the process; then the client closes. Every stream must close, and the
 * connection must be gone.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/h1.h"
#include "net/conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static long open_streams;
static bool is_gone;

static void on_body(struct http_stream *st, const void *p, size_t n, void *ctx)
{
    http_stream_write(st, p, n);
    http_stream_consume(st, n);
}

static void on_body_end(struct http_stream *st, const struct http_header *trailers, size_t n, void *ctx)
{
    http_stream_end(st, trailers, n);
}

static void on_close(struct http_stream *st, enum http_close why, void *ctx)
{
    open_streams--;
}

static const struct http_ops ops = {.on_body = on_body, .on_body_end = on_body_end, .on_close = on_close};
static const struct http_ops quiet_ops = {.on_close = on_close};

static void on_ws_message(struct http_stream *st, bool binary, const void *p, size_t n, void *ctx)
{
    ws_send(st, binary, p, n);
}

static void on_ws_close(struct http_stream *st, int code, void *ctx)
{
    open_streams--;
}

static const struct ws_ops ws_ops = {.on_message = on_ws_message, .on_close = on_ws_close};

static void on_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    open_streams++;
    http_stream_set(st, &quiet_ops, NULL);
    if (rq->path[1] == 'c') {
        http_stream_cancel(st);
    } else if (rq->path[1] == 'a') {
        http_respond_all(st, 200, "text/plain", "all", 3);
    } else if (ws_is_upgrade(rq)) {
        if (ws_accept(st, rq, 1000, &ws_ops, NULL, NULL) < 0)
            abort();
    } else {
        http_stream_set(st, &ops, NULL);
        http_respond(st, 200, NULL, 0);
    }
}

static void on_gone(void *owner)
{
    is_gone = true;
}

static void on_nothing(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct net_conn_ops no_ops = {.on_read = on_nothing};
    struct http_conn_config conf = {.on_request = on_request, .on_gone = on_gone};
    int fds[2];

    if (size > 60000)
        return 0;
    if (loop == NULL)
        loop = loop_new();
    conf.loop = loop;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
        abort();
    is_gone = false;
    struct h1 *h = h1_new(&conf, net_conn_new(loop, fds[0], NULL, &no_ops, NULL));
    size_t half = size / 2;
    h1_read(h, data, half);
    loop_stop(loop);
    (void)loop_run(loop);
    /* The rest by the socket, with the end of the client behind it. */
    if (!is_gone && size > half && write(fds[1], data + half, size - half) < 0)
        abort();
    (void)close(fds[1]);
    (void)loop_run(loop);
    if (!is_gone || open_streams != 0)
        abort();
    return 0;
}
