/*
 * egress_parse_test.c - what egress reads of strangers' first bytes
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "egress/dns/wire.h"
#include "egress/head.h"
#include "egress/udp/packet.h"

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
        {"POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n", HEAD_BAD, NULL, false},
        {"GET https://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", HEAD_OK, "a.test", false},
        {"GET https://b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", HEAD_OK, "a.test", true},
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
    /* Not waited for: the end of such a head would never come. */
    assert_false(feed("GET / HTTP/1.1\nHost: a.test\n\n", 1000, out, &why));
    assert_false(feed("GET / HTTP/1.1\nHost: a.test\n\n", 1, out, &why));
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
    const struct dns_reply r = {.addresses = a, .n = 2, .ttl = 30};
    assert_int_equal(dns_answer(&q, &r, q.room, out), sizeof query + 16);
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

/* The question of `queries` with an OPT record: room, version, options. */
static size_t extended(uint8_t *out, uint16_t room, uint8_t version, size_t options)
{
    static const uint8_t question[] = {0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 'A', 4, 't', 'e', 's', 't', 0, 0, 1, 0, 1};
    const uint8_t opt[] = {0, 0, 41, (uint8_t)(room >> 8), (uint8_t)room, 0, version, 0, 0,
                           (uint8_t)(options >> 8), (uint8_t)options};

    memcpy(out, question, sizeof question);
    memcpy(out + sizeof question, opt, sizeof opt);
    /* The extended code comes before the version. */
    memset(out + sizeof question + sizeof opt, 0, options);
    return sizeof question + sizeof opt + options;
}

static void extensions(void **state)
{
    uint8_t query[1400], out[DNS_ANSWER_MAX];
    struct address a[32];
    struct dns_query q;
    size_t n = extended(query, 4096, 0, 40);

    for (size_t i = 0; i < 32; i++) {
        assert_true(address_parse("9.8.7.6", &a[i]));
        a[i].b[15] = (uint8_t)i;
    }
    const struct dns_reply many = {.addresses = a, .n = 32, .ttl = 30};
    assert_int_equal(dns_parse(query, n, &q), DNS_NOERROR);
    assert_true(q.is_extended);
    assert_int_equal(q.room, DNS_ANSWER_MAX);
    size_t len = dns_answer(&q, &many, q.room, out);
    assert_int_equal(len, 24 + 32 * 16 + 11);
    assert_memory_equal(out, "\0\7\x81\x80\0\1\0\x20\0\0\0\1", 12);
    assert_memory_equal(out + len - 11, "\0\0\x29\x04\xd0\0\0\0\0\0\0", 11);
    /* In a small datagram: as many as fit, and that there are more. */
    n = extended(query, 100, 0, 0);
    assert_int_equal(dns_parse(query, n, &q), DNS_NOERROR);
    assert_int_equal(q.room, DNS_DATAGRAM_MAX);
    len = dns_answer(&q, &many, q.room, out);
    assert_int_equal(len, 24 + 29 * 16 + 11);
    assert_memory_equal(out, "\0\7\x83\x80\0\1\0\x1d", 8);
    /* Why there is no answer. */
    const struct dns_reply blocked = {.code = DNS_NXDOMAIN, .is_blocked = true};
    len = dns_answer(&q, &blocked, q.room, out);
    assert_int_equal(len, 24 + 17);
    assert_int_equal(out[3], 0x83);
    assert_memory_equal(out + len - 8, "\0\6\0\x0f\0\2\0\x0f", 8);
    /* Another version; the higher bits of the code are in the record. */
    n = extended(query, 1232, 1, 0);
    assert_int_equal(dns_parse(query, n, &q), DNS_BADVERS);
    const struct dns_reply version = {.code = DNS_BADVERS};
    len = dns_answer(&q, &version, q.room, out);
    assert_int_equal(out[3], 0x80);
    assert_int_equal(out[len - 6], 1);
    /* Records that end too soon, two of a kind, and one with a name. */
    n = extended(query, 1232, 0, 4);
    for (size_t cut = 25; cut < n; cut++)
        assert_int_equal(dns_parse(query, cut, &q), DNS_FORMERR);
    query[11] = 2;
    assert_int_equal(dns_parse(query, n, &q), DNS_FORMERR);
    memmove(query + n, query + 24, n - 24);
    assert_int_equal(dns_parse(query, n + n - 24, &q), DNS_FORMERR);
    n = extended(query, 1232, 0, DNS_QUERY_MAX);
    assert_int_equal(dns_parse(query, n, &q), DNS_FORMERR);
}

