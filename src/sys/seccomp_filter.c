/*
 * seccomp_filter.c - compiling a syscall filter
 */
#include "sys/seccomp_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "sys/fd.h"

#define NUMBERS 1024            /* more than any kernel has calls */
#define TESTS 64
#define PROGRAM_MAX 2048
#define X32_BIT 0x40000000u     /* on x86-64; as numbers of a call they lie above all others everywhere */
#define UNSAID -1

struct test {
    int number;
    unsigned arg;
    enum seccomp_test kind;
    uint64_t value;
    int error;
    bool has_second;                /* a second argument must pass SECCOMP_INT too; the first is of that kind */
    unsigned arg2;
    uint32_t value2;
};

struct seccomp_filter {
    uint32_t audit_arch, names;     /* as the kernel and as libseccomp call the architecture */
    int default_errno;
    int16_t plain[NUMBERS];         /* errno, 0 = allow, UNSAID */
    bool tested[NUMBERS];
    struct test tests[TESTS];
    size_t ntests;
};

/* Numbers from `first` to the next range's: one answer, or one call with tests. */
struct range {
    uint32_t first;
    int error;
    int tested;                     /* its number, or UNSAID */
};

struct program {
    struct sock_filter *out;
    size_t n, size;                 /* n > size: it does not fit */
};

struct seccomp_filter *seccomp_filter_new(enum seccomp_arch arch, int default_errno)
{
    struct seccomp_filter *f = mem_zalloc(sizeof *f);

#if defined(__x86_64__)
    bool x86 = arch != SECCOMP_ARCH_AARCH64;
#elif defined(__aarch64__)
    bool x86 = arch == SECCOMP_ARCH_X86_64;
#else
#error "no system call filter for this architecture"
#endif
    f->audit_arch = x86 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_AARCH64;
    f->names = x86 ? SCMP_ARCH_X86_64 : SCMP_ARCH_AARCH64;
    f->default_errno = default_errno;
    for (size_t i = 0; i < NUMBERS; i++)
        f->plain[i] = UNSAID;
    return f;
}

void seccomp_filter_free(struct seccomp_filter *f)
{
    free(f);
}

/* The number, UNSAID if the architecture has no such call. */
static int resolve(const struct seccomp_filter *f, const char *name)
{
    int nr = seccomp_syscall_resolve_name_arch(f->names, name);

    return nr < 0 ? UNSAID : nr;
}

int seccomp_filter_add(struct seccomp_filter *f, int error, const char *name)
{
    int nr = resolve(f, name);

    if (nr >= NUMBERS)
        return -ERANGE;
    if (nr >= 0)
        f->plain[nr] = (int16_t)error;
    return 0;
}

int seccomp_filter_add_if(struct seccomp_filter *f, int error, const char *name, unsigned arg,
                          enum seccomp_test test, uint64_t value)
{
    int nr = resolve(f, name);

    if (nr == UNSAID)
        return 0;
    if (nr >= NUMBERS || f->ntests == TESTS)
        return -ERANGE;
    f->tested[nr] = true;
    f->tests[f->ntests++] = (struct test){.number = nr, .arg = arg, .kind = test, .value = value, .error = error};
    return 0;
}

int seccomp_filter_add_if_both(struct seccomp_filter *f, int error, const char *name, unsigned arg, uint32_t value,
                               unsigned arg2, uint32_t value2)
{
    size_t before = f->ntests;
    int r = seccomp_filter_add_if(f, error, name, arg, SECCOMP_INT, value);

    if (r < 0 || f->ntests == before)
        return r;
    f->tests[before].has_second = true;
    f->tests[before].arg2 = arg2;
    f->tests[before].value2 = value2;
    return 0;
}

static void emit(struct program *p, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    if (p->n < p->size)
        p->out[p->n] = (struct sock_filter){code, jt, jf, k};
    p->n++;
}

static void emit_answer(struct program *p, int error)
{
    uint32_t answer = error == 0                  ? SECCOMP_RET_ALLOW
                      : error == SECCOMP_LEFT_OUT ? SECCOMP_RET_ERRNO
                                                  : SECCOMP_RET_ERRNO | (uint32_t)error;

    emit(p, BPF_RET | BPF_K, 0, 0, answer);
}

/* Half of an argument: both architectures are little-endian. */
static void emit_load_half(struct program *p, unsigned arg, unsigned half)
{
    emit(p, BPF_LD | BPF_W | BPF_ABS, 0, 0,
         (uint32_t)(offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t) + half * sizeof(uint32_t)));
}

