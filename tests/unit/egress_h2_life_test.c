/*
 * egress_h2_life_test.c - HTTP/2 through an opened connection: who is slow, who resets, who floods, and how it ends
 */
#include "egress_h2_rig.h"

#include <string.h>

#include "base/mem.h"

/* --- flow control */

static void test_slow_server_holds_the_client(void **state)
{
    server.holds = true;
    server.answers = false;
    int32_t id = ask_of("POST", "/ok", "a.test", NULL, NULL, 4 * 1024 * 1024);
    run();
    /* Its own window of 64 KiB, and ours. */
    assert_int_equal(peer_seen(&server, 1)->body.len, 65535);
    size_t sent = 4 * 1024 * 1024 - peer_seen(&client, id)->left;
    assert_true(sent >= 65535 + 128 * 1024 && sent <= 65535 + 256 * 1024);
    assert_true(end_queued(&opened.server) == 0);
    server.holds = false;
    (void)nghttp2_session_consume(server.s, 1, 65535);
    run();
    assert_int_equal(peer_seen(&server, 1)->body.len, 4 * 1024 * 1024);
    assert_true(peer_seen(&server, 1)->ended);
}

static void test_slow_client_holds_the_server(void **state)
{
    client.holds = true;
    server.answer_left = 4 * 1024 * 1024;
    server.answer_text = NULL;
    int32_t id = ask("/ok");
    run();
    assert_int_equal(peer_seen(&client, id)->body.len, 65535);
    size_t sent = 4 * 1024 * 1024 - peer_seen(&server, 1)->left;
    assert_true(sent >= 65535 + 128 * 1024 && sent <= 65535 + 256 * 1024);
    client.holds = false;
    (void)nghttp2_session_consume(client.s, id, 65535);
    run();
    assert_int_equal(peer_seen(&client, id)->body.len, 4 * 1024 * 1024);
    assert_true(peer_seen(&client, id)->ended);
}

static void test_client_that_does_not_read(void **state)
{
    client_reads = false;
    server.answer_left = 64 * 1024;
    server.answer_text = NULL;
    /* Windows that let everything come. */
    const nghttp2_settings_entry wide[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 16 * 1024 * 1024}};
    (void)nghttp2_submit_settings(client.s, 0, wide, 1);
    (void)nghttp2_session_set_local_window_size(client.s, 0, 0, 64 * 1024 * 1024);
    for (int i = 0; i < 90; i++)
        (void)ask("/ok");
    run();
    assert_true(end_queued(&opened.client) <= END_HIGH + 33 * 1024);
    client_reads = true;
    run();
    for (int32_t id = 1; id < 180; id += 2)
        assert_int_equal(peer_seen(&client, id)->body.len, 64 * 1024);
}

static void test_heads_that_wait_for_the_server(void **state)
{
    static char large[3001];
    const nghttp2_settings_entry one[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1}};

    memset(large, 'a', sizeof large - 1);
    server.answers = false;
    (void)nghttp2_submit_settings(server.s, 0, one, 1);
    run();
    for (int i = 0; i < 90; i++)
        (void)ask_of("GET", "/ok", "a.test", "x-large", large, 0);
    run();
    int refused = 0;
    for (int32_t id = 1; id < 180; id += 2)
        refused += peer_seen(&client, id)->code == NGHTTP2_REFUSED_STREAM;
    assert_in_range(refused, 40, 50);           /* 128 KiB are kept */
    assert_string_equal(peer_seen(&server, 3)->head, "");
    /* Those that were kept go on, and there is room again. */
    server.answers = true;
    peer_respond(&server, 1);
    run();
    for (int32_t id = 1; id < 180; id += 2)
        if (peer_seen(&client, id)->code != NGHTTP2_REFUSED_STREAM)
            expect_answer(id, "200", "ok");
    int32_t id = ask_of("GET", "/ok", "a.test", "x-large", large, 0);
    run();
    expect_answer(id, "200", "ok");
}

