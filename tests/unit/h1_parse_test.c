/*
 * h1_parse_test.c - HTTP/1.1 heads and chunked bodies: what is accepted, and all the ways to be refused
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "http/h1_parse.h"

#define H "Host: a\r\n"
/* A literal with its length, which may hold NUL. */
#define T(text) text, sizeof(text) - 1

struct row {
    const char *text;
    size_t len;
    int status;         /* 0 = accepted */
};

/* Finds and parses; 0 or the status. The head is a heap copy of the exact size. */
static int parse(const char *text, size_t len, struct h1_head *ret, char **ret_mem)
{
    size_t scanned = 0;
    const char *why = NULL;

    *ret_mem = NULL;
    ssize_t n = h1_head_find(text, len, &scanned);
    if (n < 0)
        return (int)-n;
    if (n == 0)
        return 1;
    *ret_mem = mem_dup(text, (size_t)n);
    int r = h1_head_parse(*ret_mem, (size_t)n, ret, &why);
    assert_non_null(why);
    return -r;
}

static const struct row rows[] = {
    {T("GET / HTTP/1.1\r\n" H "\r\n"), 0},
    {T("GET / HTTP/1.0\r\n\r\n"), 0},
    {T("\r\nGET / HTTP/1.1\r\n" H "\r\n"), 0},
    {T("OPTIONS * HTTP/1.1\r\n" H "\r\n"), 0},
    {T("GET http://b/x HTTP/1.1\r\n" H "\r\n"), 0},
    {T("GET http://b HTTP/1.1\r\n" H "\r\n"), 0},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n"), 0},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"), 0},
    {T("POST / HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n\r\n"), 0},
    {T("GET / HTTP/1.1\r\n" H "X:\r\n\r\n"), 0},
    {T("GET / HTTP/1.1\r\n" H "X: \xc3\xa4\r\n\r\n"), 0},
    {T("GET / HTTP/1.1\r\nHost: [::1]:7070\r\n\r\n"), 0},
    {T("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 0},
    {T("GET / HTTP/1.1\r\n" H), 1},
    {T("GET / HTTP/1.1\r\n" H "\r"), 1},
    /* Framing that two parsers may read differently. */
    {T("POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: 5, 5\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: +5\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: 0x10\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: 1 0\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501},
    {T("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n\r\n"), 501},
    {T("POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n"), 501},
    {T("POST / HTTP/1.1\r\n" H "Transfer-Encoding: \x0b" "chunked\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 501},
    {T("POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Transfer-Encoding : chunked\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Content-Length : 5\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "X: a\r\n Content-Length: 5\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "X: a\r\n\tb\r\n\r\n"), 400},
    {T("POST / HTTP/1.1\r\n Host: a\r\n\r\n"), 400},
    /* Line ends. */
    {T("GET / HTTP/1.1\n" "Host: a\n\n"), 400},
    {T("GET / HTTP/1.1\r\n" "Host: a\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H "X: a\rb\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H "X: a\r\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\r\n" H "\r\n"), 400},
    {T("\nGET / HTTP/1.1\r\n" H "\r\n"), 400},
    {T("\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"), 400},
    /* Names and values. */
    {T("GET / HTTP/1.1\r\n" H "X\x00: a\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H "X: a\x00" "b\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H "X: a\x7f\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H "X: \x01\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H "X\xe4: a\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H ": a\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H "novalue\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H "a b: c\r\n\r\n"), 400},
    /* Host. */
    {T("GET / HTTP/1.1\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\n" H H "\r\n"), 400},
    {T("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400},
    {T("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"), 400},
    /* Request lines. */
    {T("GET /\r\n" H "\r\n"), 400},
    {T("GET  / HTTP/1.1\r\n" H "\r\n"), 400},
    {T("GET / HTTP/1.1 \r\n" H "\r\n"), 400},
    {T("GET /a b HTTP/1.1\r\n" H "\r\n"), 400},
    {T(" GET / HTTP/1.1\r\n" H "\r\n"), 400},
    {T("GET\t/ HTTP/1.1\r\n" H "\r\n"), 400},
    {T("GET / http/1.1\r\n" H "\r\n"), 400},
    {T("GET / HTTP/11\r\n" H "\r\n"), 400},
    {T("GET / HTTP/2.0\r\n" H "\r\n"), 505},
    {T("GET / HTTP/1.2\r\n" H "\r\n"), 505},
    {T("GET x HTTP/1.1\r\n" H "\r\n"), 400},
    {T("GET * HTTP/1.1\r\n" H "\r\n"), 400},
    {T("GET /\x80 HTTP/1.1\r\n" H "\r\n"), 400},
    {T("GET ftp://b/ HTTP/1.1\r\n" H "\r\n"), 400},
    {T("GET http:///x HTTP/1.1\r\n" H "\r\n"), 400},
    {T("GET http://a@b/x HTTP/1.1\r\n" H "\r\n"), 400},
    {T("CONNECT a:80 HTTP/1.1\r\n" H "\r\n"), 405},
    {T("G(T / HTTP/1.1\r\n" H "\r\n"), 400},
    {T("POST / HTTP/1.1\r\n" H "Expect: tea\r\n\r\n"), 417},
    {T("\x16\x03\x01\x02\n"), 400},
};

static void test_heads(void **state)
{
    for (size_t i = 0; i < array_len(rows); i++) {
        struct h1_head hd;
        auto_free char *mem = NULL;
        int status = parse(rows[i].text, rows[i].len, &hd, &mem);
        if (status != rows[i].status)
            fail_msg("row %zu: %d, not %d: %s", i, status, rows[i].status, rows[i].text);
    }
}

/* A head that comes byte by byte is found at the same place. */
static void test_heads_in_pieces(void **state)
{
    for (size_t i = 0; i < array_len(rows); i++) {
        size_t whole = 0, scanned = 0;
        ssize_t expected = h1_head_find(rows[i].text, rows[i].len, &whole), r = 0;
        for (size_t n = 1; n <= rows[i].len && r == 0; n++)
            r = h1_head_find(rows[i].text, n, &scanned);
        assert_int_equal(r, expected);
    }
}

static void test_head_values(void **state)
{
    struct h1_head hd;
    auto_free char *mem = NULL;

    assert_int_equal(parse(T("PUT /a/b?c=d HTTP/1.1\r\nHOST: h:1\r\nX-Y:  v w \t\r\nContent-Length: 12\r\n"
                             "Connection: foo, Close\r\nExpect: 100-Continue\r\n\r\nrest"), &hd, &mem), 0);
    assert_string_equal(hd.method, "PUT");
    assert_string_equal(hd.target, "/a/b?c=d");
    assert_string_equal(hd.authority, "h:1");
    assert_int_equal(hd.nfields, 5);
    assert_string_equal(http_header_get(hd.fields, hd.nfields, "x-y"), "v w");
    assert_int_equal(hd.content_length, 12);
    assert_false(hd.is_keep_alive);
    assert_true(hd.expects_continue);
    assert_false(hd.is_chunked);
}

static void test_absolute_form(void **state)
{
    struct h1_head hd;
    char *mem;

    assert_int_equal(parse(T("GET HTTPS://b:8/x?y HTTP/1.1\r\n" H "\r\n"), &hd, &mem), 0);
    assert_string_equal(hd.target, "/x?y");
    assert_string_equal(hd.authority, "b:8");
    free(mem);
    assert_int_equal(parse(T("GET http://b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), &hd, &mem), 0);
    assert_string_equal(hd.target, "/");
    assert_string_equal(hd.authority, "b");
    assert_true(hd.is_keep_alive);
    free(mem);
}

static void test_limits(void **state)
{
    static char text[LIMIT_HTTP_HEAD * 2];
    struct h1_head hd;
    char *mem;

    /* One long line, never ended. */
    memset(text, 'a', sizeof text);
    memcpy(text, "GET /", 5);
    assert_int_equal(parse(text, LIMIT_HTTP_HEAD, &hd, &mem), 1);
    assert_int_equal(parse(text, LIMIT_HTTP_HEAD + 1, &hd, &mem), 431);
    /* Too many lines. */
    size_t n = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" H);
    for (int i = 0; i < LIMIT_HTTP_HEADERS; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "X-%d: v\r\n", i);
    n += (size_t)snprintf(text + n, sizeof text - n, "\r\n");
    assert_int_equal(parse(text, n, &hd, &mem), 431);
    free(mem);
}

/* --- chunked --------------------------------------------------------------------------------- */

/* Decodes in pieces of `piece` bytes; 0 = done, 1 = incomplete, else the status. */
static int decode(const char *text, size_t len, size_t piece, char *body, size_t *ret_body_len)
{
    struct h1_chunked d;
    size_t at = 0, n = 0;

    h1_chunked_init(&d);
    while (at < len && d.state != H1_CHUNK_DONE) {
        size_t step = len - at < piece ? len - at : piece, used, body_len;
        const char *part;
        auto_free char *copy = mem_dup(text + at, step);
        int r = h1_chunked_next(&d, copy, step, &used, &part, &body_len);
        if (r < 0)
            return -r;
        assert_true(used > 0 && used <= step);
        memcpy(body + n, part, body_len);
        n += body_len;
        at += used;
    }
    *ret_body_len = n;
    if (d.state != H1_CHUNK_DONE)
        return 1;
    struct http_header trailers[2];
    ssize_t r = h1_chunked_trailers(&d, trailers, 2);
    return r < 0 ? (int)-r : 0;
}

static void test_chunked(void **state)
{
    static const struct row bodies[] = {
        {T("0\r\n\r\n"), 0},
        {T("5\r\nhello\r\n0\r\n\r\n"), 0},
        {T("5\r\nhe"), 1},
        {T("00005;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n"), 0},
        {T("1\r\nh\r\n4;x\r\nello\r\n0;last\r\nA: b\r\nC: d\r\n\r\n"), 0},
        {T("\r\nhello"), 400},
        {T("g\r\n"), 400},
        {T("-1\r\n"), 400},
        {T("+5\r\nhello"), 400},
        {T("0x5\r\nhello"), 400},
        {T(" 5\r\nhello"), 400},
        {T("5 \r\nhello"), 400},
        {T("5\nhello\r\n"), 400},
        {T("5\r\rhello"), 400},
        {T("5\r\nhelloX\r\n"), 400},
        {T("5\r\nhello\n0\r\n\r\n"), 400},
        {T("5\r\nhello\rX"), 400},
        {T("5;a\n\r\nhello"), 400},
        {T("5;\x00\r\nhello"), 400},
        {T("ffffffffffffffff\r\n"), 400},
        {T("10000000000000005\r\nhello"), 400},
        {T("0\r\nX: y\n\r\n"), 400},
        {T("0\r\n X: y\r\n\r\n"), 400},
        {T("0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n"), 431},
    };
    char body[64];

    for (size_t i = 0; i < array_len(bodies); i++) {
        for (size_t piece = 1; piece <= bodies[i].len; piece++) {
            size_t n = 0;
            int status = decode(bodies[i].text, bodies[i].len, piece, body, &n);
            if (status != bodies[i].status)
                fail_msg("row %zu in pieces of %zu: %d", i, piece, status);
            if (status == 0 && i > 0)
                assert_memory_equal(body, "hello", 5);
        }
    }
}

static void test_chunk_lines_are_bounded(void **state)
{
    static char text[8192];
    char body[64];
    size_t n;

    memset(text, 'a', sizeof text);
    memcpy(text, "5;", 2);
    assert_int_equal(decode(text, sizeof text, 1, body, &n), 400);
    memcpy(text, "0\r\n", 3);
    assert_int_equal(decode(text, sizeof text, 100, body, &n), 431);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_heads_in_pieces),
        cmocka_unit_test(test_head_values),
        cmocka_unit_test(test_absolute_form),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_chunked),
        cmocka_unit_test(test_chunk_lines_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