static void emit_test(struct program *p, const struct test *t)
{
    uint32_t low = (uint32_t)t->value, high = (uint32_t)(t->value >> 32);

    emit_load_half(p, t->arg, 0);
    if (t->kind == SECCOMP_ANY) {
        emit(p, BPF_JMP | BPF_JSET | BPF_K, 2, 0, low);
        emit_load_half(p, t->arg, 1);
        emit(p, BPF_JMP | BPF_JSET | BPF_K, 0, 1, high);
    } else if (t->kind == SECCOMP_INT) {
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, t->has_second ? 3 : 1, low);
        if (t->has_second) {
            emit_load_half(p, t->arg2, 0);
            emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, t->value2);
        }
    } else {
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 3, low);
        emit_load_half(p, t->arg, 1);
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, high);
    }
    emit_answer(p, t->error);
}

static int plain_answer(const struct seccomp_filter *f, int nr)
{
    return f->plain[nr] == UNSAID ? f->default_errno : f->plain[nr];
}

static void emit_leaf(const struct seccomp_filter *f, struct program *p, const struct range *r)
{
    if (r->tested == UNSAID) {
        emit_answer(p, r->error);
        return;
    }
    for (size_t i = 0; i < f->ntests; i++)
        if (f->tests[i].number == r->tested)
            emit_test(p, &f->tests[i]);
    emit_answer(p, plain_answer(f, r->tested));
}

/* The number is in the accumulator and within r[0] .. r[n - 1]; every way through ends with an answer. */
static void emit_search(const struct seccomp_filter *f, struct program *p, const struct range *r, size_t n)
{
    if (n == 1) {
        emit_leaf(f, p, r);
        return;
    }
    size_t half = n / 2;
    struct program measured = {.n = 0};
    emit_search(f, &measured, r, half);
    /* The lower half follows, so the upper one begins where it ends; a conditional jump reaches 255 only. */
    if (measured.n <= UINT8_MAX) {
        emit(p, BPF_JMP | BPF_JGE | BPF_K, (uint8_t)measured.n, 0, r[half].first);
    } else {
        emit(p, BPF_JMP | BPF_JGE | BPF_K, 0, 1, r[half].first);
        emit(p, BPF_JMP | BPF_JA, 0, 0, (uint32_t)measured.n);
    }
    emit_search(f, p, r, half);
    emit_search(f, p, r + half, n - half);
}

static size_t make_ranges(const struct seccomp_filter *f, struct range *out)
{
    size_t n = 0;

    for (int nr = 0; nr < NUMBERS; nr++) {
        struct range r = {.first = (uint32_t)nr, .error = plain_answer(f, nr), .tested = f->tested[nr] ? nr : UNSAID};
        if (n > 0 && r.tested == UNSAID && out[n - 1].tested == UNSAID && out[n - 1].error == r.error)
            continue;
        out[n++] = r;
    }
    /* Were the default to let x32 calls through, every rule could be evaded by that bit. */
    out[n++] = (struct range){.first = X32_BIT, .error = ENOSYS, .tested = UNSAID};
    return n;
}

int seccomp_filter_compile(const struct seccomp_filter *f, struct sock_filter *out, size_t size)
{
    static struct range ranges[NUMBERS + 1];
    struct program p = {.out = out, .size = size};

    emit(&p, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
    emit(&p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, f->audit_arch);
    emit_answer(&p, ENOSYS);
    emit(&p, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
    emit_search(f, &p, ranges, make_ranges(f, ranges));
    return p.n <= p.size ? (int)p.n : -E2BIG;
}

int seccomp_filter_load(const struct seccomp_filter *f)
{
    static struct sock_filter program[PROGRAM_MAX];
    int n = seccomp_filter_compile(f, program, PROGRAM_MAX);

    if (n < 0)
        return n;
    struct sock_fprog fprog = {.len = (unsigned short)n, .filter = program};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) < 0 ? -errno : 0;
}

int seccomp_filter_export(const struct seccomp_filter *f)
{
    static struct sock_filter program[PROGRAM_MAX];
    int n = seccomp_filter_compile(f, program, PROGRAM_MAX);

    if (n < 0)
        return n;
    auto_close int fd = memfd_create("filter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, (const char *)program, (size_t)n * sizeof program[0]);
    if (r < 0)
        return r;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0 ||
        lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    return take_fd(&fd);
}
