/*
 * egress_parse_test.c - what egress reads of strangers' first bytes
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "egress/dns_wire.h"
#include "egress/head.h"

static enum head_result parse(const char *text, struct head *h)
{
    return head_parse((const uint8_t *)text, strlen(text), h);
}

static void heads(void **state)
{
    static const struct {
        const char *text;
        enum head_result result;
        const char *name; /* NULL: none */
        bool mismatch;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", HEAD_OK, "a.test", false},
        {"GET / HTTP/1.1\r\nhost:A.Test.:8080\r\n\r\n", HEAD_OK, "a.test", false},
        {"GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", HEAD_OK, "a.test", false},
        {"GET http://b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", HEAD_OK, "a.test", true},
        {"GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", HEAD_OK, "a.test", true},
        {"GET / HTTP/1.1\r\nHost: 1.2.3.4\r\n\r\n", HEAD_OK, NULL, false},
        {"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", HEAD_OK, NULL, false},
        {"GET / HTTP/1.0\r\n\r\n", HEAD_OK, NULL, false},
        {"GET / HTTP/1.1\r\nHost: a.test\r\n", HEAD_MORE, NULL, false},
        {"GET / HTTP/1.1\r\nHost: a.test\r", HEAD_MORE, NULL, false},
        {"GET / HTTP/1.1\nHost: a.test\n\n", HEAD_BAD, NULL, false},
        {"GET / HTTP/1.1\r\nHost : a.test\r\n\r\n", HEAD_BAD, NULL, false},
        {"GET / HTTP/1.1\r\nHost: a.test\r\n b.test\r\n\r\n", HEAD_BAD, NULL, false},
        {"GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n", HEAD_BAD, NULL, false},
        {"GET / HTTP/2.0\r\nHost: a.test\r\n\r\n", HEAD_BAD, NULL, false},
        {"GET http://a@b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", HEAD_BAD, NULL, false},
        {"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", HEAD_BAD, NULL, false},
        {"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +1\r\n\r\n", HEAD_BAD, NULL, false},
        {"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", HEAD_BAD, NULL, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct head h;
        assert_int_equal(parse(rows[i].text, &h), rows[i].result);
        if (rows[i].result != HEAD_OK)
            continue;
        assert_int_equal(h.has_name, rows[i].name != NULL);
        assert_string_equal(h.name, rows[i].name != NULL ? rows[i].name : "");
        assert_int_equal(h.is_mismatch, rows[i].mismatch);
        assert_int_equal(h.len, strlen(rows[i].text));
    }
}

/* Feeds text in pieces; returns what went on, and how it ended. */
static bool feed(const char *text, size_t piece, char *out, enum scan_why *why)
{
    struct scan s;
    size_t at = 0, n = strlen(text), len = 0;
    bool ok = true;

    scan_init(&s, "a.test");
    while (at < n && ok) {
        const uint8_t *p;
        size_t used, got, part = n - at < piece ? n - at : piece;
        ok = scan_feed(&s, (const uint8_t *)text + at, part, &used, &p, &got, why);
        if (!ok || (used == 0 && got == 0))
            break;
        memcpy(out + len, p, got);
        len += got;
        at += used;
    }
    out[len] = '\0';
    scan_done(&s);
    return ok;
}

static void requests_of_one_connection(void **state)
{
    static const char good[] = "GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n"
                               "POST /2 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nGET /"
                               "POST /3 HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "a;x=1\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n"
                               "GET /4 HTTP/1.1\r\nHost: a.test\r\n\r\n";
    char out[1024];
    enum scan_why why;

    for (size_t piece = 1; piece < sizeof good; piece += 7) {
        assert_true(feed(good, piece, out, &why));
        assert_string_equal(out, good);
    }
    assert_false(feed("GET / HTTP/1.1\r\nHost: a.test\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n", 1000, out, &why));
    assert_int_equal(why, SCAN_MISMATCH);
    assert_string_equal(out, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_false(feed("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", 1000, out, &why));
    assert_int_equal(why, SCAN_METHOD);
    assert_false(feed("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n", 1000, out, &why));
    assert_int_equal(why, SCAN_MALFORMED);
    /* An offer of HTTP/2 does not reach the server. */
    assert_true(feed("GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: h2c\r\n\r\n", 1000, out, &why));
    assert_string_equal(out, "GET / HTTP/1.1\r\nHost: a.test\r\nXpgrade: h2c\r\n\r\n");
    /* What may follow an upgrade waits for its answer. */
    assert_true(feed("GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n", 1000,
                     out, &why));
    assert_string_equal(out, "GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\n");
}

static void queries(void **state)
{
    static const uint8_t query[] = {0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'A', 4, 't', 'e', 's', 't', 0, 0, 1, 0, 1};
    struct address a[2];
    struct dns_query q;
    uint8_t out[DNS_ANSWER_MAX], bad[sizeof query];

    assert_int_equal(dns_parse(query, sizeof query, &q), DNS_NOERROR);
    assert_string_equal(q.name, "a.test");
    assert_int_equal(q.type, DNS_A);
    assert_true(address_parse("9.8.7.6", &a[0]));
    assert_true(address_parse("::1", &a[1]));
    assert_int_equal(dns_answer(&q, DNS_NOERROR, a, 2, 30, out), sizeof query + 16);
    assert_memory_equal(out, "\0\7\x81\x80\0\1\0\1\0\0\0\0", 12);
    assert_memory_equal(out + sizeof query, "\xc0\x0c\0\1\0\1\0\0\0\x1e\0\4\x09\x08\x07\x06", 16);
    for (size_t n = 0; n < sizeof query; n++)
        assert_int_not_equal(dns_parse(query, n, &q), DNS_NOERROR);
    memcpy(bad, query, sizeof bad);
    bad[2] = 0x81;      /* an answer is not answered */
    assert_int_equal(dns_parse(bad, sizeof bad, &q), -1);
    memcpy(bad, query, sizeof bad);
    bad[12] = 0xc0;     /* a name that points elsewhere */
    assert_int_equal(dns_parse(bad, sizeof bad, &q), DNS_FORMERR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads),
        cmocka_unit_test(requests_of_one_connection),
        cmocka_unit_test(queries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
