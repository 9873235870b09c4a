/*
 * http_h1_test.c - the HTTP/1.1 side of the server: exact bytes in, exact bytes out
 */
#include "http_fixture.h"

#include "base/buf.h"
#include "http/h1.h"
#include "net/addr.h"
#include "net/conn.h"

/* --- the server ------------------------------------------------------------------------------ */

struct side {
    struct http_stream *st;
    uint64_t received, left;
    size_t held, max_held, max_queued;
    bool is_slow, is_echo;
    char trailer[16];
    struct loop_timer *timer;
};

static unsigned opened, closed, cancelled;
static struct side *last;

static void produce(struct side *s)
{
    uint8_t part[10000];

    while (s->left > 0 && http_stream_queued(s->st) < HTTP_HIGH) {
        size_t n = s->left < sizeof part ? (size_t)s->left : sizeof part;
        memset(part, 'x', n);
        http_stream_write(s->st, part, n);
        s->left -= n;
        if (http_stream_queued(s->st) > s->max_queued)
            s->max_queued = http_stream_queued(s->st);
    }
    if (s->left == 0)
        http_stream_end(s->st, NULL, 0);
}

static void on_tick(void *arg)
{
    struct side *s = arg;

    http_stream_consume(s->st, s->held);
    s->held = 0;
    loop_timer_set(s->timer, 2);
}

static void on_body(struct http_stream *st, const void *p, size_t n, void *ctx)
{
    struct side *s = ctx;

    s->received += n;
    s->held += n;
    if (s->held > s->max_held)
        s->max_held = s->held;
    if (s->is_echo)
        http_stream_write(st, p, n);
    if (!s->is_slow) {
        http_stream_consume(st, n);
        s->held = 0;
    }
}

static void on_body_end(struct http_stream *st, const struct http_header *trailers, size_t n, void *ctx)
{
    struct side *s = ctx;
    const char *sum = http_header_get(trailers, n, "x-sum");
    char text[64];

    if (s->is_echo) {
        http_stream_end(st, trailers, n);
        return;
    }
    int len = snprintf(text, sizeof text, "%llu%s%s", (unsigned long long)s->received, sum != NULL ? " " : "",
                       sum != NULL ? sum : "");
    http_respond_all(st, 200, "text/plain", text, (size_t)len);
}

static void on_writable(struct http_stream *st, void *ctx)
{
    produce(ctx);
}

static void on_close(struct http_stream *st, enum http_close why, void *ctx)
{
    struct side *s = ctx;

    closed++;
    if (why != HTTP_CLOSE_DONE)
        cancelled++;
    loop_timer_free(s->timer);
    if (last == s)
        last = NULL;
    free(s);
}

static const struct http_ops count_ops = {.on_body = on_body, .on_body_end = on_body_end, .on_close = on_close};
static const struct http_ops bytes_ops = {.on_writable = on_writable, .on_close = on_close};
static const struct http_ops plain_ops = {.on_close = on_close};

static void on_ws_message(struct http_stream *st, bool binary, const void *p, size_t n, void *ctx)
{
    ws_send(st, binary, p, n);
}

static int ws_code;

static void on_ws_close(struct http_stream *st, int code, void *ctx)
{
    ws_code = code;
    closed++;
    if (last == ctx)
        last = NULL;
    free(ctx);
}

static const struct ws_ops ws_ops = {.on_message = on_ws_message, .on_close = on_ws_close};

