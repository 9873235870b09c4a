/*
 * grpc_frame_test.c - gRPC message framing at every boundary; timeouts and percent encoding
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/mem.h"
#include "http/grpc_frame.h"
#include "http/grpc_text.h"

static size_t sizes[16], nsizes;
static uint32_t sum;
static size_t stop_after;

static bool on_frame(void *arg, const void *p, size_t n)
{
    const uint8_t *bytes = p;

    assert_non_null(p);
    sizes[nsizes++] = n;
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + bytes[i];
    return nsizes != stop_after;
}

static size_t add(uint8_t *to, size_t n)
{
    const uint8_t prefix[5] = {0, 0, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};

    memcpy(to, prefix, 5);
    for (size_t i = 0; i < n; i++)
        to[5 + i] = (uint8_t)(i * 13 + n);
    return n + 5;
}

static void reset(void)
{
    nsizes = 0;
    sum = 0;
    stop_after = 0;
}

static void test_every_split(void **state)
{
    static const size_t lengths[] = {0, 1, 0, 7, 100, 0, 3};
    uint8_t text[256];
    size_t len = 0;

    for (size_t i = 0; i < array_len(lengths); i++)
        len += add(text + len, lengths[i]);
    reset();
    uint32_t expected = 0;
    for (size_t piece = len; piece >= 1; piece--) {
        struct grpc_frames f = {0};
        size_t free_len = 0;
        reset();
        for (size_t at = 0; at < len; at += piece) {
            size_t n = len - at < piece ? len - at : piece;
            auto_free uint8_t *copy = mem_dup(text + at, n);
            assert_int_equal(grpc_frames_feed(&f, copy, n, &free_len, on_frame, NULL), GRPC_FRAME_OK);
        }
        assert_int_equal(nsizes, array_len(lengths));
        assert_memory_equal(sizes, lengths, sizeof lengths);
        assert_int_equal(free_len, 5 * array_len(lengths));
        assert_false(grpc_frames_is_partial(&f));
        if (piece == len)
            expected = sum;
        assert_int_equal(sum, expected);
        grpc_frames_done(&f);
    }
}

static void test_stops(void **state)
{
    uint8_t text[64];
    struct grpc_frames f = {0};
    size_t len = add(text, 3), free_len = 0;

    len += add(text + len, 4);
    reset();
    stop_after = 1;
    assert_int_equal(grpc_frames_feed(&f, text, len, &free_len, on_frame, NULL), GRPC_FRAME_STOPPED);
    assert_int_equal(nsizes, 1);
    grpc_frames_done(&f);
}

static void test_bad_prefixes(void **state)
{
    static const struct {
        uint8_t prefix[5];
        enum grpc_frame_result result;
    } rows[] = {
        {{1, 0, 0, 0, 1}, GRPC_FRAME_COMPRESSED},
        {{2, 0, 0, 0, 1}, GRPC_FRAME_MALFORMED},
        {{0, 0xff, 0xff, 0xff, 0xff}, GRPC_FRAME_TOO_LARGE},
        {{0, 0x06, 0x40, 0x00, 0x01}, GRPC_FRAME_TOO_LARGE},
        {{0, 0x06, 0x40, 0x00, 0x00}, GRPC_FRAME_OK},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        struct grpc_frames f = {0};
        size_t free_len = 0;
        assert_int_equal(grpc_frames_feed(&f, rows[i].prefix, 5, &free_len, on_frame, NULL), rows[i].result);
        grpc_frames_done(&f);
    }
}

/* Of a large message only so much counts against the window, and memory follows what came. */
static void test_large(void **state)
{
    size_t size = 3 * GRPC_HOLD, free_len = 0, piece = 1000000;
    auto_free uint8_t *text = mem_zalloc(size + 5);
    struct grpc_frames f = {0};

    text[1] = (uint8_t)(size >> 24);
    text[2] = (uint8_t)(size >> 16);
    text[3] = (uint8_t)(size >> 8);
    text[4] = (uint8_t)size;
    reset();
    for (size_t at = 0; at < size + 5; at += piece) {
        size_t n = size + 5 - at < piece ? size + 5 - at : piece;
        assert_int_equal(grpc_frames_feed(&f, text + at, n, &free_len, on_frame, NULL), GRPC_FRAME_OK);
        if (at == 0)
            assert_true(f.mem_size < 2 * GRPC_HOLD);
    }
    assert_int_equal(nsizes, 1);
    assert_int_equal(sizes[0], size);
    assert_int_equal(free_len, 5 + size - GRPC_HOLD);
    grpc_frames_done(&f);
}

static void test_timeouts(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"0m", 0}, {"1m", 1}, {"2S", 2000}, {"1M", 60000}, {"1H", 3600000}, {"1u", 1}, {"1001u", 2},
        {"1n", 1}, {"99999999H", 99999999LL * 3600000}, {"", -1}, {"m", -1}, {"1", -1}, {"1x", -1},
        {"123456789m", -1}, {"-1m", -1}, {"1mm", -1}, {" 1m", -1},
    };
    char out[16];

    for (size_t i = 0; i < array_len(rows); i++)
        assert_int_equal(grpc_timeout_parse(rows[i].text), rows[i].ms);
    for (uint64_t ms = 1; ms < (1ULL << 50); ms = ms * 3 + 1) {
        grpc_timeout_format(ms, out, sizeof out);
        int64_t back = grpc_timeout_parse(out);
        assert_true(back >= 0);
        assert_true((uint64_t)back >= ms || back == 99999999000LL);
    }
}

static void test_percent(void **state)
{
    char out[64], back[64];

    assert_string_equal(grpc_encode("a b%\n\xc3\xa4~", out, sizeof out), "a b%25%0A%C3%A4~");
    assert_string_equal(grpc_decode(out, back, sizeof back), "a b%\n\xc3\xa4~");
    assert_string_equal(grpc_decode("%", back, sizeof back), "%");
    assert_string_equal(grpc_decode("%4", back, sizeof back), "%4");
    assert_string_equal(grpc_decode("%zz%41%00", back, sizeof back), "%zzA?");
    assert_string_equal(grpc_encode("ab\xff", out, 5), "ab");
    assert_string_equal(grpc_decode("abcdef", back, 4), "abc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split), cmocka_unit_test(test_stops),
        cmocka_unit_test(test_bad_prefixes), cmocka_unit_test(test_large),
        cmocka_unit_test(test_timeouts),    cmocka_unit_test(test_percent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
