/*
 * ipc_test.c - the internal messages: round trips, truncation, damage; the channel's refusals
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "ipc/channel.h"
#include "ipc/exec_spec.h"
#include "ipc/image_proto.h"
#include "ipc/init_proto.h"
#include "ipc/keeper_proto.h"
#include "ipc/monitor_proto.h"
#include "ipc/record.h"
#include "ipc/wire.h"
#include "sys/fd.h"

#define LAYER "012345678901234567890123456789012345678901234567890123456789abc"
#define BYTES (const uint8_t *)"a\0b\xff"

/* Each codec: a filled sample, and decode followed by encode as the check of every field. */
#define CODEC(name, ...)                                                            \
    static size_t sample_##name(uint8_t *out, size_t size)                          \
    {                                                                               \
        struct name m = {__VA_ARGS__};                                              \
        return name##_encode(&m, out, size);                                        \
    }                                                                               \
    static size_t recode_##name(const uint8_t *p, size_t n, uint8_t *out, size_t size) \
    {                                                                               \
        struct name m;                                                              \
        if (name##_decode(&m, p, n) < 0)                                            \
            return 0;                                                               \
        return name##_encode(&m, out, size);                                        \
    }

CODEC(init_setup, "sb-1", "host", 3, 1 << 20, true, false, true, {1, 2})
CODEC(init_ready, 2, "mount overlay")
CODEC(init_exec, 7, INIT_EXEC_TTY | INIT_EXEC_CGROUP, BYTES, 4)
CODEC(init_started, 7, 12, 2, "exec")
CODEC(init_exited, 7, -1, 9, 1, 2, 3, "python3")
CODEC(init_signal, 7, 15, INIT_SIG_GROUP)
CODEC(init_cpus, {3, 0, 255})
CODEC(init_oom, 7)
CODEC(init_oom_r, 7, true, 12, 3, "python3")
CODEC(image_unpack, 1, 2)
CODEC(image_progress, 3, 4)
CODEC(image_done, 1, "bad entry", "abc", 5, 6, "a/b", 1)
CODEC(image_list, "abc", 86400)
CODEC(image_fold, .max_bytes = 1, .max_files = 2, .nexclude = 2, .exclude = {"proc", "a/b"},
      .only = "a", .nstubs = 1, .stubs = {"a"})
CODEC(image_copy, .keep_owner = true, .keep_ignored = true, .extract = true, .replace = true,
      .mode = 0640, .owner = "a:b", .dest = "/x", .nsource = 2, .nbase = 1,
      .source = {LAYER "0", LAYER "1"}, .base = {LAYER "2"}, .nitems = 1, .items = {"*.c"},
      .ntexts = 1, .texts = {{"EOF", "text", 4}}, .max_bytes = 3, .max_files = 4)
CODEC(keeper_create, "sb-1", "host", 2, {"aa", "bb"}, "im-1", {1000, 100, 1ULL << 40, 1 << 20, 64, 7}, 5, -6, 7, 8, 9,
      10, 2, 3)
CODEC(keeper_destroy, "sb-1")
CODEC(keeper_tree, "sb-1")
CODEC(keeper_limits, "sb-1", {1, 2, 3, 4, 5, 6})
CODEC(keeper_layer, "aa")
CODEC(keeper_stats, 1, 2, 3, 4, 5, 6)
CODEC(keeper_configure, "sb-1", "host", 1000, 2, 3, 4, -5, 6, 7, 8, 9, 1, {255, 0, 1}, 3)
CODEC(mon_exec, "e1", "", MON_EXEC_TTY, 1000, 50, 1 << 20, 40, 132, true, BYTES, 4)
CODEC(mon_ref, "e1", "c")
CODEC(mon_read, "e1", "", 2, 1ULL << 33, 100, 5, true, true)
CODEC(mon_read_r, 5, 9, true, true, BYTES, 4, 7)
CODEC(mon_stdin, "e1", "", 8, true, BYTES, 4)
CODEC(mon_stdin_r, 12, true)
CODEC(mon_wait, "e1", "", 5)
CODEC(mon_list, 5)
CODEC(mon_dial, "", 8080)
CODEC(mon_signal, "e1", "", 15, INIT_SIG_ALL)
CODEC(mon_resize, "e1", "", 24, 80)
CODEC(mon_kill, "e1", "", END_KILLED)
CODEC(mon_terminate, END_TERMINATED, "tok", 15, 5000)
CODEC(mon_status, 5)
CODEC(mon_update, true, -1, true, 9, true, {255, 0, 1})
CODEC(mon_error, 3, 2, "argv", "no such thing")
CODEC(exec_record, 3, "e1", "", MON_EXEC_TTY, EXEC_EXITED, 12, 1, 2, 3, END_OOM_LIMIT, -1, 9, 2, "cwd",
      "python3", 44, 4, 5, 6, 7, 8, 9, 10, true, true, 11, true, "sh -c true")
CODEC(sandbox_record, "sb-1", SB_ENDED, 12, 1, 2, 3, 4, 5, 6, "exec", 7, END_TIMEOUT, -1, 15, "deadline",
      "text", 8, 9, 10, 11, 12)

static const struct codec {
    const char *name;
    size_t (*sample)(uint8_t *out, size_t size);
    size_t (*recode)(const uint8_t *p, size_t n, uint8_t *out, size_t size);
} codecs[] = {
#define ROW(name) {#name, sample_##name, recode_##name}
    ROW(init_setup),     ROW(init_ready),       ROW(init_exec),      ROW(init_started),
    ROW(init_exited),    ROW(init_signal),      ROW(init_cpus),      ROW(init_oom),
    ROW(init_oom_r),     ROW(image_unpack),     ROW(image_progress), ROW(image_done),
    ROW(image_list),     ROW(image_fold),       ROW(image_copy),     ROW(keeper_create),
    ROW(keeper_destroy), ROW(keeper_tree),      ROW(keeper_limits),  ROW(keeper_layer),
    ROW(keeper_stats),   ROW(keeper_configure), ROW(mon_exec),       ROW(mon_ref),
    ROW(mon_read),       ROW(mon_read_r),       ROW(mon_stdin),      ROW(mon_stdin_r),
    ROW(mon_wait),       ROW(mon_list),         ROW(mon_signal),     ROW(mon_resize),
    ROW(mon_kill),       ROW(mon_terminate),    ROW(mon_status),     ROW(mon_update),
    ROW(mon_dial),       ROW(mon_error),        ROW(exec_record),    ROW(sandbox_record),
#undef ROW
};

/* Decodes a heap copy of the exact size, so that a read past the end is seen. */
static size_t recode_exact(const struct codec *c, const uint8_t *p, size_t n, uint8_t *out, size_t size)
{
    auto_free uint8_t *copy = mem_alloc(n > 0 ? n : 1);

    memcpy(copy, p, n);
    return c->recode(copy, n, out, size);
}

static void round_trips(void **state)
{
    uint8_t a[8192];
    uint8_t b[8192];

    for (size_t i = 0; i < array_len(codecs); i++) {
        size_t n = codecs[i].sample(a, sizeof a);
        print_message("# %s %zu bytes\n", codecs[i].name, n);
        assert_true(n > 0);
        assert_int_equal(recode_exact(&codecs[i], a, n, b, sizeof b), n);
        assert_memory_equal(a, b, n);
        for (size_t room = 0; room < n; room++)
            assert_int_equal(codecs[i].sample(b, room), 0);
    }
}

static void prefixes_and_trailing_bytes_fail(void **state)
{
    uint8_t a[8192];
    uint8_t b[8192];

    for (size_t i = 0; i < array_len(codecs); i++) {
        size_t n = codecs[i].sample(a, sizeof a);
        for (size_t cut = 0; cut < n; cut++)
            assert_int_equal(recode_exact(&codecs[i], a, cut, b, sizeof b), 0);
        a[n] = 0;
        assert_int_equal(recode_exact(&codecs[i], a, n + 1, b, sizeof b), 0);
    }
}

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Whatever decodes must encode again to the same bytes: no field is lost, none is made up. */
static void damage_is_refused_or_faithful(void **state)
{
    uint64_t seed = 0x9e3779b97f4a7c15;
    uint8_t a[8192];
    uint8_t b[8192];

    for (size_t i = 0; i < array_len(codecs); i++) {
        for (int round = 0; round < 2000; round++) {
            size_t n = codecs[i].sample(a, sizeof a);
            if (round % 2 == 0) {
                a[next_random(&seed) % n] = (uint8_t)next_random(&seed);
            } else {
                n = next_random(&seed) % 128;
                for (size_t k = 0; k < n; k++)
                    a[k] = (uint8_t)(next_random(&seed) >> (next_random(&seed) % 64));
            }
            size_t m = recode_exact(&codecs[i], a, n, b, sizeof b);
            if (m > 0) {
                assert_int_equal(m, n);
                assert_memory_equal(a, b, n);
            }
        }
    }
}

static void reply_leaves_its_payload(void **state)
{
    struct keeper_reply m = {5, -2, "field", "text"};
    struct keeper_reply got;
    uint8_t a[512];
    size_t used = 0;

    size_t n = keeper_reply_encode(&m, a, sizeof a);
    assert_int_equal(keeper_reply_decode(&got, a, n + 100, &used), 0);
    assert_int_equal(used, n);
    assert_string_equal(got.message, "text");
    assert_int_equal(got.sys_errno, -2);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(keeper_reply_decode(&got, a, cut, &used), -EBADMSG);
}

static void strings_refuse_nul_and_overlong(void **state)
{
    uint8_t a[64];
    char out[4];
    struct wire_writer w;
    struct wire_reader r;

    wire_init(&w, a, sizeof a);
    wire_put_bytes(&w, "a\0b", 3);
    wire_read(&r, a, w.len);
    wire_get_str(&r, out, sizeof out);
    assert_false(wire_end(&r));
    assert_string_equal(out, "");

    wire_init(&w, a, sizeof a);
    wire_put_str(&w, "abcd");
    wire_read(&r, a, w.len);
    wire_get_str(&r, out, sizeof out);
    assert_false(wire_end(&r));

    a[0] = 2;
    wire_read(&r, a, 1);
    assert_false(wire_get_bool(&r));
    assert_false(wire_end(&r));
}

static const char *const spec_argv[] = {"printf", "%s\\0", "a\nb", "", "-n", NULL};
static const char *const spec_env[] = {"A=l1\nl2\n", "B==x=", "C=", NULL};

static struct exec_spec sample_spec(void)
{
    return (struct exec_spec){
        .argc = 5, .argv = (const char **)(uintptr_t)spec_argv,
        .envc = 3, .envp = (const char **)(uintptr_t)spec_env,
        .cwd = "/tmp", .user = "nobody:nogroup", .umask = 022, .nice = 5, .nofile = 1024, .make_cwd = true,
    };
}

static void spec_round_trip(void **state)
{
    struct exec_spec s = sample_spec();
    struct exec_spec got;
    const char *arrays[32];
    char text[16];
    uint8_t a[1024];
    uint8_t b[1024];
    size_t n = 0;

    assert_int_equal(exec_spec_encode(&s, a, sizeof a, &n), 0);
    exec_spec_summary(a, n, text, sizeof text);
    assert_string_equal(text, "printf %s\\0 a\nb");
    for (size_t cut = 0; cut < n; cut++) {
        auto_free uint8_t *copy = mem_dup(a, cut > 0 ? cut : 1);
        assert_int_equal(exec_spec_decode(&got, copy, cut, arrays, 32), -EBADMSG);
    }
    memcpy(b, a, n + 1);
    assert_int_equal(exec_spec_decode(&got, b, n + 1, arrays, 32), -EBADMSG);
    memcpy(b, a, n);
    assert_int_equal(exec_spec_decode(&got, b, n, arrays, 9), -E2BIG);
    memcpy(b, a, n);
    assert_int_equal(exec_spec_decode(&got, b, n, arrays, 10), 0);
    for (uint32_t i = 0; i < got.argc; i++)
        assert_string_equal(got.argv[i], spec_argv[i]);
    assert_null(got.argv[5]);
    for (uint32_t i = 0; i < got.envc; i++)
        assert_string_equal(got.envp[i], spec_env[i]);
    assert_null(got.envp[3]);
    assert_string_equal(got.cwd, "/tmp");
    assert_string_equal(got.user, "nobody:nogroup");
    assert_int_equal(got.umask, 022);
    assert_int_equal(got.nofile, 1024);
    assert_true(got.make_cwd);
    assert_false(got.helper);
}

static void spec_limits(void **state)
{
    struct exec_spec s = sample_spec();
    struct exec_spec got;
    const char *bad_env[] = {"=x", NULL};
    const char *arrays[32];
    size_t n = 0;
    size_t size = LIMIT_CHANNEL_MESSAGE;
    auto_free uint8_t *a = mem_alloc(size);
    auto_free char *big = mem_zalloc(LIMIT_ARGV_BYTES + 1);

    s.envc = 1;
    s.envp = bad_env;
    assert_int_equal(exec_spec_encode(&s, a, size, &n), 0);
    assert_int_equal(exec_spec_decode(&got, a, n, arrays, 32), -EBADMSG);

    const char *argv[] = {big, NULL};
    s = sample_spec();
    s.argc = 1;
    s.argv = argv;
    memset(big, 'x', LIMIT_ARGV_BYTES - 1);
    assert_int_equal(exec_spec_encode(&s, a, size, &n), 0);
    assert_int_equal(exec_spec_decode(&got, a, n, arrays, 32), 0);
    memset(big, 'x', LIMIT_ARGV_BYTES);
    assert_int_equal(exec_spec_encode(&s, a, size, &n), 0);
    assert_int_equal(exec_spec_decode(&got, a, n, arrays, 32), -E2BIG);

    s = sample_spec();
    s.argc = 0;
    assert_int_equal(exec_spec_encode(&s, a, size, &n), 0);
    assert_int_equal(exec_spec_decode(&got, a, n, arrays, 32), -EBADMSG);
}

static void channel_carries_messages_and_descriptors(void **state)
{
    uint8_t space[LIMIT_CHANNEL_INLINE];
    struct chan_msg m;
    int pair[2];
    int pipefd[2];
    char c = 0;

    assert_int_equal(chan_pair(pair), 0);
    assert_int_equal(pipe(pipefd), 0);
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), -EAGAIN);
    assert_int_equal(chan_send(pair[0], 5, 77, "hello", 5, &pipefd[1], 1), 0);
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), 1);
    assert_int_equal(m.type, 5);
    assert_int_equal(m.tag, 77);
    assert_int_equal(m.version, CHAN_VERSION);
    assert_int_equal(m.len, 5);
    assert_memory_equal(m.data, "hello", 5);
    assert_int_equal(m.nfds, 1);
    assert_int_equal(write(m.fds[0], "x", 1), 1);
    assert_int_equal(read(pipefd[0], &c, 1), 1);
    chan_msg_done(&m);

    int many[LIMIT_CHANNEL_FDS];
    for (int i = 0; i < LIMIT_CHANNEL_FDS; i++)
        many[i] = pipefd[0];
    assert_int_equal(chan_send(pair[0], 5, 0, NULL, 0, many, LIMIT_CHANNEL_FDS), 0);
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), 1);
    assert_int_equal(m.nfds, LIMIT_CHANNEL_FDS);
    chan_msg_done(&m);
    assert_int_equal(chan_send(pair[0], 5, 0, NULL, 0, many, LIMIT_CHANNEL_FDS + 1), -EINVAL);

    fd_close(&pair[0]);
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), 0);
    fd_close(&pair[1]);
    fd_close(&pipefd[0]);
    fd_close(&pipefd[1]);
}

