/*
 * spawn.c - start one command
 *
 * Called by exec.c. The child shares our memory (vfork), so that neither page tables nor pages are
 * copied, and runs on a stack of its own until it executes; we are suspended meanwhile. So it makes
 * raw system calls only, writes nothing but its report and its stack, and never returns.
 */
#include "init/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/kernel.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define OOM_SCORE "500"
#define STACK_SIZE (48 * 1024)

/* <linux/sched.h> does not live beside <sched.h>, so what we need of it stands here. */
#define K_CLONE_VM 0x00000100u
#define K_CLONE_VFORK 0x00004000u
#define K_CLONE_INTO_CGROUP 0x200000000ull

struct k_clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    uint64_t set_tid, set_tid_size, cgroup;
};

static _Alignas(16) unsigned char stack[STACK_SIZE];

/*
 * Makes a clone system call whose child gets a new stack, and calls fn(arg) there. It must be one
 * piece of assembly: the child may not return through frames that lie on our stack.
 */
#if defined(__x86_64__)
static long clone_call(long number, uintptr_t a, uintptr_t b, void (*fn)(void *), void *arg)
{
    register uintptr_t r10 __asm__("r10") = 0;
    register uintptr_t r8 __asm__("r8") = 0;
    register void (*r12)(void *) __asm__("r12") = fn;
    register void *r13 __asm__("r13") = arg;
    long ret = number;
    uintptr_t zero = 0;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r13, %%rdi\n\t"
                     "call *%%r12\n\t"
                     "hlt\n"
                     "1:"
                     : "+a"(ret)
                     : "D"(a), "S"(b), "d"(zero), "r"(r10), "r"(r8), "r"(r12), "r"(r13)
                     : "rcx", "r11", "memory", "cc");
    return ret;
}
#elif defined(__aarch64__)
static long clone_call(long number, uintptr_t a, uintptr_t b, void (*fn)(void *), void *arg)
{
    register uintptr_t x0 __asm__("x0") = a;
    register uintptr_t x1 __asm__("x1") = b;
    register uintptr_t x2 __asm__("x2") = 0;
    register uintptr_t x3 __asm__("x3") = 0;
    register uintptr_t x4 __asm__("x4") = 0;
    register long x8 __asm__("x8") = number;
    register void (*x19)(void *) __asm__("x19") = fn;
    register void *x20 __asm__("x20") = arg;

    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, x20\n\t"
                     "blr x19\n\t"
                     "brk #1\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x8), "r"(x19), "r"(x20)
                     : "memory", "cc");
    return (long)x0;
}
#else
#error "clone_call is not written for this architecture"
#endif

static __attribute__((noreturn)) void child_fail(struct spawn *s, const char *step, int error)
{
    s->error = error;
    s->step = step;
    for (;;)
        (void)syscall(SYS_exit_group, 127);
}

static void child_cwd_make(struct spawn *s, const char *cwd)
{
    char path[LIMIT_PATH];
    size_t n = strlen(cwd);

    if (n >= sizeof path)
        child_fail(s, "cwd", ENAMETOOLONG);
    memcpy(path, cwd, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        char was = path[i];
        path[i] = '\0';
        /* EEXIST is what we want, EROFS and the like matter only if the directory is not there. */
        if (mkdir(path, 0755) < 0 && errno != EEXIST && access(path, F_OK) < 0)
            child_fail(s, "cwd", errno);
        path[i] = was;
    }
}

static void child_cwd(struct spawn *s)
{
    const char *cwd = s->spec->cwd;

    if (cwd[0] == '\0') {
        /* Nobody asked for the home directory by name, so a missing one is no error. */
        if (s->user->home[0] != '/' || chdir(s->user->home) < 0)
            (void)chdir("/");
        return;
    }
    if (cwd[0] != '/')
        child_fail(s, "cwd", EINVAL);
    if (chdir(cwd) < 0)
        child_fail(s, "cwd", errno);
}

static void child_stdio(struct spawn *s)
{
    /* None of the sources is below 3 (slot.c fills those), so no dup2 overwrites a later source. */
    for (int fd = 0; fd < 3; fd++)
        if (dup2(s->stdio[fd], fd) < 0)
            child_fail(s, "stdio", errno);
    if (!s->tty)
        return;
    if (ioctl(0, TIOCSCTTY, 0) < 0)
        child_fail(s, "terminal", errno);
    /* A terminal made by another owner than ours stays as it is: its mode decides then. */
    (void)fchown(0, s->user->uid, (gid_t)-1);
}

