/*
 * ending.c - deadlines, the idle rule, and the way to the end
 *
 * The sandbox ends when its entry point does, when it is told to, at its deadline, when it has been
 * idle, or when init is gone. Whatever comes first gives the reason. The entry point gets a signal and
 * a grace; then cgroup.kill takes all. The end is complete when init is reaped: the kernel has ended
 * every process of its pid namespace before that.
 *
 * Idle: no exec but the entry point and hidden ones is running, and for idle_ms none has started or
 * ended and no stdin was written (to any exec, the entry point and hidden ones included).
 *
 * A deadline is given as wall-clock time and kept as CLOCK_BOOTTIME from the moment it is given: a step
 * of the wall clock neither ends a sandbox early nor keeps it.
 */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "monitor/monitor.h"

#define SIGNAL_DEFAULT 15

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static void set_text(char *out, size_t size, const char *text)
{
    size_t n = strnlen(text, size - 1);

    memcpy(out, text, n);
    out[n] = '\0';
}

void ending_set_deadline(int64_t deadline_ms)
{
    mon.r.deadline_ms = deadline_ms;
    mon.deadline_ms = NEVER;
    if (deadline_ms == 0)
        return;
    int64_t left = deadline_ms - clock_wall_ms();
    if (left < 0)
        left = 0;
    if (left < NEVER - mon.now_ms)
        mon.deadline_ms = mon.now_ms + left;
    due_at(mon.deadline_ms);
}

static int64_t idle_at(void)
{
    if (mon.r.idle_ms == 0 || mon.phase != PHASE_RUN || mon.busy > 0)
        return NEVER;
    if (mon.r.idle_ms > (uint64_t)(NEVER - mon.activity_ms))
        return NEVER;
    return mon.activity_ms + (int64_t)mon.r.idle_ms;
}

void ending_set_idle(uint64_t idle_ms)
{
    mon.r.idle_ms = idle_ms;
    due_at(idle_at());
}

void ending_activity(const char *what)
{
    mon.activity_ms = mon.now_ms;
    mon.r.last_activity_ms = clock_wall_ms();
    set_text(mon.r.last_activity, sizeof mon.r.last_activity, what);
    due_at(idle_at());
}

static void kill_all(void)
{
    /* Nothing to do about a failure but to try again, which the timer does. */
    (void)!write(MON_FD_KILL, "1", 1);
    mon.phase_ms = mon.now_ms + KILL_AGAIN_MS;
    due_at(mon.phase_ms);
}

void ending_kill(enum end_reason reason, const char *message)
{
    if (mon.phase >= PHASE_KILL)
        return;
    if (mon.r.reason == END_NONE) {
        mon.r.reason = (uint8_t)reason;
        if (message != NULL)
            set_text(mon.r.message, sizeof mon.r.message, message);
    }
    mon.phase = PHASE_KILL;
    mon.r.state = SB_STOPPING;
    kill_all();
    peers_resume();         /* an EXEC that waited for READY is refused now */
}

void ending_start(enum end_reason reason, const char *actor, int signal, uint32_t grace_ms)
{
    struct exec *entry = mon.entry != 0 ? exec_by_index(mon.entry - 1u) : NULL;

    if (mon.phase >= PHASE_STOP || mon.phase == PHASE_SLOT)
        return;
    mon.r.reason = (uint8_t)reason;
    set_text(mon.r.actor, sizeof mon.r.actor, actor);
    if (grace_ms > LIMIT_GRACE_MAX * 1000)
        grace_ms = LIMIT_GRACE_MAX * 1000;
    if (entry == NULL || !entry->live || grace_ms == 0 ||
        exec_signal(entry, signal != 0 ? signal : SIGNAL_DEFAULT, INIT_SIG_GROUP) < 0) {
        ending_kill(reason, NULL);
        return;
    }
    mon.phase = PHASE_STOP;
    mon.r.state = SB_STOPPING;
    mon.phase_ms = mon.now_ms + grace_ms;
    due_at(mon.phase_ms);
    files_status();
    peers_resume();
}

void ending_of_entry(const struct exec *e)
{
    mon.r.code = e->r.code;
    mon.r.signal = e->r.signal;
    if (mon.r.reason == END_NONE && e->r.reason == END_OOM_LIMIT)
        oom_text(e->r.oom_comm, e->r.oom_pid, mon.r.message);
    if (mon.r.reason == END_NONE && e->r.reason == END_START_FAILED)
        set_text(mon.r.message, sizeof mon.r.message, e->r.step);
    ending_kill((enum end_reason)e->r.reason, NULL);
}

static bool reap_init(void)
{
    siginfo_t si = {0};

    if (waitid((idtype_t)P_PIDFD, MON_FD_PIDFD, &si, WEXITED | WNOHANG | __WALL) < 0)
        return errno != EINTR;      /* ECHILD: reaped by the kernel */
    return si.si_pid != 0;
}

void ending_on_pidfd(void)
{
    if (!reap_init())
        return;
    if (mon.phase == PHASE_SLOT)
        monitor_exit(1);
    while (exec_on_init())          /* what it said before it died */
        continue;
    mon.phase = PHASE_DEAD;
    if (mon.r.reason == END_NONE) {
        mon.r.reason = mon.r.started_ms == 0                    ? END_CREATE_FAILED
                       : usage_oom_kills() > mon.oom_claimed ? END_OOM_LIMIT
                                                             : END_KILLED;
        set_text(mon.r.message, sizeof mon.r.message, "init ended");
    }
    if (mon.entry == 0 || exec_by_index(mon.entry - 1u)->live) {
        mon.r.code = -1;
        mon.r.signal = 9;
    }
    execs_end_all();
    network_end();
    mon.r.state = SB_ENDED;
    mon.r.ended_ms = clock_wall_ms();
    files_finish();
    peers_finish();
    monitor_exit(0);
}

static void on_phase_timer(void)
{
    switch (mon.phase) {
    case PHASE_SETUP:
        ending_kill(END_CREATE_FAILED, "init was not ready in time");
        break;
    case PHASE_STOP:
        ending_kill((enum end_reason)mon.r.reason, NULL);
        break;
    case PHASE_KILL:
        kill_all();
        break;
    case PHASE_SLOT:
    case PHASE_RUN:
    case PHASE_DEAD:
        mon.phase_ms = NEVER;
        break;
    }
}

void ending_run_timers(void)
{
    if (mon.now_ms >= mon.phase_ms)
        on_phase_timer();
    if (mon.phase == PHASE_SETUP || mon.phase == PHASE_RUN) {
        if (mon.now_ms >= mon.deadline_ms)
            ending_start(END_TIMEOUT, "deadline", 0, mon.grace_ms);
        else if (mon.now_ms >= idle_at())
            ending_start(END_IDLE_TIMEOUT, "idle", 0, mon.grace_ms);
    }
    due_at(mon.phase_ms);
    if (mon.phase == PHASE_SETUP || mon.phase == PHASE_RUN) {
        due_at(mon.deadline_ms);
        due_at(idle_at());
    }
}
