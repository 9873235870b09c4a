/*
 * node_link_test.c - the node's links to monitors and the keeper: replies, breaks, repeats, ends
 *
 * The other side is played by the test, on the same loop.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "loop/loop.h"
#include "node/keeper_link.h"
#include "node/monitor_link.h"
#include "sys/fd.h"

#define SB "sb-0123456789abcdefABCDEF"

static char dir[64], sock[128];
static struct loop *loop;
static int run_fd, listener, peer;
static struct monitor_pool *pool;

/* --- the other side -------------------------------------------------------------------------- */

static void accept_peer(void)
{
    assert_int_equal(peer, -1);
    for (int i = 0; i < 100 && peer < 0; i++) {
        peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0)
            usleep(1000);
    }
    assert_true(peer >= 0);
}

/* Type and tag of the next request; its payload's first byte in *first. */
static uint32_t expect(uint16_t type, uint8_t first)
{
    uint8_t space[LIMIT_CHANNEL_INLINE];
    struct chan_msg m;

    assert_int_equal(chan_recv(peer, space, sizeof space, 0, &m), 1);
    assert_int_equal(m.type, type);
    if (m.len > 0)
        assert_int_equal(m.data[0], first);
    uint32_t tag = m.tag;
    chan_msg_done(&m);
    return tag;
}

/* --- answers --------------------------------------------------------------------------------- */

struct answer {
    int calls;
    enum monitor_result res;
    uint16_t type;
    struct err e;
};

static int awaited;

static void on_answer(void *arg, enum monitor_result res, const struct chan_msg *m,
                      const struct err *e)
{
    struct answer *a = arg;

    a->calls++;
    a->res = res;
    if (m != NULL)
        a->type = m->type;
    if (e != NULL)
        a->e = *e;
    if (--awaited == 0)
        loop_stop(loop);
}

static void give_up(void *arg)
{
    (void)arg;
    loop_stop(loop);
}

/* Runs the loop until n answers have come, at most `ms`. */
static void run_for(int n, uint64_t ms)
{
    struct loop_timer *t = loop_timer_new(loop, give_up, NULL);

    awaited = n;
    loop_timer_set(t, ms);
    (void)loop_run(loop);
    loop_timer_free(t);
}

static struct monitor_req *ask(enum mon_type type, uint8_t byte, struct answer *a,
                               uint64_t timeout_ms)
{
    *a = (struct answer){0};
    return monitor_call(pool, SB, type, &byte, 1, timeout_ms, on_answer, a);
}

/* --- fixtures -------------------------------------------------------------------------------- */

static int setup(void **state)
{
    (void)snprintf(dir, sizeof dir, "/tmp/node_link_test.XXXXXX");
    assert_non_null(mkdtemp(dir));
    run_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(run_fd, SB, 0700), 0);
    (void)snprintf(sock, sizeof sock, "%s/%s/monitor.sock", dir, SB);
    assert_int_equal(chan_listen(sock, 0600, &listener), 0);
    peer = -1;
    loop = loop_new();
    pool = monitor_pool_new(loop, run_fd);
    return 0;
}

static int teardown(void **state)
{
    monitor_pool_free(pool);
    loop_free(loop);
    fd_close(&listener);
    fd_close(&peer);
    (void)unlink(sock);
    (void)unlinkat(run_fd, SB, AT_REMOVEDIR);
    fd_close(&run_fd);
    return rmdir(dir);
}

/* --- monitors -------------------------------------------------------------------------------- */

static void test_reply_and_error(void **state)
{
    struct mon_error me = {.code = ERR_CONFLICT, .param = "exec_id", .message = "in use"};
    uint8_t space[512];
    struct answer a, b;

    (void)ask(MON_STATUS, 1, &a, 5000);
    (void)ask(MON_EXEC, 2, &b, 5000);
    accept_peer();
    uint32_t tag_a = expect(MON_STATUS, 1);
    uint32_t tag_b = expect(MON_EXEC, 2);
    /* Out of order, and once a tag that nobody waits for. */
    assert_int_equal(chan_send(peer, MON_OK, 999, NULL, 0, NULL, 0), 0);
    assert_int_equal(chan_send(peer, MON_ERROR, tag_b, space,
                               mon_error_encode(&me, space, sizeof space), NULL, 0),
                     0);
    assert_int_equal(chan_send(peer, MON_STATUS_R, tag_a, "x", 1, NULL, 0), 0);
    run_for(2, 5000);
    assert_int_equal(a.res, MONITOR_REPLY);
    assert_int_equal(a.type, MON_STATUS_R);
    assert_int_equal(b.res, MONITOR_ERROR);
    assert_int_equal(b.e.code, ERR_CONFLICT);
    assert_string_equal(b.e.param, "exec_id");
}

