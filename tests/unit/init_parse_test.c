/*
 * init_parse_test.c - the parsers of init: JSON, base64, archives, passwd and group
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base64.h"
#include "init/fs/json.h"
#include "init/fs/tar_format.h"
#include "init/user.h"

static char text[4096];
static struct json nodes[256];

static int parse(const char *s)
{
    size_t n = strlen(s);

    memcpy(text, s, n + 1);
    return json_parse(text, n, nodes, sizeof nodes / sizeof nodes[0]);
}

static void json_values(void **state)
{
    int64_t n;

    assert_int_equal(parse(" { \"a\" : [1, -2, {\"b\":null}], \"c\":true, \"a\":5 } "), 12);
    const struct json *a = json_get(nodes, "a");
    assert_int_equal(a->type, JSON_ARRAY);
    assert_int_equal(a->count, 3);
    const struct json *v = json_first(a);
    assert_true(json_int(v, &n) && n == 1);
    v = json_after(v);
    assert_true(json_int(v, &n) && n == -2);
    v = json_after(v);
    assert_int_equal(json_get(v, "b")->type, JSON_NULL);
    assert_true(json_get(nodes, "c")->truth);
    assert_null(json_get(nodes, "d"));
    assert_null(json_get(a, "a"));
    assert_null(json_get(NULL, "a"));
    assert_null(json_first(json_get(nodes, "c")));
}

static void json_strings(void **state)
{
    assert_int_equal(parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20ac\\ud83d\\ude00\""), 1);
    assert_string_equal(nodes[0].text, "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_int_equal(parse("\"a\\u0000b\""), 1);
    assert_int_equal(nodes[0].len, 3);
    assert_true(json_is(nodes, "a") == false);
}

static void json_refusals(void **state)
{
    static const char *const bad[] = {
        "", " ", "nul", "tru", "truee", "[", "]", "[1", "[1,", "[1,]", "[,1]", "{", "{\"a\"", "{\"a\":", "{\"a\":1",
        "{\"a\":1,}", "{a:1}", "{1:2}", "1 2", "01", "-", "1.", ".5", "1e", "1e+", "+1", "0x1", "NaN", "'a'", "\"", "\"a",
        "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "\"\n\"",
        "\"\x01\"", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (parse(bad[i]) != -EBADMSG)
            fail_msg("accepted or misnamed: %s", bad[i]);
    assert_int_equal(parse("[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"), 16);
    assert_int_equal(parse("[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]"), -E2BIG);
    memcpy(text, "[1,2,3]", 8);
    assert_int_equal(json_parse(text, 7, nodes, 3), -E2BIG);
}

static void json_numbers(void **state)
{
    int64_t n;

    parse("9223372036854775807");
    assert_true(json_int(nodes, &n) && n == INT64_MAX);
    static const char *const bad[] = {"9223372036854775808", "99999999999999999999", "1.0", "1e2", "\"1\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(bad[i]), 1);
        assert_false(json_int(nodes, &n));
    }
    assert_false(json_int(NULL, &n));
}

static void base64_both_ways(void **state)
{
    uint8_t bytes[64], back[64];
    char coded[128];
    size_t n;

    for (size_t len = 0; len < sizeof bytes; len++) {
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)(i * 37 + len);
        base64_encode(bytes, len, coded);
        assert_true(base64_decode(coded, 4 * ((len + 2) / 3), back, &n));
        assert_int_equal(n, len);
        assert_memory_equal(back, bytes, len);
    }
    static const char *const bad[] = {"A",    "AA",   "AAA",  "A===", "AA=A",    "====",
                                      "AB==", "AAB=", "AA A", "AA-_", "AA==AAAA"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (base64_decode(bad[i], strlen(bad[i]), back, &n))
            fail_msg("accepted: %s", bad[i]);
}

struct input {
    const unsigned char *data;
    size_t left;
};

static ssize_t take(void *context, void *p, size_t n)
{
    struct input *in = context;

    if (n > in->left)
        n = in->left;
    memcpy(p, in->data, n);
    in->data += n;
    in->left -= n;
    return (ssize_t)n;
}

static struct tar_reader reader;

static int next(struct input *in, struct tar_entry *e, const void *data, size_t n)
{
    *in = (struct input){data, n};
    tar_reader_init(&reader, take, in);
    return tar_next(&reader, e);
}

static void tar_headers_both_ways(void **state)
{
    unsigned char block[3 * TAR_BLOCK] = {0};
    struct tar_entry e = {.mode = 04755, .uid = 07777777, .gid = 5, .mtime.tv_sec = 1234567890}, back;
    struct input in;

    tar_header(block, '0', "name", "", &e, 0);
    assert_int_equal(next(&in, &back, block, sizeof block), 1);
    assert_string_equal(back.path, "name");
    assert_int_equal(back.type, TAR_FILE);
    assert_int_equal(back.mode, 04755);
    assert_int_equal(back.uid, 07777777);
    assert_int_equal(back.mtime.tv_sec, 1234567890);
    assert_int_equal(tar_next(&reader, &back), 0);

    /* A name that fills its field has no NUL. */
    char hundred[101];
    memset(hundred, 'n', 100);
    hundred[100] = '\0';
    tar_header(block, '2', hundred, hundred, &e, 0);
    assert_int_equal(next(&in, &back, block, sizeof block), 1);
    assert_string_equal(back.path, hundred);
    assert_string_equal(back.link, hundred);

    block[0] ^= 1;
    assert_int_equal(next(&in, &back, block, sizeof block), -EBADMSG);
    assert_int_equal(next(&in, &back, block, 100), -ENODATA);
    assert_int_equal(next(&in, &back, block, 0), -ENODATA);
    tar_header(block, 'S', "x", "", &e, 0);
    assert_int_equal(next(&in, &back, block, sizeof block), -EOPNOTSUPP);
    tar_header(block, '2', "x", "", &e, 0);
    assert_int_equal(next(&in, &back, block, sizeof block), -EBADMSG);
}

