/*
 * egress_h2_test.c - HTTP/2 through an opened connection: requests, responses, and what the policy says of them
 */
#include "egress_h2_rig.h"

#include <string.h>

#include "base/mem.h"

/* --- requests */

static void test_request_goes_on(void **state)
{
    int32_t id = ask_of("POST", "/ok?q=1", "A.test:443", "te", "trailers", 3);

    run();
    assert_string_equal(peer_seen(&server, 1)->head, ":method: POST\n:scheme: https\n:authority: A.test:443\n:path: /ok?q=1\n"
                                                "te: trailers\n--\n");
    expect_body(&server, 1, "xxx");
    assert_true(peer_seen(&server, 1)->ended);
    assert_string_equal(peer_seen(&client, id)->head, ":status: 200\n--\n");
    expect_body(&client, id, "ok");
    assert_true(peer_seen(&client, id)->closed);
    assert_int_equal(peer_seen(&client, id)->code, NGHTTP2_NO_ERROR);
    assert_true(peer_seen(&server, 1)->closed);
    assert_int_equal(peer_seen(&server, 1)->code, NGHTTP2_NO_ERROR);
    assert_int_equal(ndenied, 0);
}

static void test_secret_goes_in(void **state)
{
    int32_t id = ask_of("GET", "/in/a", "a.test", "authorization", "none", 0);

    server.answer_text = "it was of-secret-1!";
    server.answer_has_trailers = true;
    run();
    assert_non_null(strstr(peer_seen(&server, 1)->head, "authorization: Bearer of-secret-1 (secret)\n"));
    assert_non_null(strstr(peer_seen(&server, 1)->head, "accept-encoding: identity"));
    assert_null(strstr(peer_seen(&server, 1)->head, "none"));
    expect_body(&client, id, "it was ***********!");
    assert_non_null(strstr(peer_seen(&client, id)->head, "grpc-status: 0\nx-word: ***********\n--\n"));
    assert_int_equal(box.status.totals.injected, 1);
    /* Others on the same connection have none of it. */
    id = ask("/ok");
    run();
    assert_string_equal(peer_seen(&server, 3)->head,
                        ":method: GET\n:scheme: https\n:authority: a.test\n:path: /ok\nx-none: 1\n--\n");
    expect_body(&client, id, "it was of-secret-1!");
}

static void test_packed_response_is_refused(void **state)
{
    const nghttp2_nv packed[] = {peer_nv(":status", "200"), peer_nv("grpc-encoding", "gzip")};
    int32_t id = ask("/in/a");

    server.answer = packed;
    server.nanswer = 2;
    server.answer_left = SIZE_MAX;
    run();
    expect_answer(id, "502", "the response is packed");
    assert_int_equal(denied_reason, EGRESS_SECRET);
    assert_true(peer_seen(&server, 1)->closed);
    assert_int_equal(peer_seen(&server, 1)->code, NGHTTP2_CANCEL);
}

static void test_refusals_leave_the_connection(void **state)
{
    int32_t denied = ask("/no"), bad = ask("/ok/../no"), other = ask_of("GET", "/ok", "b.test", NULL, NULL, 0);
    int32_t host = ask_of("GET", "/ok", "a.test", "host", "b.test", 0);
    int32_t address = ask_of("GET", "/ok", "93.184.216.34", NULL, NULL, 0);
    int32_t user = ask_of("GET", "/ok", "b@a.test", NULL, NULL, 0), head = ask_of("HEAD", "/no", "a.test", NULL, NULL, 0);

    run();
    expect_answer(denied, "403", "quicksand: the network policy of this sandbox does not allow the request: a.test port 443");
    expect_answer(bad, "400", "more than one way");
    expect_answer(other, "421", "for another name");
    expect_answer(host, "421", "for another name");
    expect_answer(address, "421", "for another name");
    expect_answer(user, "421", "for another name");
    expect_answer(head, "403", "");
    expect_body(&client, head, "");
    assert_int_equal(ndenied, 7);
    assert_string_equal(peer_seen(&server, 1)->head, "");
    int32_t id = ask("/ok");
    run();
    expect_answer(id, "200", "ok");
}