static void test_gone(void **state)
{
    struct answer a;

    fd_close(&listener);        /* the file stays: refused */
    (void)ask(MON_STATUS, 1, &a, 5000);
    assert_int_equal(a.calls, 0);   /* never from inside the call */
    run_for(1, 5000);
    assert_int_equal(a.res, MONITOR_GONE);
    (void)unlink(sock);         /* no file */
    (void)ask(MON_STATUS, 1, &a, 5000);
    run_for(1, 5000);
    assert_int_equal(a.res, MONITOR_GONE);
}

static void test_break_and_repeat(void **state)
{
    struct answer a, b, c, d;

    (void)ask(MON_EXEC, 1, &a, 5000);
    (void)ask(MON_READ, 2, &b, 5000);
    (void)ask(MON_SIGNAL, 3, &c, 5000);
    (void)ask(MON_WAIT, 4, &d, 5000);
    accept_peer();
    (void)expect(MON_EXEC, 1);
    fd_close(&peer);
    run_for(1, 1000);           /* the signal is not sent twice */
    assert_int_equal(c.calls, 1);
    assert_int_equal(c.res, MONITOR_ERROR);
    assert_int_equal(c.e.code, ERR_UNAVAILABLE);
    accept_peer();              /* the others come again, in their order */
    uint32_t tags[] = {expect(MON_EXEC, 1), expect(MON_READ, 2), expect(MON_WAIT, 4)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(chan_send(peer, MON_OK, tags[i], NULL, 0, NULL, 0), 0);
    run_for(3, 5000);
    assert_int_equal(a.calls + b.calls + d.calls, 3);
    assert_int_equal(a.res, MONITOR_REPLY);

    /* And when nobody listens any more, all who wait are told. */
    (void)ask(MON_READ, 5, &a, 5000);
    (void)expect(MON_READ, 5);
    fd_close(&listener);
    fd_close(&peer);
    run_for(1, 5000);
    assert_int_equal(a.res, MONITOR_GONE);
}

static void test_cancel_and_timeout(void **state)
{
    struct answer a, b;

    monitor_cancel(ask(MON_READ, 1, &a, 5000));
    (void)ask(MON_READ, 2, &b, 100);
    accept_peer();
    uint32_t tag = expect(MON_READ, 1);
    (void)expect(MON_READ, 2);
    run_for(1, 5000);
    assert_int_equal(b.res, MONITOR_ERROR);
    assert_int_equal(b.e.code, ERR_TIMEOUT);
    assert_int_equal(chan_send(peer, MON_OK, tag, NULL, 0, NULL, 0), 0);
    run_for(1, 50);
    assert_int_equal(a.calls, 0);
}

static void test_attach(void **state)
{
    int ends[2];
    struct answer a;

    assert_int_equal(chan_pair(ends), 0);
    (void)fd_set_nonblock(ends[1], false);
    monitor_attach(pool, SB, &ends[0]);
    assert_int_equal(ends[0], -1);
    (void)ask(MON_STATUS, 1, &a, 5000);
    peer = ends[1];
    uint32_t tag = expect(MON_STATUS, 1);
    assert_int_equal(chan_send(peer, MON_STATUS_R, tag, NULL, 0, NULL, 0), 0);
    run_for(1, 5000);
    assert_int_equal(a.res, MONITOR_REPLY);

    (void)ask(MON_WAIT, 2, &a, 5000);
    monitor_forget(pool, SB);
    run_for(1, 5000);
    assert_int_equal(a.res, MONITOR_GONE);
}

static void test_many_under_way(void **state)
{
    static struct answer all[300];
    uint32_t tags[300];

    for (int i = 0; i < 300; i++)
        (void)ask(MON_READ, (uint8_t)i, &all[i], 5000);
    accept_peer();
    for (int i = 0; i < 300; i++) {
        tags[i] = expect(MON_READ, (uint8_t)i);
        if (i % 5 == 4)         /* a full socket makes the rest wait */
            run_for(1, 1);
    }
    for (int i = 299; i >= 0; i--) {
        assert_int_equal(chan_send(peer, MON_OK, tags[i], NULL, 0, NULL, 0), 0);
        run_for(1, 1000);
    }
    for (int i = 0; i < 300; i++)
        assert_int_equal(all[i].calls, 1);
}

/* --- the keeper ------------------------------------------------------------------------------ */

struct keeper_answer {
    int calls;
    bool failed;
    struct err e;
    size_t len;
    bool has_fd;
};

static void on_keeper(void *arg, const struct err *e, const uint8_t *payload, size_t len, int *fd)
{
    struct keeper_answer *a = arg;

    (void)payload;
    a->calls++;
    a->failed = e != NULL;
    if (e != NULL)
        a->e = *e;
    a->len = len;
    a->has_fd = *fd >= 0;
    if (--awaited == 0)
        loop_stop(loop);
}

static void answer_keeper(uint32_t tag, uint16_t code, int fd)
{
    struct keeper_reply r = {.code = code, .message = "says the keeper"};
    uint8_t space[512];
    size_t n = keeper_reply_encode(&r, space, sizeof space);

    memcpy(space + n, "rest", 4);
    assert_int_equal(chan_send(peer, KEEPER_REPLY, tag, space, n + 4, &fd, fd >= 0 ? 1 : 0), 0);
}

static void test_keeper(void **state)
{
    struct keeper_answer a = {0}, b = {0};
    uint8_t byte = 7;

    struct keeper_link *k = keeper_link_new(loop, sock);
    accept_peer();
    keeper_call(k, KEEPER_CREATE, &byte, 1, 5000, on_keeper, &a);
    keeper_call(k, KEEPER_DESTROY, &byte, 1, 5000, on_keeper, &b);
    uint32_t tag = expect(KEEPER_CREATE, 7);
    answer_keeper(expect(KEEPER_DESTROY, 7), ERR_NOT_FOUND, -1);
    answer_keeper(tag, ERR_OK, listener);
    run_for(2, 5000);
    assert_false(a.failed);
    assert_true(a.has_fd);
    assert_int_equal(a.len, 4);
    assert_true(b.failed);
    assert_int_equal(b.e.code, ERR_NOT_FOUND);
    assert_string_equal(b.e.message, "says the keeper");

    /* It dies over a request, and comes back. */
    a = b = (struct keeper_answer){0};
    keeper_call(k, KEEPER_CREATE, &byte, 1, 5000, on_keeper, &a);
    (void)expect(KEEPER_CREATE, 7);
    keeper_call(k, KEEPER_LIST, NULL, 0, 5000, on_keeper, &b);
    fd_close(&peer);
    fd_close(&listener);
    run_for(1, 200);
    assert_int_equal(a.calls + b.calls, 0);
    assert_int_equal(chan_listen(sock, 0600, &listener), 0);
    run_for(1, 600);
    accept_peer();
    tag = expect(KEEPER_CREATE, 7);
    answer_keeper(tag, ERR_EXISTS, -1);
    answer_keeper(expect(KEEPER_LIST, 0), ERR_OK, -1);
    run_for(2, 5000);
    assert_int_equal(a.e.code, ERR_EXISTS);
    assert_false(b.failed);

    /* It stays away: the caller is told within seconds. */
    a = (struct keeper_answer){0};
    fd_close(&peer);
    fd_close(&listener);
    keeper_call(k, KEEPER_STATS, NULL, 0, 60000, on_keeper, &a);
    run_for(1, 5000);
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.e.code, ERR_UNAVAILABLE);
    keeper_link_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reply_and_error, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_break_and_repeat, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel_and_timeout, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attach, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_under_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keeper, setup, teardown),
    };

    return cmocka_run_group_tests_name("node_link", tests, NULL, NULL);
}