static void tar_pax_lengths_count_themselves(void **state)
{
    char record[200], value[120];

    memset(value, 'v', sizeof value);
    for (size_t len = 0; len < sizeof value; len++) {
        size_t n = tar_pax_record(NULL, "k", value, len);
        assert_int_equal(tar_pax_record(record, "k", value, len), n);
        record[n] = '\0';
        assert_int_equal(strlen(record), n);
        size_t stated = 0;
        for (char *p = record; *p != ' '; p++)
            stated = stated * 10 + (size_t)(*p - '0');
        assert_int_equal(stated, n);
    }
}

/* A pax header with these records, and an entry. */
static int next_with(struct tar_entry *ret, const char *records)
{
    static unsigned char data[8 * TAR_BLOCK];
    struct tar_entry e = {.mode = 0644, .uid = 1, .mtime.tv_sec = 7};
    struct input in;
    size_t n = strlen(records);

    memset(data, 0, sizeof data);
    tar_header(data, 'x', "pax", "", &e, (int64_t)n);
    memcpy(data + TAR_BLOCK, records, n);
    tar_header(data + 2 * TAR_BLOCK, '0', "short", "", &e, 0);
    return next(&in, ret, data, sizeof data);
}

static void tar_pax_records(void **state)
{
    struct tar_entry e;

    assert_int_equal(next_with(&e, "14 path=a/b/c\n19 mtime=-4.750000\n15 uid=3000000\n"), 1);
    assert_string_equal(e.path, "a/b/c");
    assert_int_equal(e.mtime.tv_sec, -5);
    assert_int_equal(e.mtime.tv_nsec, 250000000);
    assert_int_equal(e.uid, 3000000);
    static const char *const bad[] = {
        "14 path=a/b/c", "15 path=a/b/c\n", "8 path=\n", "999 path=a\n", "x\n", "5 =a\n", "6 abc\n", "12 mtime=1x\n",
        "18 uid=4294967295\n", "10 size=x\n", "14 path=a/b/c\nx", "99999999999999999999 path=a\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (next_with(&e, bad[i]) != -EBADMSG)
            fail_msg("accepted: %s", bad[i]);
}

static bool passwd(const char *line, struct passwd_entry *e)
{
    strncpy(text, line, sizeof text - 1);
    return passwd_parse(text, e);
}

static void passwd_and_group(void **state)
{
    struct passwd_entry p;
    struct group_entry g;
    uint32_t id;

    assert_true(passwd("dev:x:1500:1501:A user:/home/dev:/bin/sh", &p));
    assert_string_equal(p.name, "dev");
    assert_string_equal(p.home, "/home/dev");
    assert_int_equal(p.uid, 1500);
    assert_int_equal(p.gid, 1501);
    assert_true(passwd("a:::::", &p) == false);
    assert_true(passwd("a::1:2:::", &p));
    assert_string_equal(p.home, "");
    static const char *const bad[] = {"",            ":x:1:1:::",           "a", "a:x:1:1", "a:x:-1:1:::",
                                      "a:x:1x:1:::", "a:x:4294967295:1:::", "#a"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (passwd(bad[i], &p))
            fail_msg("accepted: %s", bad[i]);
    char line[] = "wheel:x:10:root,dev,developer";
    assert_true(group_parse(line, &g));
    assert_true(group_has_member(&g, "dev"));
    assert_true(group_has_member(&g, "root"));
    assert_true(group_has_member(&g, "developer"));
    assert_false(group_has_member(&g, "develop"));
    assert_false(group_has_member(&g, ""));
    assert_true(user_id_parse("4294967294", &id) && id == 4294967294u);
    assert_false(user_id_parse("4294967295", &id));
    assert_false(user_id_parse("", &id));
    assert_false(user_id_parse("1 ", &id));
    assert_false(user_id_parse("00000000000000000001", &id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_values),
        cmocka_unit_test(json_strings),
        cmocka_unit_test(json_refusals),
        cmocka_unit_test(json_numbers),
        cmocka_unit_test(base64_both_ways),
        cmocka_unit_test(tar_headers_both_ways),
        cmocka_unit_test(tar_pax_lengths_count_themselves),
        cmocka_unit_test(tar_pax_records),
        cmocka_unit_test(passwd_and_group),
    };

    return cmocka_run_group_tests_name("init_parse", tests, NULL, NULL);
}
