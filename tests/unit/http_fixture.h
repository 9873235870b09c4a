/*
 * http_fixture.h - a server and a client in one loop, for the tests of src/http
 *
 * Included by http_h1_test.c, http_h2_test.c and grpc_test.c, each its own program.
 */
#ifndef QS_TESTS_HTTP_FIXTURE_H
#define QS_TESTS_HTTP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "http/http.h"

static struct loop *loop;
static struct http_server *server;
static struct http_client *client;
static char dir[64], address[100];
static struct loop_timer *watchdog;

static void fixture_stuck(void *arg)
{
    fail_msg("the test is stuck");
}

static void fixture_start(http_request_cb cb)
{
    struct err e;

    loop = loop_new();
    (void)snprintf(dir, sizeof dir, "/tmp/http_test.XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(address, sizeof address, "unix:%s/s", dir);
    server = http_server_new(loop, cb, NULL);
    assert_int_equal(http_server_listen(server, address, &e), 0);
    assert_int_equal(http_server_listen(server, "127.0.0.1:0", &e), 0);
    client = http_client_new(loop, address);
    watchdog = loop_timer_new(loop, fixture_stuck, NULL);
    loop_timer_set(watchdog, 60000);
}

static void fixture_end(void)
{
    loop_timer_free(watchdog);
    http_client_free(client);
    http_server_free(server);
    loop_free(loop);
    assert_int_equal(rmdir(dir), 0);
}

static void fixture_run(void)
{
    assert_int_equal(loop_run(loop), 0);
}

static void fixture_on_stop(void *arg)
{
    loop_stop(loop);
}

/* Runs the loop for a while. */
static inline void fixture_wait(unsigned ms)
{
    struct loop_timer *t = loop_timer_new(loop, fixture_on_stop, NULL);

    loop_timer_set(t, ms);
    fixture_run();
    loop_timer_free(t);
}

/* The byte of a body at an offset, so that lost or moved bytes show. */
static inline uint8_t pattern_at(uint64_t i)
{
    return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16));
}

static inline void pattern_fill(uint8_t *p, size_t n, uint64_t at)
{
    for (size_t i = 0; i < n; i++)
        p[i] = pattern_at(at + i);
}

static inline void pattern_check(const uint8_t *p, size_t n, uint64_t at)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != pattern_at(at + i))
            fail_msg("byte %llu is wrong", (unsigned long long)(at + i));
    }
}

#endif
