/*
 * base_test.c - buffers, maps, ids and names, errors, the configuration file
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/conf.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/map.h"

static void buffers_keep_their_cap(void **state)
{
    auto_buf b = {0};

    buf_init(&b, 10);
    assert_int_equal(buf_adds(&b, "12345"), 0);
    assert_int_equal(buf_addf(&b, "%d", 67890), 0);
    assert_string_equal(buf_str(&b), "1234567890");
    assert_false(b.failed);
    assert_int_not_equal(buf_addc(&b, 'x'), 0);
    assert_true(b.failed);
    assert_int_equal(b.len, 10);
    assert_null(buf_reserve(&b, SIZE_MAX));
    buf_drop(&b, 4);
    assert_string_equal(buf_str(&b), "567890");
    buf_drop(&b, 100);
    assert_string_equal(buf_str(&b), "");
}

static void an_empty_buffer_has_a_text(void **state)
{
    auto_buf b = {0};
    size_t len = 7;

    buf_init(&b, 4);
    assert_string_equal(buf_str(&b), "");
    char *taken = buf_take(&b, &len);
    assert_string_equal(taken, "");
    assert_int_equal(len, 0);
    free(taken);
}

static void maps_find_what_was_put(void **state)
{
    static int values[2000];
    struct map m;
    char key[16];
    size_t seen = 0;

    map_init(&m);
    assert_null(map_get(&m, "x"));
    assert_null(map_del(&m, "x"));
    for (int i = 0; i < 2000; i++) {
        (void)snprintf(key, sizeof key, "key %d", i);
        assert_null(map_put(&m, key, &values[i]));
    }
    assert_ptr_equal(map_put(&m, "key 7", &values[8]), &values[7]);
    assert_ptr_equal(map_get(&m, "key 7"), &values[8]);
    assert_ptr_equal(map_del(&m, "key 9"), &values[9]);
    assert_null(map_get(&m, "key 9"));

    struct map_iter it = MAP_ITER;
    const char *name;
    void *value;
    while (map_next(&m, &it, &name, &value)) {
        seen++;
        if (seen % 2 == 0)
            assert_ptr_equal(map_del(&m, name), value);
    }
    assert_int_equal(seen, 1999);
    assert_int_equal(m.count, 1000);
    map_done(&m);
}

static void ids_have_their_shape(void **state)
{
    char a[ID_SIZE], b[ID_SIZE];

    id_make(a, "sb-");
    id_make(b, "sb-");
    assert_int_equal(strlen(a), 25);
    assert_true(id_is(a, "sb-"));
    assert_false(id_is(a, "im-"));
    assert_string_not_equal(a, b);
    a[24] = '-';
    assert_false(id_is(a, "sb-"));
    assert_false(id_is("sb-", "sb-"));
}

static void names_are_checked(void **state)
{
    static const char *const good[] = {"a", "A.b_c-9", "-a", "...", "ap-x", "a--b-",
                                       "ap-012345678901234567890-"};
    static const char *const bad[] = {"", ".", "..", "a/b", "a b", "a\n", "\xc3\xa9", "ap-0123456789012345678901"};
    char longest[66];

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(name_is_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(name_is_valid(bad[i], strlen(bad[i])));
    memset(longest, 'x', sizeof longest);
    assert_true(name_is_valid(longest, 64));
    assert_false(name_is_valid(longest, 65));
    assert_false(name_is_valid("a\0b", 3));
    assert_true(exec_id_is_valid("a-1_2.3"));
    assert_false(exec_id_is_valid("-a"));
    assert_false(exec_id_is_valid(""));
}

static void errors_say_what_and_where(void **state)
{
    struct err e;

    assert_int_equal(err_param(&e, ERR_INVALID, "cpu", "cpu is %d", -1), -1);
    assert_string_equal(e.param, "cpu");
    assert_string_equal(err_row(e.code)->name, "invalid_argument");
    assert_int_equal(err_sys(&e, 2, "open %s", "/x"), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_string_equal(e.message, "open /x: No such file or directory");
    (void)err_wrap(&e, "start");
    assert_string_equal(e.message, "start: open /x: No such file or directory");
    assert_int_equal(err_set(NULL, ERR_INTERNAL, "nobody listens"), -1);
    assert_int_equal(err_row((enum err_code)9999)->code, ERR_INTERNAL);
    for (int i = ERR_OK + 1; i < ERR_MAX_; i++)
        assert_int_equal(err_code_from_name(err_row((enum err_code)i)->name), i);
}

static void a_long_message_is_cut_not_overrun(void **state)
{
    char text[1000];
    struct err e;

    memset(text, 'm', sizeof text);
    text[sizeof text - 1] = '\0';
    (void)err_set(&e, ERR_INTERNAL, "%s", text);
    (void)err_wrap(&e, "%s", text);
    assert_int_equal(strlen(e.message), sizeof e.message - 1);
}

static void peers_text_cannot_forge_log_lines(void **state)
{
    char out[32];

    assert_string_equal(log_escape("a b\n\"\\", out, sizeof out), "a\\x20b\\x0a\\x22\\x5c");
    assert_true(strlen(log_escape("0123456789012345678901234567890123456789", out, sizeof out)) < sizeof out);
}

static void configuration_is_read_and_faults_are_named(void **state)
{
    static const struct {
        const char *text;
        const char *complaint;
    } bad[] = {
        {"pool_size = 257\n", "line 1: pool_size is '257'"},
        {"\n# x\npool_size = -1\n", "line 3: pool_size is '-1'"},
        {"pool_size = 1x\n", "'1x'"},
        {"max_sandboxes = \n", "max_sandboxes is ''"},
        {"pool_sise = 1\n", "unknown key 'pool_sise'"},
        {"listen\n", "no '='"},
    };
    struct conf c;
    struct err e = {0};
    const char *good = "# c\n data_dir = /srv/q s \r\npool_size=256\nlisten=\n";

    conf_defaults(&c);
    assert_int_equal(conf_parse(&c, good, strlen(good), &e), 0);
    assert_string_equal(c.data_dir, "/srv/q s");
    assert_int_equal(c.pool_size, 256);
    assert_string_equal(c.listen, "");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(conf_parse(&c, bad[i].text, strlen(bad[i].text), &e), -1);
        assert_non_null(strstr(e.message, bad[i].complaint));
    }
    assert_int_equal(conf_load(&c, "/no/such/file", true, &e), 0);
    assert_int_equal(conf_load(&c, "/no/such/file", false, &e), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_keep_their_cap),
        cmocka_unit_test(an_empty_buffer_has_a_text),
        cmocka_unit_test(maps_find_what_was_put),
        cmocka_unit_test(ids_have_their_shape),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(errors_say_what_and_where),
        cmocka_unit_test(a_long_message_is_cut_not_overrun),
        cmocka_unit_test(peers_text_cannot_forge_log_lines),
        cmocka_unit_test(configuration_is_read_and_faults_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
