/*
 * http_h2_test.c - HTTP/2 both sides through real sockets: bodies, back-pressure, many streams, ends of all kinds
 */
#include "http_fixture.h"

#include "base/limits.h"

#define MIB (1024 * 1024)

/* --- the server under test ------------------------------------------------------------------- */

/* One request on the server: what it got, what it is to send. */
struct side {
    struct http_stream *st;
    uint64_t received;
    uint64_t to_send, sent;
    size_t held;                /* received, not consumed */
    bool is_slow;               /* consume by timer */
    bool is_stalled;            /* never consume */
    bool sends_trailers;
    bool has_ended, has_closed;
    enum http_close why;
    char trailer[32];
    struct loop_timer *timer;
    int status;
    uint64_t max_queued, max_held;
    void (*then)(struct side *s);
};

static struct side *last;       /* the newest on the server */
static unsigned open_on_server, closed_on_server;

static void produce(struct side *s)
{
    uint8_t part[50000];

    while (s->sent < s->to_send && http_stream_queued(s->st) < HTTP_HIGH) {
        size_t n = s->to_send - s->sent < sizeof part ? (size_t)(s->to_send - s->sent) : sizeof part;
        pattern_fill(part, n, s->sent);
        http_stream_write(s->st, part, n);
        s->sent += n;
        if (http_stream_queued(s->st) > s->max_queued)
            s->max_queued = http_stream_queued(s->st);
    }
    if (s->sent == s->to_send) {
        static const struct http_header trailers[] = {{"x-sum", "42"}};
        http_stream_end(s->st, trailers, s->sends_trailers ? 1 : 0);
    }
}

static void on_tick(void *arg)
{
    struct side *s = arg;

    http_stream_consume(s->st, s->held);
    s->held = 0;
    loop_timer_set(s->timer, 3);
}

static void on_response(struct http_stream *st, const struct http_response *rs, void *ctx)
{
    ((struct side *)ctx)->status = rs->status;
}

static void on_body(struct http_stream *st, const void *p, size_t n, void *ctx)
{
    struct side *s = ctx;

    pattern_check(p, n, s->received);
    s->received += n;
    s->held += n;
    if (s->held > s->max_held)
        s->max_held = s->held;
    if (!s->is_slow && !s->is_stalled) {
        http_stream_consume(st, n);
        s->held = 0;
    }
}

static void on_body_end(struct http_stream *st, const struct http_header *trailers, size_t n, void *ctx)
{
    struct side *s = ctx;
    const char *value = http_header_get(trailers, n, "x-sum");

    assert_false(s->has_ended);
    s->has_ended = true;
    if (value != NULL)
        (void)snprintf(s->trailer, sizeof s->trailer, "%s", value);
    if (s->then != NULL)
        s->then(s);
}

static void on_writable(struct http_stream *st, void *ctx)
{
    produce(ctx);
}

static void side_done(struct side *s, enum http_close why)
{
    assert_false(s->has_closed);
    s->has_closed = true;
    s->why = why;
    s->st = NULL;
    loop_timer_free(s->timer);
    s->timer = NULL;
}

static enum http_close last_why;

static void on_server_close(struct http_stream *st, enum http_close why, void *ctx)
{
    side_done(ctx, why);
    last_why = why;
    open_on_server--;
    closed_on_server++;
    if (last == ctx)
        last = NULL;
    free(ctx);
}

static const struct http_ops server_ops = {
    .on_body = on_body, .on_body_end = on_body_end, .on_writable = on_writable, .on_close = on_server_close};

static void reply_length(struct side *s)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)s->received);

    http_respond_all(s->st, 200, "text/plain", text, (size_t)n);
}

static void set_slow(struct side *s)
{
    s->is_slow = true;
    s->timer = loop_timer_new(loop, on_tick, s);
    loop_timer_set(s->timer, 3);
}

