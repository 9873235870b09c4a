/*
 * grpc_test.c - gRPC calls between our client and our server: messages, ends, deadlines, errors, back-pressure
 */
#include "http_fixture.h"

#include "base/clock.h"
#include "base/limits.h"
#include "http/grpc.h"

#define MIB (1024 * 1024)

/* --- the server ------------------------------------------------------------------------------ */

static unsigned server_ends;
static enum grpc_status server_status;
static size_t server_received, server_unconsumed;
static struct grpc_call *server_call;

static void on_server_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    server_ends++;
    server_status = status;
    assert_non_null(e);
    server_call = NULL;
}

static void on_unary(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    const char *tag = grpc_call_metadata(c, "x-tag");

    if (tag != NULL)
        grpc_call_trailer(c, "x-tag-back", tag);
    grpc_call_consumed(c, n);
    grpc_reply(c, p, n);
}

static void on_echo(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    grpc_send(c, p, n);
    grpc_call_consumed(c, n);
}

static void on_echo_half_close(struct grpc_call *c, void *ctx)
{
    grpc_finish(c, GRPC_OK, NULL);
}

static void on_hold(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    server_received += n;
    server_unconsumed += n;
    server_call = c;
}

static const struct grpc_ops unary_ops = {.on_message = on_unary, .on_end = on_server_end};
static const struct grpc_ops echo_ops = {
    .on_message = on_echo, .on_half_close = on_echo_half_close, .on_end = on_server_end};
static const struct grpc_ops hold_ops = {.on_message = on_hold, .on_end = on_server_end};

static void unary(struct grpc_call *c, void *arg)
{
    assert_string_equal(grpc_call_authority(c), "localhost");
    grpc_call_set(c, &unary_ops, NULL);
}

static void echo(struct grpc_call *c, void *arg)
{
    grpc_call_set(c, &echo_ops, NULL);
}

static void hold(struct grpc_call *c, void *arg)
{
    grpc_call_set(c, &hold_ops, NULL);
}

static void rich_fail(struct grpc_call *c, void *arg)
{
    struct err e;

    (void)err_param(&e, ERR_GONE, "sandbox_id", "sandbox '\xc3\xa4%%\n' ended");
    err_hint(&e, "begin at %d", 7);
    grpc_finish_err(c, &e);
}

static void plain_fail(struct grpc_call *c, void *arg)
{
    grpc_finish(c, GRPC_ABORTED, "again");
}

static void send_then_fail(struct grpc_call *c, void *arg)
{
    uint8_t three[3];

    pattern_fill(three, sizeof three, 0);
    grpc_send(c, three, sizeof three);
    grpc_finish(c, GRPC_DATA_LOSS, "");
}

/* Streams 20 MiB in messages of 100000 bytes as the queue allows. */
static unsigned sent_messages;
static size_t most_queued;

static void pour(struct grpc_call *c)
{
    static uint8_t part[100000];

    while (sent_messages < 200 && grpc_queued(c) < HTTP_HIGH) {
        pattern_fill(part, sizeof part, sent_messages * sizeof part);
        grpc_send(c, part, sizeof part);
        sent_messages++;
        if (grpc_queued(c) > most_queued)
            most_queued = grpc_queued(c);
    }
    if (sent_messages == 200)
        grpc_finish(c, GRPC_OK, NULL);
}

static void on_pour_writable(struct grpc_call *c, void *ctx)
{
    pour(c);
}

static const struct grpc_ops pour_ops = {.on_writable = on_pour_writable, .on_end = on_server_end};

static void pour_method(struct grpc_call *c, void *arg)
{
    grpc_call_set(c, &pour_ops, NULL);
    sent_messages = 0;
    pour(c);
}

static const struct grpc_method methods[] = {
    {"/t/Unary", unary}, {"/t/Echo", echo},      {"/t/Hold", hold}, {"/t/Fail", rich_fail},
    {"/t/Plain", plain_fail}, {"/t/Cut", send_then_fail}, {"/t/Pour", pour_method},
};

static const struct http_ops none = {0};

