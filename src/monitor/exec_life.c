/*
 * exec_life.c - an exec from its request to its end
 *
 * The monitor makes pipes or a terminal and a cgroup, hands the inner ends to init, and believes of
 * what init says only what concerns this sandbox. The end of an exec is published when init has reaped
 * it and its pipes are empty. A tree is killed through its cgroup, so a program that left its process
 * group or session is not missed; what an ended exec left behind lives on.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/exec_spec.h"
#include "monitor/monitor.h"
#include "sys/fd.h"

#define INIT_BATCH 64
#define ROWS 24
#define COLS 80

/* One EXEC that did not fit into init's socket; others wait in the sockets of those who ask. */
static uint8_t held[LIMIT_CHANNEL_MESSAGE] __attribute__((aligned(4096)));
static size_t held_len;
static uint32_t held_seq;

static void set_timer(struct exec *e, enum exec_timer timer, int64_t when_ms)
{
    e->timer = timer;
    e->timer_ms = when_ms;
    if (timer != TIMER_NONE)
        due_at(when_ms);
}

void exec_fill(const struct exec *e, struct exec_record *ret)
{
    *ret = e->r;
    ret->out_total = e->s[OUT].total;
    ret->out_first = e->s[OUT].first;
    ret->out_eof = e->s[OUT].eof;
    ret->err_total = e->s[ERR].total;
    ret->err_first = e->s[ERR].first;
    ret->err_eof = e->s[ERR].eof;
}

static int open_terminal(struct exec *e, const struct mon_exec *m)
{
    int ours;
    uint16_t rows = m->rows != 0 ? m->rows : ROWS;
    uint16_t cols = m->cols != 0 ? m->cols : COLS;
    int r = terminal_open(rows, cols, &ours, &e->inner[0]);

    if (r < 0)
        return r;
    e->s[OUT].fd = ours;
    e->s[ERR].eof = true;
    e->stdin_fd = ours;
    return watch_add(ours, EPOLLIN, SRC_OUT, exec_index(e));
}

static int open_output(struct exec *e, int which, bool wanted)
{
    int ends[2];

    if (!wanted) {
        e->s[which].eof = true;
        return 0;
    }
    int r = pipe_take(which == OUT ? 1 : 2, ends);
    if (r < 0)
        return r;
    e->s[which].fd = ends[0];
    e->inner[which == OUT ? 1 : 2] = ends[1];
    return watch_add(ends[0], EPOLLIN, which == OUT ? SRC_OUT : SRC_ERR, exec_index(e));
}

static int open_pipes(struct exec *e, const struct mon_exec *m)
{
    int ends[2];
    uint32_t flags = m->flags;

    if (e->tty)
        return open_terminal(e, m);
    e->r.stdin_closed = (flags & MON_EXEC_STDIN) == 0;
    if (!e->r.stdin_closed) {
        int r = pipe_take(0, ends);
        if (r < 0)
            return r;
        e->stdin_fd = ends[0];
        e->inner[0] = ends[1];
    }
    int r = open_output(e, OUT, (flags & MON_EXEC_NO_STDOUT) == 0);
    if (r < 0)
        return r;
    return open_output(e, ERR, (flags & (MON_EXEC_NO_STDERR | MON_EXEC_MERGE)) == 0);
}

static void close_inner(struct exec *e)
{
    for (int i = 0; i < 3; i++)
        fd_close(&e->inner[i]);
    fd_close(&e->group_fd);
}

static int send_exec(struct exec *e, const void *payload, size_t len)
{
    int fds[4];
    int n = 0;

    for (int i = 0; i < 3; i++)
        if (e->inner[i] >= 0)
            fds[n++] = e->inner[i];
    if (e->group_fd >= 0)
        fds[n++] = e->group_fd;
    int r = chan_send(MON_FD_INIT, INIT_EXEC, 0, payload, len, fds, n);
    if (r != -EAGAIN)
        close_inner(e);
    return r;
}

static uint32_t init_flags(const struct exec *e)
{
    uint32_t flags = (e->entry ? (uint32_t)INIT_EXEC_ENTRY : 0) |
                     (e->group_fd >= 0 ? (uint32_t)INIT_EXEC_CGROUP : 0);

    if (e->tty)
        return flags | INIT_EXEC_TTY;
    if (e->inner[0] >= 0)
        flags |= INIT_EXEC_STDIN;
    if (e->inner[1] >= 0)
        flags |= INIT_EXEC_STDOUT;
    if (e->inner[2] >= 0)
        flags |= INIT_EXEC_STDERR;
    if ((e->r.flags & MON_EXEC_MERGE) != 0)
        flags |= INIT_EXEC_MERGE;
    return flags;
}

