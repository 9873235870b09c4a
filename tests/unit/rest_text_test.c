/*
 * rest_text_test.c - the parts of rest that need no daemon: text, signals, ranges, kinds of file errors, exec objects
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/rest/exec_model.h"
#include "api/rest/fs_errors.h"
#include "api/rest/range.h"
#include "api/shared/signals.h"
#include "api/rest/text.h"
#include "base/mem.h"
#include "ipc/record.h"

static void utf8_is_rfc_3629(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        bool ok;
    } cases[] = {
        {"", 0, true},
        {"a\0b", 3, true},
        {"\xc3\xa9", 2, true},
        {"\xe2\x98\x83", 3, true},
        {"\xf0\x9f\x98\x80", 4, true},
        {"\xf4\x8f\xbf\xbf", 4, true},
        {"\xf4\x90\x80\x80", 4, false},     /* above U+10FFFF */
        {"\xed\xa0\x80", 3, false},         /* a surrogate */
        {"\xed\x9f\xbf", 3, true},
        {"\xc0\x80", 2, false},             /* overlong */
        {"\xe0\x9f\xbf", 3, false},
        {"\xf0\x8f\xbf\xbf", 4, false},
        {"\x80", 1, false},
        {"\xff", 1, false},
        {"\xc3", 1, false},
        {"a\xe2\x98", 3, false},
    };

    for (size_t i = 0; i < array_len(cases); i++)
        assert_int_equal(text_is_utf8(cases[i].bytes, cases[i].n), cases[i].ok);
}

static void the_tail_is_what_may_become_a_character(void **state)
{
    assert_int_equal(text_utf8_tail("", 0), 0);
    assert_int_equal(text_utf8_tail("abc", 3), 0);
    assert_int_equal(text_utf8_tail("ab\xc3", 3), 1);
    assert_int_equal(text_utf8_tail("a\xe2\x98", 3), 2);
    assert_int_equal(text_utf8_tail("\xf0\x9f\x98", 3), 3);
    assert_int_equal(text_utf8_tail("\xf0\x9f\x98\x80", 4), 0);
    assert_int_equal(text_utf8_tail("a\xff", 2), 0);
    assert_int_equal(text_utf8_tail("\x80\x80\x80\x80", 4), 0);
    assert_int_equal(text_utf8_tail("a\xed\xa0", 3), 0);
}

static void base64_goes_there_and_back(void **state)
{
    uint8_t bytes[70];

    for (size_t n = 0; n <= sizeof bytes; n++) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)(i * 37 + n);
        auto_free char *text = text_base64(bytes, n);
        size_t len = 999;
        auto_free uint8_t *back = text_unbase64(text, strlen(text), &len);
        assert_non_null(back);
        assert_int_equal(len, n);
        assert_memory_equal(back, bytes, n);
    }
}

static void base64_is_strict(void **state)
{
    static const char *const bad[] = {"a", "ab", "abc", "ab=c", "a===", "====", "ab c", "ab\n=", "ab-_", "QQ==QQ==", "QR=="};
    size_t len;

    for (size_t i = 0; i < array_len(bad); i++)
        assert_null(text_unbase64(bad[i], strlen(bad[i]), &len));
}

static void bytes_that_are_no_text_travel_as_base64(void **state)
{
    json_t *o = json_object();

    text_set(o, "a", "x\0y", 3);
    text_set(o, "b", "\xff", 1);
    assert_int_equal(json_string_length(json_object_get(o, "a")), 3);
    assert_null(json_object_get(o, "a_b64"));
    assert_true(json_is_null(json_object_get(o, "b")));
    assert_string_equal(json_string_value(json_object_get(o, "b_b64")), "/w==");
    json_decref(o);
}

static void signals_have_names_and_numbers(void **state)
{
    static const struct {
        const char *text;
        int number;
    } cases[] = {
        {"TERM", 15}, {"SIGTERM", 15}, {"sigkill", 9}, {"9", 9}, {"64", 64}, {"65", 0}, {"0", 0}, {"-1", 0},
        {"", 0}, {"SIG", 0}, {"NOPE", 0}, {"RTMIN", 34}, {"SIGRTMIN+3", 37}, {"RTMIN+31", 0}, {"RTMAX-1", 63},
        {"RTMAX-40", 0}, {"15x", 0}, {"015", 0}, {"WINCH", 28}, {"9 ", 0},
    };

    for (size_t i = 0; i < array_len(cases); i++)
        assert_int_equal(signal_parse(cases[i].text), cases[i].number);
}

static void ranges_are_one_range_of_bytes(void **state)
{
    struct range r;

    assert_true(range_parse("bytes=10-19", &r));
    assert_true(!r.suffix && r.offset == 10 && r.length == 10);
    assert_true(range_parse("Bytes=0-0", &r));
    assert_true(r.offset == 0 && r.length == 1);
    assert_true(range_parse("bytes=7-", &r));
    assert_true(r.offset == 7 && r.length == UINT64_MAX);
    assert_true(range_parse("bytes= -5 ", &r));
    assert_true(r.suffix && r.length == 5);
    static const char *const bad[] = {"", "bytes", "bytes=", "bytes=-", "bytes=5-4", "bytes=a-b", "bytes=0-1,3-4",
                                      "lines=0-1", "bytes=0-1x", "bytes=1", "bytes=99999999999999999999-"};
    for (size_t i = 0; i < array_len(bad); i++)
        assert_false(range_parse(bad[i], &r));
}