static void large_messages_travel_sealed(void **state)
{
    uint8_t space[LIMIT_CHANNEL_INLINE];
    auto_free uint8_t *big = mem_alloc(LIMIT_CHANNEL_MESSAGE + 1);
    struct chan_msg m;
    int pair[2];

    memset(big, 'b', LIMIT_CHANNEL_MESSAGE + 1);
    assert_int_equal(chan_pair(pair), 0);
    const size_t sizes[] = {LIMIT_CHANNEL_INLINE - CHAN_HEADER, LIMIT_CHANNEL_INLINE - CHAN_HEADER + 1,
                            LIMIT_CHANNEL_MESSAGE};
    for (size_t i = 0; i < array_len(sizes); i++) {
        assert_int_equal(chan_send(pair[0], 1, 0, big, sizes[i], &pair[0], 1), 0);
        assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), 1);
        assert_int_equal(m.len, sizes[i]);
        assert_memory_equal(m.data, big, sizes[i]);
        assert_int_equal(m.nfds, 1);
        assert_int_equal(m.map_ != NULL, i > 0);
        chan_msg_done(&m);
    }
    assert_int_equal(chan_send(pair[0], 1, 0, big, LIMIT_CHANNEL_MESSAGE + 1, NULL, 0), -EMSGSIZE);
    assert_int_equal(chan_send(pair[0], 1, 0, big, sizes[1], NULL, 0), 0);
    assert_int_equal(chan_recv(pair[1], space, sizeof space, CHAN_NO_FDS, &m), -EBADMSG);
    fd_close(&pair[0]);
    fd_close(&pair[1]);
}

