/*
 * node_spool_test.c - what is read of a sandbox whose monitor is gone, and how it is told
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/map.h"
#include "node/spool.h"
#include "sys/fd.h"

#define SB "sb-0123456789abcdefABCDEF"

static char dir[] = "/tmp/node_spool_test.XXXXXX";
static int run_fd, sb_fd;

static int setup(void **state)
{
    char template[] = "/tmp/node_spool_test.XXXXXX";

    memcpy(dir, template, sizeof dir);
    assert_non_null(mkdtemp(dir));
    run_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(run_fd, SB, 0700), 0);
    sb_fd = openat(run_fd, SB, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(sb_fd >= 0);
    return 0;
}

static int teardown(void **state)
{
    const char *const names[] = {"exit", "status", "execs", "1.out", "1.err", "2.out"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlinkat(sb_fd, names[i], 0);
    fd_close(&sb_fd);
    (void)unlinkat(run_fd, SB, AT_REMOVEDIR);
    fd_close(&run_fd);
    return rmdir(dir);
}

static void put_record(const char *name, uint8_t state, uint8_t reason)
{
    struct sandbox_record r = {.sandbox = SB, .state = state, .reason = reason, .code = 3};
    uint8_t bytes[4096];
    size_t n = sandbox_record_encode(&r, bytes, sizeof bytes);

    assert_int_equal(fd_replace_file(sb_fd, name, bytes, n, 0600, false), 0);
}

static void add_exec(const struct exec_record *r, size_t cut)
{
    uint8_t bytes[4096];
    uint8_t len[4];
    int fd = openat(sb_fd, "execs", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    size_t n = exec_record_encode(r, bytes, sizeof bytes);

    for (int i = 0; i < 4; i++)
        len[i] = (uint8_t)(n >> (8 * i));
    assert_int_equal(fd_write_all(fd, len, 4), 0);
    assert_int_equal(fd_write_all(fd, bytes, n - cut), 0);
    fd_close(&fd);
}

static void test_sandbox(void **state)
{
    struct sandbox_record r;
    struct err e;

    assert_int_equal(spool_sandbox(run_fd, "sb-none", &r, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);

    assert_int_equal(spool_sandbox(run_fd, SB, &r, &e), 0);
    assert_int_equal(r.state, SB_STARTING);
    assert_string_equal(r.sandbox, SB);

    put_record("status", SB_RUNNING, END_NONE);
    assert_int_equal(spool_exit(run_fd, SB, &r), -1);
    assert_int_equal(spool_sandbox(run_fd, SB, &r, &e), 0);
    assert_int_equal(r.state, SB_ENDED);
    assert_int_equal(r.reason, END_NODE_LOST);
    assert_int_equal(r.code, -1);

    put_record("exit", SB_ENDED, END_EXITED);
    assert_int_equal(spool_sandbox(run_fd, SB, &r, &e), 0);
    assert_int_equal(r.reason, END_EXITED);
    assert_int_equal(r.code, 3);
    assert_int_equal(spool_exit(run_fd, SB, &r), 0);
}

static void count(void *arg, const struct exec_record *r)
{
    int *n = arg;

    ++*n;
    if (strcmp(r->exec_id, "one") == 0)
        assert_int_equal(r->code, 7);
}

static void test_journal(void **state)
{
    struct exec_record one = {.seq = 1, .exec_id = "one", .state = EXEC_EXITED, .code = 5};
    struct exec_record two = {.seq = 2, .exec_id = "two", .state = EXEC_EXITED};
    struct exec_record r;
    struct err e;
    int n = 0;

    assert_int_equal(spool_exec(run_fd, SB, "one", &r, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    add_exec(&one, 0);
    add_exec(&two, 0);
    one.code = 7;
    add_exec(&one, 0);          /* late bytes: written again */
    one.code = 9;
    add_exec(&one, 3);          /* the monitor died over this one */
    assert_int_equal(spool_exec(run_fd, SB, "one", &r, &e), 0);
    assert_int_equal(r.code, 7);
    assert_int_equal(spool_exec(run_fd, SB, "two", &r, &e), 0);
    assert_int_equal(r.seq, 2);
    assert_int_equal(spool_execs(run_fd, SB, count, &n, &e), 0);
    assert_int_equal(n, 2);
}