static void on_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    struct side *s = mem_zalloc(sizeof *s);
    struct http_header three = {"content-length", "3"};
    struct err e;

    opened++;
    last = s;
    s->st = st;
    http_stream_set(st, &plain_ops, s);
    if (strcmp(rq->path, "/count") == 0) {
        http_stream_set(st, &count_ops, s);
        s->is_slow = rq->query[0] != '\0';
        if (strcmp(rq->query, "slow") == 0) {
            s->timer = loop_timer_new(loop, on_tick, s);
            loop_timer_set(s->timer, 2);
        }
    } else if (strcmp(rq->path, "/echo") == 0) {
        s->is_echo = true;
        http_stream_set(st, &count_ops, s);
        http_respond(st, 200, NULL, 0);
    } else if (strcmp(rq->path, "/bytes") == 0) {
        http_stream_set(st, &bytes_ops, s);
        s->left = strtoull(rq->query, NULL, 10);
        http_respond(st, 200, NULL, 0);
        produce(s);
    } else if (strcmp(rq->path, "/none") == 0) {
        http_respond(st, 204, NULL, 0);
        http_stream_write(st, "dropped", 7);
        http_stream_end(st, NULL, 0);
    } else if (strcmp(rq->path, "/early") == 0) {
        http_respond_all(st, 413, "text/plain", "no", 2);
    } else if (strcmp(rq->path, "/long") == 0) {
        http_respond(st, 200, &three, 1);
        http_stream_write(st, "abcdef", 6);
        http_stream_end(st, NULL, 0);
    } else if (strcmp(rq->path, "/short") == 0) {
        http_respond(st, 200, &three, 1);
        http_stream_write(st, "a", 1);
        http_stream_end(st, NULL, 0);
    } else if (strcmp(rq->path, "/inject") == 0) {
        struct http_header h = {"x", "a\r\ny: b"};
        http_respond(st, 200, &h, 1);
        http_stream_end(st, NULL, 0);
    } else if (strcmp(rq->path, "/cancel") == 0) {
        http_stream_cancel(st);
    } else if (strcmp(rq->path, "/sse") == 0) {
        sse_start(st, NULL, 0);
        sse_send(st, "e\nx", "1", "a\r\nb\rc\nd", 8);
        sse_send(st, NULL, NULL, "", 0);
        http_stream_end(st, NULL, 0);
    } else if (strcmp(rq->path, "/ws") == 0) {
        if (ws_accept(st, rq, 100, &ws_ops, s, &e) < 0)
            http_respond_all(st, 400, "text/plain", "no", 2);
    } else if (strcmp(rq->path, "/hold") != 0) {
        http_respond_all(st, 200, "text/plain", rq->path, strlen(rq->path));
    }
}

/* --- a client that speaks in bytes ----------------------------------------------------------- */

struct peer {
    struct net_conn *c;
    struct buf in;
    bool has_ended;
    bool is_deaf;
};

static void on_peer_read(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
    assert_int_equal(buf_add(&((struct peer *)ctx)->in, p, n), 0);
}

static void on_peer_end(struct net_conn *c, int sys_errno, void *ctx)
{
    struct peer *p = ctx;

    p->has_ended = true;
    net_conn_free(p->c);
    p->c = NULL;
}

static const struct net_conn_ops peer_ops = {.on_read = on_peer_read, .on_end = on_peer_end};

static void peer_open(struct peer *p)
{
    struct net_addr a;
    struct err e;

    *p = (struct peer){0};
    buf_init(&p->in, 64 * 1024 * 1024);
    assert_int_equal(net_addr_parse(address, &a, &e), 0);
    p->c = net_conn_connect(loop, &a, &peer_ops, p);
}

static void peer_close(struct peer *p)
{
    net_conn_free(p->c);
    buf_done(&p->in);
}

static void peer_say(struct peer *p, const char *text)
{
    net_conn_write(p->c, text, strlen(text));
}

/* Runs until the input holds `text`, or the connection ended. */
static void peer_expect(struct peer *p, const char *text)
{
    while (strstr(buf_str(&p->in), text) == NULL && !p->has_ended)
        fixture_wait(1);
    if (strstr(buf_str(&p->in), text) == NULL)
        fail_msg("no '%s' in '%s'", text, buf_str(&p->in));
}

static void peer_expect_end(struct peer *p)
{
    while (!p->has_ended)
        fixture_wait(1);
}