/* The sum of 16-bit words that is -0 where a checksum is right. */
static uint16_t sum(uint32_t start, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        start += i % 2 == 0 ? (uint32_t)p[i] << 8 : p[i];
    while (start > 0xffff)
        start = (start & 0xffff) + (start >> 16);
    return (uint16_t)start;
}

static void packets(void **state)
{
    static uint8_t out[UDP_PACKET_MAX];
    static uint8_t payload[UDP_PAYLOAD_MAX];
    uint8_t refusal[UDP_REFUSAL_MAX];
    struct udp_ends e = {.from_port = 443, .to_port = 40000};
    struct address by;

    memset(payload, 0xa5, sizeof payload);
    assert_true(address_parse("198.97.190.53", &e.from));
    assert_true(address_parse("192.0.2.2", &e.to));
    assert_int_equal(udp_packet(&e, "abc", 3, out), 31);
    assert_memory_equal(out, "\x45\0\0\x1f\0\0\0\0\x40\x11", 10);
    assert_memory_equal(out + 12, "\xc6\x61\xbe\x35\xc0\0\2\2\x01\xbb\x9c\x40\0\x0b", 14);
    assert_memory_equal(out + 28, "abc", 3);
    assert_int_equal(sum(0, out, 20), 0xffff);
    assert_int_equal(sum(17 + 11, out + 12, 19), 0xffff);
    assert_int_equal(udp_packet(&e, payload, UDP_PAYLOAD_MAX - 20, out), 65535);
    assert_int_equal(udp_packet(&e, payload, UDP_PAYLOAD_MAX - 19, out), 0);
    /* What the sandbox sent is refused to it. */
    assert_true(address_parse("192.0.2.53", &by));
    assert_int_equal(udp_refusal(&e, 3, &by, refusal), 56);
    assert_memory_equal(refusal + 12, "\xc0\0\2\x35\xc6\x61\xbe\x35\3\3", 10);
    assert_int_equal(sum(0, refusal, 20), 0xffff);
    assert_int_equal(sum(0, refusal + 20, 36), 0xffff);
    assert_memory_equal(refusal + 28 + 12, "\xc6\x61\xbe\x35\xc0\0\2\2\x01\xbb\x9c\x40\0\x0b", 14);

    assert_int_equal(udp_refusal(&(struct udp_ends){.from = e.from, .to = {{0}}}, 3, &by, refusal), 0);
    assert_true(address_parse("2606:2800:220:2::bad", &e.from));
    assert_int_equal(udp_packet(&e, "abc", 3, out), 0);     /* two families */
    assert_true(address_parse("fd71:7569:636b::2", &e.to));
    assert_int_equal(udp_packet(&e, "abc", 3, out), 51);
    assert_memory_equal(out, "\x60\0\0\0\0\x0b\x11\x40", 8);
    assert_int_equal(sum(17 + 11, out + 8, 43), 0xffff);
    assert_int_equal(udp_refusal(&e, 3, &by, refusal), 0);
    assert_true(address_parse("fd71:7569:636b::53", &by));
    assert_int_equal(udp_refusal(&e, 3, &by, refusal), 96);
    assert_memory_equal(refusal + 40, "\1\4", 2);
    assert_int_equal(sum(58 + 56, refusal + 8, 88), 0xffff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads),
        cmocka_unit_test(requests_of_one_connection),
        cmocka_unit_test(queries),
        cmocka_unit_test(extensions),
        cmocka_unit_test(packets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
