/*
 * spawner.c - the process that makes every other process
 */
#include "keeper/spawner.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "ipc/channel.h"
#include "keeper/filter.h"
#include "keeper/keeper.h"
#include "keeper/role_child.h"
#include "keeper/role_view.h"
#include "keeper/roles.h"
#include "keeper/runtime/pool.h"
#include "keeper/runtime/slot.h"
#include "keeper/trees.h"
#include "sys/caps.h"
#include "sys/fd.h"
#include "sys/process.h"
#include "sys/rmtree.h"

#define STOP_WAIT_MS 2000

/*
 * What building takes. Namespaces, mounts and id maps: SYS_ADMIN, SETUID, SETGID, SETPCAP, SYS_CHROOT. Files and nodes of
 * other owners: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, MKNOD. Loopback and sockets of a sandbox's network: NET_ADMIN, NET_RAW,
 * NET_BIND_SERVICE. Priority and end of
 * what it started: SYS_NICE, SYS_RESOURCE, KILL. It may look into no process (SYS_PTRACE), and has nothing to do with
 * modules, devices, clocks, audit or the kernel's log. Init has all capabilities again, in its own namespace alone.
 */
#define SPAWNER_CAPS                                                                            \
    (CAP_BIT(CAP_SYS_ADMIN) | CAP_BIT(CAP_SETUID) | CAP_BIT(CAP_SETGID) | CAP_BIT(CAP_SETPCAP) | \
     CAP_BIT(CAP_SYS_CHROOT) | CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) |                  \
     CAP_BIT(CAP_FOWNER) | CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_MKNOD) | CAP_BIT(CAP_NET_ADMIN) |   \
     CAP_BIT(CAP_NET_RAW) | CAP_BIT(CAP_NET_BIND_SERVICE) | CAP_BIT(CAP_SYS_NICE) |              \
     CAP_BIT(CAP_SYS_RESOURCE) | CAP_BIT(CAP_KILL))

static int channel = -1; /* the keeper's end, or in the spawner the spawner's */
static int spawner_pidfd = -1;
static uint8_t space[LIMIT_CHANNEL_INLINE];

/* ---- the spawner's side ---- */

/* The keeper reads all the time; if its buffer is full, wait. If it is gone, there is nothing to do. */
static void tell(uint16_t type, const void *p, size_t n, const int *fds, int nfds)
{
    for (;;) {
        int r = chan_send(channel, type, 0, p, n, fds, nfds);
        if (r == 0)
            return;
        if (r != -EAGAIN)
            _exit(1);
        struct pollfd pfd = {.fd = channel, .events = POLLOUT};
        (void)poll(&pfd, 1, -1);
    }
}

/* What every child starts with: nothing of the spawner's own set-up. */
static void child_reset(void)
{
    sigset_t none;

    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    /* What is ignored stays ignored through exec. */
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGHUP, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    fd_close(&channel);
}

static void start_slot(const struct spawn_ask *ask, int slot_end)
{
    auto_close int pidfd = -1;
    struct spawn_started s = {.type = SPAWN_SLOT, .number = ask->number};

    pid_t pid = process_clone(0, keeper.cg.monitors, &pidfd);
    if (pid == 0) {
        child_reset();
        slot_build(ask->number, slot_end);
    }
    s.pid = pid < 0 ? 0 : pid;
    s.error = pid < 0 ? -pid : 0;
    tell(SPAWN_STARTED, &s, sizeof s, &pidfd, pid < 0 ? 0 : 1);
}

static void start_role(const struct spawn_ask *ask)
{
    struct spawn_started s = {.type = SPAWN_ROLE, .number = ask->number};
    auto_close int userns = -1;
    pid_t self = getpid();
    pid_t pid = ask->number == ROLE_IMAGE ? role_child_image(&userns) : process_clone(0, -1, NULL);

    if (pid == 0) {
        child_reset();
        role_child_become((enum role)ask->number, self);
    }
    s.pid = pid < 0 ? 0 : pid;
    s.error = pid < 0 ? -pid : 0;
    tell(SPAWN_STARTED, &s, sizeof s, &userns, userns >= 0 ? 1 : 0);
}

static void empty_trash(void)
{
    pid_t pid = process_clone(0, -1, NULL);

    if (pid == 0) {
        child_reset();
        _exit(rmtree_inside(keeper.layers_fd, ".trash") < 0);
    }
}

static void obey(struct chan_msg *m)
{
    struct spawn_ask ask;

    if (m->type == SPAWN_EMPTY_TRASH) {
        empty_trash();
        return;
    }
    if (m->len != sizeof ask)
        return;
    memcpy(&ask, m->data, sizeof ask);
    if (m->type == SPAWN_SLOT && m->nfds == 1)
        start_slot(&ask, m->fds[0]);
    else if (m->type == SPAWN_ROLE && ask.number < ROLES)
        start_role(&ask);
}

static void reap(void)
{
    struct spawn_exited x;

    while ((x.pid = waitpid(-1, &x.status, WNOHANG)) > 0)
        tell(SPAWN_EXITED, &x, sizeof x, NULL, 0);
}

