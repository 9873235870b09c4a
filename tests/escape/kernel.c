/*
 * kernel.c - the kernel itself: keys, programs, tracing, modules, other kernels, clocks, power
 *
 * Where trying it in the control would harm the machine, the arguments are such that a kernel that lets the call through
 * refuses them; `reach` names that errno.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "escape.h"

static int add_key(const struct ctx *c)
{
    return outcome(syscall(SYS_add_key, "user", c->token, "x", 1, -3 /* the session's */));
}

static int request_key(const struct ctx *c)
{
    if (c->is_control && add_key(c) < 0)
        return -ENOTSUP;
    return outcome(syscall(SYS_request_key, "user", c->token, NULL, 0));
}

static int key_session(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_keyctl, 0 /* GET_KEYRING_ID */, -3, 1));
}

static int key_persistent(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_keyctl, 22 /* GET_PERSISTENT */, -1, -3));
}

static int key_join(const struct ctx *c)
{
    return outcome(syscall(SYS_keyctl, 1 /* JOIN_SESSION_KEYRING */, c->token));
}

struct bpf_map {
    uint32_t type, key_size, value_size, max_entries;
    char rest[112];
};

static int bpf_map(const struct ctx *c)
{
    struct bpf_map m = {2 /* array */, 4, 4, 1, {0}};

    (void)c;
    return outcome(syscall(SYS_bpf, 0, &m, sizeof m));
}

struct insn {
    uint8_t code, regs;
    int16_t off;
    int32_t imm;
};

static int bpf_program(const struct ctx *c)
{
    static const struct insn code[] = {{0xb7, 0, 0, 0}, {0x95, 0, 0, 0}};
    static const char license[] = "GPL";
    struct {
        uint32_t type, count;
        uint64_t insns, license;
        char rest[120];
    } a = {1 /* socket filter */, 2, (uintptr_t)code, (uintptr_t)license, {0}};

    (void)c;
    return outcome(syscall(SYS_bpf, 5, &a, sizeof a));
}

static int bpf_next(const struct ctx *c)
{
    uint32_t a[32] = {0};
    int r = outcome(syscall(SYS_bpf, 11 /* PROG_GET_NEXT_ID */, a, sizeof a));

    (void)c;
    return r == -ENOENT ? 0 : r;        /* the kernel answered: there is none */
}

static int userfault(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_userfaultfd, O_CLOEXEC));
}

static int ring_setup(const struct ctx *c)
{
    static unsigned char params[256];

    (void)c;
    return outcome(syscall(425, 2, params));
}

static int ring_enter(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(426, -1, 0, 0, 0, NULL, 0));
}

static int ring_register(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(427, -1, 0, NULL, 0));
}

static int perf(const struct ctx *c)
{
    struct {
        uint32_t type, size;
        uint64_t config;
        char rest[112];
    } a = {1 /* software */, 128, 0 /* cpu clock */, {0}};

    (void)c;
    return outcome(syscall(SYS_perf_event_open, &a, 0, -1, -1, 0));
}

static int module_init(const struct ctx *c)
{
    static char nothing[64];

    (void)c;
    return outcome(syscall(SYS_init_module, nothing, sizeof nothing, ""));
}

static int module_file(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_finit_module, -1, "", 0));
}

static int module_remove(const struct ctx *c)
{
    return outcome(syscall(SYS_delete_module, c->token, O_NONBLOCK));
}

static int kexec(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_kexec_load, 0, 1, NULL, 0xffff));
}

static int kexec_file(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0));
}

static int log_size(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_syslog, 10, NULL, 0));
}

static int log_read(const struct ctx *c)
{
    static char text[4096];

    (void)c;
    return outcome(syscall(SYS_syslog, 3, text, sizeof text));
}

static int log_level(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_syslog, 8, NULL, 99));
}

/* Where the clock would have to be moved, a time that no kernel takes is given. */
static int clock_set(const struct ctx *c)
{
    struct timespec t = {0, 2000000000};

    (void)c;
    return outcome(syscall(SYS_clock_settime, CLOCK_REALTIME, &t));
}

