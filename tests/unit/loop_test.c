/*
 * loop_test.c - timers, jobs, descriptors and signals of the loop
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "loop/loop.h"

static struct loop *loop;
static char trace[64];
static size_t ntrace;

static void note(char ch)
{
    trace[ntrace++] = ch;
    trace[ntrace] = '\0';
}

static int setup(void **state)
{
    loop = loop_new();
    ntrace = 0;
    trace[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    loop_free(loop);
    return 0;
}

static void on_stop(void *arg)
{
    loop_stop(loop);
}

static int64_t fired_ms;

static void on_fired(void *arg)
{
    fired_ms = clock_boot_ms();
    loop_stop(loop);
}

static void test_timer_is_never_early(void **state)
{
    for (uint64_t after_ms = 0; after_ms < 25; after_ms += 3) {
        struct loop_timer *t = loop_timer_new(loop, on_fired, NULL);
        int64_t start_ms = clock_boot_ms();
        loop_timer_set(t, after_ms);
        assert_int_equal(loop_run(loop), 0);
        assert_true(fired_ms - start_ms >= (int64_t)after_ms);
        assert_true(fired_ms - start_ms < (int64_t)after_ms + 500);
        loop_timer_free(t);
    }
}

static struct loop_timer *self;

static void on_free_self(void *arg)
{
    loop_timer_free(self);
    note('f');
}

static void test_timer_frees_itself_and_loop_ends(void **state)
{
    self = loop_timer_new(loop, on_free_self, NULL);
    loop_timer_set(self, 1);
    assert_int_equal(loop_run(loop), 0);    /* nothing is left: it returns */
    assert_string_equal(trace, "f");
}

static void on_note(void *arg)
{
    note(*(char *)arg);
}

static void on_defer_b(void *arg)
{
    static char b = 'b';

    loop_defer(loop, on_note, &b);
    note('a');
}

static void test_jobs_keep_their_order(void **state)
{
    char c = 'c', l = 'l';
    struct loop_job late = {.cb = on_note, .arg = &l}, cancelled = {.cb = on_note, .arg = &c};

    loop_job_late(loop, &late);
    loop_job_late(loop, &late);
    loop_job_soon(loop, &cancelled);
    loop_defer(loop, on_defer_b, NULL);
    loop_job_cancel(&cancelled);
    assert_false(loop_job_is_queued(&cancelled));
    loop_defer(loop, on_note, &c);
    loop_defer(loop, on_stop, NULL);
    assert_int_equal(loop_run(loop), 0);
    assert_string_equal(trace, "aclb");
}

static void on_forever(void *arg)
{
    loop_defer(loop, on_forever, NULL);
}

static void test_jobs_do_not_starve_timers(void **state)
{
    struct loop_timer *t = loop_timer_new(loop, on_fired, NULL);

    loop_timer_set(t, 5);
    loop_defer(loop, on_forever, NULL);
    assert_int_equal(loop_run(loop), 0);
    loop_timer_free(t);
}

static struct loop_io *io;
static int reads;

static void on_io(int fd, unsigned what, void *arg)
{
    char ch;

    assert_int_equal(what, LOOP_READ);
    assert_int_equal(read(fd, &ch, 1), 1);
    if (++reads == 2) {
        loop_io_free(io);
        loop_stop(loop);
    }
}

static void test_io(void **state)
{
    int p[2];

    reads = 0;
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "xy", 2), 2);
    io = loop_io_new(loop, p[0], 0, on_io, NULL);
    struct loop_timer *t = loop_timer_new(loop, on_stop, NULL);
    loop_timer_set(t, 5);
    assert_int_equal(loop_run(loop), 0);
    assert_int_equal(reads, 0);         /* paused */
    loop_io_set(io, LOOP_READ);
    assert_int_equal(loop_run(loop), 0);
    assert_int_equal(reads, 2);
    loop_timer_free(t);
    (void)close(p[0]);
    (void)close(p[1]);
}

static void on_signal(int sig, void *arg)
{
    assert_int_equal(sig, SIGUSR1);
    note('s');
    loop_stop(loop);
}

static void on_raise(void *arg)
{
    (void)raise(SIGUSR1);
}

static void test_signal(void **state)
{
    loop_on_signal(loop, SIGUSR1, on_signal, NULL);
    loop_defer(loop, on_raise, NULL);
    assert_int_equal(loop_run(loop), 0);
    assert_string_equal(trace, "s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_timer_is_never_early, setup, teardown),
        cmocka_unit_test_setup_teardown(test_timer_frees_itself_and_loop_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_jobs_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_jobs_do_not_starve_timers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_io, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signal, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
