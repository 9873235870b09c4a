/*
 * http_echo_server.c - a server over src/http for tests from outside (Python's h2 and grpc, curl, h2load)
 *
 * Usage: http_echo_server [--tls CERT KEY] ADDRESS... - prints "port N" when it listens (N is 0 for unix sockets only) and runs
 * until SIGTERM. With --tls the certificate is made if it is missing.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "http/grpc.h"
#include "net/tls.h"

static uint64_t closed_done, closed_other;

/* --- bodies ---------------------------------------------------------------------------------- */

/* One exchange: /echo sends back, /count adds up, /bytes produces. */
struct exchange {
    bool is_echo;
    bool is_count;
    uint64_t received;
    uint32_t sum;               /* FNV-1a of the body */
    uint64_t left;              /* /bytes: still to send */
    size_t held;                /* /echo: credit not given back yet */
    bool has_peer_ended;
};

static uint8_t pattern[64 * 1024];

static void produce(struct http_stream *st, struct exchange *x)
{
    while (x->left > 0 && http_stream_queued(st) < HTTP_HIGH) {
        size_t n = x->left < sizeof pattern ? (size_t)x->left : sizeof pattern;
        http_stream_write(st, pattern, n);
        x->left -= n;
    }
    if (x->left == 0)
        http_stream_end(st, NULL, 0);
}

static void on_body(struct http_stream *st, const void *p, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    const uint8_t *bytes = p;

    x->received += n;
    if (x->is_count) {
        for (size_t i = 0; i < n; i++)
            x->sum = (x->sum ^ bytes[i]) * 16777619U;
        http_stream_consume(st, n);
        return;
    }
    if (!x->is_echo)
        return;                 /* /never: held for good */
    http_stream_write(st, p, n);
    if (http_stream_queued(st) < HTTP_HIGH)
        http_stream_consume(st, n);
    else
        x->held += n;
}

static void on_body_end(struct http_stream *st, const struct http_header *trailers, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    char text[80];

    x->has_peer_ended = true;
    if (x->is_echo) {
        http_stream_end(st, trailers, n);
    } else if (x->is_count) {
        int len = snprintf(text, sizeof text, "{\"length\":%llu,\"sum\":%u}",
                           (unsigned long long)x->received, x->sum);
        http_respond_all(st, 200, "application/json", text, (size_t)len);
    }
}

static void on_writable(struct http_stream *st, void *ctx)
{
    struct exchange *x = ctx;

    if (x->is_echo) {
        http_stream_consume(st, x->held);
        x->held = 0;
    } else if (!x->is_count) {
        produce(st, x);
    }
}

static void on_close(struct http_stream *st, enum http_close why, void *ctx)
{
    if (why == HTTP_CLOSE_DONE)
        closed_done++;
    else
        closed_other++;
    free(ctx);
}

static const struct http_ops exchange_ops = {
    .on_body = on_body, .on_body_end = on_body_end, .on_writable = on_writable, .on_close = on_close};

/* --- WebSocket ------------------------------------------------------------------------------- */

static void on_ws_message(struct http_stream *st, bool binary, const void *p, size_t n, void *ctx)
{
    if (!binary && n == 5 && memcmp(p, "close", 5) == 0)
        ws_close(st, 4001);
    else
        ws_send(st, binary, p, n);
}

static void on_ws_close(struct http_stream *st, int code, void *ctx)
{
    closed_done++;
}

static const struct ws_ops ws_ops = {.on_message = on_ws_message, .on_close = on_ws_close};

/* --- gRPC ------------------------------------------------------------------------------------ */

static void on_unary_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    const char *echo = grpc_call_metadata(c, "x-echo");

    if (echo != NULL)
        grpc_call_trailer(c, "x-echo-back", echo);
    grpc_call_consumed(c, n);
    grpc_reply(c, p, n);
}

static void on_stream_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    grpc_send(c, p, n);
    grpc_call_consumed(c, n);
}

static void on_stream_half_close(struct grpc_call *c, void *ctx)
{
    grpc_finish(c, GRPC_OK, NULL);
}

static void on_count_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    closed_other++;
}

static const struct grpc_ops unary_ops = {.on_message = on_unary_message, .on_end = on_count_end};
static const struct grpc_ops stream_ops = {
    .on_message = on_stream_message, .on_half_close = on_stream_half_close, .on_end = on_count_end};
static const struct grpc_ops never_ops = {.on_end = on_count_end};

static void unary(struct grpc_call *c, void *arg)
{
    grpc_call_set(c, &unary_ops, NULL);
}

static void stream(struct grpc_call *c, void *arg)
{
    grpc_call_set(c, &stream_ops, NULL);
}