static void test_heads_that_wait_for_the_client(void **state)
{
    static char large[20 * 1024 + 1];

    memset(large, '~', sizeof large - 1);       /* more than tables of the compression hold */
    const nghttp2_nv answer[] = {peer_nv(":status", "200"), peer_nv("x-large", large)};
    client_reads = false;
    server.answer = answer;
    server.nanswer = 2;
    unsigned n = 0;
    for (; n < 90 && h2_wants_server(&opened); n++) {
        (void)ask("/ok");
        run();
    }
    assert_in_range(n, 10, 60);
    assert_true(end_queued(&opened.client) <= END_HIGH + 64 * 1024);
    client_reads = true;
    run();
    assert_true(h2_wants_server(&opened));
    for (int32_t id = 1; id < 1 + 2 * (int32_t)n; id += 2)
        assert_true(peer_seen(&client, id)->ended);
}

static void test_many_connections_have_small_windows(void **state)
{
    box.nflows = 33;
    h2_free(&opened);
    buf_clear(&opened.client.out);
    buf_clear(&opened.server.out);
    peer_done(&client);
    peer_done(&server);
    peer_new(&client, false);
    peer_new(&server, true);
    assert_true(h2_start(&opened));
    run();
    assert_int_equal(nghttp2_session_get_remote_settings(client.s, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE), 64 * 1024);
    assert_int_equal(nghttp2_session_get_remote_settings(server.s, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE), 64 * 1024);
    assert_int_equal(nghttp2_session_get_remote_window_size(client.s), 256 * 1024);
    assert_int_equal(nghttp2_session_get_remote_window_size(server.s), 256 * 1024);
}

/* --- resets */

static void test_resets_go_both_ways(void **state)
{
    server.answers = false;
    int32_t a = ask("/ok"), b = ask("/ok");
    run();
    (void)nghttp2_submit_rst_stream(client.s, 0, a, NGHTTP2_CANCEL);
    (void)nghttp2_submit_rst_stream(server.s, 0, 3, NGHTTP2_REFUSED_STREAM);
    run();
    assert_true(peer_seen(&server, 1)->closed);
    assert_int_equal(peer_seen(&server, 1)->code, NGHTTP2_CANCEL);
    assert_true(peer_seen(&client, b)->closed);
    assert_int_equal(peer_seen(&client, b)->code, NGHTTP2_REFUSED_STREAM);
    server.answers = true;
    int32_t c = ask("/ok");
    run();
    expect_answer(c, "200", "ok");
}

static void test_reset_before_it_was_sent(void **state)
{
    const nghttp2_settings_entry one[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1}};

    server.answers = false;
    (void)nghttp2_submit_settings(server.s, 0, one, 1);
    run();
    int32_t a = ask("/ok"), b = ask_of("POST", "/ok", "a.test", NULL, NULL, 100), c = ask("/ok");
    run();
    assert_string_not_equal(peer_seen(&server, 1)->head, "");
    assert_string_equal(peer_seen(&server, 3)->head, "");
    (void)nghttp2_submit_rst_stream(client.s, 0, b, NGHTTP2_CANCEL);
    run();
    server.answers = true;
    peer_respond(&server, 1);
    run();
    expect_answer(a, "200", "ok");
    expect_answer(c, "200", "ok");
    expect_body(&client, b, "");
}

static void test_body_nobody_wants(void **state)
{
    int32_t id = ask_of("POST", "/no", "a.test", NULL, NULL, SIZE_MAX);

    /* The answer is there, and what was to come is stopped. */
    for (int i = 0; i < 50; i++)
        run();
    expect_answer(id, "403", "does not allow");
    assert_true(peer_seen(&client, id)->closed);
    assert_int_equal(peer_seen(&client, id)->code, NGHTTP2_NO_ERROR);
    assert_string_equal(peer_seen(&server, 1)->head, "");
    id = ask("/ok");
    run();
    expect_answer(id, "200", "ok");
}