static void test_connect_is_refused(void **state)
{
    const nghttp2_nv plain[] = {peer_nv(":method", "CONNECT"), peer_nv(":authority", "a.test:443")};
    const nghttp2_nv extended[] = {peer_nv(":method", "CONNECT"), peer_nv(":protocol", "websocket"), peer_nv(":scheme", "https"),
                                   peer_nv(":path", "/ok"), peer_nv(":authority", "a.test")};
    const nghttp2_nv scheme[] = {peer_nv(":method", "GET"), peer_nv(":scheme", "http"), peer_nv(":path", "/ok"),
                                 peer_nv(":authority", "a.test")};

    peer_seen(&client, 1)->left = SIZE_MAX;
    assert_int_equal(nghttp2_submit_request(client.s, NULL, plain, 2, NULL, NULL), 1);
    assert_int_equal(nghttp2_submit_request(client.s, NULL, extended, 5, NULL, NULL), 3);
    assert_int_equal(nghttp2_submit_request(client.s, NULL, scheme, 4, NULL, NULL), 5);
    run();
    expect_answer(1, "403", "cannot be followed");
    assert_true(peer_seen(&client, 3)->closed);
    assert_int_equal(peer_seen(&client, 3)->code, NGHTTP2_PROTOCOL_ERROR);
    expect_answer(5, "400", "cannot be followed");
    assert_string_equal(peer_seen(&server, 1)->head, "");
}