static void start(struct exec *e, const struct mon_exec *m)
{
    e->group = (int16_t)group_take(e->r.seq, &e->group_fd);
    struct init_exec x = {
        .seq = e->r.seq, .flags = init_flags(e), .spec = m->spec, .spec_len = m->spec_len,
    };
    size_t n = init_exec_encode(&x, tx_buffer, sizeof tx_buffer);
    buffers_used(n);
    set_timer(e, TIMER_START, mon.now_ms + START_TIMEOUT_MS);
    if (send_exec(e, tx_buffer, n) == -EAGAIN) {
        memcpy(held, tx_buffer, n);
        held_len = n;
        held_seq = e->r.seq;
        mon.init_full = true;
        watch_change(MON_FD_INIT, EPOLLIN | EPOLLOUT, SRC_INIT, 0);
    }
    /* Another failure means that init is gone, which its pidfd tells. Init is at work; this is for what it starts. */
    figures_command_starts();
    e->oom_start = usage_oom_kills();
}

struct exec *exec_new(const struct mon_exec *m, uint64_t hash, enum err_code *ret_code)
{
    struct exec *e = exec_add(m->exec_id);

    if (e == NULL) {
        *ret_code = ERR_LIMIT;
        return NULL;
    }
    e->hash = hash;
    e->hidden = (m->flags & MON_EXEC_HIDDEN) != 0;
    e->entry = (m->flags & MON_EXEC_ENTRY) != 0;
    e->tty = (m->flags & MON_EXEC_TTY) != 0;
    exec_shown(e);
    e->grace_ms = m->grace_ms;
    uint64_t limit = m->output_limit != 0 ? m->output_limit : (uint64_t)LIMIT_OUTPUT_BYTES;
    e->keep = e->entry ? mon.log_bytes : limit;
    e->r.flags = m->flags;
    e->r.state = EXEC_STARTING;
    e->r.timeout_ms = m->timeout_ms;
    exec_spec_summary(m->spec, m->spec_len, e->r.command, sizeof e->r.command);
    if (open_pipes(e, m) < 0) {
        close_inner(e);
        spool_close(e, OUT);
        spool_close(e, ERR);
        exec_not_live(e);
        exec_forget(e);
        *ret_code = ERR_CAPACITY;
        return NULL;
    }
    if (e->entry)
        mon.entry = (uint16_t)(exec_index(e) + 1);
    else if (!e->hidden)
        mon.busy++;
    if (!e->hidden)
        ending_activity("exec");
    start(e, m);
    return e;
}

void exec_flush_held(void)
{
    if (!mon.init_full)
        return;
    struct exec *e = exec_by_seq(held_seq);
    if (e != NULL && e->live && send_exec(e, held, held_len) == -EAGAIN)
        return;
    mon.init_full = false;
    watch_change(MON_FD_INIT, EPOLLIN, SRC_INIT, 0);
    peers_resume();
}

/* The exec is over and its record complete but for its streams. */
static void ended(struct exec *e)
{
    bool open = e->s[OUT].fd >= 0 || e->s[ERR].fd >= 0;

    exec_not_live(e);
    if (!e->entry && !e->hidden)
        mon.busy--;
    if (!e->hidden)
        ending_activity("exec");
    e->r.ended_ms = clock_wall_ms();
    close_inner(e);
    if (e->kill_reason != END_NONE)
        (void)group_kill(e->group, e->r.seq);       /* what its own end left of a tree to be killed */
    group_release(e->group, e->r.seq);
    if (open)
        set_timer(e, TIMER_EOF, mon.now_ms + EOF_GRACE_MS);
    else
        set_timer(e, TIMER_NONE, NEVER);
    spool_settle(e);
    input_close(e);         /* wakes all waiters */
    if (e->entry)
        ending_of_entry(e);
}

static void failed(struct exec *e, enum end_reason reason, int error, const char *step)
{
    e->r.state = EXEC_FAILED;
    e->r.reason = (uint8_t)reason;
    e->r.code = -1;
    e->r.error = error;
    memcpy(e->r.step, step, strnlen(step, sizeof e->r.step - 1));
    /* Nothing of the tenant's ran, so there is nothing to drain. */
    spool_close(e, OUT);
    spool_close(e, ERR);
    ended(e);
}

