/*
 * faults.c - lets the n-th call of a daemon fail: a library that tests preload into quicksandd
 *
 * Used by tests/system/test_keeper_faults.py. Wraps the calls of libc by which the keeper, the spawner and the builders of
 * slots reach the kernel and get memory. The test and all those processes share one page, the file named by QS_FAULTS: the
 * test arms it, the n-th counted call from then on fails with the given errno and writes its name there. What the builders
 * execute (monitors, inits, roles) is started without the environment and so without this.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { WHO_ANY, WHO_KEEPER, WHO_OTHERS };
enum { KIND_CALLS, KIND_MEMORY };

struct page {
    _Atomic int32_t armed;      /* counting; cleared by the call that fails */
    int32_t who, kind, error;
    int64_t nth;                /* 1 = the next */
    _Atomic int64_t count;
    char hit[64];
};

static struct page *page;
static pid_t keeper;

__attribute__((constructor)) static void start(void)
{
    const char *name = getenv("QS_FAULTS");
    int fd = name != NULL ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

    if (fd >= 0)
        (void)close(fd);
    keeper = getpid();
    if (p != MAP_FAILED)
        page = p;
}

/* A signal handler's view of it: no locks, no memory. */
static int fails(const char *call, int kind)
{
    if (page == NULL || !atomic_load(&page->armed) || page->kind != kind)
        return 0;
    pid_t self = (pid_t)syscall(SYS_getpid);
    if (page->who != WHO_ANY && (self == keeper) != (page->who == WHO_KEEPER))
        return 0;
    if (atomic_fetch_add(&page->count, 1) + 1 != page->nth)
        return 0;
    atomic_store(&page->armed, 0);
    strncpy(page->hit, call, sizeof page->hit - 1);
    errno = page->error;
    return 1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (real == NULL) \
        *(void **)&real = dlsym(RTLD_NEXT, #name)

/* A wrapper of a call with fixed arguments, whose failure is -1. */
#define WRAP(type, name, parameters, arguments) \
    type name parameters; \
    type name parameters \
    { \
        REAL(name); \
        return fails(#name, KIND_CALLS) ? (type)-1 : real arguments; \
    }

/* Opening has a mode only if it creates. */
#define WRAP_OPEN(name, parameters, arguments) \
    int name parameters; \
    int name parameters \
    { \
        mode_t mode = 0; \
        va_list ap; \
        REAL(name); \
        va_start(ap, flags); \
        if ((flags & O_CREAT) != 0) \
            mode = va_arg(ap, mode_t); \
        va_end(ap); \
        return fails(#name, KIND_CALLS) ? -1 : real arguments; \
    }

WRAP_OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
WRAP_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
WRAP_OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
WRAP(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
WRAP(int, mknodat, (int dir, const char *path, mode_t mode, dev_t dev), (dir, path, mode, dev))
WRAP(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
WRAP(int, renameat, (int from, const char *a, int to, const char *b), (from, a, to, b))
WRAP(int, fchown, (int fd, uid_t u, gid_t g), (fd, u, g))
WRAP(int, fchownat, (int dir, const char *path, uid_t u, gid_t g, int flags), (dir, path, u, g, flags))
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, fchmodat, (int dir, const char *path, mode_t mode, int flags), (dir, path, mode, flags))
WRAP(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))
WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
WRAP(int, socketpair, (int d, int t, int p, int v[2]), (d, t, p, v))
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(int, dup2, (int a, int b), (a, b))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, unshare, (int flags), (flags))
WRAP(int, open_tree, (int dir, const char *path, unsigned flags), (dir, path, flags))
WRAP(int, move_mount, (int a, const char *b, int c, const char *d, unsigned f), (a, b, c, d, f))
WRAP(int, fsopen, (const char *name, unsigned flags), (name, flags))
WRAP(int, fsconfig, (int fd, unsigned c, const char *k, const void *v, int aux), (fd, c, k, v, aux))
WRAP(int, fsmount, (int fd, unsigned f, unsigned a), (fd, f, a))
WRAP(int, mount_setattr, (int d, const char *p, unsigned f, void *a, size_t n), (d, p, f, a, n))
WRAP(int, setresuid, (uid_t a, uid_t b, uid_t c), (a, b, c))
WRAP(int, setresgid, (gid_t a, gid_t b, gid_t c), (a, b, c))
WRAP(int, setgroups, (size_t n, const gid_t *g), (n, g))
WRAP(ssize_t, getrandom, (void *p, size_t n, unsigned flags), (p, n, flags))

int ioctl(int fd, unsigned long request, ...);
int ioctl(int fd, unsigned long request, ...)
{
    static int (*real)(int, unsigned long, ...);
    va_list ap;

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "ioctl");
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return fails("ioctl", KIND_CALLS) ? -1 : real(fd, request, arg);
}

#define WRAP_FCNTL(name) \
    int name(int fd, int cmd, ...); \
    int name(int fd, int cmd, ...) \
    { \
        static int (*real)(int, int, ...); \
        va_list ap; \
        if (real == NULL) \
            *(void **)&real = dlsym(RTLD_NEXT, #name); \
        va_start(ap, cmd); \
        void *arg = va_arg(ap, void *); \
        va_end(ap); \
        return fails(#name, KIND_CALLS) ? -1 : real(fd, cmd, arg); \
    }

WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)

/* Taking a descriptor out cannot fail, unlike putting it in, which takes memory. */
struct epoll_event;
int epoll_ctl(int e, int op, int fd, struct epoll_event *ev);
int epoll_ctl(int e, int op, int fd, struct epoll_event *ev)
{
    REAL(epoll_ctl);
    return op != 2 && fails("epoll_ctl", KIND_CALLS) ? -1 : real(e, op, fd, ev);
}

/* clone3, pidfd_open, execveat, ... */
long syscall(long nr, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list ap;

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    va_start(ap, nr);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (nr != SYS_getpid) {
        static _Thread_local char name[32];
        (void)snprintf(name, sizeof name, "syscall %ld", nr);
        if (fails(name, KIND_CALLS))
            return -1;
    }
    return real(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    return fails("malloc", KIND_MEMORY) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t m)
{
    return fails("calloc", KIND_MEMORY) ? NULL : __libc_calloc(n, m);
}

void *realloc(void *p, size_t n)
{
    return fails("realloc", KIND_MEMORY) ? NULL : __libc_realloc(p, n);
}