static void test_connection_fields_are_refused(void **state)
{
    int32_t a = ask_of("GET", "/ok", "a.test", "connection", "close", 0), b = ask_of("GET", "/ok", "a.test", "te", "gzip", 0);
    int32_t c = ask_of("GET", "/ok", "a.test", "transfer-encoding", "chunked", 0);
    int32_t d = ask_of("GET", "/ok", "a.test", "x-a", "b\rc", 0);
    int32_t length = ask_of("POST", "/ok", "a.test", "content-length", "5", 3);

    run();
    for (const int32_t ids[] = {a, b, c, d}, *id = ids; id < ids + 4; id++) {
        assert_true(peer_seen(&client, *id)->closed);
        assert_int_equal(peer_seen(&client, *id)->code, NGHTTP2_PROTOCOL_ERROR);
        assert_string_equal(peer_seen(&client, *id)->head, "");
    }
    /* A body that is not what was said is cut on both sides. */
    assert_true(peer_seen(&client, length)->closed);
    assert_int_equal(peer_seen(&client, length)->code, NGHTTP2_PROTOCOL_ERROR);
    assert_string_equal(peer_seen(&server, 3)->head, "");
    assert_false(peer_seen(&server, 1)->ended);
    assert_int_equal(peer_seen(&server, 1)->code, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(ndenied, 5);
    assert_int_equal(denied_reason, EGRESS_MALFORMED);
}

static void test_too_many_fields(void **state)
{
    auto_free char *large = mem_zalloc(3001);
    nghttp2_nv f[4 + 30] = {peer_nv(":method", "GET"), peer_nv(":scheme", "https"), peer_nv(":authority", "a.test"),
                               peer_nv(":path", "/ok")};

    memset(large, 'a', 3000);
    for (size_t i = 4; i < array_len(f); i++)
        f[i] = peer_nv("x-a", large);
    assert_int_equal(nghttp2_submit_request(client.s, NULL, f, 4 + 20, NULL, NULL), 1);
    assert_int_equal(nghttp2_submit_request(client.s, NULL, f, 4 + 30, NULL, NULL), 3);
    run();
    expect_answer(1, "200", "ok");
    expect_answer(3, "431", "too many fields");
    assert_string_equal(peer_seen(&server, 3)->head, "");
    /* Many small ones as well. */
    nghttp2_nv many[4 + 300] = {f[0], f[1], f[2], f[3]};
    for (size_t i = 4; i < array_len(many); i++)
        many[i] = peer_nv("x-b", "1");
    assert_int_equal(nghttp2_submit_request(client.s, NULL, many, array_len(many), NULL, NULL), 5);
    run();
    expect_answer(5, "431", "too many fields");
}

/* --- responses */

static void test_hints_and_trailers(void **state)
{
    int32_t id = ask("/ok");

    server.says_hint = true;
    server.answer_has_trailers = true;
    run();
    assert_string_equal(peer_seen(&client, id)->head, ":status: 103\nlink: </a>\n--\n:status: 200\n--\n"
                                                 "grpc-status: 0\nx-word: of-secret-1\n--\n");
    expect_body(&client, id, "ok");
    assert_true(peer_seen(&client, id)->closed);
}

static void test_trailers_alone(void **state)
{
    const nghttp2_nv only[] = {peer_nv(":status", "200"), peer_nv("grpc-status", "12")};
    int32_t id = ask_of("POST", "/ok", "a.test", "te", "trailers", 1);

    server.answer = only;
    server.nanswer = 2;
    server.answer_is_head_only = true;
    run();
    assert_string_equal(peer_seen(&client, id)->head, ":status: 200\ngrpc-status: 12\n--\n");
    assert_true(peer_seen(&client, id)->ended);
    assert_true(peer_seen(&client, id)->closed);
}

static void test_trailers_of_a_request(void **state)
{
    int32_t id = ask_of("POST", "/ok", "a.test", NULL, NULL, 10);

    peer_seen(&client, id)->has_trailers = true;
    run();
    assert_non_null(strstr(peer_seen(&server, 1)->head, "--\ngrpc-status: 0\nx-word: of-secret-1\n--\n"));
    expect_body(&server, 1, "xxxxxxxxxx");
    assert_true(peer_seen(&server, 1)->ended);
    expect_answer(id, "200", "ok");
}

static void test_half_closed(void **state)
{
    int32_t id = ask_of("POST", "/ok", "a.test", NULL, NULL, 100 * 1024);

    /* The response is there before the request is; both come whole. */
    server_reads = false;
    run();
    server_reads = true;
    run();
    expect_answer(id, "200", "ok");
    assert_int_equal(peer_seen(&server, 1)->body.len, 100 * 1024);
    assert_true(peer_seen(&server, 1)->ended);
}

/* --- the policy changes */

static void test_policy_changes(void **state)
{
    struct policy_rule *r;

    server.answers = false;
    int32_t kept = ask("/okay"), waits = ask("/ok"), begun = ask("/ok"), done = ask("/ok");
    run();
    const nghttp2_nv ok[] = {peer_nv(":status", "200")};
    (void)nghttp2_submit_headers(server.s, 0, 5, NULL, ok, 1, NULL);
    peer_respond(&server, 7);
    run();
    expect_answer(done, "200", "ok");
    policy_done(&box.policy);
    policy_init(&box.policy);
    r = policy_add(&box.policy, POLICY_ALLOW, POLICY_TLS);
    policy_rule_domain(r, "a.test");
    policy_rule_path(r, "/okay");
    policy_compile(&box.policy);
    h2_check(&opened);
    assert_int_equal(ndenied, 2);
    run();
    expect_answer(waits, "403", "does not allow");
    assert_true(peer_seen(&client, begun)->closed);
    assert_int_equal(peer_seen(&client, begun)->code, NGHTTP2_CANCEL);
    assert_true(peer_seen(&server, 3)->closed && peer_seen(&server, 5)->closed);
    assert_false(peer_seen(&server, 1)->closed);
    peer_respond(&server, 1);
    run();
    expect_answer(kept, "200", "ok");
    h2_check(&opened);
    assert_int_equal(ndenied, 2);
    int32_t later = ask("/ok");
    run();
    expect_answer(later, "403", "does not allow");
}

static void test_body_that_is_signed(void **state)
{
    struct policy_rule *r;

    policy_done(&box.policy);
    policy_init(&box.policy);
    r = policy_add(&box.policy, POLICY_INJECT, POLICY_TLS);
    policy_rule_domain(r, "a.test");
    memcpy(policy_rule_inject(r, POLICY_SIGV4, "dynamodb", "eu-1", "")->secret_id, "se-1", sizeof "se-1");
    secrets_add(&box.secrets, "se-1", "AWS_ACCESS_KEY_ID", "AKID", 4);
    secrets_add(&box.secrets, "se-1", "AWS_SECRET_ACCESS_KEY", "of-aws-secret", 13);
    policy_compile(&box.policy);
    int32_t a = ask("/ok");
    run();
    expect_answer(a, "200", "ok");
    assert_non_null(strstr(peer_seen(&server, 1)->head, "authorization: AWS4-HMAC-SHA256 Credential=AKID/"));
    int32_t b = ask_of("PUT", "/ok", "a.test", NULL, NULL, 100);
    run();
    assert_true(peer_seen(&client, b)->closed);
    assert_int_equal(peer_seen(&client, b)->code, NGHTTP2_HTTP_1_1_REQUIRED);
    assert_true(client.got_goaway);
    assert_int_equal(client.goaway_code, NGHTTP2_HTTP_1_1_REQUIRED);
    assert_int_equal(denied_reason, EGRESS_PROTOCOL);
    assert_string_equal(peer_seen(&server, 3)->head, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_request_goes_on, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_secret_goes_in, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_packed_response_is_refused, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_refusals_leave_the_connection, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_connect_is_refused, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_connection_fields_are_refused, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_too_many_fields, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_hints_and_trailers, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_trailers_alone, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_trailers_of_a_request, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_half_closed, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_policy_changes, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_body_that_is_signed, rig_setup, rig_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