static void test_server_wants_no_more(void **state)
{
    const nghttp2_nv ok[] = {peer_nv(":status", "200")};

    server.answers = false;
    int32_t id = ask_of("POST", "/ok", "a.test", NULL, NULL, 20 * 1024 * 1024);
    server.holds = true;
    run();
    (void)nghttp2_submit_response(server.s, 1, ok, 1, NULL);
    run();
    (void)nghttp2_submit_rst_stream(server.s, 0, 1, NGHTTP2_NO_ERROR);
    run();
    expect_answer(id, "200", "");
    assert_true(peer_seen(&client, id)->closed);
    assert_int_equal(peer_seen(&client, id)->code, NGHTTP2_NO_ERROR);
    assert_true(peer_seen(&client, id)->left > 0);
}

static void test_rapid_resets_are_cut(void **state)
{
    int n = 0;

    for (; n < 390 * 20 && !client.got_goaway && !is_broken; n++) {
        int32_t id = nghttp2_session_get_next_stream_id(client.s);
        if (id / 2 >= PEER_STREAMS)
            break;
        (void)ask("/ok");
        (void)nghttp2_submit_rst_stream(client.s, 0, id, NGHTTP2_CANCEL);
    }
    run();
    /* What a client may do within its burst does no harm. */
    assert_false(client.got_goaway);
    int32_t reset = 0;
    static const uint8_t rst[] = {0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 0, 0, 8};
    static const uint8_t get[] = {0, 0, 0, 1, 5, 0, 0, 0, 0};
    static const uint8_t block[] = {0x82, 0x87, 0x41, 6, 'a', '.', 't', 'e', 's', 't', 0x44, 3, '/', 'o', 'k'};
    for (uint32_t id = 1001; reset < 5000 && nclosed == 0 && !is_broken; id += 2, reset++) {
        uint8_t all[sizeof get + sizeof block + sizeof rst];
        memcpy(all, get, sizeof get);
        memcpy(all + sizeof get, block, sizeof block);
        memcpy(all + sizeof get + sizeof block, rst, sizeof rst);
        all[2] = sizeof block;
        all[7] = all[sizeof get + sizeof block + 7] = (uint8_t)(id >> 8);
        all[8] = all[sizeof get + sizeof block + 8] = (uint8_t)id;
        is_broken = !h2_up(&opened, all, sizeof all);
        buf_clear(&opened.server.out);
    }
    assert_true(nclosed == 1 || is_broken);
    assert_in_range(reset, 500, 1500);
}

static void test_endless_block_is_cut(void **state)
{
    static const uint8_t open[] = {0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82}, empty[] = {0, 0, 0, 9, 0, 0, 0, 0, 1};
    int n = 0;

    is_broken = !h2_up(&opened, open, sizeof open);
    for (; n < 10000 && nclosed == 0 && !is_broken; n++)
        is_broken = !h2_up(&opened, empty, sizeof empty);
    assert_true(nclosed == 1 || is_broken);
    assert_in_range(n, 1, 100);
}

