/*
 * monitor_test.c - the monitor program, driven as keeper, init and node do
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "ipc/channel.h"
#include "ipc/init_proto.h"
#include "monitor_rig.h"
#include "sys/fd.h"

static struct rig rig;
static uint8_t space[LIMIT_CHANNEL_INLINE];
static uint8_t bytes[8 << 20];

static int start(void **state)
{
    rig_start(&rig, &(struct rig_options){.grace_ms = 500});
    return 0;
}

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void expect_output(const char *id, int stream, const char *text)
{
    ssize_t n = rig_read_all(rig.node, id, stream, bytes, sizeof bytes);

    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

static int terminate(uint32_t grace_ms)
{
    struct mon_terminate m = {.reason = END_TERMINATED, .actor = "tok", .grace_ms = grace_ms};
    uint8_t out[128];

    return rig_simple(rig.node, MON_TERMINATE, out, mon_terminate_encode(&m, out, sizeof out));
}

static void read_exit(struct sandbox_record *ret)
{
    uint8_t out[1024];

    int status = rig_wait_exit(&rig, 5000);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    size_t n = rig_file(&rig, "exit", out, sizeof out);
    assert_true(n != SIZE_MAX);
    assert_int_equal(sandbox_record_decode(ret, out, n), 0);
    assert_int_equal(ret->state, SB_ENDED);
    assert_true(ret->ended_ms >= ret->created_ms);
    assert_int_equal(rig_file(&rig, "monitor.sock", out, sizeof out), SIZE_MAX);
}

/* The journal's record of an exec. */
static bool journal_has(const char *id, struct exec_record *ret)
{
    static uint8_t out[1 << 20];
    struct wire_reader r;
    size_t n = rig_file(&rig, "execs", out, sizeof out);

    assert_true(n != SIZE_MAX);
    wire_read(&r, out, n);
    while (r.at < r.len) {
        size_t len;
        const void *p = wire_get_bytes(&r, 4096, &len);
        assert_non_null(p);
        assert_int_equal(exec_record_decode(ret, p, len), 0);
        if (strcmp(ret->exec_id, id) == 0)
            return true;
    }
    return false;
}