/* Its files, its capabilities and the calls that whatever it starts could ever need. */
static int confine(struct err *e)
{
    int r = spawner_view_enter();

    if (r < 0)
        return err_sys(e, -r, "leave the host's file tree");
    r = caps_limit(SPAWNER_CAPS);
    if (r < 0)
        return err_sys(e, -r, "drop capabilities");
    return filter_spawner_load(e);
}

static void serve(void) __attribute__((noreturn));

static void serve(void)
{
    struct signalfd_siginfo info;
    struct err e = {0};
    sigset_t set;

    log_init("spawner", LOG_L_INFO);
    (void)prctl(PR_SET_NAME, "quicksandd-spwn");
    /* Inits whose monitor died come to us and not to the host's init. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* A terminal's ^C is for the keeper to handle. */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0 || cg_enter_monitors(&keeper.cg, &e) < 0 || confine(&e) < 0) {
        log_error("spawner", "%s", e.message);
        _exit(1);
    }
    for (;;) {
        struct pollfd pfd[2] = {{.fd = channel, .events = POLLIN},
                                {.fd = signals, .events = POLLIN}};
        struct chan_msg m;

        if (poll(pfd, 2, -1) < 0 && errno != EINTR)
            _exit(1);
        if (pfd[1].revents != 0) {
            (void)!read(signals, &info,
                        sizeof info); /* only says that there is something to reap */
            reap();
        }
        if (pfd[0].revents == 0)
            continue;
        int r = chan_recv(channel, space, sizeof space, 0, &m);
        if (r == -EAGAIN)
            continue;
        if (r <= 0)
            _exit(0);
        obey(&m);
        chan_msg_done(&m);
    }
}

int spawner_start(struct err *e)
{
    int pair[2];
    int r = chan_pair(pair);
    pid_t keeper_pid = getpid();

    if (r < 0)
        return err_sys(e, -r, "make the spawner's channel");
    pid_t pid = process_clone(0, -1, &spawner_pidfd);
    if (pid < 0)
        return err_sys(e, -pid, "start the spawner");
    if (pid == 0) {
        fd_close(&pair[0]);
        fd_close(&keeper.keeper_sock);
        /* Nothing of its work is in there, and it would keep the file system busy at a clean stop. */
        trees_close();
        fd_close(&keeper.trees_fd);
        fd_close(&keeper.sandboxes_fd);
        fd_close(&keeper.deltas_fd);
        channel = pair[1];
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != keeper_pid)
            _exit(1);
        serve();
    }
    fd_close(&pair[1]);
    channel = pair[0];
    return 0;
}

/* ---- the keeper's side ---- */

static struct watch channel_watch;

static void heard(struct watch *w, uint32_t events)
{
    struct chan_msg m;
    int r = chan_recv(w->fd, space, sizeof space, 0, &m);

    if (r == -EAGAIN)
        return;
    if (r <= 0) {
        /* It cannot be made again from behind the filter: let the service manager start us anew. */
        log_error("spawner", "the spawner is gone; stopping (sandboxes run on)");
        _exit(1);
    }
    if (m.type == SPAWN_STARTED && m.len == sizeof(struct spawn_started)) {
        struct spawn_started s;
        memcpy(&s, m.data, sizeof s);
        if (s.type == SPAWN_SLOT)
            pool_started(s.number, s.error, m.nfds == 1 ? take_fd(&m.fds[0]) : -1);
        else
            roles_started((enum role)s.number, s.pid, s.error, m.nfds == 1 ? take_fd(&m.fds[0]) : -1);
    } else if (m.type == SPAWN_EXITED && m.len == sizeof(struct spawn_exited)) {
        struct spawn_exited x;
        memcpy(&x, m.data, sizeof x);
        roles_exited(x.pid, x.status);
    }
    chan_msg_done(&m);
}

int spawner_watch(struct err *e)
{
    channel_watch = (struct watch){.ready = heard, .fd = -1};
    int r = evloop_watch(&keeper.loop, &channel_watch, channel, EPOLLIN);

    return r < 0 ? err_sys(e, -r, "watch the spawner") : 0;
}

void spawner_stop(void)
{
    struct pollfd pfd = {.fd = spawner_pidfd, .events = POLLIN};

    evloop_unwatch(&keeper.loop, &channel_watch);
    fd_close(&channel); /* at end of file it exits */
    (void)poll(&pfd, 1, STOP_WAIT_MS);
}

int spawner_build_slot(uint32_t slot, int slot_end)
{
    const struct spawn_ask ask = {.number = slot};

    return chan_send(channel, SPAWN_SLOT, 0, &ask, sizeof ask, &slot_end, 1);
}

int spawner_start_role(uint32_t role)
{
    const struct spawn_ask ask = {.number = role};

    return chan_send(channel, SPAWN_ROLE, 0, &ask, sizeof ask, NULL, 0);
}

int spawner_empty_trash(void)
{
    return chan_send(channel, SPAWN_EMPTY_TRASH, 0, NULL, 0, NULL, 0);
}