static void never(struct grpc_call *c, void *arg)
{
    grpc_call_set(c, &never_ops, NULL);
}

static void fail(struct grpc_call *c, void *arg)
{
    struct err e;

    (void)err_param(&e, ERR_NOT_FOUND, "sandbox_id", "no sandbox 'ä%%\n'");
    grpc_finish_err(c, &e);
}

static const struct grpc_method methods[] = {
    {"/test.Echo/Unary", unary},
    {"/test.Echo/Stream", stream},
    {"/test.Echo/Never", never},
    {"/test.Echo/Fail", fail},
};

/* --- routes ---------------------------------------------------------------------------------- */

static struct exchange *begin(struct http_stream *st)
{
    struct exchange *x = mem_zalloc(sizeof *x);

    x->sum = 2166136261U;
    http_stream_set(st, &exchange_ops, x);
    return x;
}

static void describe(struct http_stream *st, const struct http_request *rq)
{
    char text[512];
    int n = snprintf(text, sizeof text,
                     "{\"method\":\"%s\",\"path\":\"%s\",\"query\":\"%s\",\"authority\":\"%s\",\"version\":%d,"
                     "\"tls\":%s,\"headers\":%zu}",
                     rq->method, rq->path, rq->query, rq->authority, rq->version,
                     rq->tls ? "true" : "false", rq->nheaders);

    http_respond_all(st, 200, "application/json", text, (size_t)n < sizeof text ? (size_t)n : 0);
}

static void on_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    static const struct http_header plain[] = {{"content-type", "application/octet-stream"}};
    char text[120];

    if (grpc_is_request(rq)) {
        grpc_serve(st, rq, methods, array_len(methods), NULL);
    } else if (strcmp(rq->path, "/hello") == 0) {
        http_respond_all(st, 200, "text/plain", "hello", 5);
    } else if (strcmp(rq->path, "/echo") == 0) {
        begin(st)->is_echo = true;
        http_respond(st, 200, plain, 1);
    } else if (strcmp(rq->path, "/count") == 0) {
        begin(st)->is_count = true;
    } else if (strcmp(rq->path, "/bytes") == 0) {
        struct exchange *x = begin(st);
        x->left = strtoull(rq->query, NULL, 10);
        http_respond(st, 200, plain, 1);
        produce(st, x);
    } else if (strcmp(rq->path, "/never") == 0) {
        (void)begin(st);
    } else if (strcmp(rq->path, "/early") == 0) {
        http_respond_all(st, 413, "text/plain", "too much", 8);
    } else if (strcmp(rq->path, "/none") == 0) {
        http_respond(st, 204, NULL, 0);
        http_stream_end(st, NULL, 0);
    } else if (strcmp(rq->path, "/closed") == 0) {
        int n = snprintf(text, sizeof text, "{\"done\":%llu,\"other\":%llu}",
                         (unsigned long long)closed_done, (unsigned long long)closed_other);
        http_respond_all(st, 200, "application/json", text, (size_t)n);
    } else if (strcmp(rq->path, "/sse") == 0) {
        sse_start(st, NULL, 0);
        sse_send(st, "greeting", "1", "a\nb", 3);
        sse_send(st, NULL, NULL, "c", 1);
        http_stream_end(st, NULL, 0);
    } else if (strcmp(rq->path, "/ws") == 0) {
        struct err e;
        if (ws_accept(st, rq, 1024 * 1024, &ws_ops, NULL, &e) < 0)
            http_respond_all(st, 400, "text/plain", e.message, strlen(e.message));
    } else {
        describe(st, rq);
    }
}

static void on_term(int sig, void *arg)
{
    loop_stop(arg);
}

int main(int argc, char **argv)
{
    struct loop *l = loop_new();
    struct http_server *s = http_server_new(l, on_request, NULL);
    struct err e = {0};
    int at = 1;

    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i * 7 + i / 256);
    if (argc > 3 && strcmp(argv[1], "--tls") == 0) {
        if (net_tls_self_signed(argv[2], argv[3], NULL, &e) < 0 ||
            http_server_tls(s, argv[2], argv[3], &e) < 0) {
            fprintf(stderr, "%s\n", e.message);
            return 1;
        }
        at = 4;
    }
    for (; at < argc; at++) {
        if (http_server_listen(s, argv[at], &e) < 0) {
            fprintf(stderr, "%s\n", e.message);
            return 1;
        }
    }
    loop_on_signal(l, SIGTERM, on_term, l);
    printf("port %d\n", http_server_port(s));
    (void)fflush(stdout);
    int r = loop_run(l);
    http_server_free(s);
    loop_free(l);
    return r < 0;
}
