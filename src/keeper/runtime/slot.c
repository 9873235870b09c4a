/*
 * slot.c - building a slot: what can be made before anybody asks for a sandbox
 */
#include "keeper/runtime/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "ipc/channel.h"
#include "keeper/keeper.h"
#include "keeper/objects.h"
#include "keeper/runtime/slot_net.h"
#include "keeper/spawner.h"
#include "sys/caps.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"
#include "sys/idmap.h"
#include "sys/netlink.h"
#include "sys/process.h"

#define TTY_GID 5
#define TERMINALS_MAX "128"
/* What each command gives itself (init/spawn.c), and on the older scale what nothing is killed by (proc(5)). */
#define OOM_COMMAND "500"
#define OOM_NEVER "-17"
/* Building gives way to sandboxes at work; monitor and init go on at the usual priority. */
#define BUILD_NICE 5

/* Descriptors of the monitor, in the order in which it finds them from 3 on. */
enum {
    FD_KEEPER,
    FD_INIT,
    FD_INIT_PIDFD,
    FD_CGROUP,
    FD_KILL,
    FD_MEMORY,
    FD_CPU,
    FD_PIDS,
    FD_DEVPTS,
    FD_OOM,
    FD_FIGURES,
    FD_NETWORK = FD_FIGURES + OBJECTS_FIGURES,
    FD_EXE = FD_NETWORK + SLOT_NET_SOCKETS,
    FD_COUNT
};

static uint8_t space[LIMIT_CHANNEL_INLINE];

/*
 * Root of the sandbox has no power over the network namespace, which is the host's; so low ports and
 * ping are opened to everybody in it.
 */
