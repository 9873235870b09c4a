/*
 * seccomp_role.c - the syscall filter of a daemon role
 */
#include "sys/seccomp_role.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <termios.h>

#include "base/mem.h"

#ifdef __SANITIZE_ADDRESS__
/* Read by the sanitizer at start: the leak check at exit needs ptrace, which no filter grants; freed memory is held back
 * only a little, so that tests can tell what a role itself keeps. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0:abort_on_error=1:quarantine_size_mb=16";
}
#endif

#define CALL(name) SCMP_SYS(name)

static const int base_calls[] = {
    /* memory */
    CALL(brk), CALL(mmap), CALL(munmap), CALL(mremap), CALL(mprotect), CALL(madvise),
    /* end of the program, its own signals, abort() */
    CALL(exit), CALL(exit_group), CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn),
    CALL(rt_sigtimedwait), CALL(sigaltstack), CALL(restart_syscall), CALL(tgkill),
    /* the C library */
    CALL(futex), CALL(set_robust_list), CALL(set_tid_address), CALL(rseq), CALL(arch_prctl),
    CALL(getrandom), CALL(uname), CALL(sysinfo), CALL(sched_yield), CALL(sched_getaffinity),
    CALL(getcpu), CALL(membarrier), CALL(prlimit64), CALL(getrlimit), CALL(getrusage),
    /* clocks */
    CALL(clock_gettime), CALL(clock_getres), CALL(clock_nanosleep), CALL(gettimeofday), CALL(time),
    CALL(nanosleep),
    /* who am I */
    CALL(getpid), CALL(gettid), CALL(getppid), CALL(getuid), CALL(geteuid), CALL(getgid),
    CALL(getegid), CALL(getgroups), CALL(getresuid), CALL(getresgid),
};

static const int io_calls[] = {
    /* on descriptors that are open already */
    CALL(read), CALL(write), CALL(readv), CALL(writev), CALL(pread64), CALL(pwrite64),
    CALL(preadv), CALL(pwritev), CALL(preadv2), CALL(pwritev2), CALL(lseek), CALL(close),
    CALL(close_range), CALL(dup), CALL(dup2), CALL(dup3), CALL(fcntl), CALL(fstat),
    /* event loop */
    CALL(epoll_create), CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_wait), CALL(epoll_pwait),
    CALL(epoll_pwait2), CALL(poll), CALL(ppoll), CALL(select), CALL(pselect6), CALL(eventfd2),
    CALL(timerfd_create), CALL(timerfd_settime), CALL(timerfd_gettime), CALL(signalfd4),
    CALL(pipe), CALL(pipe2),
};

/* On sockets; which families can be made is below, so that none reaches netlink, packets or another machine's host. */
static const int socket_calls[] = {
    CALL(bind), CALL(listen), CALL(accept), CALL(accept4), CALL(connect), CALL(shutdown),
    CALL(sendmsg), CALL(recvmsg), CALL(sendmmsg), CALL(recvmmsg), CALL(sendto), CALL(recvfrom),
    CALL(getsockname), CALL(getpeername), CALL(getsockopt), CALL(setsockopt),
};

/* Paths that file permissions and the role's own file tree let it see: configuration, certificates, its database. */
static const int read_file_calls[] = {
    CALL(open), CALL(openat), CALL(openat2), CALL(stat), CALL(lstat), CALL(newfstatat), CALL(statx),
    CALL(access), CALL(faccessat), CALL(faccessat2), CALL(readlink), CALL(readlinkat),
    CALL(getdents64), CALL(statfs), CALL(fstatfs), CALL(getcwd), CALL(fadvise64), CALL(flock),
};

/* The role's directory: databases truncate, rename and sync; new files get their mode. */
static const int write_file_calls[] = {
    CALL(mkdir), CALL(mkdirat), CALL(unlink), CALL(unlinkat), CALL(rmdir), CALL(rename),
    CALL(renameat), CALL(renameat2), CALL(truncate), CALL(ftruncate), CALL(fallocate), CALL(fsync),
    CALL(fdatasync), CALL(sync_file_range), CALL(chmod), CALL(fchmod), CALL(fchmodat), CALL(umask),
    CALL(utimensat),
};

/* Messages that are longer than a packet travel as sealed memory. */
static const int memfd_calls[] = {CALL(memfd_create), CALL(ftruncate)};

/* Bytes from one descriptor to another without a copy in between. */
static const int splice_calls[] = {CALL(splice)};

/* A child for each job, its limits, its end. kill and the pidfd calls reach its own user's processes alone. */
static const int child_calls[] = {
    CALL(fork), CALL(vfork), CALL(wait4), CALL(waitid), CALL(kill), CALL(pidfd_open),
    CALL(pidfd_send_signal), CALL(setpgid), CALL(setsid), CALL(setrlimit),
};

/* No role has it today: a program of the host would bring calls that nobody has looked at. */
static const int exec_calls[] = {CALL(execve), CALL(execveat)};

/* What an archive can hold, made below one directory: owners, links, nodes (whose making the kernel refuses to a less privileged
 * namespace), attributes, times. */