/* A packet as a hostile peer would write it. */
static void send_raw(int fd, uint16_t type, uint32_t len, size_t body, const int *fds, int nfds)
{
    uint8_t packet[64] = {0};
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 4)];
        struct cmsghdr align;
    } control = {{0}};
    struct wire_writer w;

    wire_init(&w, packet, sizeof packet);
    wire_put_u16(&w, type);
    wire_put_u16(&w, CHAN_VERSION);
    wire_put_u32(&w, 0);
    wire_put_u32(&w, len);
    struct iovec iov = {packet, w.len + body};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds > 0) {
        mh.msg_control = control.bytes;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
    }
    assert_true(sendmsg(fd, &mh, 0) > 0);
}

static int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            n++;
    return n;
}

static void hostile_packets_are_refused(void **state)
{
    uint8_t space[LIMIT_CHANNEL_INLINE];
    struct chan_msg m;
    int pair[2];

    assert_int_equal(chan_pair(pair), 0);
    int unsealed = memfd_create("t", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, 100), 0);
    int before = count_fds();

    send_raw(pair[0], 0x8001, 100, 0, &unsealed, 1);       /* no seals */
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), -EBADMSG);
    assert_int_equal(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
    send_raw(pair[0], 0x8001, 99, 0, &unsealed, 1);        /* wrong size */
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), -EBADMSG);
    send_raw(pair[0], 0x8001, 100, 3, &unsealed, 1);       /* bytes beside the memfd */
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), -EBADMSG);
    send_raw(pair[0], 0x8001, 100, 0, NULL, 0);            /* no descriptor */
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), -EBADMSG);
    send_raw(pair[0], 0x8001, 100, 0, &unsealed, 1);       /* right, but not from a sandbox */
    assert_int_equal(chan_recv(pair[1], space, sizeof space, CHAN_NO_FDS, &m), -EBADMSG);
    send_raw(pair[0], 1, 4, 3, NULL, 0);                   /* length beyond the packet */
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), -EBADMSG);
    send_raw(pair[0], 1, 2, 3, NULL, 0);                   /* trailing byte */
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), -EBADMSG);
    assert_int_equal(send(pair[0], "short", 5, 0), 5);
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), -EBADMSG);
    send_raw(pair[0], 1, 3, 3, NULL, 0);                   /* longer than the space */
    assert_int_equal(chan_recv(pair[1], space, 14, 0, &m), -EBADMSG);
    send_raw(pair[0], 1, 3, 3, &unsealed, 1);              /* descriptors are dropped by the kernel */
    assert_int_equal(chan_recv(pair[1], space, sizeof space, CHAN_NO_FDS, &m), 1);
    assert_int_equal(m.nfds, 0);
    chan_msg_done(&m);
    assert_int_equal(count_fds(), before);

    send_raw(pair[0], 0x8001, 100, 0, &unsealed, 1);
    assert_int_equal(chan_recv(pair[1], space, sizeof space, 0, &m), 1);
    chan_msg_done(&m);
    assert_int_equal(count_fds(), before);
    fd_close(&unsealed);
    fd_close(&pair[0]);
    fd_close(&pair[1]);
}