static void test_read(void **state)
{
    struct exec_record r = {.seq = 1, .exec_id = "one", .out_total = 100000, .out_first = 65536};
    uint64_t offset = 10;
    char out[4096];
    struct err e;

    int fd = openat(sb_fd, "1.out", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, 100000), 0);
    assert_int_equal(pwrite(fd, "first", 5, 65536), 5);
    assert_int_equal(pwrite(fd, "last", 4, 99996), 4);
    fd_close(&fd);

    assert_int_equal(spool_read(run_fd, SB, &r, 1, &offset, out, sizeof out, &e), sizeof out);
    assert_int_equal(offset, 65536);
    assert_memory_equal(out, "first", 5);
    offset = 99996;
    assert_int_equal(spool_read(run_fd, SB, &r, 1, &offset, out, sizeof out, &e), 4);
    assert_memory_equal(out, "last", 4);
    offset = 100000;
    assert_int_equal(spool_read(run_fd, SB, &r, 1, &offset, out, sizeof out, &e), 0);
    offset = 0;
    assert_int_equal(spool_read(run_fd, SB, &r, 2, &offset, out, sizeof out, &e), 0);

    /* A file that is shorter than its record, or not there, is an error and never an end. */
    r.out_total = 200000;
    offset = 150000;
    assert_int_equal(spool_read(run_fd, SB, &r, 1, &offset, out, sizeof out, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    r.err_total = 1;
    offset = 0;
    assert_int_equal(spool_read(run_fd, SB, &r, 2, &offset, out, sizeof out, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
}

static enum err_code start_error(const char *step, int error, const char *param)
{
    struct exec_record r = {.state = EXEC_FAILED, .error = error};
    struct err e;

    (void)snprintf(r.step, sizeof r.step, "%s", step);
    map_start_error(&r, "/bin/x", "/w", &e);
    assert_string_equal(e.param, param);
    assert_int_equal(e.sys_errno, error);
    assert_non_null(strstr(e.message, "/bin/x"));
    return e.code;
}

static void test_start_errors(void **state)
{
    const struct exec_record ended = {.state = EXEC_FAILED, .reason = END_KILLED, .step = "init"};
    struct err e;

    map_start_error(&ended, "/bin/x", "", &e);
    assert_int_equal(e.code, ERR_GONE);
    assert_int_equal(start_error("exec", ENOENT, "argv"), ERR_EXEC_NOT_FOUND);
    assert_int_equal(start_error("exec", EACCES, "argv"), ERR_NOT_EXECUTABLE);
    assert_int_equal(start_error("exec", ENOEXEC, "argv"), ERR_NOT_EXECUTABLE);
    assert_int_equal(start_error("exec", EISDIR, "argv"), ERR_NOT_EXECUTABLE);
    assert_int_equal(start_error("exec", E2BIG, "argv"), ERR_TOO_LARGE);
    assert_int_equal(start_error("exec", EIO, ""), ERR_INTERNAL);
    assert_int_equal(start_error("cwd", ENOENT, "cwd"), ERR_INVALID);
    assert_int_equal(start_error("user", ENOENT, "user"), ERR_INVALID);
    assert_int_equal(start_error("fork", EAGAIN, ""), ERR_LIMIT);
    assert_int_equal(start_error("stdio", EMFILE, ""), ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sandbox, setup, teardown),
        cmocka_unit_test_setup_teardown(test_journal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read, setup, teardown),
        cmocka_unit_test(test_start_errors),
    };

    return cmocka_run_group_tests_name("node_spool", tests, NULL, NULL);
}