static void test_pings_are_answered_and_counted(void **state)
{
    static const uint8_t ping[] = {0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    int n = 0;

    assert_true(h2_up(&opened, ping, sizeof ping));
    assert_int_equal(end_queued(&opened.client), sizeof ping);
    assert_int_equal(((uint8_t *)opened.client.out.data)[4], 1);
    assert_int_equal(end_queued(&opened.server), 0);
    /* Nobody reads the answers. */
    for (; n < 100000 && !is_broken && nclosed == 0; n++)
        is_broken = !h2_up(&opened, ping, sizeof ping);
    assert_true(n < 100000);
    assert_true(end_queued(&opened.client) <= END_HIGH + 33 * 1024);
}

/* --- ends */

static void test_server_says_goodbye(void **state)
{
    server.answers = false;
    int32_t a = ask("/ok"), b = ask("/ok");
    run();
    (void)nghttp2_submit_goaway(server.s, 0, 1, NGHTTP2_NO_ERROR, NULL, 0);
    run();
    assert_true(client.got_goaway);
    assert_int_equal(client.goaway_code, NGHTTP2_NO_ERROR);
    assert_true(peer_seen(&client, b)->closed);
    assert_int_equal(peer_seen(&client, b)->code, NGHTTP2_REFUSED_STREAM);
    assert_false(peer_seen(&client, a)->closed);
    assert_int_equal(nclosed, 0);
    peer_respond(&server, 1);
    run();
    expect_answer(a, "200", "ok");
    assert_int_equal(nclosed, 1);
}

static void test_client_says_goodbye(void **state)
{
    server.answers = false;
    int32_t a = ask("/ok");
    run();
    (void)nghttp2_submit_goaway(client.s, 0, 0, NGHTTP2_NO_ERROR, NULL, 0);
    run();
    assert_true(server.got_goaway);
    peer_respond(&server, 1);
    run();
    expect_answer(a, "200", "ok");
    assert_int_equal(nclosed, 1);
}

static void test_server_is_gone(void **state)
{
    server.answers = false;
    int32_t a = ask("/ok"), b = ask("/ok"), c = ask("/ok");
    server.answer_text = "begun";
    run();
    const nghttp2_nv ok[] = {peer_nv(":status", "200")};
    peer_seen(&server, 3)->text = "begun";
    peer_seen(&server, 3)->left = 1;
    (void)nghttp2_submit_headers(server.s, 0, 3, NULL, ok, 1, NULL);
    peer_respond(&server, 5);
    run();
    assert_true(h2_server_eof(&opened));
    run();
    expect_answer(a, "502", "it ended the connection before it answered");
    assert_true(peer_seen(&client, b)->closed);
    assert_false(peer_seen(&client, b)->ended);
    assert_int_equal(peer_seen(&client, b)->code, NGHTTP2_INTERNAL_ERROR);
    expect_answer(c, "200", "begun");
    assert_true(client.got_goaway);
    assert_int_equal(nclosed, 1);
    assert_true(h2_server_eof(&opened));
    assert_true(h2_up(&opened, (const uint8_t *)"abc", 3));
}

static void test_client_is_gone(void **state)
{
    server.answers = false;
    (void)ask("/ok");
    run();
    assert_true(h2_client_eof(&opened));
    (void)rig_into(&server, &opened.server);
    assert_true(peer_seen(&server, 1)->closed);
    assert_int_equal(peer_seen(&server, 1)->code, NGHTTP2_CANCEL);
    assert_true(server.got_goaway);
    assert_int_equal(nclosed, 1);
}

static void test_server_speaks_something_else(void **state)
{
    static const char other[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\nand so on and so on";

    server.answers = false;
    int32_t a = ask("/ok");
    run();
    assert_true(h2_down(&opened, (const uint8_t *)other, sizeof other - 1));
    (void)rig_into(&client, &opened.client);
    expect_answer(a, "502", "ended the connection");
    assert_int_equal(nclosed, 1);
}

static void test_client_speaks_something_else(void **state)
{
    static const char other[] = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

    h2_free(&opened);
    opened.client.out.len = 0;
    assert_true(h2_start(&opened));
    assert_false(h2_up(&opened, (const uint8_t *)other, sizeof other - 1));
}

static void test_no_server(void **state)
{
    h2_free(&opened);
    buf_clear(&opened.client.out);
    opened.failure = "its certificate is old";
    peer_done(&client);
    peer_new(&client, false);
    assert_true(h2_start(&opened));
    int32_t id = ask("/ok"), no = ask("/no"), posts = ask_of("POST", "/in/a", "a.test", NULL, NULL, 100);
    run();
    expect_answer(id, "502", "its certificate is old");
    expect_answer(no, "403", "does not allow");
    expect_answer(posts, "502", "its certificate is old");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_slow_server_holds_the_client, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_slow_client_holds_the_server, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_client_that_does_not_read, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_heads_that_wait_for_the_server, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_heads_that_wait_for_the_client, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_many_connections_have_small_windows, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_resets_go_both_ways, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_reset_before_it_was_sent, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_body_nobody_wants, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_server_wants_no_more, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_rapid_resets_are_cut, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_endless_block_is_cut, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_pings_are_answered_and_counted, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_server_says_goodbye, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_client_says_goodbye, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_server_is_gone, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_client_is_gone, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_server_speaks_something_else, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_client_speaks_something_else, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_no_server, rig_setup, rig_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