static void on_started(const struct init_started *m)
{
    struct exec *e = exec_by_seq(m->seq);

    if (e == NULL || e->r.state != EXEC_STARTING)
        return;     /* given up already */
    if (m->error != 0) {
        failed(e, END_START_FAILED, m->error, m->step);
        return;
    }
    e->r.state = EXEC_RUNNING;
    e->r.pid = m->pid;
    e->r.started_ms = clock_wall_ms();
    if (e->kill_reason != END_NONE)
        exec_kill(e, (enum end_reason)e->kill_reason);  /* at first there was nothing to kill */
    else if (e->r.timeout_ms == 0 || e->r.timeout_ms > (uint64_t)(NEVER - mon.now_ms))
        set_timer(e, TIMER_NONE, NEVER);
    else
        set_timer(e, TIMER_TIMEOUT, mon.now_ms + (int64_t)e->r.timeout_ms);
    waiters_wake(e);
}

/* Died by the memory limit: by SIGKILL that is not ours (or a shell says so of its child), while the
 * sandbox's counter rose by a kill that no other exec accounts for. */
static bool was_oom(struct exec *e)
{
    if (e->kill_reason != END_NONE || (e->r.signal != 9 && e->r.code != 128 + 9))
        return false;
    uint64_t kills = usage_oom_kills();
    if (kills <= e->oom_start || kills <= mon.oom_claimed)
        return false;
    mon.oom_claimed = mon.oom_claimed < e->oom_start ? e->oom_start + 1 : mon.oom_claimed + 1;
    return true;
}

static enum end_reason reason_of(struct exec *e, const struct init_exited *m)
{
    enum end_reason killed = (enum end_reason)e->kill_reason;

    if (was_oom(e)) {
        oom_of_leader(e, m->signal == 9 ? m->comm : "");
        return END_OOM_LIMIT;
    }
    /* A kill by request may come after the program's own end; a limit that was reached stays the reason. */
    if (killed == END_TIMEOUT || killed == END_OUTPUT_LIMIT || killed == END_OOM_LIMIT || (killed != END_NONE && m->signal == 9))
        return killed;
    return m->signal != 0 ? END_SIGNALED : END_EXITED;
}

static void exited(struct exec *e, const struct init_exited *m)
{
    e->r.state = EXEC_EXITED;
    e->r.code = m->code;
    e->r.signal = m->signal;
    e->r.user_us = m->user_us;
    e->r.system_us = m->system_us;
    e->r.max_rss_kb = m->max_rss_kb;
    /* All that it wrote is in the pipes now; after this, it is in the spool. */
    spool_drain(e, OUT, true);
    spool_drain(e, ERR, true);
    e->r.reason = (uint8_t)reason_of(e, m);
    ended(e);
}

static void on_exited(const struct init_exited *m)
{
    struct exec *e = exec_by_seq(m->seq);

    if (e != NULL && e->live)
        exited(e, m);
}

/* It was killed and init has not said so: no wait may hang on init. */
static void on_unreported(struct exec *e)
{
    struct init_exited m = {.code = -1, .signal = 9};

    if (group_is_empty(e->group, e->r.seq))
        exited(e, &m);
    else
        exec_kill(e, (enum end_reason)e->kill_reason);
}

static int on_message(const struct chan_msg *msg)
{
    struct init_ready ready;
    struct init_started started;
    struct init_exited exited;
    struct init_oom_r oom;

    switch (msg->type) {
    case INIT_READY:
        if (mon.phase != PHASE_SETUP || init_ready_decode(&ready, msg->data, msg->len) < 0)
            return -1;
        setup_on_ready(&ready);
        return 0;
    case INIT_STARTED:
        if (init_started_decode(&started, msg->data, msg->len) < 0)
            return -1;
        on_started(&started);
        return 0;
    case INIT_EXITED:
        if (init_exited_decode(&exited, msg->data, msg->len) < 0)
            return -1;
        on_exited(&exited);
        return 0;
    case INIT_OOM_R:
        if (init_oom_r_decode(&oom, msg->data, msg->len) < 0)
            return -1;
        oom_on_answer(&oom);
        return 0;
    default:
        return -1;
    }
}