static const int tree_calls[] = {
    CALL(chown), CALL(fchown), CALL(lchown), CALL(fchownat), CALL(link), CALL(linkat),
    CALL(symlink), CALL(symlinkat), CALL(mknod), CALL(mknodat), CALL(setxattr), CALL(lsetxattr),
    CALL(fsetxattr), CALL(getxattr), CALL(lgetxattr), CALL(fgetxattr), CALL(listxattr),
    CALL(llistxattr), CALL(flistxattr), CALL(removexattr), CALL(lremovexattr), CALL(fremovexattr),
    CALL(fchdir), CALL(chdir), CALL(utimes), CALL(futimesat), CALL(utime), CALL(syncfs),
};

static const int narrow_calls[] = {
    CALL(seccomp), CALL(landlock_create_ruleset), CALL(landlock_add_rule), CALL(landlock_restrict_self), CALL(capset),
};

static const struct {
    unsigned groups;            /* any of them */
    const int *calls;
    size_t n;
} plain[] = {
    {SECCOMP_BASE, base_calls, array_len(base_calls)},
    {SECCOMP_IO, io_calls, array_len(io_calls)},
    {SECCOMP_UNIX | SECCOMP_INET, socket_calls, array_len(socket_calls)},
    {SECCOMP_READ_FILES, read_file_calls, array_len(read_file_calls)},
    {SECCOMP_WRITE_FILES, write_file_calls, array_len(write_file_calls)},
    {SECCOMP_MEMFD, memfd_calls, array_len(memfd_calls)},
    {SECCOMP_SPLICE, splice_calls, array_len(splice_calls)},
    {SECCOMP_CHILDREN, child_calls, array_len(child_calls)},
    {SECCOMP_EXEC, exec_calls, array_len(exec_calls)},
    {SECCOMP_TREE, tree_calls, array_len(tree_calls)},
    {SECCOMP_NARROW, narrow_calls, array_len(narrow_calls)},
};

/* Calls that are allowed for certain values of one argument alone. */
static const struct {
    unsigned group;
    int call;
    unsigned arg;
    uint64_t mask;              /* the argument under this mask ... */
    uint64_t value;             /* ... is this */
} narrow[] = {
    /* libc's fstat, which a payload's size is read with */
    {SECCOMP_MEMFD, CALL(newfstatat), 3, ~0ULL, AT_EMPTY_PATH},
    {SECCOMP_UNIX, CALL(socket), 0, ~0ULL, AF_UNIX},
    {SECCOMP_UNIX, CALL(socketpair), 0, ~0ULL, AF_UNIX},
    {SECCOMP_INET, CALL(socket), 0, ~0ULL, AF_INET},
    {SECCOMP_INET, CALL(socket), 0, ~0ULL, AF_INET6},
    {SECCOMP_IO, CALL(ioctl), 1, 0xffffffff, FIONREAD},
    {SECCOMP_IO, CALL(ioctl), 1, 0xffffffff, FIONBIO},
    {SECCOMP_IO, CALL(ioctl), 1, 0xffffffff, TCGETS},       /* isatty */
    {SECCOMP_BASE, CALL(prctl), 0, 0xffffffff, PR_SET_NAME},
    {SECCOMP_BASE, CALL(prctl), 0, 0xffffffff, PR_GET_DUMPABLE},
    {SECCOMP_BASE, CALL(prctl), 0, 0xffffffff, PR_SET_VMA},  /* names of mappings: sanitizers */
    {SECCOMP_NARROW, CALL(prctl), 0, 0xffffffff, PR_SET_NO_NEW_PRIVS},
    {SECCOMP_NARROW, CALL(prctl), 0, 0xffffffff, PR_SET_SECCOMP},
    {SECCOMP_THREADS, CALL(clone), 0, CLONE_THREAD, CLONE_THREAD},
    {SECCOMP_CHILDREN, CALL(clone), 0,
     CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
         CLONE_NEWNET, 0},
};

static int add_rules(scmp_filter_ctx ctx, unsigned groups)
{
    int r;

    for (size_t g = 0; g < array_len(plain); g++)
        for (size_t i = 0; (plain[g].groups & groups) != 0 && i < plain[g].n; i++)
            if ((r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, plain[g].calls[i], 0)) < 0)
                return r;
    for (size_t i = 0; i < array_len(narrow); i++)
        if ((narrow[i].group & groups) != 0) {
            r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, narrow[i].call, 1,
                                 SCMP_CMP(narrow[i].arg, SCMP_CMP_MASKED_EQ, narrow[i].mask,
                                          narrow[i].value));
            if (r < 0)
                return r;
        }
    return 0;
}

int seccomp_role_install(unsigned groups, struct err *e)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    int r;

    /* Nobody of the same user may look into it, or find its memory in a core file. */
    (void)prctl(PR_SET_DUMPABLE, 0);

    if (ctx == NULL)
        return err_sys(e, ENOMEM, "make the syscall filter");
    (void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);   /* a tree; a list works as well */
    r = add_rules(ctx, groups);
    if (r == 0)
        r = seccomp_load(ctx);
    seccomp_release(ctx);
    if (r < 0)
        return err_sys(e, -r, "install the syscall filter");
    return 0;
}
