/*
 * net_test.c - addresses, byte queues, listeners, the certificate of a first run
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "net/addr.h"
#include "net/digest.h"
#include "net/listen.h"
#include "net/queue.h"
#include "net/tls.h"

static char dir[64];

static int setup(void **state)
{
    (void)snprintf(dir, sizeof dir, "/tmp/net_test.XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static const char *in_dir(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *p = paths[next++ % 4];

    (void)snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

static int teardown(void **state)
{
    (void)unlink(in_dir("cert.pem"));
    (void)unlink(in_dir("key.pem"));
    return rmdir(dir);
}

static void test_addresses(void **state)
{
    static const struct {
        const char *text, *printed;
    } rows[] = {
        {"127.0.0.1:7070", "127.0.0.1:7070"}, {"localhost:1", "127.0.0.1:1"}, {"[::1]:80", "[::1]:80"},
        {"0.0.0.0:0", "0.0.0.0:0"},           {":7070", "[::]:7070"},         {"unix:/tmp/x", "unix"},
        {"[::ffff:10.0.0.1]:5", "10.0.0.1:5"},
    };
    static const char *const bad[] = {"", "localhost", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x",
                                      "example.org:80", "::1:80", "unix:", "[::1:80", "1.2.3:4",
                                      "127.0.0.1:123456"};
    struct net_addr a;
    struct err e;
    char out[64];

    for (size_t i = 0; i < array_len(rows); i++) {
        assert_int_equal(net_addr_parse(rows[i].text, &a, &e), 0);
        net_addr_format((struct sockaddr *)&a.sa, out, sizeof out);
        assert_string_equal(out, rows[i].printed);
    }
    for (size_t i = 0; i < array_len(bad); i++)
        assert_int_equal(net_addr_parse(bad[i], &a, &e), -1);
}

static void test_queue(void **state)
{
    struct queue q = {0};
    uint8_t next_in = 0, next_out = 0;
    unsigned seed = 1;

    for (int round = 0; round < 20000; round++) {
        seed = seed * 1103515245 + 12345;
        size_t n = seed >> 16 & 0x3ff;
        if (seed & 0x400) {
            uint8_t *p = queue_reserve(&q, n);
            for (size_t i = 0; i < n; i++)
                p[i] = next_in++;
            queue_grew(&q, n);
        } else {
            if (n > queue_len(&q))
                n = queue_len(&q);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(queue_data(&q)[i], next_out++);
            queue_drop(&q, n);
        }
    }
    queue_done(&q);
}

static void on_accept(int fd, const struct sockaddr *peer, void *arg)
{
    (void)close(fd);
}

static void test_unix_listener_replaces_a_stale_file_only(void **state)
{
    struct loop *l = loop_new();
    char address[160];
    struct err e;

    (void)snprintf(address, sizeof address, "unix:%s", in_dir("s"));
    struct net_listener *a = net_listen(l, address, on_accept, NULL, &e);
    assert_non_null(a);
    assert_null(net_listen(l, address, on_accept, NULL, &e));
    assert_int_equal(e.code, ERR_EXISTS);
    /* A socket file nobody listens behind: rename it away so that closing does not remove it. */
    assert_int_equal(rename(in_dir("s"), in_dir("t")), 0);
    net_listener_free(a);
    assert_int_equal(rename(in_dir("t"), in_dir("s")), 0);
    a = net_listen(l, address, on_accept, NULL, &e);
    assert_non_null(a);
    net_listener_free(a);
    assert_int_equal(access(in_dir("s"), F_OK), -1);
    /* Something that is no socket is left alone. */
    FILE *f = fopen(in_dir("s"), "w");
    assert_non_null(f);
    (void)fclose(f);
    assert_null(net_listen(l, address, on_accept, NULL, &e));
    assert_int_equal(unlink(in_dir("s")), 0);
    loop_free(l);
}

static void test_self_signed(void **state)
{
    struct stat st;
    struct err e;
    bool made;

    assert_int_equal(net_tls_self_signed(in_dir("cert.pem"), in_dir("key.pem"), &made, &e), 0);
    assert_true(made);
    assert_int_equal(stat(in_dir("key.pem"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct net_tls *t = net_tls_server(in_dir("cert.pem"), in_dir("key.pem"), &e);
    assert_non_null(t);
    net_tls_free(t);
    ino_t ino = st.st_ino;
    assert_int_equal(net_tls_self_signed(in_dir("cert.pem"), in_dir("key.pem"), &made, &e), 0);
    assert_false(made);
    assert_int_equal(stat(in_dir("key.pem"), &st), 0);
    assert_int_equal(st.st_ino, ino);
    assert_null(net_tls_server(in_dir("key.pem"), in_dir("key.pem"), &e));
    assert_null(net_tls_server("/nonexistent", in_dir("key.pem"), &e));
    assert_int_equal(e.code, ERR_INVALID);
}

static void test_digest(void **state)
{
    char out[NET_SHA1_BASE64_SIZE];

    assert_int_equal(net_sha1_base64("dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 60, out), 0);
    assert_string_equal(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_unix_listener_replaces_a_stale_file_only),
        cmocka_unit_test(test_self_signed),
        cmocka_unit_test(test_digest),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