bool exec_on_init(void)
{
    for (int i = 0; i < INIT_BATCH; i++) {
        struct chan_msg m;
        int r = chan_recv(MON_FD_INIT, rx_buffer, sizeof rx_buffer, CHAN_NO_FDS, &m);
        if (r == -EAGAIN)
            return false;
        if (r > 0 && on_message(&m) == 0)
            continue;
        /* Only this sandbox suffers from an init that does not speak the protocol. If it is gone, its
         * pidfd will say more. */
        watch_remove(MON_FD_INIT);
        if (r == 0 || r == -ECONNRESET)
            ending_kill(END_NONE, NULL);
        else
            ending_kill(END_KILLED, "init broke the protocol");
        return false;
    }
    return true;
}

void exec_on_output(struct exec *e, int which, bool closed)
{
    spool_drain(e, which, closed);
    if (!e->forgotten)
        waiters_wake(e);
    else if (e->s[OUT].fd < 0 && e->s[ERR].fd < 0)
        exec_free(e);
}

int exec_signal(struct exec *e, int signal, enum init_signal_scope scope)
{
    uint8_t out[32];
    struct init_signal m = {.seq = e != NULL ? e->r.seq : 0, .signal = signal, .scope = (uint8_t)scope};

    /* Behind an EXEC that is held back it would arrive too early. */
    if (mon.init_full)
        return -EAGAIN;
    size_t n = init_signal_encode(&m, out, sizeof out);
    return chan_send(MON_FD_INIT, INIT_SIGNAL, 0, out, n, NULL, 0);
}

void exec_kill(struct exec *e, enum end_reason reason)
{
    if (e->live && e->kill_reason == END_NONE)
        e->kill_reason = (uint8_t)reason;
    if (e->live && e->timer != TIMER_START)
        set_timer(e, TIMER_KILLED, mon.now_ms + UNREPORTED_MS);
    /* Without a group of its own (none could be made) the process group is the best there is. */
    if (!group_kill(e->group, e->r.seq) && e->live)
        (void)exec_signal(e, 9, INIT_SIG_GROUP);
}

void exec_over_limit(struct exec *e, int error)
{
    if (!e->live)
        return;
    if (error != 0) {
        e->r.error = error;
        memcpy(e->r.step, "spool", sizeof "spool");
    }
    exec_kill(e, END_OUTPUT_LIMIT);
}

void exec_on_timer(struct exec *e)
{
    enum exec_timer timer = e->timer;

    set_timer(e, TIMER_NONE, NEVER);
    switch (timer) {
    case TIMER_START:
        (void)group_kill(e->group, e->r.seq);
        failed(e, END_START_FAILED, ETIMEDOUT, "start");
        break;
    case TIMER_TIMEOUT:
        if (e->grace_ms == 0 || exec_signal(e, 15, INIT_SIG_GROUP) < 0) {
            exec_kill(e, END_TIMEOUT);
            break;
        }
        e->kill_reason = END_TIMEOUT;
        set_timer(e, TIMER_GRACE, mon.now_ms + e->grace_ms);
        break;
    case TIMER_GRACE:
        exec_kill(e, END_TIMEOUT);
        break;
    case TIMER_KILLED:
        on_unreported(e);
        break;
    case TIMER_EOF:
        e->s[OUT].eof = true;
        e->s[ERR].eof = true;
        waiters_wake(e);
        break;
    case TIMER_NONE:
        break;
    }
}

void exec_forget(struct exec *e)
{
    input_close(e);
    waiters_abandon(e);
    exec_unlist(e);
    spool_forget(e);
    /* A child that was left behind keeps its pipes: they are read and nothing is kept, because a closed
     * pipe would kill it. */
    if (e->s[OUT].fd < 0 && e->s[ERR].fd < 0)
        exec_free(e);
}

void execs_end_all(void)
{
    for (struct exec *e = exec_oldest(); e != NULL; e = exec_newer(e)) {
        spool_drain(e, OUT, true);
        spool_drain(e, ERR, true);
        spool_close(e, OUT);
        spool_close(e, ERR);
        if (!e->live)
            continue;
        if (e->r.state == EXEC_STARTING) {
            failed(e, END_KILLED, 0, "init");
            continue;
        }
        /* Ended with the sandbox; nobody was left to report it. */
        e->r.state = EXEC_EXITED;
        e->r.reason = e->kill_reason != END_NONE ? e->kill_reason : (uint8_t)END_TERMINATED;
        e->r.code = -1;
        e->r.signal = 9;
        ended(e);
    }
}
