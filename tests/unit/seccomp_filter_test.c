/*
 * seccomp_filter_test.c - compiled filters, run by an interpreter of the test: for both architectures, every number
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "keeper/filter.h"
#include "sys/seccomp_filter.h"

#define SIZE 4096
#define X32 0x40000000

static const uint32_t audit[] = {[SECCOMP_ARCH_X86_64] = AUDIT_ARCH_X86_64, [SECCOMP_ARCH_AARCH64] = AUDIT_ARCH_AARCH64};
static const uint32_t names[] = {[SECCOMP_ARCH_X86_64] = SCMP_ARCH_X86_64, [SECCOMP_ARCH_AARCH64] = SCMP_ARCH_AARCH64};

static struct sock_filter program[SIZE];
static int length;

/* The errno that the program answers, 0 = allowed. Fails the test if it runs out of the program or takes long. */
static int run(uint32_t arch, uint32_t nr, const uint64_t *args)
{
    struct seccomp_data data = {.nr = (int)nr, .arch = arch};
    uint32_t a = 0;
    int steps = 0;

    memcpy(data.args, args, sizeof data.args);
    for (int pc = 0;; pc++, steps++) {
        assert_in_range(pc, 0, length - 1);
        /* Each of them costs the kernel one run for each number there is, at every installation. */
        assert_in_range(steps, 0, 60);
        const struct sock_filter *i = &program[pc];
        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_in_range(i->k, 0, sizeof data - 4);
            memcpy(&a, (const char *)&data + i->k, sizeof a);
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            pc += a == i->k ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            pc += a >= i->k ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            pc += (a & i->k) != 0 ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JA:
            pc += (int)i->k;
            break;
        case BPF_RET | BPF_K:
            if (i->k == SECCOMP_RET_ALLOW)
                return 0;
            if (i->k == SECCOMP_RET_ERRNO)
                return SECCOMP_LEFT_OUT;
            assert_int_equal(i->k & SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ERRNO);
            return (int)(i->k & SECCOMP_RET_DATA);
        default:
            fail_msg("instruction %#x", i->code);
        }
    }
}

static int run_plain(enum seccomp_arch arch, uint32_t nr)
{
    return run(audit[arch], nr, (uint64_t[6]){0});
}

static int by_name(enum seccomp_arch arch, const char *name, uint64_t first)
{
    int nr = seccomp_syscall_resolve_name_arch(names[arch], name);

    if (nr < 0)
        return -1;
    return run(audit[arch], (uint32_t)nr, (uint64_t[6]){first});
}

static void tenant(enum seccomp_arch arch, bool nest)
{
    struct seccomp_filter *f = seccomp_filter_new(arch, ENOSYS);

    assert_int_equal(filter_tenant_rules(f, nest), 0);
    length = seccomp_filter_compile(f, program, SIZE);
    seccomp_filter_free(f);
    assert_in_range(length, 100, 1000);
}

/* A call that an architecture does not have (-1) needs no answer. */
static void expect(enum seccomp_arch arch, const char *name, uint64_t first, int error)
{
    int got = by_name(arch, name, first);

    if (got != -1 && got != error)
        fail_msg("%s(%#llx) on %#x: %d, not %d", name, (unsigned long long)first, names[arch], got, error);
}

/* Of the kernel's and the internet's protocols; bits above the lower half change nothing, because the kernel drops them. */
static void protocols(enum seccomp_arch arch, bool nest)
{
    uint32_t nr = (uint32_t)seccomp_syscall_resolve_name_arch(names[arch], "socket");

    for (uint64_t protocol = 0; protocol < 300; protocol++)
        for (uint64_t above = 0; above < 2; above++) {
            uint64_t p = protocol | above << 32;
            bool kernel = protocol == 0 || protocol == 4 || (nest && (protocol == 6 || protocol == 12 || protocol == 16));
            bool odd = protocol == 33 || protocol == 115 || protocol == 132 || protocol == 256 || protocol == 262;
            assert_int_equal(run(audit[arch], nr, (uint64_t[6]){AF_NETLINK, 3, p}), kernel ? 0 : EPROTONOSUPPORT);
            assert_int_equal(run(audit[arch], nr, (uint64_t[6]){AF_INET, 1, p}), odd ? EPROTONOSUPPORT : 0);
            assert_int_equal(run(audit[arch], nr, (uint64_t[6]){AF_INET6, 2, p}), odd ? EPROTONOSUPPORT : 0);
            assert_int_equal(run(audit[arch], nr, (uint64_t[6]){AF_UNIX, 1, p}), 0);
        }
}

