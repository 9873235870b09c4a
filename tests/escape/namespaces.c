/*
 * namespaces.c - new namespaces, other namespaces, and a further user namespace above all
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

static int by_unshare(unsigned long flags)
{
    return outcome(syscall(SYS_unshare, flags));
}

static int by_clone(unsigned long flags)
{
    long r = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

    if (r == 0)
        _exit(0);
    return outcome(r);
}

static int by_clone3(uint64_t flags)
{
    uint64_t args[11] = {flags, 0, 0, 0, SIGCHLD};
    long r = syscall(SYS_clone3, args, sizeof args);

    if (r == 0)
        _exit(0);
    return outcome(r);
}

#define NAMESPACE(name, flag)                                                                                         \
    static int unshare_##name(const struct ctx *c)                                                                    \
    {                                                                                                                 \
        (void)c;                                                                                                      \
        return by_unshare(flag);                                                                                      \
    }                                                                                                                 \
    static int clone_##name(const struct ctx *c)                                                                      \
    {                                                                                                                 \
        (void)c;                                                                                                      \
        return by_clone(flag);                                                                                        \
    }                                                                                                                 \
    static int clone3_##name(const struct ctx *c)                                                                     \
    {                                                                                                                 \
        (void)c;                                                                                                      \
        return by_clone3(flag);                                                                                       \
    }
NAMESPACE(mnt, 0x20000)
NAMESPACE(cgroup, 0x02000000)
NAMESPACE(uts, 0x04000000)
NAMESPACE(ipc, 0x08000000)
NAMESPACE(user, 0x10000000)
NAMESPACE(pid, 0x20000000)
NAMESPACE(net, 0x40000000)

static int unshare_time(const struct ctx *c)
{
    (void)c;
    return by_unshare(0x80);
}

static int clone3_time(const struct ctx *c)
{
    (void)c;
    return by_clone3(0x80);
}

/* A user namespace together with the one that it would give power over. */
static int user_and_mnt(const struct ctx *c)
{
    (void)c;
    return by_unshare(0x10000000 | 0x20000);
}

/* The flags' upper half, which a filter of the lower alone would not see. */
static int upper_half(const struct ctx *c)
{
    (void)c;
    return outcome(syscall(SYS_unshare, 0x100000000ull | 0x20000));
}

static int set_own(const struct ctx *c)
{
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    (void)c;
    return fd < 0 ? -errno : outcome(setns(fd, 0));
}

/* From one's own namespaces to the ones around: the kernel's own ladder. */
static int ladder(const char *from, unsigned long request)
{
    int fd = open(from, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : outcome(ioctl(fd, request));
}

#define NS_GET_USERNS 0xb701
#define NS_GET_PARENT 0xb702

static int parent_user(const struct ctx *c)
{
    /* The host's own user namespace has none above: the control steps down first. */
    if (c->is_control) {
        int up = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC), fds[2], ready;
        char path[64];
        if (up < 0 || pipe(fds) < 0)
            return -ENOTSUP;
        pid_t pid = fork_bound();
        if (pid == 0) {
            ready = unshare(0x10000000);
            (void)!write(fds[1], &ready, sizeof ready);
            (void)pause();
            _exit(0);
        }
        if (read(fds[0], &ready, sizeof ready) != sizeof ready || ready < 0)
            return -ENOTSUP;
        snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
        return ladder(path, NS_GET_PARENT);
    }
    return ladder("/proc/self/ns/user", NS_GET_PARENT);
}

static int parent_pid(const struct ctx *c)
{
    /* The same: a namespace below the control's. */
    if (c->is_control) {
        if (unshare(0x20000000) < 0)
            return -ENOTSUP;
        pid_t pid = fork_bound();
        if (pid == 0) {
            (void)pause();
            _exit(0);
        }
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
        return ladder(path, NS_GET_PARENT);
    }
    return ladder("/proc/self/ns/pid", NS_GET_PARENT);
}

/* The network namespace is the host's, so that root inside has no power over it. */
static int owner_of_net(const struct ctx *c)
{
    (void)c;
    return ladder("/proc/self/ns/net", NS_GET_USERNS);
}

static int host_name(const struct ctx *c)
{
    return outcome(sethostname(c->token, strlen(c->token)));
}

static int domain_name(const struct ctx *c)
{
    return outcome(setdomainname(c->token, strlen(c->token)));
}

