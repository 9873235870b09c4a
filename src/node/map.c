/*
 * map.c - records of the monitors as messages of node.proto, and failures of a start as errors
 */
#include "node/map.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/limits.h"

#define SET(m, field, value) ((m)->has_##field = 1, (m)->field = (value))

/* The library does not write through these. */
static char *text(const char *s)
{
    return (char *)(uintptr_t)s;
}

void map_exec(const struct exec_record *r, Quicksand__Node__Exec *ret)
{
    quicksand__node__exec__init(ret);
    ret->exec_id = text(r->exec_id);
    ret->container = text(r->container);
    SET(ret, flags, r->flags);
    SET(ret, state, r->state);
    SET(ret, pid, r->pid);
    SET(ret, started_ms, r->started_ms);
    SET(ret, ended_ms, r->ended_ms);
    SET(ret, timeout_ms, r->timeout_ms);
    SET(ret, reason, r->reason);
    SET(ret, code, r->code);
    SET(ret, signal, r->signal);
    SET(ret, error, r->error);
    ret->step = text(r->step);
    ret->oom_comm = text(r->oom_comm);
    SET(ret, oom_pid, r->oom_pid);
    SET(ret, user_us, r->user_us);
    SET(ret, system_us, r->system_us);
    SET(ret, max_rss_kb, r->max_rss_kb);
    SET(ret, out_total, r->out_total);
    SET(ret, out_first, r->out_first);
    SET(ret, err_total, r->err_total);
    SET(ret, err_first, r->err_first);
    SET(ret, stdin_taken, r->stdin_taken);
    SET(ret, stdin_closed, r->stdin_closed);
    ret->has_command = 1;
    ret->command.data = (uint8_t *)text(r->command);
    ret->command.len = strlen(r->command);
    SET(ret, out_eof, r->out_eof);
    SET(ret, err_eof, r->err_eof);
    SET(ret, seq, r->seq);
}

void map_sandbox(const struct sandbox_record *r, Quicksand__Node__Usage *usage,
                 Quicksand__Node__Exec *entry, Quicksand__Node__Sandbox *ret)
{
    quicksand__node__sandbox__init(ret);
    ret->sandbox_id = text(r->sandbox);
    SET(ret, state, r->state);
    SET(ret, created_ms, r->created_ms);
    SET(ret, started_ms, r->started_ms);
    SET(ret, ended_ms, r->ended_ms);
    SET(ret, deadline_ms, r->deadline_ms);
    SET(ret, idle_ms, r->idle_ms);
    SET(ret, last_activity_ms, r->last_activity_ms);
    ret->last_activity = text(r->last_activity);
    SET(ret, execs_live, r->execs_live);
    SET(ret, reason, r->reason);
    SET(ret, code, r->code);
    SET(ret, signal, r->signal);
    ret->actor = text(r->actor);
    ret->message = text(r->message);
    ret->entry = entry;

    quicksand__node__usage__init(usage);
    SET(usage, cpu_us, r->cpu_us);
    SET(usage, memory_peak, r->memory_peak);
    SET(usage, memory_now, r->memory_now);
    SET(usage, pids_now, r->pids_now);
    SET(usage, oom_kills, r->oom_kills);
    ret->usage = usage;
}

static void exec_error(int error, const char *program, struct err *e)
{
    switch (error) {
    case ENOENT:
        err_param(e, ERR_EXEC_NOT_FOUND, "argv",
                  "cannot run %.120s: it or its interpreter does not exist", program);
        break;
    case E2BIG:
        err_param(e, ERR_TOO_LARGE, "argv",
                  "cannot run %.120s: arguments and environment are too long", program);
        break;
    case EACCES:
    case ENOEXEC:
    case EISDIR:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EPERM:
    case ETXTBSY:
    case ELIBBAD:
        err_param(e, ERR_NOT_EXECUTABLE, "argv", "cannot run %.120s: %s", program,
                  error == EISDIR ? "it is a directory" : strerror(error));
        break;
    default:
        err_set(e, ERR_INTERNAL, "cannot run %.120s: %s", program, strerror(error));
        break;
    }
}

void map_start_error(const struct exec_record *r, const char *program, const char *cwd,
                     struct err *e)
{
    if (r->error == 0 && r->reason == END_KILLED)
        err_set(e, ERR_GONE, "the sandbox ended before %.120s had started", program);
    else if (strcmp(r->step, "exec") == 0 || strcmp(r->step, "interpreter") == 0)
        exec_error(r->error, program, e);
    else if (strcmp(r->step, "cwd") == 0)
        err_param(e, ERR_INVALID, "cwd", "cannot run %.120s: working directory %.120s: %s", program,
                  cwd, strerror(r->error));
    else if (strcmp(r->step, "user") == 0)
        err_param(e, ERR_INVALID, "user", "cannot run %.120s: %s%s", program,
                  r->error == ENOENT ? "the sandbox's /etc/passwd and /etc/group have no such user or group" : "user: ",
                  r->error == ENOENT ? "" : strerror(r->error));
    else if (strcmp(r->step, "fork") == 0 && (r->error == EAGAIN || r->error == ENOMEM))
        err_set(e, ERR_LIMIT, "cannot run %.120s: the sandbox's %s limit is reached", program,
                r->error == EAGAIN ? "process" : "memory");
    else
        err_set(e, ERR_INTERNAL, "cannot run %.120s: step %s: %s", program, r->step,
                strerror(r->error));
    e->sys_errno = r->error;
}