/* One connection: say, run until it ends, compare what came (without date lines). */
static void drop_dates(struct buf *b)
{
    for (char *d; b->data != NULL && (d = strstr(b->data, "date: ")) != NULL;) {
        char *end = strstr(d, "\r\n") + 2;
        memmove(d, end, strlen(end) + 1);
        b->len -= (size_t)(end - d);
    }
}

static void exchange(const char *say, const char *expected)
{
    struct peer p;

    peer_open(&p);
    peer_say(&p, say);
    peer_expect_end(&p);
    drop_dates(&p.in);
    assert_string_equal(buf_str(&p.in), expected);
    peer_close(&p);
}

static int setup(void **state)
{
    opened = closed = cancelled = 0;
    ws_code = 0;
    fixture_start(on_request);
    return 0;
}

static int teardown(void **state)
{
    fixture_end();
    assert_int_equal(opened, closed);
    return 0;
}

#define CLOSE "Connection: close\r\n"
#define H "Host: a\r\n"

/* --- tests ----------------------------------------------------------------------------------- */

static void test_plain(void **state)
{
    exchange("GET /x HTTP/1.1\r\n" H CLOSE "\r\n",
             "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\n/x");
    exchange("GET /x HTTP/1.0\r\n\r\n",
             "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\n/x");
    exchange("HEAD /x HTTP/1.1\r\n" H CLOSE "\r\n",
             "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\n");
    exchange("HEAD /bytes?9 HTTP/1.1\r\n" H CLOSE "\r\n", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    exchange("GET /none HTTP/1.1\r\n" H CLOSE "\r\n", "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
    exchange("GET /bytes?3 HTTP/1.1\r\n" H CLOSE "\r\n",
             "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nxxx\r\n0\r\n\r\n");
    exchange("GET /bytes?3 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nxxx");
    assert_int_equal(cancelled, 0);
}

static void test_keep_alive_and_pipeline(void **state)
{
    exchange("GET /1 HTTP/1.1\r\n" H "\r\nPOST /count HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc"
             "\r\nPOST /count HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n"
             "GET /none HTTP/1.1\r\n" H "\r\nGET /2 HTTP/1.1\r\n" H CLOSE "\r\nGET /3 HTTP/1.1\r\n" H "\r\n",
             "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n/1"
             "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\n3"
             "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\n2 7"
             "HTTP/1.1 204 No Content\r\n\r\n"
             "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\n/2");
    assert_int_equal(opened, 5);
    assert_int_equal(cancelled, 0);
}

static void test_byte_by_byte(void **state)
{
    static const char text[] = "POST /count HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n" CLOSE
                               "\r\n5;x=y\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n";
    struct peer p;

    peer_open(&p);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        net_conn_write(p.c, text + i, 1);
        fixture_wait(1);
    }
    peer_expect(&p, "\r\n\r\n5 9");
    peer_expect_end(&p);
    peer_close(&p);
}

static void test_keep_alive_of_1_0(void **state)
{
    struct peer p;

    peer_open(&p);
    peer_say(&p, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    peer_expect(&p, "connection: keep-alive\r\n\r\n/a");
    peer_say(&p, "GET /b HTTP/1.0\r\n\r\n");
    peer_expect(&p, "connection: close\r\n\r\n/b");
    peer_expect_end(&p);
    peer_close(&p);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *say, *status;
    } rows[] = {
        {"GET / HTTP/1.1\r\n\r\n", "400 Bad Request"},
        {"GET / HTTP/1.1\n\n", "400 Bad Request"},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 Bad Request"},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip\r\n\r\n", "501 Not Implemented"},
        {"POST /count HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "400 Bad Request"},
        {"CONNECT a:1 HTTP/1.1\r\n" H "\r\n", "405 Method Not Allowed"},
        {"GET /a#b HTTP/1.1\r\n" H "\r\n", "400 Bad Request"},
        {"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "505 HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        struct peer p;
        peer_open(&p);
        peer_say(&p, rows[i].say);
        peer_say(&p, "GET /smuggled HTTP/1.1\r\n" H "\r\n");
        peer_expect_end(&p);
        assert_non_null(strstr(buf_str(&p.in), rows[i].status));
        assert_non_null(strstr(buf_str(&p.in), "{\"error\":{\"code\":\"malformed_request\",\"message\":\""));
        assert_null(strstr(buf_str(&p.in), "smuggled"));
        assert_null(strstr(buf_str(&p.in) + 1, "HTTP/1.1 "));
        peer_close(&p);
    }
}

static void test_expect_continue(void **state)
{
    struct peer p;

    peer_open(&p);
    peer_say(&p, "POST /count HTTP/1.1\r\n" H "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    peer_expect(&p, "HTTP/1.1 100 Continue\r\n\r\n");
    peer_say(&p, "abc");
    peer_expect(&p, "\r\n\r\n3");
    /* Refused without having asked for the body: whether it comes is unknown, so the connection closes. */
    peer_say(&p, "POST /early HTTP/1.1\r\n" H "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    peer_expect(&p, "413 Content Too Large");
    peer_expect_end(&p);
    assert_non_null(strstr(buf_str(&p.in), "connection: close\r\n\r\nno"));
    peer_close(&p);
}

static void test_early_answer(void **state)
{
    struct peer p;
    static char body[1000001];

    /* A short rest is read and dropped. */
    peer_open(&p);
    peer_say(&p, "POST /early HTTP/1.1\r\n" H "Content-Length: 1000\r\n\r\n");
    peer_expect(&p, "\r\n\r\nno");
    memset(body, 'b', sizeof body - 1);
    net_conn_write(p.c, body, 1000);
    peer_say(&p, "GET /next HTTP/1.1\r\n" H "\r\n");
    peer_expect(&p, "/next");
    /* A long one is not; the answer still arrives though the client goes on sending. */
    buf_clear(&p.in);
    peer_say(&p, "POST /early HTTP/1.1\r\n" H "Content-Length: 1000000\r\n\r\n");
    net_conn_write(p.c, body, 1000000);
    peer_expect_end(&p);
    assert_non_null(strstr(buf_str(&p.in), "connection: close\r\n\r\nno"));
    peer_close(&p);
}

static void test_announced_length(void **state)
{
    exchange("GET /long HTTP/1.1\r\n" H "\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc");
    exchange("GET /short HTTP/1.1\r\n" H "\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na");
    exchange("GET /inject HTTP/1.1\r\n" H CLOSE "\r\n",
             "HTTP/1.1 200 OK\r\nx: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n");
    exchange("GET /cancel HTTP/1.1\r\n" H "\r\n", "");
    assert_int_equal(cancelled, 2);
}

static void test_large_upload_to_a_slow_reader(void **state)
{
    struct peer p;
    static char part[65536];

    peer_open(&p);
    peer_say(&p, "POST /count?slow HTTP/1.1\r\n" H "Content-Length: 26214400\r\n\r\n");
    for (int i = 0; i < 400; i++)
        net_conn_write(p.c, part, sizeof part);
    while (strstr(buf_str(&p.in), "26214400") == NULL) {
        if (last != NULL)
            assert_true(last->max_held < HTTP_WINDOW + 65536);
        fixture_wait(1);
        assert_false(p.has_ended);
    }
    peer_close(&p);
}

static void test_large_download(void **state)
{
    struct peer p;

    peer_open(&p);
    peer_say(&p, "GET /bytes?20000000 HTTP/1.0\r\n\r\n");
    fixture_wait(1);
    net_conn_pause(p.c, true);
    fixture_wait(50);
    assert_non_null(last);
    assert_true(last->left > 0);
    assert_true(last->max_queued < HTTP_HIGH + 20000);
    net_conn_pause(p.c, false);
    peer_expect_end(&p);
    assert_int_equal(p.in.len, strstr(buf_str(&p.in), "\r\n\r\n") + 4 - p.in.data + 20000000);
    assert_int_equal(cancelled, 0);
    peer_close(&p);
}

/* Requests without end and a client that reads no answer: the server stops taking them. */
static void test_pipeline_without_reading(void **state)
{
    struct peer p;

    peer_open(&p);
    fixture_wait(1);
    net_conn_pause(p.c, true);
    for (int i = 0; i < 500; i++)
        peer_say(&p, "GET /bytes?100000 HTTP/1.1\r\n" H "\r\n");
    fixture_wait(150);
    assert_true(opened < 100);
    net_conn_pause(p.c, false);
    while (closed < 500)
        fixture_wait(1);
    assert_int_equal(cancelled, 0);
    peer_close(&p);
}

static void test_duplex(void **state)
{
    struct peer p;

    peer_open(&p);
    peer_say(&p, "POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    peer_expect(&p, "HTTP/1.1 200 OK");
    assert_memory_equal(buf_str(&p.in), "HTTP/1.1 100 Continue\r\n\r\n", 25);
    peer_say(&p, "3\r\nabc\r\n");
    peer_expect(&p, "3\r\nabc\r\n");
    peer_say(&p, "2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n");
    peer_expect(&p, "2\r\nde\r\n0\r\nx-sum: 1\r\n\r\n");
    peer_expect_end(&p);        /* a body of unknown length after the response began costs the connection */
    assert_int_equal(cancelled, 0);
    peer_close(&p);
}

static void test_malformed_chunk_after_the_response_began(void **state)
{
    struct peer p;

    peer_open(&p);
    peer_say(&p, "POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    peer_expect(&p, "1\r\na\r\n");
    peer_say(&p, "xx\r\n");
    peer_expect_end(&p);
    assert_null(strstr(buf_str(&p.in), "0\r\n\r\n"));   /* the body does not look complete */
    assert_int_equal(cancelled, 1);
    peer_close(&p);
}

static void test_client_vanishes(void **state)
{
    struct peer p;

    peer_open(&p);
    peer_say(&p, "GET /hold HTTP/1.1\r\n" H "\r\n");
    while (opened == 0)
        fixture_wait(1);
    peer_close(&p);
    while (closed == 0)
        fixture_wait(1);
    assert_int_equal(cancelled, 1);
    /* Also while the server has stopped reading. */
    static char body[6 * 1024 * 1024];
    peer_open(&p);
    peer_say(&p, "POST /count?stalled HTTP/1.1\r\n" H "Content-Length: 100000000\r\n\r\n");
    net_conn_write(p.c, body, sizeof body);
    while (last == NULL || last->held < HTTP_WINDOW)
        fixture_wait(1);
    peer_close(&p);
    while (closed == 1)
        fixture_wait(1);
    assert_int_equal(cancelled, 2);
}

static void test_server_freed_with_requests(void **state)
{
    struct peer p, q;

    peer_open(&p);
    peer_open(&q);
    peer_say(&p, "GET /hold HTTP/1.1\r\n" H "\r\n");
    peer_say(&q, "GET /ho");
    while (opened == 0)
        fixture_wait(1);
    http_server_free(server);
    server = NULL;
    assert_int_equal(closed, 1);
    peer_expect_end(&p);
    peer_expect_end(&q);
    peer_close(&p);
    peer_close(&q);
}

static void test_sse(void **state)
{
    exchange("GET /sse HTTP/1.0\r\n\r\n",
             "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
             "x-accel-buffering: no\r\nconnection: close\r\n\r\n"
             "event: e\nid: 1\ndata: a\ndata: b\ndata: c\ndata: d\n\ndata: \n\n");
}

#define WS "GET /ws HTTP/1.1\r\n" H "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" \
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

static void ws_open(struct peer *p)
{
    peer_open(p);
    peer_say(p, WS);
    peer_expect(p, "\r\n\r\n");
    assert_non_null(strstr(buf_str(&p->in), "101 Switching Protocols"));
    assert_non_null(strstr(buf_str(&p->in), "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    buf_clear(&p->in);
}

static void test_websocket(void **state)
{
    /* Mask 0: the payload stands as it is. */
    static const uint8_t hello[] = {0x81, 0x85, 0, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'};
    static const uint8_t ping[] = {0x89, 0x81, 0, 0, 0, 0, 'p'};
    static const uint8_t split[] = {0x02, 0x81, 0, 0, 0, 0, 'a', 0x80, 0x81, 0, 0, 0, 0, 'b'};
    static const uint8_t bye[] = {0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8};
    static const uint8_t answers[] = {0x81, 5, 'h', 'e', 'l', 'l', 'o', 0x8a, 1, 'p', 0x82, 2, 'a', 'b',
                                      0x88, 2, 0x03, 0xe8};
    struct peer p;

    ws_open(&p);
    net_conn_write(p.c, hello, sizeof hello);
    peer_expect(&p, "hello");
    net_conn_write(p.c, ping, sizeof ping);
    for (size_t i = 0; i < sizeof split; i++) {
        net_conn_write(p.c, split + i, 1);
        fixture_wait(1);
    }
    net_conn_write(p.c, bye, sizeof bye);
    peer_expect_end(&p);
    assert_int_equal(p.in.len, sizeof answers);
    assert_memory_equal(p.in.data, answers, sizeof answers);
    peer_close(&p);
    while (closed == 0)
        fixture_wait(1);
    assert_int_equal(ws_code, 1000);
}

static void test_websocket_ends(void **state)
{
    static const uint8_t unmasked[] = {0x81, 0x01, 'x'};
    static const uint8_t huge[] = {0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 'x'};
    static const uint8_t bad_utf8[] = {0x81, 0x81, 0, 0, 0, 0, 0xff};
    static const struct {
        const uint8_t *p;
        size_t n;
        int code;
    } rows[] = {{unmasked, sizeof unmasked, 1002}, {huge, sizeof huge, 1009}, {bad_utf8, sizeof bad_utf8, 1007}};
    struct peer p;

    for (size_t i = 0; i < array_len(rows); i++) {
        ws_open(&p);
        net_conn_write(p.c, rows[i].p, rows[i].n);
        peer_expect_end(&p);
        assert_int_equal((uint8_t)p.in.data[0], 0x88);
        assert_int_equal((uint8_t)p.in.data[2] << 8 | (uint8_t)p.in.data[3], rows[i].code);
        peer_close(&p);
    }
    /* The server closes, the peer never answers: given up after a while; and the peer that just leaves. */
    ws_open(&p);
    ws_close(last->st, 1001);
    ws_send(last->st, true, "x", 1);
    peer_expect(&p, "\x88");
    peer_close(&p);
    ws_open(&p);
    peer_close(&p);
    while (closed < opened)
        fixture_wait(1);
    assert_int_equal(ws_code, 1006);
    exchange("GET /ws HTTP/1.0\r\n\r\n",
             "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n"
             "connection: close\r\n\r\nno");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_plain),
        TEST(test_keep_alive_and_pipeline),
        TEST(test_byte_by_byte),
        TEST(test_keep_alive_of_1_0),
        TEST(test_refusals),
        TEST(test_expect_continue),
        TEST(test_early_answer),
        TEST(test_announced_length),
        TEST(test_large_upload_to_a_slow_reader),
        TEST(test_large_download),
        TEST(test_pipeline_without_reading),
        TEST(test_duplex),
        TEST(test_malformed_chunk_after_the_response_began),
        TEST(test_client_vanishes),
        TEST(test_server_freed_with_requests),
        TEST(test_sse),
        TEST(test_websocket),
        TEST(test_websocket_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