/* Commands go before init, and under memory pressure of the host before anything of its own. */
static void child_oom(struct spawn *s)
{
    int fd = openat(s->proc, "self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, OOM_SCORE, sizeof OOM_SCORE - 1) < 0)
        child_fail(s, "oom score", errno);
    (void)close(fd);
}

static void child_limits(struct spawn *s)
{
    struct rlimit lim;

    (void)umask((mode_t)s->spec->umask);
    if (s->spec->nice != 0 && setpriority(PRIO_PROCESS, 0, s->spec->nice) < 0)
        child_fail(s, "nice", errno);
    if (s->spec->nofile == 0)
        return;
    if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
        child_fail(s, "nofile", errno);
    /* Lowered only; the host's own ceiling stands. */
    if (s->spec->nofile < lim.rlim_max)
        lim.rlim_max = s->spec->nofile;
    lim.rlim_cur = lim.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
        child_fail(s, "nofile", errno);
}

/* Raw calls: libc's wrappers would look for other threads in the memory that we share. */
static void child_user(struct spawn *s)
{
    const struct user *u = s->user;

    if (syscall(SYS_setgroups, u->ngroups, u->groups) < 0 ||
        syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 ||
        syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
        child_fail(s, "user", errno);
}

static const char *env_get(const char **envp, const char *name)
{
    size_t n = strlen(name);

    for (; *envp != NULL; envp++)
        if (strncmp(*envp, name, n) == 0 && (*envp)[n] == '=')
            return *envp + n + 1;
    return NULL;
}

static __attribute__((noreturn)) void child_exec_failed(struct spawn *s, const char *path, int error)
{
    /* The file is there: then what is missing is its interpreter or loader. */
    if (error == ENOENT && access(path, F_OK) == 0)
        child_fail(s, "interpreter", error);
    child_fail(s, "exec", error);
}

static __attribute__((noreturn)) void child_exec(struct spawn *s)
{
    char path[LIMIT_PATH + 256];
    char *const *argv = (char *const *)s->spec->argv;
    char *const *envp = (char *const *)s->envp;
    const char *file = argv[0];
    size_t file_len = strlen(file);
    int error = ENOENT;

    if (s->spec->helper) {
        (void)syscall(SYS_execveat, s->self, "", argv, envp, AT_EMPTY_PATH);
        child_fail(s, "exec", errno);
    }
    if (strchr(file, '/') != NULL) {
        (void)execve(file, argv, envp);
        child_exec_failed(s, file, errno);
    }
    if (file_len == 0 || file_len > 255)
        child_fail(s, "exec", file_len == 0 ? ENOENT : ENAMETOOLONG);
    const char *dirs = env_get(s->envp, "PATH");
    if (dirs == NULL)
        dirs = DEFAULT_PATH;
    for (;;) {
        size_t n = strcspn(dirs, ":");
        if (n < LIMIT_PATH) {
            memcpy(path, dirs, n);
            if (n > 0)
                path[n] = '/';
            memcpy(path + n + (n > 0), file, file_len + 1);
            (void)execve(path, argv, envp);
            if (errno == EACCES)
                error = EACCES;
            else if (errno == ENOENT && access(path, F_OK) == 0)
                child_fail(s, "interpreter", ENOENT);
            else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV &&
                     errno != ETIMEDOUT)
                child_fail(s, "exec", errno);
        }
        if (dirs[n] == '\0')
            child_fail(s, "exec", error);
        dirs += n + 1;
    }
}

static void child_main(void *arg)
{
    struct spawn *s = arg;
    sigset_t none;

    (void)setsid();                     /* cannot fail: a fresh child leads no group */
    child_stdio(s);
    if (s->spec->make_cwd && s->spec->cwd[0] == '/')
        child_cwd_make(s, s->spec->cwd);
    child_oom(s);
    child_limits(s);
    child_user(s);
    child_cwd(s);
    if (k_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        child_fail(s, "descriptors", errno);
    sigemptyset(&none);
    /* libc's wrapper would keep its own signals; nothing else differs. */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    child_exec(s);
}

/* Where clone3 is filtered away, the child moves itself; staying in init's group is the last resort. */
static void child_main_moving(void *arg)
{
    struct spawn *s = arg;

    if (s->cgroup >= 0) {
        int fd = openat(s->cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
            (void)!write(fd, "0", 1);
            (void)close(fd);
        }
    }
    child_main(arg);
}

static long start(struct spawn *s)
{
    static struct k_clone_args args;

    args = (struct k_clone_args){
        .flags = K_CLONE_VM | K_CLONE_VFORK,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)stack,
        .stack_size = sizeof stack,
    };
    if (s->cgroup >= 0) {
        args.flags |= K_CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)s->cgroup;
        long r = clone_call(SYS_clone3, (uintptr_t)&args, sizeof args, child_main, s);
        /* No more tasks or memory: the same would happen again. */
        if (r > 0 || r == -EAGAIN || r == -ENOMEM)
            return r;
        args.flags &= ~K_CLONE_INTO_CGROUP;
        args.cgroup = 0;
        if (r != -ENOSYS)
            return clone_call(SYS_clone3, (uintptr_t)&args, sizeof args, child_main, s);
    }
    return clone_call(SYS_clone, K_CLONE_VM | K_CLONE_VFORK | SIGCHLD,
                      (uintptr_t)(stack + sizeof stack), child_main_moving, s);
}

pid_t spawn_run(struct spawn *s)
{
    s->error = 0;
    s->step = "";
    long pid = start(s);
    if (pid < 0) {
        s->error = (int)-pid;
        s->step = "fork";
        return -1;
    }
    if (s->error != 0) {
        /* It has released our memory, so it is dead or about to be. */
        while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return -1;
    }
    return (pid_t)pid;
}