static void streams_and_codes_are_exact(void **state)
{
    struct exec_record r;

    assert_int_equal(rig_exec(rig.node, "e1", 0, "printf 'a\\n\\n\\0b'; printf E >&2; exit 7", NULL, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(r.state, EXEC_EXITED);
    assert_int_equal(r.reason, END_EXITED);
    assert_int_equal(r.code, 7);
    assert_int_equal(r.out_total, 5);
    assert_true(r.out_eof && r.err_eof && r.stdin_closed);
    assert_true(r.started_ms > 0 && r.ended_ms >= r.started_ms);
    assert_int_equal(rig_read_all(rig.node, "e1", 1, bytes, sizeof bytes), 5);
    assert_memory_equal(bytes, "a\n\n\0b", 5);
    expect_output("e1", 2, "E");
    assert_int_equal(rig_exec(rig.node, "e2", 0, "kill -TERM $$", NULL, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e2", 5000, &r), 0);
    assert_int_equal(r.reason, END_SIGNALED);
    assert_int_equal(r.signal, SIGTERM);
    assert_int_equal(rig_exec(rig.node, "e3", MON_EXEC_MERGE, "echo a; echo b >&2; echo c", NULL, &r), 0);
    expect_output("e3", 1, "a\nb\nc\n");
    expect_output("e3", 2, "");
}

static void what_cannot_start_is_told(void **state)
{
    struct exec_record r;

    assert_int_equal(rig_exec(rig.node, "e1", 0, "/no/such/program", NULL, &r), 0);
    assert_int_equal(r.state, EXEC_FAILED);
    assert_int_equal(r.reason, END_START_FAILED);
    assert_int_equal(r.error, 2);
    assert_string_equal(r.step, "exec");
    expect_output("e1", 1, "");
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(r.state, EXEC_FAILED);
    assert_int_equal(rig_wait(rig.node, "unknown", 0, &r), ERR_NOT_FOUND);
    assert_int_equal(rig_exec(rig.node, "-bad", 0, "true", NULL, &r), ERR_INVALID);
    assert_int_equal(rig_exec(rig.node, "entry", 0, "true", NULL, &r), ERR_INVALID);
    assert_int_equal(rig_exec(rig.node, "e9", 0, "true", &(struct mon_exec){.container = "side"}, &r),
                     ERR_NOT_FOUND);
}

static void an_exec_id_runs_once(void **state)
{
    struct exec_record r;
    char script[128];

    (void)snprintf(script, sizeof script, "echo x >> %s/n; echo out", rig.dir);
    uint32_t a = rig_send_exec(rig.node, "e1", 0, script, NULL);
    uint32_t b = rig_send_exec(rig.node, "e1", 0, script, NULL);
    assert_true(rig_has_reply(rig.node, a, 5000));
    assert_true(rig_has_reply(rig.node, b, 5000));
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(rig_exec(rig.node, "e1", 0, script, NULL, &r), 0);
    assert_int_equal(r.state, EXEC_EXITED);
    assert_int_equal(rig_exec(rig.node, "e1", 0, "echo other", NULL, &r), ERR_CONFLICT);
    assert_int_equal(rig_file(&rig, "n", bytes, 10), 2);
    /* Forgotten, the id is free. */
    struct mon_ref ref = {.exec_id = "e1"};
    uint8_t out[128];
    size_t n = mon_ref_encode(&ref, out, sizeof out);
    assert_int_equal(rig_simple(rig.node, MON_FORGET, out, n), 0);
    assert_int_equal(rig_simple(rig.node, MON_FORGET, out, n), ERR_NOT_FOUND);
    assert_int_equal(rig_exec(rig.node, "e1", 0, "echo other", NULL, &r), 0);
}

static void reads_follow_by_offset(void **state)
{
    struct exec_record r;
    struct mon_read_r read;
    int64_t before = clock_boot_ms();

    assert_int_equal(rig_exec(rig.node, "e1", 0, "echo one; sleep 0.3; echo two", NULL, &r), 0);
    assert_int_equal(rig_read(rig.node, "e1", 1, 0, 5000, &read, space), 0);
    assert_int_equal(read.len, 4);
    assert_false(read.eof || read.exited);
    assert_int_equal(rig_read(rig.node, "e1", 1, 4, 50, &read, space), 0);     /* nothing yet */
    assert_int_equal(read.len, 0);
    assert_false(read.eof);
    assert_true(clock_boot_ms() - before >= 50);
    assert_int_equal(rig_read(rig.node, "e1", 1, 4, 5000, &read, space), 0);
    assert_int_equal(read.len, 4);
    assert_memory_equal(read.data, "two\n", 4);
    assert_int_equal(rig_read(rig.node, "e1", 1, 2, 0, &read, space), 0);      /* again, from the middle */
    assert_int_equal(read.len, 6);
    assert_memory_equal(read.data, "e\ntwo\n", 6);
    assert_int_equal(rig_read(rig.node, "e1", 1, 9, 0, &read, space), ERR_RANGE);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(rig_read(rig.node, "e1", 1, 8, 5000, &read, space), 0);
    assert_true(read.eof && read.exited);
}

static void large_output_is_whole(void **state)
{
    struct exec_record r;

    assert_int_equal(rig_exec(rig.node, "e1", 0, "seq 1 400000", NULL, &r), 0);
    ssize_t n = rig_read_all(rig.node, "e1", 1, bytes, sizeof bytes);
    assert_int_equal(n, 2688895);
    size_t at = 0;
    for (int i = 1; i <= 400000; i++) {
        char line[16];
        int len = snprintf(line, sizeof line, "%d\n", i);
        assert_memory_equal(bytes + at, line, (size_t)len);
        at += (size_t)len;
    }
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(r.code, 0);
    assert_int_equal(rig_file(&rig, "1.out", bytes, sizeof bytes), 2688895);
}

static void large_commands_arrive_whole(void **state)
{
    struct exec_record r;
    static char script[100000];

    memset(script, ' ', sizeof script);
    memcpy(script, "echo start;", 11);
    memcpy(script + sizeof script - 10, "echo end;", 10);
    assert_int_equal(rig_exec(rig.node, "e1", 0, script, NULL, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    expect_output("e1", 2, "");
    expect_output("e1", 1, "start\nend\n");
    assert_int_equal(strlen(r.command), sizeof r.command - 1);
}

static void nobody_reading_holds_nothing_back(void **state)
{
    struct exec_record r;
    struct mon_exec more = {.output_limit = 65536};

    assert_int_equal(rig_exec(rig.node, "e1", 0, "head -c 3000000 /dev/zero; sleep 30", NULL, &r), 0);
    assert_int_equal(rig_exec(rig.node, "e2", 0, "head -c 65536 /dev/zero; exit 3", &more, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e2", 5000, &r), 0);
    assert_int_equal(r.reason, END_EXITED);
    assert_int_equal(r.code, 3);
    /* One byte more and it ends, with what fits kept to the byte. */
    assert_int_equal(rig_exec(rig.node, "e3", 0, "head -c 65537 /dev/zero; sleep 30", &more, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e3", 5000, &r), 0);
    assert_int_equal(r.reason, END_OUTPUT_LIMIT);
    assert_int_equal(r.out_total, 65536);
    assert_int_equal(rig_read_all(rig.node, "e3", 1, bytes, sizeof bytes), 65536);
    assert_int_equal(rig_wait(rig.node, "e1", 0, &r), 0);
    assert_int_equal(r.state, EXEC_RUNNING);
    while (r.out_total < 3000000)
        assert_int_equal(rig_wait(rig.node, "e1", 20, &r), 0);
}

static void a_reader_frees_room(void **state)
{
    struct exec_record r;
    struct mon_exec more = {.output_limit = 65536};
    struct mon_read_r read = {0};
    uint64_t at = 0;

    assert_int_equal(rig_exec(rig.node, "e1", 0,
                              "i=0; while [ $i -lt 40 ]; do head -c 10000 /dev/zero; sleep 0.02; i=$((i+1)); done",
                              &more, &r), 0);
    while (!read.eof) {
        assert_int_equal(rig_read(rig.node, "e1", 1, at, 5000, &read, space), 0);
        at = read.offset + read.len;
    }
    assert_int_equal(at, 400000);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(r.reason, END_EXITED);
    assert_int_equal(r.out_first, 400000 - 65536);
    assert_int_equal(rig_read(rig.node, "e1", 1, 0, 0, &read, space), 0);   /* says where it begins */
    assert_int_equal(read.offset, 400000 - 65536);
}

static void a_background_child_does_not_hold_the_end(void **state)
{
    struct exec_record r;
    struct mon_read_r read;
    int64_t before = clock_boot_ms();

    assert_int_equal(rig_exec(rig.node, "e1", 0, "(sleep 0.8; echo late; sleep 30) & echo started", NULL, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_true(clock_boot_ms() - before < 600);
    assert_int_equal(r.code, 0);
    assert_int_equal(r.out_total, 8);
    assert_int_equal(rig_read(rig.node, "e1", 1, 8, 5000, &read, space), 0);
    assert_true(read.eof && read.exited);
    int64_t took = clock_boot_ms() - before;
    assert_true(took >= 150 && took < 700);
    (void)usleep(800000);
    assert_int_equal(rig_read(rig.node, "e1", 1, 8, 1000, &read, space), 0);    /* late bytes are kept */
    assert_int_equal(read.len, 5);
    assert_memory_equal(read.data, "late\n", 5);
}

static void stdin_is_taken_once(void **state)
{
    struct exec_record r;
    struct mon_stdin_r in;
    uint8_t data[200];

    memset(data, 'x', sizeof data);
    assert_int_equal(rig_exec(rig.node, "e1", MON_EXEC_STDIN, "wc -c", NULL, &r), 0);
    assert_int_equal(rig_stdin(rig.node, "e1", 0, data, 100, false, &in), 0);
    assert_int_equal(in.taken, 100);
    assert_int_equal(rig_stdin(rig.node, "e1", 50, data, 100, false, &in), 0);
    assert_int_equal(in.taken, 150);
    assert_int_equal(rig_stdin(rig.node, "e1", 200, data, 10, false, &in), ERR_RANGE);
    assert_int_equal(rig_stdin(rig.node, "e1", 0, data, 20, false, &in), 0);
    assert_int_equal(in.taken, 150);
    assert_false(in.closed);
    assert_int_equal(rig_stdin(rig.node, "e1", 0, NULL, 0, true, &in), 0);
    assert_true(in.closed);
    assert_int_equal(rig_stdin(rig.node, "e1", 150, NULL, 0, true, &in), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    expect_output("e1", 1, "150\n");
    assert_int_equal(rig_exec(rig.node, "e2", 0, "cat; echo end", NULL, &r), 0);    /* without: /dev/null */
    expect_output("e2", 1, "end\n");
}

static void stdin_waits_for_the_program(void **state)
{
    static uint8_t chunk[LIMIT_STDIN_CHUNK];
    uint8_t out[LIMIT_CHANNEL_INLINE];
    struct exec_record r;
    struct mon_stdin_r in;
    size_t len;
    uint64_t sent = 0;

    assert_int_equal(rig_exec(rig.node, "e1", MON_EXEC_STDIN, "sleep 0.5; wc -c", NULL, &r), 0);
    for (int i = 0; i < 32; i++) {      /* 1 MiB through a pipe of 64 KiB */
        struct mon_stdin m = {.exec_id = "e1", .offset = sent, .eof = i == 31, .data = chunk, .len = sizeof chunk};
        uint32_t tag = rig_send(rig.node, MON_STDIN, out, mon_stdin_encode(&m, out, sizeof out));
        if (i == 2)
            assert_false(rig_has_reply(rig.node, tag, 100));    /* the pipe is full */
        assert_int_equal(rig_reply(rig.node, tag, out, sizeof out, &len), MON_STDIN_R);
        assert_int_equal(mon_stdin_r_decode(&in, out, len), 0);
        sent += sizeof chunk;
        assert_int_equal(in.taken, sent);
    }
    expect_output("e1", 1, "1048576\n");
    /* A program that does not read ends the writer's wait when it is gone. */
    assert_int_equal(rig_exec(rig.node, "e2", MON_EXEC_STDIN, "sleep 0.3", NULL, &r), 0);
    for (sent = 0; sent < (1 << 20); sent += sizeof chunk) {
        assert_int_equal(rig_stdin(rig.node, "e2", sent, chunk, sizeof chunk, false, &in), 0);
        if (in.closed)
            break;
    }
    assert_true(in.closed);
    assert_int_equal(rig_wait(rig.node, "e2", 5000, &r), 0);
    assert_int_equal(r.code, 0);
}

static void a_newer_stdin_write_takes_over(void **state)
{
    static uint8_t chunk[LIMIT_STDIN_CHUNK];
    uint8_t out[LIMIT_CHANNEL_INLINE];
    struct exec_record r;
    struct mon_stdin_r in;
    size_t len;
    int other = rig_connect(&rig);

    assert_int_equal(rig_exec(rig.node, "e1", MON_EXEC_STDIN, "sleep 0.4; wc -c", NULL, &r), 0);
    assert_int_equal(rig_stdin(rig.node, "e1", 0, chunk, sizeof chunk, false, &in), 0);
    assert_int_equal(rig_stdin(rig.node, "e1", 32768, chunk, sizeof chunk, false, &in), 0);
    struct mon_stdin m = {.exec_id = "e1", .offset = 65536, .data = chunk, .len = sizeof chunk};
    uint32_t tag = rig_send(rig.node, MON_STDIN, out, mon_stdin_encode(&m, out, sizeof out));
    assert_false(rig_has_reply(rig.node, tag, 50));
    assert_int_equal(rig_stdin(other, "e1", 65536, chunk, 1000, true, &in), 0);
    assert_int_equal(rig_reply(rig.node, tag, out, sizeof out, &len), MON_STDIN_R);
    assert_int_equal(in.taken, 65536 + 1000);
    expect_output("e1", 1, "66536\n");
    fd_close(&other);
}

static void a_timeout_takes_the_tree(void **state)
{
    struct exec_record r;
    struct mon_exec more = {.timeout_ms = 300, .grace_ms = 0};
    int64_t before = clock_boot_ms();

    assert_int_equal(rig_exec(rig.node, "e1", 0, "echo kept; trap '' TERM; sleep 30", &more, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    int64_t took = clock_boot_ms() - before;
    assert_true(took >= 300 && took < 1000);
    assert_int_equal(r.reason, END_TIMEOUT);
    expect_output("e1", 1, "kept\n");
    /* With a grace the program may end by itself. */
    more.grace_ms = 2000;
    assert_int_equal(rig_exec(rig.node, "e2", 0, "trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done",
                              &more, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e2", 5000, &r), 0);
    assert_int_equal(r.reason, END_TIMEOUT);
    assert_int_equal(r.code, 3);
    expect_output("e2", 1, "bye\n");
    more.grace_ms = 300;
    before = clock_boot_ms();
    assert_int_equal(rig_exec(rig.node, "e3", 0, "trap '' TERM; kill -STOP $$; sleep 30", &more, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e3", 5000, &r), 0);
    took = clock_boot_ms() - before;
    assert_true(took >= 600 && took < 1500);
    assert_int_equal(r.signal, SIGKILL);
}

static void only_its_own_tree_is_killed(void **state)
{
    struct exec_record r;
    struct mon_exec more = {.timeout_ms = 300};
    char script[160];
    char text[32];

    if (!rig_has_groups())
        skip();
    (void)snprintf(script, sizeof script, "setsid sh -c 'echo $$ > %s/daemon; exec sleep 60' & sleep 0.1", rig.dir);
    assert_int_equal(rig_exec(rig.node, "e1", 0, script, NULL, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    (void)snprintf(script, sizeof script, "setsid sh -c 'echo $$ > %s/escaped; exec sleep 60' & sleep 60", rig.dir);
    assert_int_equal(rig_exec(rig.node, "e2", 0, script, &more, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e2", 5000, &r), 0);
    assert_int_equal(r.reason, END_TIMEOUT);
    (void)usleep(50000);
    text[rig_file(&rig, "escaped", text, sizeof text - 1)] = '\0';
    assert_int_equal(kill((pid_t)strtol(text, NULL, 10), 0), -1);
    text[rig_file(&rig, "daemon", text, sizeof text - 1)] = '\0';
    assert_int_equal(kill((pid_t)strtol(text, NULL, 10), 0), 0);
    /* What runs after a kill is not hit by it. */
    for (int i = 0; i < 20; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "n%d", i);
        assert_int_equal(rig_exec(rig.node, id, 0, "exit 3", NULL, &r), 0);
        assert_int_equal(rig_wait(rig.node, id, 5000, &r), 0);
        assert_int_equal(r.code, 3);
    }
    /* The group of a kill by request is the exec's even after it has ended. */
    struct mon_kill k = {.exec_id = "e1"};
    uint8_t out[128];
    assert_int_equal(rig_simple(rig.node, MON_KILL, out, mon_kill_encode(&k, out, sizeof out)), 0);
    (void)usleep(50000);
    assert_int_equal(kill((pid_t)strtol(text, NULL, 10), 0), -1);
}

static void groups_are_used_again(void **state)
{
    struct exec_record r;
    struct stat st;
    char path[128];

    if (!rig_has_groups())
        skip();
    for (int i = 0; i < 50; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "e%d", i);
        assert_int_equal(rig_exec(rig.node, id, 0, "true", NULL, &r), 0);
        assert_int_equal(rig_wait(rig.node, id, 5000, &r), 0);
    }
    (void)snprintf(path, sizeof path, "%s/x8", rig.group);
    assert_int_equal(stat(path, &st), -1);
    for (int i = 0; i < 40; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m%d", i);
        (void)rig_send_exec(rig.node, id, 0, "sleep 0.3", NULL);
    }
    for (int i = 0; i < 40; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "m%d", i);
        assert_int_equal(rig_wait(rig.node, id, 5000, &r), 0);
    }
    int there = 60;
    /* Each further command has some more of those looked at that were not empty yet when theirs had just ended. */
    for (int tries = 0; tries < 300 && there > 10; tries++) {
        char id[16];
        (void)snprintf(id, sizeof id, "l%d", tries);
        assert_int_equal(rig_exec(rig.node, id, 0, "true", NULL, &r), 0);
        assert_int_equal(rig_wait(rig.node, id, 5000, &r), 0);
        (void)usleep(50000);
        there = 0;
        for (int i = 0; i < 60; i++) {
            (void)snprintf(path, sizeof path, "%s/x%d", rig.group, i);
            there += stat(path, &st) == 0;
        }
    }
    assert_in_range(there, 1, 10);
}

static void signals_and_kills(void **state)
{
    struct exec_record r;
    uint8_t out[256];
    struct mon_signal s = {.exec_id = "e1", .signal = SIGUSR1, .scope = INIT_SIG_GROUP};

    assert_int_equal(rig_exec(rig.node, "e1", 0, "trap 'echo usr; exit 4' USR1; echo on; while :; do sleep 0.05; done",
                              NULL, &r), 0);
    struct mon_read_r read;
    assert_int_equal(rig_read(rig.node, "e1", 1, 0, 5000, &read, space), 0);
    assert_int_equal(rig_simple(rig.node, MON_SIGNAL, out, mon_signal_encode(&s, out, sizeof out)), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(r.code, 4);
    assert_int_equal(rig_simple(rig.node, MON_SIGNAL, out, mon_signal_encode(&s, out, sizeof out)), ERR_CONFLICT);
    struct mon_kill k = {.exec_id = "e2"};
    assert_int_equal(rig_exec(rig.node, "e2", 0, "trap '' TERM INT; sleep 30", NULL, &r), 0);
    assert_int_equal(rig_simple(rig.node, MON_KILL, out, mon_kill_encode(&k, out, sizeof out)), 0);
    assert_int_equal(rig_wait(rig.node, "e2", 5000, &r), 0);
    assert_int_equal(r.reason, END_KILLED);
    assert_int_equal(r.signal, SIGKILL);
}

static void a_terminal(void **state)
{
    struct exec_record r;
    struct mon_stdin_r in;
    struct mon_exec more = {.rows = 40, .cols = 132};
    uint8_t out[256];

    if (geteuid() != 0 && access("/dev/pts/ptmx", R_OK | W_OK) != 0)
        skip();
    assert_int_equal(rig_exec(rig.node, "e1", MON_EXEC_TTY,
                              "stty -echo size; [ -t 1 ] && echo tty; read x; stty size; cat; exit 7",
                              &more, &r), 0);
    struct mon_read_r read = {0};
    uint64_t want = strlen("40 132\r\ntty\r\n");
    while (read.total < want)
        assert_int_equal(rig_read(rig.node, "e1", 1, read.total, 5000, &read, space), 0);
    struct mon_resize size = {.exec_id = "e1", .rows = 50, .cols = 200};
    assert_int_equal(rig_simple(rig.node, MON_RESIZE, out, mon_resize_encode(&size, out, sizeof out)), 0);
    assert_int_equal(rig_stdin(rig.node, "e1", 0, "go\nabc", 6, true, &in), 0);
    assert_true(in.closed);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(r.code, 7);
    expect_output("e1", 1, "40 132\r\ntty\r\n50 200\r\nabc");
    expect_output("e1", 2, "");
    for (int i = 0; i < 50; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "t%d", i);
        assert_int_equal(rig_exec(rig.node, id, MON_EXEC_TTY, "echo bye; exit 7", NULL, &r), 0);
        assert_int_equal(rig_wait(rig.node, id, 5000, &r), 0);
        assert_int_equal(r.code, 7);
        expect_output(id, 1, "bye\r\n");
    }
}

static void the_memory_limit_is_named(void **state)
{
    struct exec_record r;

    assert_int_equal(rig_exec(rig.node, "e1", 0, "sleep 0.2; kill -KILL $$", NULL, &r), 0);
    assert_int_equal(rig_exec(rig.node, "e2", 0, "sleep 0.4; kill -KILL $$", NULL, &r), 0);
    rig_set_oom(&rig, 1);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(r.reason, END_OOM_LIMIT);
    assert_string_equal(r.oom_comm, "victim");
    /* One kill accounts for one exec. */
    assert_int_equal(rig_wait(rig.node, "e2", 5000, &r), 0);
    assert_int_equal(r.reason, END_SIGNALED);
    assert_int_equal(rig_exec(rig.node, "e3", 0, "kill -KILL $$", NULL, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e3", 5000, &r), 0);
    assert_int_equal(r.reason, END_SIGNALED);
}

static void lists_and_limits(void **state)
{
    struct exec_record r;
    uint8_t out[LIMIT_CHANNEL_INLINE];
    struct mon_list list = {0};
    struct wire_reader reader;
    size_t n;

    assert_int_equal(rig_exec(rig.node, "h1", MON_EXEC_HIDDEN, "true", NULL, &r), 0);
    for (int i = 0; i < 400; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "e%d", i);
        (void)rig_send_exec(rig.node, id, 0, "exit 3", NULL);
    }
    for (int i = 0; i < 400; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "e%d", i);
        assert_int_equal(rig_wait(rig.node, id, 10000, &r), 0);
        assert_int_equal(r.code, 3);
    }
    uint32_t seen = 0;
    do {
        uint32_t tag = rig_send(rig.node, MON_LIST, out, mon_list_encode(&list, out, sizeof out));
        assert_int_equal(rig_reply(rig.node, tag, out, sizeof out, &n), MON_LIST_R);
        wire_read(&reader, out, n);
        for (uint32_t count = wire_get_u32(&reader); count > 0; count--, seen++) {
            exec_record_get(&reader, &r);
            assert_memory_equal(r.exec_id, "e", 1);
            assert_string_equal(r.command, "/bin/sh -c exit 3");
        }
        list.first = wire_get_u32(&reader);
        assert_true(wire_end(&reader));
    } while (list.first != 0);
    assert_int_equal(seen, 400);
}

static void every_request_of_a_slow_peer_is_answered(void **state)
{
    struct exec_record r;
    uint32_t tags[200];
    uint8_t out[256];
    size_t n;

    assert_int_equal(rig_exec(rig.node, "e1", 0, "head -c 200000 /dev/zero", NULL, &r), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    struct mon_read m = {.exec_id = "e1", .stream = 1, .max = LIMIT_READ_CHUNK};
    for (int i = 0; i < 200; i++)       /* 11 MB of replies, none of them read yet */
        tags[i] = rig_send(rig.node, MON_READ, out, mon_read_encode(&m, out, sizeof out));
    for (int i = 0; i < 200; i++)
        assert_int_equal(rig_reply(rig.node, tags[i], space, sizeof space, &n), MON_READ_R);
}

static void a_bad_peer_is_closed_alone(void **state)
{
    struct exec_record r;
    int other = rig_connect(&rig);
    char c;

    assert_true(other >= 0);
    assert_int_equal(rig_exec(other, "e1", 0, "echo x", NULL, &r), 0);
    (void)rig_send(other, MON_WAIT, "garbage", 7);
    assert_int_equal(fd_set_nonblock(other, false), 0);
    assert_int_equal(read(other, &c, 1), 0);
    fd_close(&other);
    assert_int_equal(rig_wait(rig.node, "e1", 5000, &r), 0);
    assert_int_equal(rig_simple(rig.node, (enum mon_type)999, NULL, 0), ERR_UNSUPPORTED);
}

static void the_entry_ends_the_sandbox(void **state)
{
    struct exec_record r;
    struct sandbox_record s;

    assert_int_equal(rig_exec(rig.node, "entry", MON_EXEC_ENTRY, "echo hello; sleep 0.2; exit 5", NULL, &r), 0);
    assert_int_equal(rig_exec(rig.node, "e1", 0, "echo other; sleep 60", NULL, &r), 0);
    assert_int_equal(rig_status(rig.node, 0, &s), 0);
    assert_int_equal(s.state, SB_RUNNING);
    assert_int_equal(s.execs_live, 2);
    assert_int_equal(s.cpu_us, 5000);
    assert_int_equal(rig_status(rig.node, 5000, &s), 0);
    assert_int_equal(s.state, SB_ENDED);
    assert_int_equal(s.reason, END_EXITED);
    assert_int_equal(s.code, 5);
    read_exit(&s);
    assert_int_equal(s.reason, END_EXITED);
    assert_int_equal(s.code, 5);
    assert_int_equal(s.memory_peak, 8192);
    assert_int_equal(rig_file(&rig, "1.out", bytes, 100), 6);
    assert_memory_equal(bytes, "hello\n", 6);
    assert_int_equal(rig_file(&rig, "2.out", bytes, 100), 6);
    assert_true(journal_has("entry", &r));
    assert_int_equal(r.code, 5);
    assert_true(journal_has("e1", &r));
    assert_int_equal(r.reason, END_TERMINATED);
    assert_int_equal(r.state, EXEC_EXITED);
    assert_true(r.out_eof);
}

static void terminate_gives_a_grace(void **state)
{
    struct exec_record r;
    struct sandbox_record s;

    assert_int_equal(rig_exec(rig.node, "entry", MON_EXEC_ENTRY,
                              "trap 'echo bye; exit 0' TERM; echo on; while :; do sleep 0.05; done", NULL, &r), 0);
    struct mon_read_r read;
    assert_int_equal(rig_read(rig.node, "entry", 1, 0, 5000, &read, space), 0);
    assert_int_equal(terminate(UINT32_MAX), 0);
    assert_int_equal(terminate(0), 0);          /* the first one counts */
    assert_int_equal(rig_exec(rig.node, "e2", 0, "true", NULL, &r), ERR_GONE);
    read_exit(&s);
    assert_int_equal(s.reason, END_TERMINATED);
    assert_string_equal(s.actor, "tok");
    assert_int_equal(s.code, 0);
    assert_int_equal(rig_file(&rig, "1.out", bytes, 100), 7);
    assert_memory_equal(bytes, "on\nbye\n", 7);
}

static void terminate_kills_who_will_not(void **state)
{
    struct exec_record r;
    struct sandbox_record s;
    int64_t before;

    assert_int_equal(rig_exec(rig.node, "entry", MON_EXEC_ENTRY,
                              "trap '' TERM; echo on; while :; do sleep 1; done", NULL, &r), 0);
    struct mon_read_r read;
    assert_int_equal(rig_read(rig.node, "entry", 1, 0, 5000, &read, space), 0);
    before = clock_boot_ms();
    assert_int_equal(terminate(300), 0);
    read_exit(&s);
    assert_true(clock_boot_ms() - before >= 300 && clock_boot_ms() - before < 1500);
    assert_int_equal(s.signal, SIGKILL);
    assert_int_equal(s.reason, END_TERMINATED);
}

static void waits_end_with_the_sandbox(void **state)
{
    struct exec_record r;
    uint8_t out[256];
    size_t n;

    assert_int_equal(rig_exec(rig.node, "e1", MON_EXEC_STDIN, "cat", NULL, &r), 0);
    struct mon_wait w = {.exec_id = "e1", .wait_ms = 60000};
    struct mon_read m = {.exec_id = "e1", .stream = 1, .max = 100, .wait_ms = 60000};
    uint32_t a = rig_send(rig.node, MON_WAIT, out, mon_wait_encode(&w, out, sizeof out));
    uint32_t b = rig_send(rig.node, MON_READ, out, mon_read_encode(&m, out, sizeof out));
    assert_int_equal(terminate(0), 0);
    assert_int_equal(rig_reply(rig.node, a, space, sizeof space, &n), MON_EXEC_R);
    assert_int_equal(rig_reply(rig.node, b, space, sizeof space, &n), MON_READ_R);
}

static uint32_t ask_lazily(const char *id, int stream, uint32_t wait_ms)
{
    struct mon_read m = {.stream = (uint8_t)stream, .max = LIMIT_READ_CHUNK, .wait_ms = wait_ms, .lazy = true};
    uint8_t out[256];

    (void)snprintf(m.exec_id, sizeof m.exec_id, "%s", id);
    return rig_send(rig.node, MON_READ, out, mon_read_encode(&m, out, sizeof out));
}

static void lazy_requests_are_answered_at_the_end(void **state)
{
    const struct mon_exec lazy = {.lazy = true};
    struct mon_read_r read;
    struct exec_record r;
    size_t n;

    uint32_t tag = rig_send_exec(rig.node, "e1", 0, "echo first; sleep 0.3; echo last", &lazy);
    uint32_t data = ask_lazily("e1", 1, 60000);
    assert_int_equal(rig_reply(rig.node, tag, space, sizeof space, &n), MON_EXEC_R);
    assert_int_equal(exec_record_decode(&r, space, n), 0);
    assert_int_equal(r.state, EXEC_EXITED);
    assert_int_equal(rig_reply(rig.node, data, space, sizeof space, &n), MON_READ_R);
    assert_int_equal(mon_read_r_decode(&read, space, n), 0);
    assert_true(read.eof);
    assert_int_equal(read.len, strlen("first\nlast\n"));
    assert_memory_equal(read.data, "first\nlast\n", read.len);
}

static void lazy_requests_wait_for_much_output_or_their_time(void **state)
{
    const struct mon_exec lazy = {.lazy = true}, small = {.lazy = true, .output_limit = 4096};
    struct mon_read_r read;
    struct exec_record r;
    size_t n;

    /* Much output comes while the exec runs, and the start before it. */
    uint32_t tag = rig_send_exec(rig.node, "e1", 0, "head -c 40000 /dev/zero; sleep 60", &lazy);
    uint32_t data = ask_lazily("e1", 1, 60000);
    assert_int_equal(rig_reply(rig.node, tag, space, sizeof space, &n), MON_EXEC_R);
    assert_int_equal(exec_record_decode(&r, space, n), 0);
    assert_int_equal(r.state, EXEC_RUNNING);
    assert_int_equal(rig_reply(rig.node, data, space, sizeof space, &n), MON_READ_R);

    /* Little output comes when the time is over. */
    (void)rig_send_exec(rig.node, "e2", 0, "echo hi; sleep 60", &lazy);
    assert_int_equal(rig_reply(rig.node, ask_lazily("e2", 1, 200), space, sizeof space, &n), MON_READ_R);
    assert_int_equal(mon_read_r_decode(&read, space, n), 0);

    /* Nobody who asks lazily makes an exec run into its own limit. */
    (void)rig_send_exec(rig.node, "e3", 0, "head -c 3000 /dev/zero; sleep 60", &small);
    assert_int_equal(rig_reply(rig.node, ask_lazily("e3", 1, 60000), space, sizeof space, &n), MON_READ_R);
    assert_int_equal(mon_read_r_decode(&read, space, n), 0);
    assert_int_equal(read.len, 3000);

    /* The end of the sandbox ends every wait. */
    data = ask_lazily("e2", 2, 60000);
    assert_int_equal(terminate(0), 0);
    assert_int_equal(rig_reply(rig.node, data, space, sizeof space, &n), MON_READ_R);
}

/* The answer to MON_NETWORK: its type, and the descriptors that came with it. */
static uint16_t ask_network(struct chan_msg *m)
{
    uint32_t tag = rig_send(rig.node, MON_NETWORK, NULL, 0);

    assert_int_equal(poll(&(struct pollfd){.fd = rig.node, .events = POLLIN}, 1, 20000), 1);
    assert_int_equal(chan_recv(rig.node, space, sizeof space, 0, m), 1);
    assert_int_equal(m->tag, tag);
    return m->type;
}

static void sockets_of_the_network_are_kept_and_end_with_the_sandbox(void **state)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct chan_msg m;

    assert_int_equal(bind(tcp, (struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(listen(tcp, 5), 0);
    rig_start(&rig, &(struct rig_options){.tcp = tcp, .udp = udp});
    assert_int_equal(ask_network(&m), MON_NETWORK_R);
    assert_int_equal(m.nfds, 4);
    struct stat ours, theirs;
    assert_int_equal(fstat(tcp, &ours), 0);
    assert_int_equal(fstat(m.fds[0], &theirs), 0);
    assert_int_equal(ours.st_ino, theirs.st_ino);
    assert_int_equal(fstat(udp, &ours), 0);
    assert_int_equal(fstat(m.fds[1], &theirs), 0);
    assert_int_equal(ours.st_ino, theirs.st_ino);
    chan_msg_done(&m);
    assert_int_equal(terminate(0), 0);
    assert_int_equal(rig_wait_exit(&rig, 10000), 0);
    /* Whoever has a copy is told. */
    assert_int_equal(accept(tcp, NULL, NULL), -1);
    assert_int_equal(errno, EINVAL);
    (void)close(tcp);
    (void)close(udp);
    rig_stop(&rig);
}

static void without_a_network_there_are_no_sockets(void **state)
{
    struct mon_error error;
    struct chan_msg m;

    rig_start(&rig, &(struct rig_options){0});
    assert_int_equal(ask_network(&m), MON_ERROR);
    assert_int_equal(m.nfds, 0);
    assert_int_equal(mon_error_decode(&error, m.data, m.len), 0);
    assert_int_equal(error.code, ERR_UNSUPPORTED);
    chan_msg_done(&m);
    rig_stop(&rig);
}

static void deadline_and_idle(void **state)
{
    struct exec_record r;
    struct sandbox_record s;
    int64_t before = clock_boot_ms();

    rig_start(&rig, &(struct rig_options){.deadline_ms = 400, .grace_ms = 0});
    assert_int_equal(rig_exec(rig.node, "entry", MON_EXEC_ENTRY, "sleep 60", NULL, &r), 0);
    fd_close(&rig.keeper);      /* nobody is left but the monitor */
    fd_close(&rig.node);
    read_exit(&s);
    assert_true(clock_boot_ms() - before >= 400 && clock_boot_ms() - before < 1200);
    assert_int_equal(s.reason, END_TIMEOUT);
    assert_string_equal(s.actor, "deadline");
    rig_stop(&rig);

    before = clock_boot_ms();
    rig_start(&rig, &(struct rig_options){.idle_ms = 300});
    assert_int_equal(rig_exec(rig.node, "entry", MON_EXEC_ENTRY, "sleep 60", NULL, &r), 0);
    assert_int_equal(rig_exec(rig.node, "e1", 0, "sleep 0.6", NULL, &r), 0);    /* busy that long */
    read_exit(&s);
    assert_true(clock_boot_ms() - before >= 900 && clock_boot_ms() - before < 2000);
    assert_int_equal(s.reason, END_IDLE_TIMEOUT);
    rig_stop(&rig);

    before = clock_boot_ms();
    rig_start(&rig, &(struct rig_options){.deadline_ms = 60000});
    struct mon_update u = {.set_deadline = true, .deadline_ms = clock_wall_ms() + 300};
    uint8_t out[128];
    assert_int_equal(rig_simple(rig.node, MON_UPDATE, out, mon_update_encode(&u, out, sizeof out)), 0);
    read_exit(&s);
    assert_true(clock_boot_ms() - before < 1200);
    assert_int_equal(s.reason, END_TIMEOUT);
    rig_stop(&rig);
}

static void the_entry_log_is_a_ring(void **state)
{
    struct exec_record r;
    struct sandbox_record s;
    struct mon_read_r read;

    rig_start(&rig, &(struct rig_options){.log_bytes = 1 << 20});
    assert_int_equal(rig_exec(rig.node, "entry", MON_EXEC_ENTRY,
                              "head -c 10000000 /dev/zero | tr '\\0' x; echo end; sleep 60", NULL, &r), 0);
    do
        assert_int_equal(rig_wait(rig.node, "entry", 20, &r), 0);
    while (r.out_total < 10000004);
    assert_int_equal(r.out_first, 10000004 - (1 << 20));
    assert_int_equal(rig_read(rig.node, "entry", 1, 0, 0, &read, space), 0);
    assert_int_equal(read.offset, r.out_first);
    assert_int_equal(rig_read(rig.node, "entry", 1, 9999999, 0, &read, space), 0);
    assert_memory_equal(read.data, "xend\n", 5);
    assert_int_equal(terminate(0), 0);
    read_exit(&s);
    struct stat st;
    assert_int_equal(fstatat(rig.run_dir, "1.out", &st, 0), 0);
    assert_int_equal(st.st_size, 10000004);
    assert_true(st.st_blocks * 512 < 4 << 20);
    rig_stop(&rig);
}

static void a_start_that_fails_is_told(void **state)
{
    struct sandbox_record s;
    struct exec_record r;

    rig_start(&rig, &(struct rig_options){.ready_error = 22, .ready_delay_ms = 100});
    /* Asked for before it was known. */
    assert_int_equal(rig_exec(rig.node, "entry", MON_EXEC_ENTRY, "true", NULL, &r), ERR_GONE);
    read_exit(&s);
    assert_int_equal(s.reason, END_CREATE_FAILED);
    assert_string_equal(s.message, "mount overlay: Invalid argument");
    rig_stop(&rig);

    rig_start(&rig, &(struct rig_options){.ready_delay_ms = 200});
    assert_int_equal(rig_status(rig.node, 0, &s), 0);
    assert_int_equal(s.state, SB_STARTING);
    assert_int_equal(rig_exec(rig.node, "e1", 0, "exit 0", NULL, &r), 0);
    assert_true(r.state >= EXEC_RUNNING);
    rig_stop(&rig);
}

static void init_is_not_trusted(void **state)
{
    struct sandbox_record s;
    struct exec_record r;

    rig_start(&rig, &(struct rig_options){.behaviour = "garbage"});
    read_exit(&s);
    assert_int_equal(s.reason, END_KILLED);
    assert_string_equal(s.message, "init broke the protocol");
    rig_stop(&rig);
    rig_start(&rig, &(struct rig_options){.behaviour = "leave"});
    read_exit(&s);
    assert_int_equal(s.reason, END_KILLED);
    rig_stop(&rig);
    rig_start(&rig, &(struct rig_options){.behaviour = "silent"});
    assert_int_equal(rig_exec(rig.node, "e1", 0, "sleep 60", NULL, &r), 0);
    struct mon_kill k = {.exec_id = "e1"};
    assert_int_equal(rig_simple(rig.node, MON_KILL, space, mon_kill_encode(&k, space, sizeof space)), 0);
    assert_int_equal(rig_wait(rig.node, "e1", 8000, &r), 0);    /* init never says that it is dead */
    assert_int_equal(r.state, EXEC_EXITED);
    assert_int_equal(r.reason, END_KILLED);
    rig_stop(&rig);
}

static void a_slot_ends_with_its_keeper(void **state)
{
    rig_start(&rig, &(struct rig_options){.no_configure = true});
    fd_close(&rig.keeper);
    int status = rig_wait_exit(&rig, 5000);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    rig_stop(&rig);
}

#define LIVE(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIVE(streams_and_codes_are_exact),
        LIVE(what_cannot_start_is_told),
        LIVE(an_exec_id_runs_once),
        LIVE(reads_follow_by_offset),
        LIVE(large_output_is_whole),
        LIVE(large_commands_arrive_whole),
        LIVE(nobody_reading_holds_nothing_back),
        LIVE(a_reader_frees_room),
        LIVE(a_background_child_does_not_hold_the_end),
        LIVE(stdin_is_taken_once),
        LIVE(stdin_waits_for_the_program),
        LIVE(a_newer_stdin_write_takes_over),
        LIVE(a_timeout_takes_the_tree),
        LIVE(only_its_own_tree_is_killed),
        LIVE(groups_are_used_again),
        LIVE(signals_and_kills),
        LIVE(a_terminal),
        LIVE(the_memory_limit_is_named),
        LIVE(lists_and_limits),
        LIVE(every_request_of_a_slow_peer_is_answered),
        LIVE(a_bad_peer_is_closed_alone),
        LIVE(the_entry_ends_the_sandbox),
        LIVE(terminate_gives_a_grace),
        LIVE(terminate_kills_who_will_not),
        LIVE(waits_end_with_the_sandbox),
        LIVE(lazy_requests_are_answered_at_the_end),
        LIVE(lazy_requests_wait_for_much_output_or_their_time),
        cmocka_unit_test(deadline_and_idle),
        cmocka_unit_test(the_entry_log_is_a_ring),
        cmocka_unit_test(a_start_that_fails_is_told),
        cmocka_unit_test(init_is_not_trusted),
        cmocka_unit_test(sockets_of_the_network_are_kept_and_end_with_the_sandbox),
        cmocka_unit_test(without_a_network_there_are_no_sockets),
        cmocka_unit_test(a_slot_ends_with_its_keeper),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