static void on_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    struct side *s = mem_zalloc(sizeof *s);

    last = s;
    open_on_server++;
    s->st = st;
    http_stream_set(st, &server_ops, s);
    if (strcmp(rq->path, "/count") == 0) {
        s->then = reply_length;
        if (strcmp(rq->query, "slow") == 0)
            set_slow(s);
    } else if (strcmp(rq->path, "/stall") == 0) {
        s->is_stalled = true;
    } else if (strcmp(rq->path, "/bytes") == 0) {
        s->to_send = strtoull(rq->query, NULL, 10);
        s->sends_trailers = true;
        http_respond(st, 200, NULL, 0);
        produce(s);
    } else if (strcmp(rq->path, "/empty") == 0) {
        http_respond_all(st, 204, NULL, NULL, 0);
    } else if (strcmp(rq->path, "/early") == 0) {
        http_respond_all(st, 413, "text/plain", "no", 2);
    } else if (strcmp(rq->path, "/cancel") == 0) {
        http_stream_cancel(st);
        http_stream_cancel(st);
        http_respond_all(st, 200, NULL, "x", 1);
    } else if (strcmp(rq->path, "/cookie") == 0) {
        assert_string_equal(rq->headers[0].name, "x");
        assert_string_equal(rq->headers[1].name, "cookie");
        assert_string_equal(rq->headers[1].value, "a=1; b=2; c");
        assert_string_equal(rq->headers[2].name, "y");
        assert_int_equal(rq->nheaders, 3);
        http_respond_all(st, 200, NULL, "x", 1);
    } else if (strcmp(rq->path, "/die") == 0) {
        http_server_free(server);
        server = NULL;
    } else if (strcmp(rq->path, "/headers") == 0) {
        struct http_header h = {"x-out", "a\r\nx-injected: 1"};
        http_respond(st, 200, &h, 1);
        http_stream_end(st, NULL, 0);
    }
}

/* --- the client's side ----------------------------------------------------------------------- */

static unsigned waiting;

static void on_client_close(struct http_stream *st, enum http_close why, void *ctx)
{
    side_done(ctx, why);
    if (--waiting == 0)
        loop_stop(loop);
}

static void on_client_body_any(struct http_stream *st, const void *p, size_t n, void *ctx)
{
    ((struct side *)ctx)->received += n;
    http_stream_consume(st, n);
}

static const struct http_ops client_ops = {.on_response = on_response,
                                           .on_body = on_body,
                                           .on_body_end = on_body_end,
                                           .on_writable = on_writable,
                                           .on_close = on_client_close};
static const struct http_ops client_any_ops = {.on_response = on_response,
                                               .on_body = on_client_body_any,
                                               .on_body_end = on_body_end,
                                               .on_writable = on_writable,
                                               .on_close = on_client_close};

static void request(struct side *s, const char *method, const char *path, uint64_t to_send,
                    const struct http_ops *ops)
{
    s->to_send = to_send;
    s->st = http_client_request(client, method, path, NULL, 0, to_send > 0, ops, s);
    waiting++;
    if (to_send > 0)
        produce(s);
}

static int setup(void **state)
{
    waiting = open_on_server = closed_on_server = 0;
    fixture_start(on_request);
    return 0;
}