static void terminals(enum seccomp_arch arch)
{
    static const uint64_t calls[] = {0x5401, 0x5411, 0x5413, 0x541b, 0x5422}, refused[] = {0x5412, 0x541c, 0x5423};
    uint32_t nr = (uint32_t)seccomp_syscall_resolve_name_arch(names[arch], "ioctl");

    for (size_t i = 0; i < array_len(calls); i++)
        assert_int_equal(run(audit[arch], nr, (uint64_t[6]){0, calls[i]}), 0);
    for (size_t i = 0; i < array_len(refused); i++)
        for (uint64_t above = 0; above < 2; above++)
            assert_int_equal(run(audit[arch], nr, (uint64_t[6]){0, refused[i] | above << 32 | above << 63}), EPERM);
}

static void tenants(void **state)
{
    static const char *const fine[] = {"read",    "openat", "execve",   "clone3",
                                       "futex",   "ptrace", "seccomp",  "wait4",
                                       "mq_open", "semget", "io_submit"};
    static const char *const refused[] = {
        "bpf",          "keyctl",         "add_key",           "request_key",     "init_module",
        "finit_module", "delete_module",  "kexec_load",        "kexec_file_load", "perf_event_open",
        "userfaultfd",  "io_uring_setup", "open_by_handle_at", "reboot",          "swapon",
        "acct",         "settimeofday",   "clock_settime",     "syslog",          "iopl",
        "quotactl",     "move_pages",
    };
    static const char *const mounts[] = {"mount", "umount2", "pivot_root", "fsopen", "move_mount", "mount_setattr", "setns"};
    static const uint64_t spaces[] = {CLONE_NEWNS,  CLONE_NEWUSER, CLONE_NEWPID,   CLONE_NEWNET,
                                      CLONE_NEWIPC, CLONE_NEWUTS,  CLONE_NEWCGROUP};

    for (enum seccomp_arch arch = SECCOMP_ARCH_X86_64; arch <= SECCOMP_ARCH_AARCH64; arch++)
        for (int nest = 0; nest < 2; nest++) {
            tenant(arch, nest);
            for (size_t i = 0; i < array_len(fine); i++)
                expect(arch, fine[i], 0, 0);
            for (size_t i = 0; i < array_len(refused); i++)
                expect(arch, refused[i], 0, EPERM);
            for (size_t i = 0; i < array_len(mounts); i++)
                expect(arch, mounts[i], 0, nest ? 0 : EPERM);
            for (size_t i = 0; i < array_len(spaces); i++) {
                expect(arch, "clone", spaces[i] | 17, nest ? 0 : EPERM);
                expect(arch, "unshare", spaces[i], nest ? 0 : EPERM);
            }
            expect(arch, "clone", 0x00010f00 | 0x80, 0);       /* a thread; 0x80 is no namespace in this call */
            expect(arch, "unshare", 0x80, nest ? 0 : EPERM);
            for (uint64_t family = 0; family < 60; family++) {
                bool ours = family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
                expect(arch, "socket", family, ours ? 0 : EAFNOSUPPORT);
                expect(arch, "socketpair", family, ours ? 0 : EAFNOSUPPORT);
                expect(arch, "socket", family | 1ULL << 32, EAFNOSUPPORT);
            }
            protocols(arch, nest);
            terminals(arch);
            expect(arch, "sync", 0, SECCOMP_LEFT_OUT);
            expect(arch, "syncfs", 0, 0);
            expect(arch, "fsync", 0, 0);
            expect(arch, "personality", 0x0040000, 0);
            expect(arch, "personality", 0x0400000, ENOSYS);     /* READ_IMPLIES_EXEC */
            expect(arch, "personality", 0xffffffff, 0);
            assert_int_equal(run_plain(arch, 9999), ENOSYS);
            assert_int_equal(run_plain(arch, 0xffffffff), ENOSYS);
            /* i386 and whatever else is not this architecture, and the x32 calls of x86-64 */
            for (uint32_t nr = 0; nr < 600; nr++) {
                assert_int_equal(run(AUDIT_ARCH_I386, nr, (uint64_t[6]){0}), ENOSYS);
                assert_int_equal(run(AUDIT_ARCH_ARM, nr, (uint64_t[6]){0}), ENOSYS);
                assert_int_equal(run_plain(arch, nr | X32), ENOSYS);
            }
        }
}