static void kinds_of_file_errors_have_codes(void **state)
{
    static const char text[] = "{\"version\":1,\"error_kind\":\"IsDirectory\",\"message\":\"is a directory\"}";
    struct err e;

    assert_int_equal(fs_error_code("NotFound"), ERR_FS_NOT_FOUND);
    assert_int_equal(fs_error_code("NoSpace"), ERR_FS_NO_SPACE);
    assert_int_equal(fs_error_code("SpecialFile"), ERR_FS_SPECIAL);
    assert_int_equal(fs_error_code("what"), ERR_FS_IO);
    assert_int_equal(fs_error_from_text(text, sizeof text - 1, 1, "/etc", &e), -1);
    assert_int_equal(e.code, ERR_FS_IS_DIR);
    assert_string_equal(e.message, "is a directory: /etc");
    assert_int_equal(fs_error_from_text("boom", 4, 3, "/etc", &e), -1);
    assert_int_equal(e.code, ERR_FS_IO);
    assert_non_null(strstr(e.message, "boom"));
}

static void an_exec_object_tells_how_it_ended(void **state)
{
    Quicksand__Node__Exec x = QUICKSAND__NODE__EXEC__INIT;
    static char id[] = "ex-1";

    x.exec_id = id;
    x.state = EXEC_RUNNING;
    json_t *o = exec_json(&x, "sb-1");
    assert_string_equal(json_string_value(json_object_get(o, "state")), "running");
    assert_true(json_is_null(json_object_get(o, "exit")));
    assert_true(json_is_null(json_object_get(o, "shell_code")));
    json_decref(o);

    x.state = EXEC_EXITED;
    x.reason = END_SIGNALED;
    x.code = -1;
    x.signal = 9;
    o = exec_json(&x, "sb-1");
    json_t *end = json_object_get(o, "exit");
    assert_string_equal(json_string_value(json_object_get(end, "reason")), "signaled");
    assert_true(json_is_null(json_object_get(end, "code")));
    assert_int_equal(json_integer_value(json_object_get(end, "signal")), 9);
    assert_int_equal(json_integer_value(json_object_get(o, "shell_code")), 137);
    json_decref(o);
}

static void a_program_that_does_not_start_is_an_error(void **state)
{
    Quicksand__Node__Exec x = QUICKSAND__NODE__EXEC__INIT;
    static char step[] = "exec", command[] = "nope --x", cwd[] = "cwd";
    struct err e;

    x.state = EXEC_FAILED;
    x.step = step;
    x.error = 2;
    x.has_command = true;
    x.command.data = (uint8_t *)command;
    x.command.len = sizeof command - 1;
    assert_int_equal(exec_start_error(&x, &e), -1);
    assert_int_equal(e.code, ERR_EXEC_NOT_FOUND);
    assert_non_null(strstr(e.message, "nope"));
    x.error = 13;
    assert_int_equal(exec_start_error(&x, &e), -1);
    assert_int_equal(e.code, ERR_NOT_EXECUTABLE);
    x.step = cwd;
    assert_int_equal(exec_start_error(&x, &e), -1);
    assert_string_equal(e.param, "workdir");
    x.state = EXEC_RUNNING;
    assert_int_equal(exec_start_error(&x, &e), 0);
}

static json_t *body(const char *text)
{
    json_t *o = json_loads(text, 0, NULL);

    assert_non_null(o);
    return o;
}

static void a_body_becomes_a_request(void **state)
{
    json_t *o = body("{\"command\": [\"a\", \"\"], \"env\": {\"X\": \"1=2\"}, \"umask\": \"077\", \"timeout_s\": 0.0001,"
                     " \"tty\": {\"rows\": 5, \"cols\": 9}, \"stderr\": \"merge\"}");
    struct exec_request rq;
    struct err e;

    assert_int_equal(exec_request_init(&rq, "sb-1", "ex-1", o, &e), 0);
    assert_int_equal(rq.command.n_argv, 2);
    assert_int_equal(rq.command.argv[1].len, 0);
    assert_memory_equal(rq.command.env[0].data, "X=1=2", 5);
    assert_int_equal(rq.command.umask, 077);
    assert_int_equal(rq.start.timeout_ms, 1);       /* never rounded to "none" */
    assert_true(rq.start.tty && rq.start.rows == 5 && rq.start.cols == 9 && rq.start.merge_stderr);
    exec_request_done(&rq);
    json_decref(o);
}

static void bad_bodies_are_refused(void **state)
{
    static const char *const bad[] = {
        "{\"command\": [\"a\"], \"env\": {\"\": \"1\"}}",     "{\"command\": [\"a\"], \"env\": {\"A=B\": \"1\"}}",
        "{\"command\": [\"a\"], \"umask\": \"9\"}",           "{\"command\": [\"a\"], \"umask\": \"1777\"}",
        "{\"command\": [\"a\"], \"tty\": {\"rows\": 0, \"cols\": 1}}",
    };
    struct exec_request rq;
    struct err e;

    for (size_t i = 0; i < array_len(bad); i++) {
        json_t *o = body(bad[i]);
        assert_int_equal(exec_request_init(&rq, "sb-1", "ex-1", o, &e), -1);
        assert_int_equal(e.code, ERR_INVALID);
        exec_request_done(&rq);
        json_decref(o);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_rfc_3629),
        cmocka_unit_test(the_tail_is_what_may_become_a_character),
        cmocka_unit_test(base64_goes_there_and_back),
        cmocka_unit_test(base64_is_strict),
        cmocka_unit_test(bytes_that_are_no_text_travel_as_base64),
        cmocka_unit_test(signals_have_names_and_numbers),
        cmocka_unit_test(ranges_are_one_range_of_bytes),
        cmocka_unit_test(kinds_of_file_errors_have_codes),
        cmocka_unit_test(an_exec_object_tells_how_it_ended),
        cmocka_unit_test(a_program_that_does_not_start_is_an_error),
        cmocka_unit_test(a_body_becomes_a_request),
        cmocka_unit_test(bad_bodies_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
