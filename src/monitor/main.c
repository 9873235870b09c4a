/*
 * main.c - start and loop of the monitor
 *
 * Executed by the keeper as ipc/monitor_start.h says. The loop takes what epoll reports, then what is
 * due, then closes broken peers; work that nobody waits for (pipes and groups for the next exec, the
 * status file) is done only when nothing else is there to do.
 *
 * Event handlers trust no event bit: they try the operation. So an event that was queued before its
 * descriptor was closed and its slot used again does no harm.
 */
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "monitor/monitor.h"
#include "sys/fd.h"

#define EVENTS 32
/* epoll counts on a clock that stands still while the machine is suspended; look again now and then. */
#define SLEEP_MAX_MS 300000
/* While a command runs, its own work comes before what is prepared for the next one. */
#define WORK_DELAY_MS 2

struct monitor mon = {
    .epoll = -1, .run_dir = -1, .listener = -1,
    .next_ms = NEVER, .phase_ms = NEVER, .deadline_ms = NEVER,
};

static uint64_t key(enum source source, unsigned index)
{
    return (uint64_t)source << 32 | index;
}

int watch_add(int fd, uint32_t events, enum source source, unsigned index)
{
    struct epoll_event ev = {.events = events, .data.u64 = key(source, index)};

    return epoll_ctl(mon.epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void watch_change(int fd, uint32_t events, enum source source, unsigned index)
{
    struct epoll_event ev = {.events = events, .data.u64 = key(source, index)};

    (void)epoll_ctl(mon.epoll, EPOLL_CTL_MOD, fd, &ev);     /* cannot fail for a watched one */
}

void watch_remove(int fd)
{
    (void)epoll_ctl(mon.epoll, EPOLL_CTL_DEL, fd, NULL);    /* as above */
}

void due_at(int64_t when_ms)
{
    if (when_ms < mon.next_ms)
        mon.next_ms = when_ms;
}

_Noreturn void monitor_exit(int code)
{
    _exit(code);
}

static void dispatch(const struct epoll_event *ev)
{
    unsigned index = (unsigned)ev->data.u64;
    struct exec *e;

    switch ((enum source)(ev->data.u64 >> 32)) {
    case SRC_KEEPER:
        setup_on_keeper();
        break;
    case SRC_INIT:
        exec_flush_held();
        exec_on_init();
        break;
    case SRC_PIDFD:
        ending_on_pidfd();
        break;
    case SRC_LISTENER:
        peers_on_listener();
        break;
    case SRC_PEER:
        peer_on_event(index, ev->events);
        break;
    case SRC_OUT:
        e = exec_by_index(index);
        if (e != NULL && e->tty && (ev->events & (uint32_t)~EPOLLIN) != 0)
            input_continue(e);
        if (e != NULL)
            exec_on_output(e, OUT, (ev->events & (uint32_t)EPOLLHUP) != 0);
        break;
    case SRC_ERR:
        e = exec_by_index(index);
        if (e != NULL)
            exec_on_output(e, ERR, (ev->events & (uint32_t)EPOLLHUP) != 0);
        break;
    case SRC_OOM:
        oom_on_event();
        break;
    case SRC_IN:
        e = exec_by_index(index);
        if (e != NULL)
            input_continue(e);
        break;
    }
}

static void run_timers(void)
{
    if (mon.now_ms < mon.next_ms)
        return;
    mon.next_ms = NEVER;        /* each of these says when it wants to be called again */
    execs_run_timers();
    peers_run_timers();
    ending_run_timers();
    oom_run_timers();
    figures_run_timers();
    buffers_run_timers();
}

static bool want_work(void)
{
    return mon.phase == PHASE_RUN && (mon.status_dirty || groups_want_work() || spool_wants_work());
}

static void work(void)
{
    groups_work();
    if (mon.status_dirty)
        files_status();
    if (spool_wants_work())
        spool_work();
}

static int sleep_ms(bool wanted)
{
    if (wanted)
        return mon.busy > 0 ? WORK_DELAY_MS : 0;
    if (mon.next_ms == NEVER)
        return SLEEP_MAX_MS;
    int64_t left = mon.next_ms - mon.now_ms;
    if (left <= 0)
        return 0;
    return left < SLEEP_MAX_MS ? (int)left : SLEEP_MAX_MS;
}

static void turn(void)
{
    struct epoll_event events[EVENTS];
    bool wanted = want_work();
    int n = epoll_wait(mon.epoll, events, EVENTS, sleep_ms(wanted));

    mon.now_ms = clock_boot_ms();
    for (int i = 0; i < n; i++)
        dispatch(&events[i]);
    run_timers();
    peers_settle();
    if (n == 0 && wanted)
        work();
}

int main(void)
{
    /* Not before we were executed, see sys/caps.h. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || geteuid() == 0)
        return 1;
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)fd_raise_limit();     /* with less, execs are refused sooner */
    mon.now_ms = clock_boot_ms();
    figures_start();
    peers_init();
    mon.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (mon.epoll < 0 || fd_set_nonblock(MON_FD_KEEPER, true) < 0 ||
        fd_set_nonblock(MON_FD_INIT, true) < 0)
        return 1;
    if (watch_add(MON_FD_KEEPER, EPOLLIN, SRC_KEEPER, 0) < 0 ||
        watch_add(MON_FD_PIDFD, EPOLLIN, SRC_PIDFD, 0) < 0)
        return 1;
    for (;;)
        turn();
}