static void on_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    http_stream_set(st, &none, NULL);
    if (strcmp(rq->path, "/http404") == 0)
        http_respond_all(st, 404, "text/plain", "no", 2);
    else if (strcmp(rq->path, "/http200") == 0)
        http_respond_all(st, 200, "text/plain", "hm", 2);
    else if (strcmp(rq->path, "/nostatus") == 0)
        http_respond_all(st, 200, "application/grpc", "\0\0\0\0\0", 5);
    else if (strcmp(rq->path, "/reset") == 0)
        http_stream_cancel(st);
    else
        grpc_serve(st, rq, methods, array_len(methods), NULL);
}

/* --- the client ------------------------------------------------------------------------------ */

struct call {
    struct grpc_call *c;
    unsigned messages;
    size_t received, last_len;
    bool is_ended;
    bool holds;                 /* consumes nothing */
    enum grpc_status status;
    struct err e;
    int64_t ended_ms;
};

static unsigned waiting;

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    struct call *k = ctx;

    assert_false(k->is_ended);
    pattern_check(p, n, k->received);
    k->messages++;
    k->received += n;
    k->last_len = n;
    if (!k->holds)
        grpc_call_consumed(c, n);
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    struct call *k = ctx;

    assert_false(k->is_ended);
    assert_true(c == k->c);
    k->is_ended = true;
    k->status = status;
    k->ended_ms = clock_boot_ms();
    k->c = NULL;
    if (status != GRPC_OK)
        k->e = *e;
    if (--waiting == 0)
        loop_stop(loop);
}

static const struct grpc_ops client_ops = {.on_message = on_message, .on_end = on_end};

static void call(struct call *k, const char *path, uint64_t timeout_ms)
{
    static const struct http_header metadata[] = {{"x-tag", "t1"}};

    k->c = grpc_client_call(client, path, metadata, 1, timeout_ms, &client_ops, k);
    waiting++;
}

/* A message that continues the pattern of the call's earlier ones. */
static void send_pattern(struct call *k, size_t n, size_t at)
{
    auto_free uint8_t *p = mem_alloc(n);

    pattern_fill(p, n, at);
    grpc_send(k->c, p, n);
}

static int setup(void **state)
{
    waiting = server_ends = 0;
    server_received = server_unconsumed = most_queued = 0;
    server_call = NULL;
    fixture_start(on_request);
    return 0;
}