/* With no_new_privs given up nothing is gained; with privileges to lose, a filter of one's own goes on top only. */
static int own_filter(const struct ctx *c)
{
    struct {
        uint16_t code;
        uint8_t jt, jf;
        uint32_t k;
    } allow = {0x06, 0, 0, 0x7fff0000};
    struct {
        uint16_t len;
        void *filter;
    } program = {1, &allow};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_seccomp, 1, 0, &program) < 0)
        return -ENOTSUP;
    return outcome(syscall(SYS_mount, c->token, c->scratch, "tmpfs", 0, NULL));
}

const struct attempt namespaces_table[] = {
    {"ns-unshare-mnt", "make a mount namespace", "EPERM", NULL, unshare_mnt, 0},
    {"ns-unshare-cgroup", "make a cgroup namespace", "EPERM", NULL, unshare_cgroup, 0},
    {"ns-unshare-uts", "make a host name namespace", "EPERM", NULL, unshare_uts, 0},
    {"ns-unshare-ipc", "make an IPC namespace", "EPERM", NULL, unshare_ipc, 0},
    {"ns-unshare-user", "make a user namespace", "EPERM", NULL, unshare_user, 0},
    {"ns-unshare-pid", "make a PID namespace", "EPERM", NULL, unshare_pid, 0},
    {"ns-unshare-net", "make a network namespace", "EPERM", NULL, unshare_net, 0},
    {"ns-unshare-time", "make a time namespace", "EPERM", "EINVAL", unshare_time, 0},
    {"ns-unshare-user-mnt", "make a user namespace with a mount namespace", "EPERM", NULL, user_and_mnt, 0},
    {"ns-unshare-upper-half", "hide the flag behind bits that the kernel drops", "EPERM", "EINVAL", upper_half, 0},
    {"ns-clone-mnt", "start a process in a mount namespace", "EPERM", NULL, clone_mnt, 0},
    {"ns-clone-cgroup", "start a process in a cgroup namespace", "EPERM", NULL, clone_cgroup, 0},
    {"ns-clone-uts", "start a process in a host name namespace", "EPERM", NULL, clone_uts, 0},
    {"ns-clone-ipc", "start a process in an IPC namespace", "EPERM", NULL, clone_ipc, 0},
    {"ns-clone-user", "start a process in a user namespace", "EPERM", NULL, clone_user, 0},
    {"ns-clone-pid", "start a process in a PID namespace", "EPERM", NULL, clone_pid, 0},
    {"ns-clone-net", "start a process in a network namespace", "EPERM", NULL, clone_net, 0},
    {"ns-clone3-mnt", "the same where no filter sees the flag (clone3)", "EPERM", NULL, clone3_mnt, 0},
    {"ns-clone3-cgroup", "clone3 with a cgroup namespace", "EPERM", NULL, clone3_cgroup, 0},
    {"ns-clone3-uts", "clone3 with a host name namespace", "EPERM", NULL, clone3_uts, 0},
    {"ns-clone3-ipc", "clone3 with an IPC namespace", "EPERM", NULL, clone3_ipc, 0},
    {"ns-clone3-user", "clone3 with a user namespace", "ENOSPC", NULL, clone3_user, 0},
    {"ns-clone3-pid", "clone3 with a PID namespace", "EPERM", NULL, clone3_pid, 0},
    {"ns-clone3-net", "clone3 with a network namespace", "EPERM", NULL, clone3_net, 0},
    {"ns-clone3-time", "clone3 with a time namespace", "EPERM", "EINVAL", clone3_time, 0},
    {"ns-setns-own", "join even one's own namespace", "EPERM", NULL, set_own, 0},
    {"ns-parent-user", "climb to the user namespace above", "EPERM", NULL, parent_user, 0},
    {"ns-parent-pid", "climb to the PID namespace above", "EPERM", NULL, parent_pid, 0},
    {"ns-owner-of-net", "climb to the owner of the network namespace", "EPERM", NULL, owner_of_net, 0},
    {"ns-filter-on-top", "lay a filter that permits all over ours, then mount", "EPERM", NULL, own_filter, 0},
    {"ns-host-name", "change the host's name", "EPERM", NULL, host_name, 0},
    {"ns-domain-name", "change the host's domain name", "EPERM", NULL, domain_name, 0},
    TABLE_END,
};