static int network(uint32_t base, int ret_fds[SLOT_NET_SOCKETS], struct err *e)
{
    char groups[32];

    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(e, errno, "make a network namespace");
    int r = netlink_loopback_up();
    if (r < 0)
        return err_sys(e, -r, "bring up the loopback interface");
    snprintf(groups, sizeof groups, "%" PRIu32 " %" PRIu32, base, base + IDMAP_COUNT - 1);
    r = fd_write_at(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    if (r == 0)
        r = fd_write_at(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", groups);
    if (r < 0)
        return err_sys(e, -r, "set up the network namespace");
    return slot_net_lay(ret_fds, e);
}

/* A terminal belongs to whoever opens it: the monitor does that as root of the sandbox (monitor/groups.c). */
static int terminals(uint32_t base, int *ret_fd, struct err *e)
{
    char gid[16];
    /* The machine has some 4000 terminals for all. */
    const struct mount_option options[] = {
        {"max", TERMINALS_MAX},
        {"gid", gid},
        {"mode", "0620"},
        {"ptmxmode", "0666"},
    };

    snprintf(gid, sizeof gid, "%" PRIu32, base + TTY_GID);
    *ret_fd = mount_new("devpts", options, 4, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    return *ret_fd < 0 ? err_sys(e, -*ret_fd, "make a devpts") : 0;
}

struct parts {
    uint32_t slot, base;
    int keeper; /* borrowed */
    int devpts, cgroup;
    int network[SLOT_NET_SOCKETS]; /* or -1 */
    int init, init_end; /* channel between monitor and init */
    int sync, sync_end;
    struct cg_tasks tasks;
    int init_pidfd;
    pid_t init_pid;
    int userns;
};

/*
 * In what becomes init: a time namespace in which the machine has started just now. A sandbox need not know how
 * long the host has been up, and its processes are as old as it. Where the kernel has none the clocks are the host's.
 */
static void time_begin(void)
{
    struct timespec monotonic, boot;
    char text[96];

    /* Its files in /proc are root's of the host as long as it is the image of the keeper, unless it may be dumped. */
    if (clock_gettime(CLOCK_MONOTONIC, &monotonic) < 0 || clock_gettime(CLOCK_BOOTTIME, &boot) < 0 ||
        prctl(PR_SET_DUMPABLE, 1) < 0 || unshare(CLONE_NEWTIME) < 0)
        return;
    snprintf(text, sizeof text, "monotonic -%lld 0\nboottime -%lld 0\n", (long long)monotonic.tv_sec,
             (long long)boot.tv_sec);
    (void)fd_write_at(AT_FDCWD, "/proc/self/timens_offsets", text);
    /* Executing would enter it on newer kernels alone; and whoever has another one for its children than its own cannot make
     * them share its memory, as init does (kernel 6.1: EINVAL). */
    auto_close int fd = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)setns(fd, CLONE_NEWTIME);
}

/* The first process of the new namespaces: waits for its ids and descriptors, then executes init. */
static void init_child(const struct parts *p) __attribute__((noreturn));

static void init_child(const struct parts *p)
{
    char *const argv[] = {"quicksand-init", NULL};
    char *const envp[] = {NULL};
    struct chan_msg m;

    if (cg_tasks_enter(&p->tasks) < 0)
        _exit(1);
    if (chan_recv(p->sync_end, space, sizeof space, 0, &m) != 1 || m.nfds != 3)
        _exit(1);
    /* Capabilities of the new namespace are complete from the start; the ids make files ours. */
    if (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0)
        _exit(1);
    time_begin();
    const int from[] = {p->init_end, m.fds[0], m.fds[1], m.fds[2], keeper.init_exe};
    if (process_place_fds(from, 5) < 0 || fd_set_cloexec(7, true) < 0)
        _exit(1);
    (void)process_exec(7, argv, envp);
    _exit(1);
}

static int channels(struct parts *p, struct err *e)
{
    int pair[2];
    int r = chan_pair(pair);

    if (r < 0)
        return err_sys(e, -r, "make init's channel");
    p->init = pair[0];
    p->init_end = pair[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a pair of sockets");
    p->sync = pair[0];
    p->sync_end = pair[1];
    return 0;
}

/*
 * The kernel counts what users have of some things (inotify instances, message queues, locked memory) for
 * each user namespace, and for its creator in the namespace above. Root as the creator of all would have all
 * sandboxes share one host user's limits; so it is the last id of the sandbox's own range. No process outside has
 * that one (the monitor has the first as its real id), so nobody gains rights over the namespace.
 */
static int clone_as_owner(struct parts *p, uint64_t flags, struct err *e)
{
    if (setresuid((uid_t)-1, p->base + IDMAP_COUNT - 1, (uid_t)-1) < 0)
        return err_sys(e, errno, "become the owner of slot %" PRIu32, p->slot);
    int r = caps_raise();
    /* The change made this image one that may not be looked into, and a copy of it is what we look into. */
    if (r == 0 && prctl(PR_SET_DUMPABLE, 1) < 0)
        r = -errno;
    p->init_pid = r < 0 ? r : process_clone(flags, p->cgroup, &p->init_pidfd);
    if (p->init_pid == 0)
        return 0;
    /* Only its owner may, or who may look into every process. */
    if (p->init_pid > 0)
        p->userns = idmap_open_userns(p->init_pid);
    /* The change of user has cleared what kills this process with the spawner. */
    if (setresuid((uid_t)-1, 0, (uid_t)-1) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        _exit(1);
    if (p->init_pid < 0)
        return err_sys(e, -p->init_pid, "make the namespaces of a sandbox");
    return p->userns < 0 ? err_sys(e, -p->userns, "open the user namespace of slot %" PRIu32, p->slot) : 0;
}

static int start_init(struct parts *p, struct err *e)
{
    const uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

    if (clone_as_owner(p, flags, e) < 0)
        return -1;
    if (p->init_pid == 0) {
        fd_close(&p->sync);
        init_child(p);
    }
    cg_tasks_close(&p->tasks);
    fd_close(&p->sync_end);
    fd_close(&p->init_end);
    return 0;
}

static int oom_write(pid_t pid, const char *file, const char *text)
{
    char name[40];

    snprintf(name, sizeof name, "/proc/%d/%s", (int)pid, file);
    return fd_write_at(AT_FDCWD, name, text);
}

/*
 * Init is never killed for want of memory, because its sandbox would go with it. What it starts must not be able to claim the
 * same: a score written with CAP_SYS_RESOURCE is the least that the process and its children can go back to, except one that
 * is written on the older scale (__set_oom_adj() of fs/proc/base.c, Linux 6.1). A root without that right, or a kernel without
 * the older scale, leaves init as it is: it is then the last that is chosen.
 */
static int oom_spare_init(pid_t init)
{
    int r = oom_write(init, "oom_adj", OOM_NEVER);

    if (r == -EACCES || r == -ENOENT)
        return 0;
    if (r == 0)
        r = oom_write(init, "oom_score_adj", OOM_COMMAND);
    return r < 0 ? r : oom_write(init, "oom_adj", OOM_NEVER);
}

/* Everything that needs the new user namespace and our privileges; then init may go on. */
static int equip_init(struct parts *p, struct err *e)
{
    int r = idmap_write(p->init_pid, p->base);

    if (r < 0)
        return err_sys(e, -r, "map the ids of slot %" PRIu32, p->slot);
    r = oom_spare_init(p->init_pid);
    if (r < 0)
        return err_sys(e, -r, "set the OOM score of init");
    if (setpriority(PRIO_PROCESS, (id_t)p->init_pid, 0) < 0)
        return err_sys(e, errno, "set the priority of init");
    auto_close int dev = -1;
    auto_close int sys = -1;
    if (objects_dev(p->slot, p->base, &dev, e) < 0 || objects_sys(&sys, e) < 0)
        return -1;
    const int fds[] = {p->devpts, dev, sys};
    r = chan_send(p->sync, 1, 0, NULL, 0, fds, 3);
    return r < 0 ? err_sys(e, -r, "hand descriptors to init") : 0;
}

static int say_ready(const struct parts *p, struct err *e)
{
    struct slot_ready ready = {.pid = getpid(), .network = p->network[0] >= 0};
    int r = process_start_time(ready.pid, &ready.start_time);

    if (r == 0)
        r = chan_send(p->keeper, SLOT_READY, 0, &ready, sizeof ready, &p->userns, 1);
    return r < 0 ? err_sys(e, -r, "report slot %" PRIu32, p->slot) : 0;
}

/* Opens the monitor's view of the control groups and leaves all descriptors at their places. */
static int place(const struct parts *p, struct err *e)
{
    const struct cg *g = &keeper.cg;
    int from[FD_COUNT] = {
        [FD_KEEPER] = p->keeper,
        [FD_INIT] = p->init,
        [FD_INIT_PIDFD] = p->init_pidfd,
        [FD_CGROUP] = p->cgroup,
        [FD_KILL] = cg_open_kill(g, p->slot),
        [FD_MEMORY] = cg_open_controller(g, p->slot, CG_MEMORY),
        /* cpu.stat is there on v2 even where the controller is on v1 */
        [FD_CPU] = p->cgroup,
        [FD_PIDS] = cg_open_controller(g, p->slot, CG_PIDS),
        [FD_DEVPTS] = openat(p->devpts, ".", O_PATH | O_DIRECTORY | O_CLOEXEC),
        [FD_OOM] = cg_open_oom(g, p->slot),
        [FD_EXE] = keeper.monitor_exe,
    };

    for (int i = 0; i < OBJECTS_FIGURES; i++)
        from[FD_FIGURES + i] = objects_figure(p->slot, i);
    for (int i = 0; i < SLOT_NET_SOCKETS; i++)
        from[FD_NETWORK + i] = p->network[i] >= 0 ? p->network[i] : keeper.null_fd;
    for (int i = 0; i < FD_COUNT; i++)
        if (from[i] < 0)
            return err_sys(e, i == FD_DEVPTS ? errno : -from[i],
                           "open descriptor %d of the monitor", i);
    int r = process_place_fds(from, FD_COUNT);
    if (r == 0)
        r = fd_set_cloexec(3 + FD_EXE, true);
    return r < 0 ? err_sys(e, -r, "place the descriptors of the monitor") : 0;
}

static int build(struct parts *p, struct err *e)
{
    uint32_t monitor_uid = slot_monitor_uid(p->slot);

    if (cg_make(&keeper.cg, p->slot, monitor_uid, p->base, e) < 0 ||
        network(p->base, p->network, e) < 0)
        return -1;
    p->cgroup = cg_open(&keeper.cg, p->slot);
    if (p->cgroup < 0)
        return err_sys(e, -p->cgroup, "open control group %" PRIu32, p->slot);
    if (cg_tasks_open(&keeper.cg, p->slot, &p->tasks, e) < 0 ||
        terminals(p->base, &p->devpts, e) < 0 || channels(p, e) < 0 || start_init(p, e) < 0 ||
        equip_init(p, e) < 0)
        return -1;
    return 0;
}

/* Standard descriptors lead nowhere, or a monitor would hold on to the log of a daemon long gone. */
static void detach_stdio(void)
{
    int last = strcmp(keeper.conf.log_level, "debug") == 0 ? 1 : 2;

    for (int fd = 0; fd <= last; fd++)
        (void)dup2(keeper.null_fd, fd);
}

void slot_build(uint32_t slot, int channel)
{
    char *const argv[] = {"quicksand-monitor", NULL};
    char *const envp[] = {NULL};
    struct parts p = {.slot = slot,
                      .base = slot_base(slot),
                      .keeper = channel,
                      .devpts = -1,
                      .network = {-1, -1, -1, -1},
                      .cgroup = -1,
                      .init = -1,
                      .init_end = -1,
                      .sync = -1,
                      .sync_end = -1,
                      .init_pidfd = -1,
                      .userns = -1};
    struct err e = {0};
    pid_t spawner = getppid();

    /* Until the change of user, which ends this; by then the channel's end does the same. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || spawner == 1)
        _exit(1);
    (void)setsid();
    (void)setpriority(PRIO_PROCESS, 0, BUILD_NICE);
    detach_stdio();
    if (build(&p, &e) < 0) {
        (void)chan_send(channel, SLOT_FAILED, 0, e.message, strlen(e.message), NULL, 0);
        _exit(1);
    }
    if (say_ready(&p, &e) < 0 || place(&p, &e) < 0)
        _exit(1);
    uint32_t uid = slot_monitor_uid(slot);
    if (setpriority(PRIO_PROCESS, 0, 0) < 0 || caps_become_user_as(p.base, uid, uid) < 0)
        _exit(1);
    (void)process_exec(3 + FD_EXE, argv, envp);
    _exit(1);
}