static void sockets_have_the_mode_from_the_start(void **state)
{
    char path[64];
    struct stat st;
    uint32_t uid = 1;
    int32_t pid = 0;
    int listener = -1;
    int client = -1;

    (void)snprintf(path, sizeof path, "/tmp/ipc-test-%d.sock", (int)getpid());
    for (int i = 0; i < 2; i++) {           /* the second time over a stale socket */
        assert_int_equal(chan_listen(path, 0660, &listener), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0660);
        if (i == 0)
            fd_close(&listener);
    }
    assert_int_equal(chan_connect(path, &client), 0);
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    assert_int_equal(chan_peer(peer, &uid, &pid), 0);
    assert_int_equal(uid, geteuid());
    assert_int_equal(pid, getpid());
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(chan_connect(longer, &client), -ENAMETOOLONG);
    fd_close(&peer);
    fd_close(&client);
    fd_close(&listener);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(prefixes_and_trailing_bytes_fail),
        cmocka_unit_test(damage_is_refused_or_faithful),
        cmocka_unit_test(reply_leaves_its_payload),
        cmocka_unit_test(strings_refuse_nul_and_overlong),
        cmocka_unit_test(spec_round_trip),
        cmocka_unit_test(spec_limits),
        cmocka_unit_test(channel_carries_messages_and_descriptors),
        cmocka_unit_test(large_messages_travel_sealed),
        cmocka_unit_test(hostile_packets_are_refused),
        cmocka_unit_test(sockets_have_the_mode_from_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
