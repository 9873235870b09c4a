/*
 * slot.c - what can be done before the sandbox is known
 *
 * Called once at start. Afterwards nothing of the host is left in the mount namespace: the root is one
 * small tmpfs ("staging") that holds the finished /dev, /proc and /sys trees and the directories that
 * SETUP will mount the layers on.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sandbox_net.h"
#include "init/init.h"
#include "init/kernel.h"
#include "sys/fd.h"

/* Until SETUP says how large the tmpfs may be; the trees made here need a few pages. */
#define STAGING_OPTIONS_SIZE "256k"

int fault_set(struct fault *f, const char *step)
{
    f->error = errno != 0 ? errno : EIO;
    snprintf(f->step, sizeof f->step, "%s", step);
    return -1;
}

static int process_prepare(struct fault *f)
{
    static const uint64_t dfl[4];               /* the kernel's struct: SIG_DFL, no flags, no restorer, no mask */
    sigset_t set;

    /* What the keeper ignored would stay ignored in every command. The system call itself, because the C library will not
     * touch its own signals, and whoever is started by posix_spawn (from make, say) has those ignored. */
    for (int sig = 1; sig < 65; sig++)
        (void)syscall(SYS_rt_sigaction, sig, dfl, NULL, sizeof dfl[3]);     /* KILL and STOP refuse; they are default */
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return fault_set(f, "signals");
    /* The host's core handler, if it has one, is not for tenants to start: the kernel asks it whatever
     * the limit is, unless that is exactly 1. A limit that is lower already cannot be raised. */
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1});
    (void)umask(022);
    (void)setsid();                             /* fails only if we lead a session already */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
        return fault_set(f, "prctl");
    if (k_close_range(INIT_FD_LAST + 1, ~0U, 0) < 0)
        return fault_set(f, "close");
    for (int fd = INIT_FD_CHANNEL; fd <= INIT_FD_LAST; fd++)
        if (fd_set_cloexec(fd, true) < 0)
            return fault_set(f, "descriptors");
    return 0;
}

/* A tmpfs over "/", entered as the working directory; our root is still the host's. */
static int staging_mount(struct init *in, struct fault *f)
{
    auto_close int fs = k_fsopen("tmpfs");

    if (fs < 0 || k_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755") < 0 ||
        k_fsconfig(fs, FSCONFIG_SET_STRING, "size", STAGING_OPTIONS_SIZE) < 0 ||
        k_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return fault_set(f, "tmpfs");
    in->staging = k_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (in->staging < 0)
        return fault_set(f, "tmpfs");
    if (k_move_mount(in->staging, "", AT_FDCWD, "/") < 0 || fchdir(in->staging) < 0)
        return fault_set(f, "staging");
    return 0;
}

static int directories_make(struct fault *f)
{
    static const char *const names[] = {"proc", "dev", "sys", "empty", "etc", "u", "r"};
    char name[16];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (mkdir(names[i], 0755) < 0)
            return fault_set(f, "staging");
    for (int i = 0; i <= LIMIT_LAYERS; i++) {
        snprintf(name, sizeof name, "l%d", i);
        if (mkdir(name, 0755) < 0)
            return fault_set(f, "staging");
    }
    if (mkdir("shm", 0755) < 0 || chmod("shm", 01777) < 0)
        return fault_set(f, "staging");
    return 0;
}

static int etc_prepare(struct init *in, struct fault *f)
{
    static const char *const names[ETC_MAX] = {"etc/hosts", "etc/hostname", "etc/resolv.conf",
                                               "etc/machine-id"};
    /* Where the network is blocked this is refused at once; a short wait keeps programs moving where egress is away. */
    static const char resolv[] = "nameserver " SANDBOX_NET_DNS4 "\noptions timeout:2 attempts:2\n";

    if (identity_file(names[ETC_MACHINE_ID], false, f) < 0)
        return -1;
    for (int i = 0; i < ETC_MAX; i++) {
        int flags = i == ETC_MACHINE_ID ? O_RDONLY : O_WRONLY | O_CREAT | O_EXCL;
        auto_close int fd = open(names[i], flags | O_CLOEXEC, 0644);
        if (fd < 0)
            return fault_set(f, "etc");
        if (i == ETC_RESOLV && fd_write_all(fd, resolv, sizeof resolv - 1) < 0)
            return fault_set(f, "etc");
        in->etc[i] = k_open_tree(AT_FDCWD, names[i], OPEN_TREE_CLONE);
        if (in->etc[i] < 0)
            return fault_set(f, "etc");
    }
    return 0;
}

/* Staging becomes the root and the host's tree leaves the namespace. */
static int host_detach(struct fault *f)
{
    if (k_pivot_root(".", ".") < 0)
        return fault_set(f, "pivot to staging");
    if (k_umount2(".", KERNEL_MNT_DETACH) < 0)
        return fault_set(f, "detach host");
    if (chdir("/") < 0)
        return fault_set(f, "staging");
    return 0;
}

static int descriptors_open(struct init *in, struct fault *f)
{
    sigset_t set;

    in->proc = open("proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    in->self = open("proc/self/exe", O_RDONLY | O_CLOEXEC);
    in->null = open("dev/null", O_RDWR | O_CLOEXEC);
    if (in->proc < 0 || in->self < 0 || in->null < 0)
        return fault_set(f, "descriptors");
    /* No descriptor of the host stays, and numbers 0 to 2 are never handed out for anything else. */
    for (int fd = 0; fd <= 2; fd++)
        if (dup2(in->null, fd) < 0)
            return fault_set(f, "descriptors");
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    in->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (in->signals < 0)
        return fault_set(f, "signals");
    return 0;
}

int slot_prepare(struct init *in, struct fault *f)
{
    if (process_prepare(f) < 0)
        return -1;
    if (unshare(KERNEL_CLONE_NEWCGROUP) < 0)
        return fault_set(f, "cgroup namespace");
    if (k_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fault_set(f, "private mounts");
    if (staging_mount(in, f) < 0 || directories_make(f) < 0)
        return -1;
    /* Before the host goes: a procfs may be mounted only where another one is fully visible. */
    if (proc_build(in, f) < 0 || sys_build(f) < 0 || dev_build(in, f) < 0 || etc_prepare(in, f) < 0)
        return -1;
    if (host_detach(f) < 0 || descriptors_open(in, f) < 0)
        return -1;
    return caps_bound(f);
}
