/*
 * exec_env_test.c - the environment and the checks of a command
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"
#include "ipc/exec_spec.h"
#include "node/exec_env.h"

#define BLOB(s) {sizeof(s) - 1, (uint8_t *)(uintptr_t)(s)}

struct built {
    struct buf block;
    struct exec_spec spec;
    const char *arrays[LIMIT_ARGC + LIMIT_ENVC + 2];
    struct err e;
    int r;
};

static struct built built;

static struct built *build(const Quicksand__Node__Defaults *d, const Quicksand__Node__Command *c,
                           bool tty)
{
    const struct exec_env_input in = {.defaults = d, .command = c, .tty = tty};

    buf_done(&built.block);
    memset(&built.e, 0, sizeof built.e);
    buf_init(&built.block, LIMIT_CHANNEL_MESSAGE);
    built.r = exec_env_build(&in, &built.block, &built.e);
    if (built.r == 0)
        assert_int_equal(exec_spec_decode(&built.spec, built.block.data, built.block.len,
                                          built.arrays, array_len(built.arrays)),
                         0);
    return &built;
}

static int done(void **state)
{
    buf_done(&built.block);
    return 0;
}

static const char *value(const struct built *b, const char *name)
{
    const char *found = NULL;
    size_t n = strlen(name);

    for (uint32_t i = 0; i < b->spec.envc; i++)
        if (strncmp(b->spec.envp[i], name, n) == 0 && b->spec.envp[i][n] == '=') {
            assert_null(found);     /* no name twice */
            found = b->spec.envp[i] + n + 1;
        }
    return found;
}

static ProtobufCBinaryData true_argv[] = {BLOB("/bin/true")};

static Quicksand__Node__Command command(void)
{
    Quicksand__Node__Command c = QUICKSAND__NODE__COMMAND__INIT;

    c.argv = true_argv;
    c.n_argv = 1;
    return c;
}