static int teardown(void **state)
{
    fixture_end();
    return 0;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void test_unary(void **state)
{
    static const size_t lengths[] = {0, 1, 100, 16384, 65536, 5 * MIB};

    for (size_t i = 0; i < array_len(lengths); i++) {
        struct call k = {0};
        call(&k, "/t/Unary", 0);
        send_pattern(&k, lengths[i], 0);
        grpc_send_end(k.c);
        fixture_run();
        assert_int_equal(k.status, GRPC_OK);
        assert_int_equal(k.messages, 1);
        assert_int_equal(k.received, lengths[i]);
    }
    assert_int_equal(server_ends, 0);
}

static void test_thousand_at_once(void **state)
{
    static struct call k[1000];

    memset(k, 0, sizeof k);
    for (size_t i = 0; i < array_len(k); i++) {
        call(&k[i], "/t/Unary", 60000);
        send_pattern(&k[i], i, 0);
        grpc_send_end(k[i].c);
    }
    fixture_run();
    for (size_t i = 0; i < array_len(k); i++) {
        assert_int_equal(k[i].status, GRPC_OK);
        assert_int_equal(k[i].received, i);
    }
}

static void test_bidirectional(void **state)
{
    struct call k = {0};
    size_t at = 0;

    call(&k, "/t/Echo", 0);
    for (size_t n = 0; n < 300; n++) {
        send_pattern(&k, n * 100, at);
        at += n * 100;
        if (n % 50 == 0)
            fixture_wait(2);
    }
    grpc_send_end(k.c);
    fixture_run();
    assert_int_equal(k.status, GRPC_OK);
    assert_int_equal(k.messages, 300);
    assert_int_equal(k.received, at);
}

static void test_large_messages(void **state)
{
    struct call k = {0};

    call(&k, "/t/Unary", 0);
    send_pattern(&k, 60 * MIB, 0);
    grpc_send_end(k.c);
    fixture_run();
    assert_int_equal(k.status, GRPC_OK);
    assert_int_equal(k.received, 60 * MIB);
}

static void test_message_over_the_limit(void **state)
{
    struct call k = {0};

    call(&k, "/t/Echo", 0);
    send_pattern(&k, LIMIT_GRPC_MESSAGE + 1, 0);
    fixture_run();
    assert_int_equal(k.status, GRPC_RESOURCE_EXHAUSTED);
    assert_int_equal(server_ends, 1);
    assert_int_equal(server_status, GRPC_RESOURCE_EXHAUSTED);
}

static void test_stream_with_back_pressure(void **state)
{
    struct call k = {0};

    call(&k, "/t/Pour", 0);
    fixture_run();
    assert_int_equal(k.status, GRPC_OK);
    assert_int_equal(k.messages, 200);
    assert_int_equal(k.received, 200 * 100000);
    assert_true(most_queued <= HTTP_HIGH + 100005);
}

/* A client that takes nothing holds the server at the window plus what is queued. */
static void test_stream_to_a_stalled_client(void **state)
{
    struct call k = {.holds = true};

    call(&k, "/t/Pour", 0);
    while (k.messages < HTTP_WINDOW / 100005)
        fixture_wait(1);
    fixture_wait(50);
    assert_int_equal(k.messages, HTTP_WINDOW / 100005);
    assert_true(sent_messages <= k.messages + 1 + HTTP_HIGH / 100005 + 1);
    grpc_call_consumed(k.c, k.received);
    k.holds = false;
    fixture_run();
    assert_int_equal(k.received, 200 * 100000);
}

static void test_server_that_consumes_late(void **state)
{
    struct call k = {0};

    call(&k, "/t/Hold", 0);
    for (size_t i = 0; i < 100; i++)
        send_pattern(&k, 100000, i * 100000);
    while (server_received < HTTP_WINDOW / 2)
        fixture_wait(1);
    fixture_wait(50);
    assert_true(server_received <= HTTP_WINDOW);
    while (server_received < 100 * 100000) {
        size_t n = server_unconsumed;
        server_unconsumed = 0;
        grpc_call_consumed(server_call, n);
        fixture_wait(5);
    }
    grpc_finish(server_call, GRPC_OK, NULL);
    fixture_run();
    assert_int_equal(k.status, GRPC_OK);
    assert_int_equal(server_ends, 0);
}

static void test_errors(void **state)
{
    struct call k = {0}, p = {0}, cut = {0}, unknown = {0};

    call(&k, "/t/Fail", 0);
    call(&p, "/t/Plain", 0);
    call(&cut, "/t/Cut", 0);
    call(&unknown, "/t/Nothing", 0);
    fixture_run();
    assert_int_equal(k.status, GRPC_FAILED_PRECONDITION);
    assert_int_equal(k.e.code, ERR_GONE);
    assert_string_equal(k.e.message, "sandbox '\xc3\xa4%\n' ended");
    assert_string_equal(k.e.param, "sandbox_id");
    assert_string_equal(k.e.hint, "begin at 7");
    assert_int_equal(p.status, GRPC_ABORTED);
    assert_int_equal(p.e.code, ERR_CONFLICT);
    assert_string_equal(p.e.message, "again");
    assert_int_equal(cut.status, GRPC_DATA_LOSS);
    assert_int_equal(cut.messages, 1);
    assert_int_equal(cut.received, 3);
    assert_int_equal(unknown.status, GRPC_UNIMPLEMENTED);
}

static void test_answers_that_are_not_grpc(void **state)
{
    struct call a = {0}, b = {0}, c = {0}, d = {0};

    call(&a, "/http404", 0);
    call(&b, "/http200", 0);
    call(&c, "/nostatus", 0);
    call(&d, "/reset", 0);
    fixture_run();
    assert_int_equal(a.status, GRPC_UNIMPLEMENTED);
    assert_int_equal(b.status, GRPC_UNKNOWN);
    assert_int_equal(c.status, GRPC_INTERNAL);
    assert_int_equal(d.status, GRPC_CANCELLED);
}

static void test_deadline(void **state)
{
    struct call k = {0};
    int64_t start_ms = clock_boot_ms();

    call(&k, "/t/Hold", 60);
    grpc_send(k.c, "", 0);
    fixture_run();
    assert_int_equal(k.status, GRPC_DEADLINE_EXCEEDED);
    assert_int_equal(k.e.code, ERR_TIMEOUT);
    assert_true(k.ended_ms - start_ms >= 60);
    assert_true(k.ended_ms - start_ms < 2000);
    while (server_ends == 0)
        fixture_wait(2);
    assert_true(server_status == GRPC_DEADLINE_EXCEEDED || server_status == GRPC_CANCELLED);
}

/* The server's own clock: the client here knows no deadline but sends one. */
static void test_deadline_on_the_server(void **state)
{
    static const struct http_header metadata[] = {{"grpc-timeout", "50m"}};
    struct call k = {0};

    waiting++;
    k.c = grpc_client_call(client, "/t/Hold", metadata, 1, 0, &client_ops, &k);
    grpc_send(k.c, "", 0);
    fixture_run();
    assert_int_equal(k.status, GRPC_DEADLINE_EXCEEDED);
    assert_int_equal(server_ends, 1);
    assert_int_equal(server_status, GRPC_DEADLINE_EXCEEDED);
}

static void test_cancel(void **state)
{
    struct call k = {0};

    call(&k, "/t/Hold", 0);
    grpc_send(k.c, "x", 1);
    while (server_received == 0)
        fixture_wait(1);
    grpc_cancel(k.c);
    grpc_cancel(k.c);
    assert_false(k.is_ended);
    fixture_run();
    assert_int_equal(k.status, GRPC_CANCELLED);
    while (server_ends == 0)
        fixture_wait(2);
    assert_int_equal(server_status, GRPC_CANCELLED);
}

static void test_server_vanishes(void **state)
{
    struct call k = {0}, after = {0};
    struct err e;

    call(&k, "/t/Hold", 0);
    grpc_send(k.c, "x", 1);
    while (server_received == 0)
        fixture_wait(1);
    http_server_free(server);
    server = NULL;
    assert_int_equal(server_ends, 1);
    fixture_run();
    assert_int_equal(k.status, GRPC_UNAVAILABLE);
    assert_int_equal(k.e.code, ERR_UNAVAILABLE);
    call(&after, "/t/Hold", 0);
    fixture_run();
    assert_int_equal(after.status, GRPC_UNAVAILABLE);
    assert_int_equal(after.e.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(after.e.message, "No such file"));
    server = http_server_new(loop, on_request, NULL);
    assert_int_equal(http_server_listen(server, address, &e), 0);
}

static void test_client_freed_with_calls(void **state)
{
    struct call k = {0};

    call(&k, "/t/Hold", 0);
    grpc_send(k.c, "x", 1);
    while (server_received == 0)
        fixture_wait(1);
    http_client_free(client);
    client = NULL;
    assert_true(k.is_ended);
    assert_int_equal(k.status, GRPC_UNAVAILABLE);
    while (server_ends == 0)
        fixture_wait(2);
}

static int raw_status;

static void on_raw_response(struct http_stream *st, const struct http_response *rs, void *ctx)
{
    raw_status = rs->status;
    loop_stop(loop);
}

static const struct http_ops raw_ops = {.on_response = on_raw_response};

static void test_wrong_content_type(void **state)
{
    static const struct http_header types[] = {{"content-type", "application/json"},
                                               {"content-type", "application/grpc-web"},
                                               {"x", "y"}};

    for (size_t i = 0; i < array_len(types); i++) {
        raw_status = 0;
        (void)http_client_request(client, "POST", "/t/Unary", &types[i], 1, false, &raw_ops, NULL);
        fixture_run();
        assert_int_equal(raw_status, 415);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_unary),
        TEST(test_thousand_at_once),
        TEST(test_bidirectional),
        TEST(test_large_messages),
        TEST(test_message_over_the_limit),
        TEST(test_stream_with_back_pressure),
        TEST(test_stream_to_a_stalled_client),
        TEST(test_server_that_consumes_late),
        TEST(test_errors),
        TEST(test_answers_that_are_not_grpc),
        TEST(test_deadline),
        TEST(test_deadline_on_the_server),
        TEST(test_cancel),
        TEST(test_server_vanishes),
        TEST(test_client_freed_with_calls),
        TEST(test_wrong_content_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
