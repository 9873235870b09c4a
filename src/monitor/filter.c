/*
 * filter.c - the system calls of a configured monitor
 *
 * Others answer ENOSYS: what an attacker could reach for is not there, and a path of libc that asks for
 * something new costs an error rather than the sandbox. Only the numbers are compared for the calls of
 * the exec path, so that the kernel answers them from its bitmap of always-allowed calls.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>

#include "monitor/monitor.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call numbers for this architecture"
#endif

static const int allowed[] = {
    /* messages of init, the keeper and the node, with descriptors; new connections of the node */
    SYS_recvmsg, SYS_sendmsg, SYS_recvfrom, SYS_accept4, SYS_getsockopt, SYS_memfd_create, SYS_munmap,
    /* a port inside, for a tunnel */
    SYS_connect,
    /* the network's sockets, when it goes */
    SYS_shutdown,
    /* the event loop and its clock */
    SYS_epoll_pwait, SYS_epoll_ctl, SYS_clock_gettime, SYS_rt_sigreturn, SYS_restart_syscall,
    /* pipes and their bytes; the spool; files of the run directory and of control groups */
    SYS_read, SYS_write, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_close, SYS_pipe2, SYS_fcntl,
    SYS_openat, SYS_unlinkat, SYS_mkdirat, SYS_fchmodat, SYS_renameat2, SYS_fallocate, SYS_ftruncate,
    SYS_fstat,
    /* to open a terminal as root of the sandbox */
    SYS_setfsuid, SYS_getuid, SYS_geteuid,
    /* pages of buffers are given back; the end of init, and its own */
    SYS_madvise, SYS_waitid, SYS_getpid, SYS_exit, SYS_exit_group,
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
#ifdef SYS_newfstatat
    SYS_newfstatat,
#endif
};

static const unsigned long ioctls[] = {TIOCSPTLCK, TIOCGPTPEER, TIOCSWINSZ};

#define ALLOWED (sizeof allowed / sizeof allowed[0])
#define IOCTLS (sizeof ioctls / sizeof ioctls[0])

static struct sock_filter program[4 + 2 * ALLOWED + 2 * IOCTLS + 20];
static unsigned short length;

static void add(uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    program[length++] = (struct sock_filter){code, jt, jf, k};
}

static void load(size_t offset)
{
    add(BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void allow_if_equal(uint32_t k)
{
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, k);
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

/* The low half of an argument: both architectures are little-endian. */
static size_t argument(int n)
{
    return offsetof(struct seccomp_data, args) + (size_t)n * sizeof(uint64_t);
}

static void build(void)
{
    load(offsetof(struct seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    load(offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < ALLOWED; i++)
        allow_if_equal((uint32_t)allowed[i]);

    /* Payloads are mapped to be read; nothing is ever mapped to be executed. */
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (uint32_t)SYS_mmap);
    load(argument(2));
    add(BPF_JMP | BPF_JSET | BPF_K, 1, 0, PROT_EXEC);
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM);

    /* To dial servers inside: of the two internet families alone, so connect reaches no other either. */
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 6, (uint32_t)SYS_socket);
    load(argument(0));
    allow_if_equal(AF_INET);
    allow_if_equal(AF_INET6);
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EAFNOSUPPORT);

    add(BPF_JMP | BPF_JEQ | BPF_K, 0, (uint8_t)(1 + 2 * IOCTLS), (uint32_t)SYS_ioctl);
    load(argument(1));
    for (size_t i = 0; i < IOCTLS; i++)
        allow_if_equal((uint32_t)ioctls[i]);
    add(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);
}

int filter_install(void)
{
    struct sock_fprog prog = {.filter = program};

    build();
    prog.len = length;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0 ? -errno : 0;
}
