/*
 * rest_check_test.c - the operation table at work without a network: routes, fields, queries, pages, the description
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "api/rest/rest.h"
#include "base/mem.h"
#include "json/json.h"

static const struct op *op_of(const char *id)
{
    for (size_t i = 0; rest_op(i) != NULL; i++)
        if (strcmp(rest_op(i)->id, id) == 0)
            return rest_op(i);
    fail_msg("no operation %s", id);
    return NULL;
}

static void test_routes(void **state)
{
    static const struct {
        const char *method, *path, *op, *allow;
    } rows[] = {
        {"POST", "/v1/sandboxes", "sandbox.create", NULL},
        {"GET", "/v1/sandboxes/sb-1", "sandbox.get", NULL},
        {"GET", "/v1/sandboxes/sb-1/execs/e1/stdout", "exec.stdout", NULL},
        {"GET", "/v1/apps/a/sandboxes/n", "app.sandbox", NULL},
        {"PUT", "/v1/images/names/base", "image.name", NULL},
        {"GET", "/openapi.json", "service.openapi", NULL},
        {"PUT", "/v1/sandboxes", NULL, "POST, GET"},
        {"POST", "/v1/health", NULL, "GET"},
        {"GET", "/", NULL, ""},
        {"GET", "/v1", NULL, ""},
        {"GET", "/v1/sandboxes/", NULL, ""},
        {"GET", "/v1//sandboxes", NULL, ""},
        {"GET", "/v1/sandboxes/sb-1/nothing", NULL, ""},
        {"GET", "", NULL, ""},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        struct route_match m;
        route_find(rows[i].method, rows[i].path, &m);
        if (rows[i].op != NULL) {
            assert_non_null(m.op);
            assert_string_equal(m.op->id, rows[i].op);
        } else {
            assert_null(m.op);
            assert_string_equal(m.allow, rows[i].allow);
        }
    }
    struct route_match m;
    route_find("GET", "/v1/apps/my%20app/sandboxes/n", &m);
    assert_int_equal(m.nparams, 2);
    assert_memory_equal(m.params[0].name, "app", m.params[0].name_len);
    assert_memory_equal(m.params[0].value, "my%20app", m.params[0].value_len);
}

static void test_bodies(void **state)
{
    static const struct {
        const char *op, *body;
        enum err_code code;
        const char *param, *in_message_or_hint;
    } rows[] = {
        {"sandbox.create", "", ERR_OK, "", ""},
        {"sandbox.create", "{}", ERR_OK, "", ""},
        {"sandbox.create", "{\"timeout_s\": null, \"cpu\": 0.5, \"tty\": {\"rows\": 40, \"cols\": 132}}", ERR_OK, "", ""},
        {"sandbox.create", "{\"timout_s\": 5}", ERR_UNKNOWN_FIELD, "timout_s", "timeout_s"},
        {"sandbox.create", "{\"memmory\": 5}", ERR_UNKNOWN_FIELD, "memmory", ""},
        {"sandbox.create", "{\"timeout_s\": 0}", ERR_INVALID, "timeout_s", "more than 0"},
        {"sandbox.create", "{\"timeout_s\": 31622401}", ERR_INVALID, "timeout_s", "31622400"},
        {"sandbox.create", "{\"timeout_s\": 1e308}", ERR_INVALID, "timeout_s", ""},
        {"sandbox.create", "{\"timeout_s\": 1e999}", ERR_MALFORMED, "", ""},
        {"sandbox.create", "{\"timeout_s\": \"60\"}", ERR_INVALID, "timeout_s", "a number"},
        {"sandbox.create", "{\"cpu\": NaN}", ERR_MALFORMED, "", ""},
        {"sandbox.create", "{\"cpu\": 0}", ERR_INVALID, "cpu", "0.01"},
        {"sandbox.create", "{\"memory_mb\": 9223372036854775808}", ERR_INVALID, "memory_mb", "4194304"},
        {"sandbox.create", "{\"memory_mb\": 64.5}", ERR_INVALID, "memory_mb", "whole"},
        {"sandbox.create", "{\"memory_mb\": -1}", ERR_INVALID, "memory_mb", "16"},
        {"sandbox.create", "{\"pids\": null}", ERR_INVALID, "pids", "null"},
        {"sandbox.create", "{\"name\": \"x\\n\"}", ERR_INVALID, "name", ""},
        {"sandbox.create", "{\"name\": \"x\\u0000\"}", ERR_INVALID, "name", "NUL"},
        {"sandbox.create", "{\"name\": \"\"}", ERR_INVALID, "name", ""},
        {"sandbox.create", "{\"name\": \"..\"}", ERR_INVALID, "name", ""},
        {"sandbox.create", "{\"env\": {\"A\\u0000\": \"x\"}}", ERR_INVALID, "env", "NUL"},
        {"sandbox.create", "{\"tags\": {\"a\": \"b,{\\\"env\\\":\"}, \"env\": {\"A\\u0000\": \"x\"}}", ERR_INVALID, "env", "NUL"},
        {"sandbox.create", "{\"env\": {\"A\": 1}}", ERR_INVALID, "env", "A"},
        {"sandbox.create", "{\"env\": []}", ERR_INVALID, "env", "object"},
        {"sandbox.create", "{\"command\": \"ls\"}", ERR_INVALID, "command", "array"},
        {"sandbox.create", "{\"command\": [1]}", ERR_INVALID, "command", "item 0"},
        {"sandbox.create", "{\"workdir\": \"relative\"}", ERR_INVALID, "workdir", "absolute"},
        {"sandbox.create", "{\"if_exists\": \"explode\"}", ERR_INVALID, "if_exists", "error|return|replace"},
        {"sandbox.create", "{\"if_exists\": \"error|return\"}", ERR_INVALID, "if_exists", ""},
        {"sandbox.create", "{\"tty\": {\"rows\": 0, \"cols\": 1}}", ERR_INVALID, "tty", "rows"},
        {"sandbox.create", "{\"tty\": {\"rows\": 1}}", ERR_INVALID, "tty", "both"},
        {"sandbox.create", "{\"stdin\": 1}", ERR_INVALID, "stdin", "true or false"},
        {"sandbox.create", "[]", ERR_MALFORMED, "", "object"},
        {"sandbox.create", "{\"app\": \"a\", \"app\": \"b\"}", ERR_MALFORMED, "", "duplicate"},
        {"sandbox.create", "{} {}", ERR_MALFORMED, "", ""},
        {"sandbox.create", "{\"image\": \"\xff\"}", ERR_MALFORMED, "", ""},
        {"token.create", "{\"name\": \"n\"}", ERR_INVALID, "scopes", "required"},
        {"sandbox.set_tags", "{\"anything\": \"goes\"}", ERR_OK, "", ""},
        {"sandbox.set_tags", "{\"a\": \"\\u0000\"}", ERR_INVALID, "", "NUL"},
        {"sandbox.delete", "{\"x\": 1}", ERR_UNKNOWN_FIELD, "x", ""},
    };

    js_init();
    for (size_t i = 0; i < array_len(rows); i++) {
        struct err e = {0};
        auto_json *body = check_json(op_of(rows[i].op), rows[i].body, strlen(rows[i].body), &e);
        if (rows[i].code == ERR_OK) {
            if (body == NULL)
                fail_msg("%s: %s", rows[i].body, e.message);
            continue;
        }
        assert_null(body);
        if (e.code != rows[i].code || strcmp(e.param, rows[i].param) != 0
            || (strstr(e.message, rows[i].in_message_or_hint) == NULL && strstr(e.hint, rows[i].in_message_or_hint) == NULL))
            fail_msg("%s: %s param '%s' message '%s' hint '%s'", rows[i].body, err_row(e.code)->name, e.param, e.message, e.hint);
    }
}

static void test_deep_and_long_bodies_are_refused(void **state)
{
    static char text[LIMIT_JSON_BODY + 10];
    struct err e;

    memset(text, '[', 5000);
    assert_null(check_json(op_of("sandbox.create"), text, 5000, &e));
    assert_int_equal(e.code, ERR_MALFORMED);
    memset(text, ' ', sizeof text);
    assert_null(check_json(op_of("sandbox.create"), text, sizeof text, &e));
    assert_int_equal(e.code, ERR_TOO_LARGE);
}

static void test_queries(void **state)
{
    static const struct {
        const char *op, *query;
        enum err_code code;
        const char *param;
    } rows[] = {
        {"sandbox.list", "", ERR_OK, ""},
        {"sandbox.list", "app=a&state=any&tag=a:1&tag=b%3A2&limit=1000&created_after=1.5", ERR_OK, ""},
        {"sandbox.list", "&&app=a&", ERR_OK, ""},
        {"sandbox.list", "ap=a", ERR_UNKNOWN_FIELD, "ap"},
        {"sandbox.list", "app=a&app=b", ERR_INVALID, "app"},
        {"sandbox.list", "limit=0", ERR_INVALID, "limit"},
        {"sandbox.list", "limit=1001", ERR_INVALID, "limit"},
        {"sandbox.list", "limit=1e2", ERR_INVALID, "limit"},
        {"sandbox.list", "limit=99999999999999999999", ERR_INVALID, "limit"},
        {"sandbox.list", "limit=", ERR_INVALID, "limit"},
        {"sandbox.list", "limit", ERR_INVALID, "limit"},
        {"sandbox.list", "limit=+5", ERR_INVALID, "limit"},
        {"sandbox.list", "state=nonsense", ERR_INVALID, "state"},
        {"sandbox.list", "created_after=nan", ERR_INVALID, "created_after"},
        {"sandbox.list", "created_after=0x10", ERR_INVALID, "created_after"},
        {"sandbox.list", "created_after=1e400", ERR_INVALID, "created_after"},
        {"sandbox.list", "app=%zz", ERR_MALFORMED, ""},
        {"sandbox.list", "app=%4", ERR_MALFORMED, ""},
        {"sandbox.list", "app=a%00b", ERR_MALFORMED, ""},
        {"sandbox.get", "wait=exit&timeout_s=3600", ERR_OK, ""},
        {"sandbox.get", "wait=exit&timeout_s=3601", ERR_INVALID, "timeout_s"},
        {"file.stat", "", ERR_INVALID, "path"},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        struct err e = {0};
        auto_free char *text = mem_strdup(rows[i].query);
        struct query_param *q = NULL;
        size_t n = 0;
        int r = query_split(text, &q, &n, &e);
        if (r == 0)
            r = check_query(op_of(rows[i].op), q, n, &e);
        free(q);
        if ((r < 0 ? e.code : ERR_OK) != rows[i].code || strcmp(e.param, rows[i].param) != 0)
            fail_msg("%s: %d %s param '%s'", rows[i].query, r, e.message, e.param);
    }
}

static void test_queries_are_decoded(void **state)
{
    char text[] = "path=%2Fa+b%2Bc%ff&empty=&bare";
    struct query_param *q;
    size_t n;
    struct err e;

    assert_int_equal(query_split(text, &q, &n, &e), 0);
    assert_int_equal(n, 3);
    assert_string_equal(q[0].name, "path");
    assert_string_equal(q[0].value, "/a b+c\xff");
    assert_string_equal(q[1].value, "");
    assert_string_equal(q[2].name, "bare");
    assert_string_equal(q[2].value, "");
    free(q);
}

static void test_ids_have_a_shape(void **state)
{
    struct err e;
    const struct op *get = op_of("sandbox.get"), *exec = op_of("exec.get"), *image = op_of("image.get");

    assert_int_equal(check_param(get, "id", 2, "sb-0123456789012345678901", &e), 0);
    assert_int_equal(check_param(get, "id", 2, "sb-0123456789012345678901\n", &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(check_param(get, "id", 2, "../etc", &e), -1);
    assert_int_equal(check_param(exec, "exec_id", 7, "build-1", &e), 0);
    assert_int_equal(check_param(exec, "exec_id", 7, "-x", &e), -1);
    assert_string_equal(e.param, "exec_id");
    assert_int_equal(check_param(image, "id", 2, "base", &e), 0);
}

static void test_every_operation_is_described(void **state)
{
    auto_json *doc = rest_openapi();
    size_t n = 0;

    assert_non_null(doc);
    for (size_t i = 0; rest_op(i) != NULL; i++, n++) {
        const struct op *op = rest_op(i);
        char method[16] = {0};
        for (size_t k = 0; op->method[k] != '\0'; k++)
            method[k] = (char)(op->method[k] | 0x20);
        const json_t *entry = json_object_get(json_object_get(json_object_get(doc, "paths"), op->path), method);
        assert_non_null(entry);
        assert_string_equal(json_string_value(json_object_get(entry, "operationId")), op->id);
        if (op->scope != NULL)
            assert_string_equal(json_string_value(json_object_get(entry, "x-scope")), op->scope);
        else
            assert_true((op->flags & OP_NO_AUTH) != 0 || strcmp(op->id, "token.me") == 0);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(rest_op(k)->id, op->id);
    }
    assert_true(n > 40);
}

static void test_nearest_names(void **state)
{
    static const char *const names[] = {"timeout_s", "cpu", "memory_mb", "command"};

    assert_string_equal(js_nearest("timeout", names, 4), "timeout_s");
    assert_string_equal(js_nearest("comand", names, 4), "command");
    assert_string_equal(js_nearest("cmommand", names, 4), "command");
    assert_null(js_nearest("volume", names, 4));
    assert_null(js_nearest("", names, 4));
}

static void test_text_that_is_not_utf8(void **state)
{
    auto_json *j = js_string_lossy("a\xff\xc3\xa9\xe0\x80z");
    assert_string_equal(json_string_value(j), "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_deep_and_long_bodies_are_refused),
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_queries_are_decoded),
        cmocka_unit_test(test_ids_have_a_shape),
        cmocka_unit_test(test_every_operation_is_described),
        cmocka_unit_test(test_nearest_names),
        cmocka_unit_test(test_text_that_is_not_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
