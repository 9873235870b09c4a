/*
 * serve.c - the loop of PID 1
 *
 * One channel, one signalfd. The end of the channel is the end of the sandbox: when PID 1 exits, the
 * kernel kills everything in its namespace.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "init/init.h"

/* Messages between two looks at the dead. */
#define MESSAGE_BATCH 16

void reply(struct init *in, uint16_t type, const void *p, size_t n)
{
    for (;;) {
        int r = chan_send(in->channel, type, 0, p, n, NULL, 0);
        if (r == 0)
            return;
        if (r != -EAGAIN && r != -ENOBUFS)
            _exit(1);
        struct pollfd pf = {.fd = in->channel, .events = POLLOUT};
        if (poll(&pf, 1, r == -EAGAIN ? -1 : 10) > 0 && (pf.revents & (POLLERR | POLLHUP)) != 0)
            _exit(1);
    }
}

static void signal_send(struct init *in, const struct init_signal *s)
{
    if (s->signal < 1 || s->signal > 64)
        return;
    if (s->scope == INIT_SIG_ALL) {
        (void)kill(-1, s->signal);      /* everyone but us; there may be nobody */
        return;
    }
    /* A leader that is not reaped yet keeps its number, so this reaches nobody else. */
    struct exec_slot *slot = execs_by_seq(in, s->seq);
    if (slot != NULL)
        (void)kill(s->scope == INIT_SIG_GROUP ? -slot->pid : slot->pid, s->signal);
}

static int handle(struct init *in, const struct chan_msg *m)
{
    struct init_exec x;
    struct init_signal s;
    struct init_cpus cpus;
    struct init_oom oom;

    switch (m->type) {
    case INIT_EXEC:
        if (init_exec_decode(&x, m->data, m->len) < 0)
            return -EBADMSG;
        exec_run(in, &x, m);
        return 0;
    case INIT_SIGNAL:
        if (init_signal_decode(&s, m->data, m->len) < 0)
            return -EBADMSG;
        signal_send(in, &s);
        return 0;
    case INIT_CPUS:
        if (init_cpus_decode(&cpus, m->data, m->len) < 0)
            return -EBADMSG;
        cpus_use(cpus.cpus);
        return 0;
    case INIT_OOM:
        if (init_oom_decode(&oom, m->data, m->len) < 0)
            return -EBADMSG;
        oom_answer(in, &oom);
        return 0;
    default:
        return 0;                       /* of a later version; nothing waits for an answer */
    }
}

static void receive(struct init *in)
{
    struct chan_msg m;

    for (int i = 0; i < MESSAGE_BATCH; i++) {
        int r = chan_recv(in->channel, in->space, sizeof in->space, 0, &m);
        if (r == -EAGAIN)
            return;
        if (r <= 0)
            _exit(r == 0 ? 0 : 1);
        r = handle(in, &m);
        chan_msg_done(&m);
        if (r < 0)
            _exit(1);
    }
}

void serve(struct init *in)
{
    bool more = false;

    for (;;) {
        struct pollfd pf[2] = {
            {.fd = in->channel, .events = POLLIN},
            {.fd = in->signals, .events = POLLIN},
        };
        struct signalfd_siginfo info;

        if (poll(pf, 2, more ? 0 : -1) < 0 && errno != EINTR)
            _exit(1);
        /* Signals coalesce, so one read tells no more than that somebody died. */
        if ((pf[1].revents & POLLIN) != 0)
            (void)!read(in->signals, &info, sizeof info);
        more = reap(in);
        if (pf[0].revents != 0)
            receive(in);
    }
}