static int clock_old(const struct ctx *c)
{
    struct timeval t = {0, 2000000};

    (void)c;
    return outcome(syscall(SYS_settimeofday, &t, NULL));
}

/* The estimate of the error, to what it is. */
static int clock_tune(const struct ctx *c)
{
    struct timex t = {0};

    (void)c;
    if (c->is_control && adjtimex(&t) < 0)
        return -ENOTSUP;
    t.modes = ADJ_ESTERROR;
    return outcome(syscall(SYS_adjtimex, &t));
}

static int clock_tune_named(const struct ctx *c)
{
    struct timex t = {0};

    if (c->is_control && adjtimex(&t) < 0)
        return -ENOTSUP;
    t.modes = ADJ_ESTERROR;
    return outcome(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &t));
}

/* Ends the PID namespace that it is called in. */
static int power(const struct ctx *c)
{
    (void)c;
    int r = outcome(syscall(SYS_reboot, 0xfee1dead, 672274793, 0x01234567, NULL));

    if (r == 0)
        (void)pause();
    return r;
}

static int swap_on(const struct ctx *c)
{
    return outcome(syscall(SYS_swapon, scratch_path(c, "none"), 0));
}

static int swap_off(const struct ctx *c)
{
    return outcome(syscall(SYS_swapoff, scratch_path(c, "none")));
}

static int accounting(const struct ctx *c)
{
    return outcome(syscall(SYS_acct, scratch_path(c, "none")));
}

#if defined(__x86_64__)
static int ports(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_iopl, 3));
}

static int port(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_ioperm, 0x80, 1, 1));
}

static int segments(const struct ctx *c)
{
    static char table[64];

    (void)c;
    return outcome(syscall(SYS_modify_ldt, 0, table, sizeof table));
}

/* The calls of 32-bit programs, which no filter of 64-bit numbers would see. */
static int foreign(const struct ctx *c)
{
    long r;

    (void)c;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    return r < 0 ? (int)r : 0;
}
#else
static int ports(const struct ctx *c)
{
    (void)c;
    return -EPERM;
}
#define port ports
#define segments ports
#define foreign ports
#endif

static int hang_up(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_vhangup));
}

static int move_pages(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_move_pages, 0, 0, NULL, NULL, NULL, 0));
}

static int migrate_pages(const struct ctx *c)
{
    unsigned long node = 1;

    (void)c;
    return outcome(syscall(SYS_migrate_pages, 0, 64, &node, &node));
}

static int watch_all(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_fanotify_init, 4 /* CLASS_CONTENT */, O_RDONLY));
}

static int watch_mount(const struct ctx *c)
{
    int fd = (int)syscall(SYS_fanotify_init, 0x200 /* REPORT_FID */, O_RDONLY);

    (void)c;
    return fd < 0 ? -errno : outcome(syscall(SYS_fanotify_mark, fd, 1 | 0x10, 0x20ull, AT_FDCWD, "/tmp"));
}

static int secret_memory(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(447, 0));
}


static int quota_fd(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(443, -1, 0, 0, NULL));
}