static int teardown(void **state)
{
    fixture_end();
    assert_int_equal(open_on_server, 0);
    return 0;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void test_upload(void **state)
{
    struct side s = {.sends_trailers = true};

    request(&s, "POST", "/count", 30 * MIB + 1, &client_any_ops);
    fixture_run();
    assert_int_equal(s.status, 200);
    assert_int_equal(s.why, HTTP_CLOSE_DONE);
    assert_int_equal(s.received, 8);    /* "31457281" */
    assert_true(s.max_queued < HTTP_HIGH + 60000);
    assert_int_equal(last_why, HTTP_CLOSE_DONE);
}

static void test_upload_to_a_slow_reader(void **state)
{
    struct side s = {0};

    request(&s, "POST", "/count?slow", 20 * MIB, &client_any_ops);
    fixture_wait(1);
    while (!s.has_closed) {
        if (last != NULL)
            assert_true(last->max_held <= HTTP_WINDOW);
        fixture_wait(2);
    }
    assert_int_equal(s.status, 200);
    assert_int_equal(s.received, 8);
}

static void test_download_by_a_slow_reader(void **state)
{
    struct side s = {0};

    request(&s, "GET", "/bytes?33000001", 0, &client_ops);
    set_slow(&s);
    fixture_wait(1);
    while (!s.has_closed) {
        if (last != NULL)
            assert_true(last->max_queued < HTTP_HIGH + 60000);
        fixture_wait(2);
    }
    assert_int_equal(s.received, 33000001);
    assert_true(s.max_held <= HTTP_WINDOW);
    assert_true(s.has_ended);
    assert_string_equal(s.trailer, "42");
}

static void test_many_streams(void **state)
{
    enum { N = 2500 };          /* more than one connection may carry */
    static struct side s[N];

    memset(s, 0, sizeof s);
    for (int i = 0; i < N; i++)
        request(&s[i], "GET", "/wait", 0, &client_ops);
    while (open_on_server < N)
        fixture_wait(5);
    /* The next one still gets through. */
    struct side extra = {0};
    request(&extra, "GET", "/bytes?1000", 0, &client_ops);
    while (!extra.has_closed)
        fixture_wait(2);
    assert_int_equal(extra.received, 1000);
    for (int i = 0; i < N; i++)
        http_stream_cancel(s[i].st);
    fixture_run();
    for (int i = 0; i < N; i++)
        assert_int_equal(s[i].why, HTTP_CLOSE_CANCELLED);
    while (open_on_server > 0)
        fixture_wait(5);
    assert_int_equal(last_why, HTTP_CLOSE_CANCELLED);
}

static void test_thousand_bodies_at_once(void **state)
{
    enum { N = 1000 };
    static struct side s[N];

    memset(s, 0, sizeof s);
    for (int i = 0; i < N; i++)
        request(&s[i], "GET", "/bytes?30000", 0, &client_ops);
    fixture_run();
    for (int i = 0; i < N; i++) {
        assert_int_equal(s[i].received, 30000);
        assert_int_equal(s[i].why, HTTP_CLOSE_DONE);
    }
}

/* Forty streams whose reader stalls use up far more than a connection's window; the next is not held up. */
static void test_stalled_streams_do_not_block_others(void **state)
{
    enum { N = 40 };
    static struct side s[N];
    struct side extra = {0};

    memset(s, 0, sizeof s);
    for (int i = 0; i < N; i++)
        request(&s[i], "POST", "/stall", 10 * MIB, &client_ops);
    fixture_wait(300);
    request(&extra, "POST", "/count", 10 * MIB, &client_any_ops);
    while (!extra.has_closed)
        fixture_wait(5);
    assert_int_equal(extra.status, 200);
    for (int i = 0; i < N; i++)
        http_stream_cancel(s[i].st);
    fixture_run();
}

static void test_small_answers(void **state)
{
    struct side empty = {0}, head = {0}, early = {0}, headers = {0};

    request(&empty, "GET", "/empty", 0, &client_ops);
    request(&head, "HEAD", "/bytes?1000", 0, &client_ops);
    request(&early, "POST", "/early", 30 * MIB, &client_any_ops);
    request(&headers, "GET", "/headers", 0, &client_ops);
    fixture_run();
    assert_int_equal(empty.status, 204);
    assert_int_equal(empty.why, HTTP_CLOSE_DONE);
    assert_int_equal(head.status, 200);
    assert_int_equal(head.received, 0);
    assert_int_equal(head.why, HTTP_CLOSE_DONE);
    assert_int_equal(early.status, 413);
    assert_int_equal(early.received, 2);
    assert_int_equal(early.why, HTTP_CLOSE_DONE);
    assert_int_equal(headers.status, 200);
    while (open_on_server > 0)
        fixture_wait(2);
    assert_int_equal(closed_on_server, 4);
}

static void test_cancel_by_server(void **state)
{
    struct side s = {0};

    request(&s, "GET", "/cancel", 0, &client_ops);
    fixture_run();
    assert_int_equal(s.why, HTTP_CLOSE_CANCELLED);
    assert_int_equal(s.status, 0);
}

static void test_cancel_in_the_middle(void **state)
{
    struct side up = {0}, down = {0};

    request(&up, "POST", "/stall", 100 * MIB, &client_ops);
    request(&down, "GET", "/bytes?100000000", 0, &client_ops);
    down.is_stalled = true;
    while (open_on_server < 2)
        fixture_wait(1);
    fixture_wait(50);
    http_stream_cancel(up.st);
    http_stream_write(up.st, "x", 1);
    http_stream_end(up.st, NULL, 0);
    http_stream_cancel(down.st);
    fixture_run();
    assert_int_equal(up.why, HTTP_CLOSE_CANCELLED);
    while (open_on_server > 0)
        fixture_wait(2);
    assert_int_equal(last_why, HTTP_CLOSE_CANCELLED);
}

static void test_limits_of_heads(void **state)
{
    static char big[LIMIT_HTTP_HEAD - 150];     /* the client would send no larger one */
    struct http_header many[120], huge = {"x-big", big};
    struct side s = {0}, t = {0};

    memset(big, 'a', sizeof big - 1);
    for (size_t i = 0; i < array_len(many); i++)
        many[i] = (struct http_header){"x-h", "v"};
    waiting = 2;
    s.st = http_client_request(client, "GET", "/empty", many, array_len(many), false, &client_any_ops, &s);
    t.st = http_client_request(client, "GET", "/empty", &huge, 1, false, &client_any_ops, &t);
    fixture_run();
    assert_int_equal(s.status, 431);
    assert_int_equal(t.status, 431);
    assert_int_equal(closed_on_server, 0);      /* the handler saw neither */
}

static void test_cookies_are_joined(void **state)
{
    static const struct http_header h[] = {
        {"x", "1"}, {"cookie", "a=1"}, {"y", "2"}, {"cookie", "b=2"}, {"cookie", "c"}};
    struct side s = {0};

    waiting = 1;
    s.st = http_client_request(client, "GET", "/cookie", h, array_len(h), false, &client_any_ops, &s);
    fixture_run();
    assert_int_equal(s.status, 200);
}

static void test_strange_paths(void **state)
{
    struct side s = {0}, t = {0}, u = {0};

    request(&s, "GET", "/a\x80", 0, &client_any_ops);
    request(&t, "GET", "nopath", 0, &client_any_ops);
    request(&u, "CONNECT", "/empty", 0, &client_any_ops);
    fixture_run();
    assert_true(s.status == 400 || s.why != HTTP_CLOSE_DONE);
    assert_true(t.status == 400 || t.why != HTTP_CLOSE_DONE);
    assert_true(u.status == 405 || u.why != HTTP_CLOSE_DONE);
}

static void test_no_server_then_reconnect(void **state)
{
    struct side s = {0}, t = {0};
    struct err e;

    http_server_free(server);
    request(&s, "GET", "/empty", 0, &client_ops);
    assert_false(s.has_closed);         /* told from the loop only */
    fixture_run();
    assert_int_equal(s.why, HTTP_CLOSE_ERROR);
    server = http_server_new(loop, on_request, NULL);
    assert_int_equal(http_server_listen(server, address, &e), 0);
    request(&t, "GET", "/empty", 0, &client_ops);
    fixture_run();
    assert_int_equal(t.status, 204);
}

static void test_server_goes_away(void **state)
{
    struct side s = {0}, t = {0};
    struct err e;

    request(&s, "GET", "/wait", 0, &client_ops);
    while (open_on_server == 0)
        fixture_wait(1);
    http_server_free(server);
    assert_int_equal(open_on_server, 0);
    fixture_run();
    assert_true(s.why != HTTP_CLOSE_DONE);
    server = http_server_new(loop, on_request, NULL);
    assert_int_equal(http_server_listen(server, address, &e), 0);
    request(&t, "GET", "/empty", 0, &client_ops);
    fixture_run();
    assert_int_equal(t.status, 204);
}

static void test_server_freed_in_its_own_callback(void **state)
{
    struct side s = {0}, t = {0};

    request(&t, "GET", "/wait", 0, &client_ops);
    fixture_wait(10);
    request(&s, "GET", "/die", 0, &client_ops);
    fixture_run();
    assert_true(s.why != HTTP_CLOSE_DONE);
    assert_true(t.why != HTTP_CLOSE_DONE);
}

static void free_client(struct side *s)
{
    http_client_free(client);
    client = NULL;
}

static void test_client_freed_in_its_own_callback(void **state)
{
    struct side s = {.then = free_client}, t = {0};

    request(&t, "GET", "/wait", 0, &client_ops);
    request(&s, "GET", "/bytes?100", 0, &client_ops);
    fixture_run();
    assert_int_equal(s.received, 100);
    assert_int_equal(t.why, HTTP_CLOSE_ERROR);
    while (open_on_server > 0)
        fixture_wait(2);
}

static void test_client_freed_while_connecting(void **state)
{
    struct side s = {0};

    request(&s, "GET", "/wait", 0, &client_ops);
    http_client_free(client);
    client = NULL;
    assert_true(s.has_closed);
}

static void test_tcp(void **state)
{
    struct side s = {0};
    char text[40];

    http_client_free(client);
    (void)snprintf(text, sizeof text, "127.0.0.1:%d", http_server_port(server));
    client = http_client_new(loop, text);
    request(&s, "GET", "/bytes?5000000", 0, &client_ops);
    fixture_run();
    assert_int_equal(s.received, 5000000);
}

static void test_bad_address(void **state)
{
    struct side s = {0};

    http_client_free(client);
    client = http_client_new(loop, "nonsense");
    request(&s, "GET", "/", 0, &client_ops);
    fixture_run();
    assert_int_equal(s.why, HTTP_CLOSE_ERROR);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_upload),
        TEST(test_upload_to_a_slow_reader),
        TEST(test_download_by_a_slow_reader),
        TEST(test_many_streams),
        TEST(test_thousand_bodies_at_once),
        TEST(test_stalled_streams_do_not_block_others),
        TEST(test_small_answers),
        TEST(test_cancel_by_server),
        TEST(test_cancel_in_the_middle),
        TEST(test_limits_of_heads),
        TEST(test_cookies_are_joined),
        TEST(test_strange_paths),
        TEST(test_no_server_then_reconnect),
        TEST(test_server_goes_away),
        TEST(test_server_freed_in_its_own_callback),
        TEST(test_client_freed_in_its_own_callback),
        TEST(test_client_freed_while_connecting),
        TEST(test_tcp),
        TEST(test_bad_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