/* Every number of a filter with rules at random, against the rules. */
static void random_rules(void **state)
{
    static const uint64_t values[] = {0, 1, 2, 1ULL << 31, 1ULL << 32, 1ULL << 63, 3ULL << 31};
    uint32_t seed = 1;
#define RANDOM(n) ((seed = seed * 1664525 + 1013904223) >> 8) % (n)

    for (int round = 0; round < 60; round++) {
        int fallback = (int)RANDOM(3);
        enum seccomp_arch arch = SECCOMP_ARCH_X86_64 + RANDOM(2);
        struct seccomp_filter *f = seccomp_filter_new(arch, fallback);
        struct {
            int plain;
            int ntests;
            enum seccomp_test kind[2];
            uint64_t value[2];
            int error[2];
        } want[1024] = {0};

        for (int nr = 0; nr < 1024; nr++)
            want[nr].plain = fallback;
        for (int i = 0, rules = (int)RANDOM(400); i < rules; i++) {
            int nr = (int)RANDOM(460), error = (int)RANDOM(4);
            char *name = seccomp_syscall_resolve_num_arch(names[arch], nr);
            if (name == NULL)
                continue;
            if (RANDOM(8) > 0) {
                assert_int_equal(seccomp_filter_add(f, error, name), 0);
                want[nr].plain = error;
            } else if (want[nr].ntests < 2) {
                int t = want[nr].ntests;
                enum seccomp_test kind = RANDOM(3);
                uint64_t value = values[RANDOM(array_len(values))];
                if (seccomp_filter_add_if(f, error, name, 1, kind, value) == 0) {
                    want[nr].kind[t] = kind;
                    want[nr].value[t] = value;
                    want[nr].error[t] = error;
                    want[nr].ntests++;
                }
            }
            free(name);
        }
        length = seccomp_filter_compile(f, program, SIZE);
        assert_true(length > 0);
        assert_int_equal(seccomp_filter_compile(f, program, (size_t)length - 1), -E2BIG);
        assert_int_equal(seccomp_filter_compile(f, program, SIZE), length);
        for (uint32_t nr = 0; nr < 1024; nr++)
            for (size_t v = 0; v < array_len(values); v++) {
                int error = want[nr].plain;
                for (int t = want[nr].ntests - 1; t >= 0; t--)
                    if (want[nr].kind[t] == SECCOMP_EQ    ? values[v] == want[nr].value[t]
                        : want[nr].kind[t] == SECCOMP_INT ? (uint32_t)values[v] == (uint32_t)want[nr].value[t]
                                                          : (values[v] & want[nr].value[t]) != 0)
                        error = want[nr].error[t];
                assert_int_equal(run(audit[arch], nr, (uint64_t[6]){7, values[v]}), error);
            }
        assert_int_equal(run_plain(arch, 5 | X32), ENOSYS);
        seccomp_filter_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tenants), cmocka_unit_test(random_rules)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
