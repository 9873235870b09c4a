/*
 * h2_fuzz.c - bytes into a server's HTTP/2 session, without a socket
 *
 * The first byte chooses the size of the pieces. Handlers answer at once, later, in part, or cancel, as the path says; each
 * stream must close exactly once.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "http/grpc.h"
#include "http/h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static long open_streams;

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

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    grpc_call_consumed(c, n);
    grpc_send(c, p, n);
}

static void on_half_close(struct grpc_call *c, void *ctx)
{
    grpc_finish(c, GRPC_OK, NULL);
}

static const struct grpc_ops call_ops = {.on_message = on_message, .on_half_close = on_half_close};

static void method(struct grpc_call *c, void *arg)
{
    grpc_call_set(c, &call_ops, NULL);
}

static const struct grpc_method methods[] = {{"/", method}, {"/m", method}};

static void on_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    if (grpc_is_request(rq)) {
        grpc_serve(st, rq, methods, array_len(methods), NULL);
        return;
    }
    open_streams++;
    http_stream_set(st, &quiet_ops, NULL);
    switch (rq->path[1]) {
    case 'c':
        http_stream_cancel(st);
        break;
    case 'w':
        break;
    case 'a':
        http_respond_all(st, 200, "text/plain", "all", 3);
        break;
    case 's':
        sse_start(st, NULL, 0);
        sse_send(st, "e", "1", "data", 4);
        break;
    default:
        http_stream_set(st, &ops, NULL);
        http_respond(st, 200, rq->headers, rq->nheaders);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_conn_config conf = {.on_request = on_request, .peer = "fuzz"};

    if (size == 0)
        return 0;
    if (loop == NULL)
        loop = loop_new();
    conf.loop = loop;
    size_t piece = data[0] == 0 ? size : data[0];
    struct h2 *h = h2_new_detached(&conf);
    h2_read(h, (const uint8_t *)"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    for (size_t at = 1; at < size; at += piece) {
        h2_read(h, data + at, size - at < piece ? size - at : piece);
        /* The jobs of this turn; a timer that is armed does not hold the loop up. */
        loop_stop(loop);
        (void)loop_run(loop);
    }
    h2_free(h);
    loop_stop(loop);
    (void)loop_run(loop);
    if (open_streams != 0)
        abort();
    return 0;
}
