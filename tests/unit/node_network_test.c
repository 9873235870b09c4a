/*
 * node_network_test.c - a sandbox's sockets on their way from its monitor to egress, and what is told when they do not come
 *
 * Monitor and egress are played by the test, on the same loop.
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

#include "base/mem.h"
#include "ipc/monitor_proto.h"
#include "ipc/policy_wire.h"
#include "node/modal/router.h"
#include "node/monitor_link.h"
#include "node/network_internal.h"
#include "node/ops.h"
#include "sys/fd.h"

#define SB "sb-0123456789abcdefABCDEF"

static char dir[64], path[128], egress_path[128];
static struct node node;
static struct network *network;
static int listener, egress_listener, monitor, egress;

static void on_time(void *arg)
{
    loop_stop(node.loop);
}

static void turn(void)
{
    struct loop_timer *t = loop_timer_new(node.loop, on_time, NULL);

    loop_timer_set(t, 20);
    (void)loop_run(node.loop);
    loop_timer_free(t);
}

/* The peer that connects, while the node goes on. */
static int accept_on(int fd)
{
    for (int i = 0; i < 500; i++) {
        int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (peer >= 0)
            return peer;
        turn();
    }
    fail();
    return -1;
}

/* Waits for a message of the type; its tag, and how many descriptors came with it. */
static uint32_t expect(int fd, uint16_t type, int *ret_nfds)
{
    static uint8_t space[LIMIT_CHANNEL_INLINE];
    struct chan_msg m;

    for (int i = 0; i < 500; i++) {
        int r = chan_recv(fd, space, sizeof space, 0, &m);
        if (r == 1 && m.type == type) {
            *ret_nfds = m.nfds;
            uint32_t tag = m.tag;
            chan_msg_done(&m);
            return tag;
        }
        if (r == 1)
            chan_msg_done(&m);
        turn();
    }
    fail();
    return 0;
}

static const char *problem(bool wanted)
{
    for (int i = 0; i < 500 && (map_get(&network->problems, SB) != NULL) != wanted; i++)
        turn();
    return map_get(&network->problems, SB);
}

static int setup(void **state)
{
    struct err e;
    int run;

    (void)snprintf(dir, sizeof dir, "/tmp/node_network_test.XXXXXX");
    assert_non_null(mkdtemp(dir));
    run = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(run, SB, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/%s/monitor.sock", dir, SB);
    (void)snprintf(egress_path, sizeof egress_path, "%s/egress.sock", dir);
    assert_int_equal(chan_listen(path, 0600, &listener), 0);
    assert_int_equal(chan_listen(egress_path, 0600, &egress_listener), 0);
    assert_true(fcntl(listener, F_SETFL, O_NONBLOCK) == 0 && fcntl(egress_listener, F_SETFL, O_NONBLOCK) == 0);
    node = (struct node){.loop = loop_new(), .run_fd = run, .state_fd = run};
    (void)snprintf(node.conf.run_dir, sizeof node.conf.run_dir, "%s", dir);
    node.monitors = monitor_pool_new(node.loop, run);
    node.router = mem_zalloc(sizeof *node.router);
    network = node.network = network_new(&node, &e);
    assert_non_null(network);
    egress = accept_on(egress_listener);
    return 0;
}

static int teardown(void **state)
{
    network_remove(network, SB);
    network_free(network);
    monitor_pool_free(node.monitors);
    loop_free(node.loop);
    free(node.router);
    fd_close(&listener);
    fd_close(&egress_listener);
    fd_close(&monitor);
    fd_close(&egress);
    (void)unlink(path);
    (void)unlink(egress_path);
    (void)unlinkat(node.run_fd, SB, AT_REMOVEDIR);
    (void)unlinkat(node.run_fd, ".network", AT_REMOVEDIR);
    fd_close(&node.run_fd);
    return rmdir(dir);
}

static void save_policy(void)
{
    Quicksand__Node__Network m = QUICKSAND__NODE__NETWORK__INIT;
    auto_free uint8_t *bytes = mem_alloc(LIMIT_POLICY_BYTES);
    struct policy p;
    struct err e;

    policy_init(&p);
    m.policy.len = policy_encode(&p, bytes, LIMIT_POLICY_BYTES);
    m.policy.data = bytes;
    m.has_policy = 1;
    assert_int_equal(network_save(network, SB, &m, &e), 0);
    policy_done(&p);
}

/* The monitor's answer with so many descriptors. */
static void give(uint32_t tag, int n)
{
    int fds[EGRESS_SOCKETS + 1];

    for (int i = 0; i < n; i++)
        fds[i] = STDERR_FILENO;
    assert_int_equal(chan_send(monitor, MON_NETWORK_R, tag, NULL, 0, fds, n), 0);
}

/* A monitor from before an upgrade has another number of sockets than this version: that is told, and another try clears it. */
static void fewer_or_more_sockets(void **state)
{
    static const int counts[] = {2, 0, EGRESS_SOCKETS + 1, EGRESS_SOCKETS};
    struct mon_error old = {.code = ERR_UNSUPPORTED, .message = "the sandbox has loopback alone"};
    uint8_t space[512];
    char words[32];
    int n;

    save_policy();
    assert_null(map_get(&network->problems, SB));
    for (size_t i = 0; i < array_len(counts); i++) {
        network_attach(network, SB);
        if (i == 0)
            monitor = accept_on(listener);
        give(expect(monitor, MON_NETWORK, &n), counts[i]);
        if (counts[i] == EGRESS_SOCKETS)
            break;
        for (int k = 0; k < 5; k++)
            turn();
        const char *text = problem(true);
        assert_non_null(text);
        (void)snprintf(words, sizeof words, "it has %d sockets of the %d", counts[i], EGRESS_SOCKETS);
        assert_non_null(strstr(text, words));
        assert_non_null(strstr(text, "no network"));
    }
    uint32_t tag = expect(egress, EGRESS_ATTACH, &n);
    assert_int_equal(n, EGRESS_SOCKETS);
    assert_int_equal(chan_send(egress, EGRESS_OK, tag, NULL, 0, NULL, 0), 0);
    assert_null(problem(false));

    /* What the monitor says instead, and what egress says. */
    network_attach(network, SB);
    tag = expect(monitor, MON_NETWORK, &n);
    assert_int_equal(chan_send(monitor, MON_ERROR, tag, space, mon_error_encode(&old, space, sizeof space), NULL, 0), 0);
    assert_string_equal(problem(true), old.message);
    network_attach(network, SB);
    give(expect(monitor, MON_NETWORK, &n), EGRESS_SOCKETS);
    struct egress_error bad = {.code = ERR_INVALID, .message = "a socket is not of the kind that belongs here"};
    tag = expect(egress, EGRESS_ATTACH, &n);
    assert_int_equal(chan_send(egress, EGRESS_ERROR, tag, space, egress_error_encode(&bad, space, sizeof space), NULL, 0), 0);
    for (int k = 0; k < 500 && strcmp(map_get(&network->problems, SB), bad.message) != 0; k++)
        turn();
    assert_string_equal(map_get(&network->problems, SB), bad.message);
    network_remove(network, SB);
    assert_null(map_get(&network->problems, SB));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fewer_or_more_sockets, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