static void test_defaults(void **state)
{
    Quicksand__Node__Command c = command();
    struct built *b = build(NULL, &c, false);

    assert_int_equal(b->r, 0);
    assert_string_equal(value(b, "PATH"),
                        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    assert_string_equal(value(b, "LANG"), "C.UTF-8");
    assert_null(value(b, "TERM"));
    assert_null(value(b, "HOME"));
    assert_string_equal(b->spec.cwd, "");
    assert_false(b->spec.make_cwd);
    assert_int_equal(b->spec.umask, 022);
    assert_string_equal(value(build(NULL, &c, true), "TERM"), "xterm-256color");
}

static void test_last_wins(void **state)
{
    char *image[] = {(char *)"A=image", (char *)"PATH=/image", (char *)"A=sandbox",
                     (char *)"LC_ALL=C"};
    ProtobufCBinaryData own[] = {BLOB("A=own"), BLOB("B=x=y\nz"), BLOB("C=")};
    Quicksand__Node__Defaults d = QUICKSAND__NODE__DEFAULTS__INIT;
    Quicksand__Node__Command c = command();

    d.env = image;
    d.n_env = array_len(image);
    c.env = own;
    c.n_env = array_len(own);
    struct built *b = build(&d, &c, false);
    assert_int_equal(b->r, 0);
    assert_string_equal(value(b, "A"), "own");
    assert_string_equal(value(b, "PATH"), "/image");
    assert_string_equal(value(b, "B"), "x=y\nz");
    assert_string_equal(value(b, "C"), "");
    assert_null(value(b, "LANG"));
    assert_int_equal(b->spec.envc, 5);
    assert_string_equal(b->spec.envp[0], "PATH=/image");
}

static void test_cwd_and_user(void **state)
{
    Quicksand__Node__Defaults d = QUICKSAND__NODE__DEFAULTS__INIT;
    Quicksand__Node__Command c = command();

    d.has_cwd = 1;
    d.cwd = (ProtobufCBinaryData)BLOB("/work");
    d.user = (char *)"1000:1000";
    struct built *b = build(&d, &c, false);
    assert_string_equal(b->spec.cwd, "/work");
    assert_true(b->spec.make_cwd);
    assert_string_equal(b->spec.user, "1000:1000");

    c.has_cwd = 1;
    c.cwd = (ProtobufCBinaryData)BLOB("/own");
    c.user = (char *)"nobody";
    b = build(&d, &c, false);
    assert_string_equal(b->spec.cwd, "/own");
    assert_false(b->spec.make_cwd);
    assert_string_equal(b->spec.user, "nobody");

    c.cwd = (ProtobufCBinaryData)BLOB("own");
    b = build(&d, &c, false);
    assert_int_equal(b->r, -1);
    assert_int_equal(b->e.code, ERR_INVALID);
    assert_string_equal(b->e.param, "cwd");
}

static void expect_env_error(ProtobufCBinaryData var, enum err_code code)
{
    Quicksand__Node__Command c = command();

    c.env = &var;
    c.n_env = 1;
    struct built *b = build(NULL, &c, false);
    assert_int_equal(b->r, -1);
    assert_int_equal(b->e.code, code);
    assert_string_equal(b->e.param, "env");
}

static void test_bad_env(void **state)
{
    auto_free uint8_t *large = mem_zalloc(LIMIT_ENV_BYTES + 10);

    expect_env_error((ProtobufCBinaryData)BLOB("NAME"), ERR_INVALID);
    expect_env_error((ProtobufCBinaryData)BLOB("=value"), ERR_INVALID);
    expect_env_error((ProtobufCBinaryData)BLOB(""), ERR_INVALID);
    expect_env_error((ProtobufCBinaryData)BLOB("A=\0b"), ERR_INVALID);
    expect_env_error((ProtobufCBinaryData)BLOB("A\0=b"), ERR_INVALID);
    memset(large, 'x', LIMIT_ENV_BYTES);
    large[1] = '=';
    expect_env_error((ProtobufCBinaryData){LIMIT_ENV_BYTES, large}, ERR_TOO_LARGE);
    expect_env_error((ProtobufCBinaryData){LIMIT_ENV_BYTES - 10, large}, ERR_TOO_LARGE);
}

static void expect_argv_error(ProtobufCBinaryData *argv, size_t n, enum err_code code)
{
    Quicksand__Node__Command c = QUICKSAND__NODE__COMMAND__INIT;

    c.argv = argv;
    c.n_argv = n;
    struct built *b = build(NULL, &c, false);
    assert_int_equal(b->r, -1);
    assert_int_equal(b->e.code, code);
    assert_string_equal(b->e.param, "argv");
}

static void test_argv(void **state)
{
    ProtobufCBinaryData empty[] = {BLOB("")};
    ProtobufCBinaryData nul[] = {BLOB("/bin/true"), BLOB("a\0b")};
    ProtobufCBinaryData fine[] = {BLOB("printf"), BLOB(""), BLOB("\xff\n")};
    auto_free uint8_t *bytes = mem_zalloc(LIMIT_ARGV_BYTES);
    ProtobufCBinaryData large[] = {BLOB("echo"), {LIMIT_ARGV_BYTES - 6, bytes}};
    auto_free ProtobufCBinaryData *many = mem_array(LIMIT_ARGC + 1, sizeof *many);
    Quicksand__Node__Command c = QUICKSAND__NODE__COMMAND__INIT;

    memset(bytes, 'x', LIMIT_ARGV_BYTES);
    expect_argv_error(NULL, 0, ERR_INVALID);
    expect_argv_error(empty, 1, ERR_INVALID);
    expect_argv_error(nul, 2, ERR_INVALID);
    for (size_t i = 0; i <= LIMIT_ARGC; i++)
        many[i] = (ProtobufCBinaryData)BLOB("x");
    expect_argv_error(many, LIMIT_ARGC + 1, ERR_TOO_LARGE);

    c.argv = large;
    c.n_argv = 2;
    assert_int_equal(build(NULL, &c, false)->r, 0);     /* exactly the limit */
    large[1].len++;
    expect_argv_error(large, 2, ERR_TOO_LARGE);

    c.argv = fine;
    c.n_argv = 3;
    struct built *b = build(NULL, &c, false);
    assert_int_equal(b->r, 0);
    assert_int_equal(b->spec.argc, 3);
    assert_string_equal(b->spec.argv[1], "");
    assert_string_equal(b->spec.argv[2], "\xff\n");
    assert_null(b->spec.argv[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_defaults, done),
        cmocka_unit_test_teardown(test_last_wins, done),
        cmocka_unit_test_teardown(test_cwd_and_user, done),
        cmocka_unit_test_teardown(test_bad_env, done),
        cmocka_unit_test_teardown(test_argv, done),
    };

    return cmocka_run_group_tests_name("exec_env", tests, NULL, NULL);
}
