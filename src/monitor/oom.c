/*
 * oom.c - what follows when the memory limit kills a process
 *
 * The kernel tells that the limit is reached, before it kills (v1) or about then (v2); its counter tells
 * that it has killed. Init is asked at once who is being killed, because a victim is seen only until it is
 * reaped; asked again while the counter has not moved. What init says decides no more than which exec of
 * its own sandbox the victim is counted for. A victim that nobody saw is one all the same: then only the
 * sandbox's rule can be followed.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor/monitor.h"
#include "monitor/text.h"

#define LOOKS 10
#define FIRST_MS 2
#define LONGEST_MS 200
#define ANSWER_MS 1000      /* init answers later than this: never, as far as the rule goes */

static struct {
    bool active;
    bool asked;             /* an answer of init is due */
    bool is_eventfd;
    uint32_t tag;
    unsigned looks;
    int64_t due_ms;
    uint64_t handled;       /* kills that were dealt with */
    struct init_oom_r victim;
} oom = {.due_ms = NEVER};

static void due(int64_t when_ms)
{
    oom.due_ms = when_ms;
    due_at(when_ms);
}

void oom_watch(void)
{
    struct stat st;

    oom.handled = usage_oom_kills();
    oom.is_eventfd = fstat(MON_FD_OOM, &st) == 0 && !S_ISREG(st.st_mode);
    /* Where there is nothing to watch, the ends of execs tell. */
    (void)watch_add(MON_FD_OOM, oom.is_eventfd ? EPOLLIN : EPOLLPRI, SRC_OOM, 0);
}

static void ask(void)
{
    struct init_oom m = {.tag = ++oom.tag};
    uint8_t out[16];

    oom.asked = !mon.init_full &&
                chan_send(MON_FD_INIT, INIT_OOM, 0, out, init_oom_encode(&m, out, sizeof out), NULL, 0) == 0;
    due(mon.now_ms + ANSWER_MS);
}

void oom_on_event(void)
{
    char text[512];

    /* Either is ready again only after it was read. */
    (void)!(oom.is_eventfd ? read(MON_FD_OOM, text, 8) : pread(MON_FD_OOM, text, sizeof text, 0));
    if (mon.phase != PHASE_RUN && mon.phase != PHASE_STOP)
        return;
    oom.looks = 0;
    if (oom.active)
        return;
    oom.active = true;
    oom.victim = (struct init_oom_r){.group = -1};
    ask();
}

/* "the memory limit was reached and 'python3' (pid 12) was killed" */
void oom_text(const char *comm, int32_t pid, char out[OOM_TEXT])
{
    char *at = out;

    text_put(&at, "the memory limit was reached and ");
    if (pid > 0) {
        text_put(&at, "'");
        text_put(&at, comm);
        text_put(&at, "' (pid ");
        text_number(&at, (uint64_t)pid);
        text_put(&at, ") was killed");
    } else {
        text_put(&at, "a process was killed");
    }
    *at = '\0';
}

static void end_sandbox(const char *comm, int32_t pid)
{
    char text[OOM_TEXT];

    oom_text(comm, pid, text);
    ending_kill(END_OOM_LIMIT, text);
}

static void note(struct exec *e, const char *comm, int32_t pid)
{
    if (e->r.oom_pid != 0 || pid <= 0)
        return;
    e->r.oom_pid = pid;
    memset(e->r.oom_comm, 0, sizeof e->r.oom_comm);
    memcpy(e->r.oom_comm, comm, strnlen(comm, sizeof e->r.oom_comm - 1));
}

void oom_of_leader(struct exec *e, const char *comm)
{
    if (*comm != '\0')
        note(e, comm, e->r.pid);
    if (mon.oom == OOM_EXEC && e->kill_reason == END_NONE)
        e->kill_reason = END_OOM_LIMIT;     /* its group is killed once its end is noted */
    if (mon.oom == OOM_SANDBOX)
        end_sandbox(e->r.oom_comm, e->r.oom_pid);
}

static void handle(const struct init_oom_r *v)
{
    uint32_t seq = group_owner(v->group);
    struct exec *e = seq != 0 ? exec_by_seq(seq) : NULL;

    if (v->pid != 0)
        mon.oom_claimed = oom.handled;      /* no exec that ends by another's signal is taken for the victim */
    if (e != NULL && e->live)
        note(e, v->comm, v->pid);
    if (mon.oom == OOM_SANDBOX)
        end_sandbox(v->comm, v->pid);
    else if (mon.oom == OOM_EXEC && e != NULL && e->live)
        exec_kill(e, END_OOM_LIMIT);
    else if (mon.oom == OOM_EXEC && seq != 0)
        (void)group_kill(v->group, seq);    /* what an ended exec left behind */
}

/* An answer has come, or will not. */
static void look(void)
{
    uint64_t kills = usage_oom_kills();

    if (kills > oom.handled && (oom.victim.certain || oom.looks >= LOOKS / 2)) {
        oom.handled = kills;
        handle(&oom.victim);
        oom.victim = (struct init_oom_r){.group = -1};
        oom.looks = LOOKS / 2;      /* another one may be under way */
    }
    if (++oom.looks > LOOKS) {
        oom.active = false;
        oom.due_ms = NEVER;
        return;
    }
    int64_t pause_ms = FIRST_MS << oom.looks;
    due(mon.now_ms + (pause_ms < LONGEST_MS ? pause_ms : LONGEST_MS));
}

void oom_on_answer(const struct init_oom_r *m)
{
    if (!oom.asked || m->tag != oom.tag)
        return;
    oom.asked = false;
    /* What is certain counts; before that what came first, when the largest was still there. */
    if (m->pid != 0 && !oom.victim.certain && (m->certain || oom.victim.pid == 0))
        oom.victim = *m;
    look();
}

void oom_run_timers(void)
{
    if (!oom.active)
        return;
    if (mon.now_ms < oom.due_ms) {
        due_at(oom.due_ms);
        return;
    }
    if (oom.asked) {
        oom.asked = false;
        look();
    } else if (!oom.victim.certain) {
        ask();
    } else {
        look();
    }
}