const struct attempt kernel_table[] = {
    {"kernel-add-key", "put a key on a keyring", "EPERM", NULL, add_key, 0},
    {"kernel-request-key", "ask for a key", "EPERM", NULL, request_key, 0},
    {"kernel-session-keyring", "reach the session's keyring", "EPERM", NULL, key_session, 0},
    {"kernel-persistent-keyring", "reach the keyring of a uid", "EPERM", "EOPNOTSUPP", key_persistent, 0},
    {"kernel-join-keyring", "join a keyring by its name", "EPERM", NULL, key_join, 0},
    {"kernel-bpf-map", "make a BPF map", "EPERM", NULL, bpf_map, 0},
    {"kernel-bpf-program", "load a BPF program", "EPERM", NULL, bpf_program, 0},
    {"kernel-bpf-list", "list the host's BPF programs", "EPERM", NULL, bpf_next, 0},
    {"kernel-userfaultfd", "hold the kernel up at a page fault", "EPERM", NULL, userfault, 0},
    {"kernel-io-uring", "set an io_uring up", "EPERM", NULL, ring_setup, 0},
    {"kernel-io-uring-enter", "enter an io_uring", "EPERM", "EBADF", ring_enter, 0},
    {"kernel-io-uring-register", "register with an io_uring", "EPERM", "EBADF|EINVAL", ring_register, 0},
    {"kernel-perf", "open a performance counter", "EPERM", NULL, perf, 0},
    {"kernel-init-module", "load a module", "EPERM", "ENOSYS|ENOEXEC|EFAULT", module_init, 0},
    {"kernel-finit-module", "load a module from a file", "EPERM", "ENOSYS|EBADF", module_file, 0},
    {"kernel-delete-module", "remove a module", "EPERM", "ENOSYS|ENOENT", module_remove, 0},
    {"kernel-kexec", "load another kernel", "EPERM", "ENOSYS|EINVAL", kexec, 0},
    {"kernel-kexec-file", "load another kernel from a file", "EPERM", "ENOSYS|EBADF|EINVAL", kexec_file, 0},
    {"kernel-log-size", "ask for the size of the kernel's log", "EPERM", NULL, log_size, 0},
    {"kernel-log-read", "read the kernel's log", "EPERM", NULL, log_read, 0},
    {"kernel-log-level", "change what the kernel prints", "EPERM", "EINVAL", log_level, 0},
    {"kernel-clock-set", "set the clock", "EPERM", "EINVAL", clock_set, 0},
    {"kernel-clock-set-old", "set the clock (settimeofday)", "EPERM", "EINVAL", clock_old, 0},
    {"kernel-clock-tune", "tune the clock (adjtimex)", "EPERM", NULL, clock_tune, 0},
    {"kernel-clock-tune-named", "tune a clock (clock_adjtime)", "EPERM", NULL, clock_tune_named, 0},
    {"kernel-reboot", "reboot", "EPERM", NULL, power, ENDS_NAMESPACE},
    {"kernel-swapon", "add swap space", "EPERM", "ENOENT|ENOSYS", swap_on, 0},
    {"kernel-swapoff", "remove swap space", "EPERM", "ENOENT|ENOSYS", swap_off, 0},
    {"kernel-acct", "switch process accounting on", "EPERM", "ENOENT|ENOSYS", accounting, 0},
    {"kernel-iopl", "reach all I/O ports", "EPERM", "ENOSYS", ports, NEEDS_X86},
    {"kernel-ioperm", "reach one I/O port", "EPERM", "ENOSYS", port, NEEDS_X86},
    {"kernel-ldt", "change the segment table", "ENOSYS", "absent:ENOSYS", segments, NEEDS_X86},
    {"kernel-32-bit-call", "call the kernel the 32-bit way", "ENOSYS", "SIG11", foreign, NEEDS_X86},
    {"kernel-vhangup", "hang the terminal up", "EPERM", NULL, hang_up, 0},
    {"kernel-move-pages", "move pages between memory nodes", "EPERM", "ENOSYS", move_pages, 0},
    {"kernel-migrate-pages", "move a process between memory nodes", "EPERM", "ENOSYS|EINVAL|ENODEV", migrate_pages, 0},
    {"kernel-fanotify-content", "stand between others and their files (fanotify)", "EPERM", NULL, watch_all, 0},
    {"kernel-fanotify-mount", "watch a whole mount (fanotify)", "EPERM", NULL, watch_mount, 0},
    {"kernel-secret-memory", "hide memory from the kernel (memfd_secret)", "ENOSYS", "absent:ENOSYS", secret_memory, 0},
    {"kernel-quota-fd", "set quotas by a descriptor", "EPERM", "EBADF|ENOSYS", quota_fd, 0},
    TABLE_END,
};
