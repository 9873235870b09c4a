/*
 * reap.c - the ends of processes, and the table of the execs that have not ended
 *
 * Called by serve.c whenever SIGCHLD came. Leaders of execs are reported; orphans are reaped in silence.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "init/init.h"
#include "sys/fd.h"

/* Between two looks at the channel, so that a storm of orphans holds nobody up. */
#define REAP_BATCH 64

bool execs_full(const struct init *in)
{
    if (in->nexecs < EXEC_SLOTS)
        return false;
    for (uint32_t i = 0; i < in->nexecs; i++)
        if (in->execs[i].pid == 0)
            return false;
    return true;
}

struct exec_slot *execs_add(struct init *in, uint32_t seq, pid_t pid)
{
    uint32_t i = 0;

    while (i < in->nexecs && in->execs[i].pid != 0)
        i++;
    if (i == EXEC_SLOTS)
        return NULL;
    if (i == in->nexecs)
        in->nexecs++;
    in->execs[i] = (struct exec_slot){.seq = seq, .pid = pid};
    return &in->execs[i];
}

struct exec_slot *execs_by_seq(struct init *in, uint32_t seq)
{
    for (uint32_t i = 0; i < in->nexecs; i++)
        if (in->execs[i].pid != 0 && in->execs[i].seq == seq)
            return &in->execs[i];
    return NULL;
}

static struct exec_slot *execs_by_pid(struct init *in, pid_t pid)
{
    for (uint32_t i = 0; i < in->nexecs; i++)
        if (in->execs[i].pid == pid)
            return &in->execs[i];
    return NULL;
}

static void execs_remove(struct init *in, struct exec_slot *slot)
{
    slot->pid = 0;
    while (in->nexecs > 0 && in->execs[in->nexecs - 1].pid == 0)
        in->nexecs--;
}

static void comm_read(const struct init *in, pid_t pid, char *out, size_t size)
{
    char path[32];

    snprintf(path, sizeof path, "%d/comm", (int)pid);
    if (fd_read_at(in->proc, path, out, size) < 0)
        out[0] = '\0';
    /* A name may hold any byte but NUL; the message carries text. */
    for (char *p = out; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

static uint64_t micros(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

static void report(struct init *in, const struct exec_slot *slot, int status, const struct rusage *ru,
                   const char *comm)
{
    uint8_t out[128];
    struct init_exited r = {
        .seq = slot->seq,
        .code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
        .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        .user_us = micros(ru->ru_utime),
        .system_us = micros(ru->ru_stime),
        .max_rss_kb = (uint64_t)ru->ru_maxrss,
    };

    snprintf(r.comm, sizeof r.comm, "%s", comm);
    reply(in, INIT_EXITED, out, init_exited_encode(&r, out, sizeof out));
}

bool reap(struct init *in)
{
    for (int i = 0; i < REAP_BATCH; i++) {
        siginfo_t info = {0};
        struct rusage ru;
        char comm[16] = "";
        int status;

        /* Looked at before it is reaped: /proc still knows a zombie's name. */
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return false;
        struct exec_slot *slot = execs_by_pid(in, info.si_pid);
        if (slot != NULL && info.si_code != CLD_EXITED)
            comm_read(in, info.si_pid, comm, sizeof comm);
        if (wait4(info.si_pid, &status, WNOHANG, &ru) != info.si_pid)
            return false;
        if (slot != NULL) {
            report(in, slot, status, &ru, comm);
            execs_remove(in, slot);
        }
    }
    return true;
}
