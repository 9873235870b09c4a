/*
 * record.c - codec of exec and sandbox records
 *
 * Written by the monitor; read by the node from the wire and, after the monitor is gone, from disk.
 */
#include "ipc/record.h"

#include <errno.h>

const char *end_reason_name(uint8_t reason)
{
    static const char *const names[] = {
#define X(sym, text) [END_##sym] = text,
        END_REASONS(X)
#undef X
    };

    return reason < END_MAX_ ? names[reason] : "";
}

void exec_record_put(struct wire_writer *w, const struct exec_record *r)
{
    wire_put_u16(w, RECORD_VERSION);
    wire_put_u32(w, r->seq);
    wire_put_str(w, r->exec_id);
    wire_put_str(w, r->container);
    wire_put_u32(w, r->flags);
    wire_put_u8(w, r->state);
    wire_put_i32(w, r->pid);
    wire_put_i64(w, r->started_ms);
    wire_put_i64(w, r->ended_ms);
    wire_put_u64(w, r->timeout_ms);
    wire_put_u8(w, r->reason);
    wire_put_i32(w, r->code);
    wire_put_i32(w, r->signal);
    wire_put_i32(w, r->error);
    wire_put_str(w, r->step);
    wire_put_str(w, r->oom_comm);
    wire_put_i32(w, r->oom_pid);
    wire_put_u64(w, r->user_us);
    wire_put_u64(w, r->system_us);
    wire_put_u64(w, r->max_rss_kb);
    wire_put_u64(w, r->out_total);
    wire_put_u64(w, r->out_first);
    wire_put_u64(w, r->err_total);
    wire_put_u64(w, r->err_first);
    wire_put_bool(w, r->out_eof);
    wire_put_bool(w, r->err_eof);
    wire_put_u64(w, r->stdin_taken);
    wire_put_bool(w, r->stdin_closed);
    wire_put_str(w, r->command);
}

void exec_record_get(struct wire_reader *r, struct exec_record *ret)
{
    *ret = (struct exec_record){0};
    if (wire_get_u16(r) != RECORD_VERSION)
        wire_fail(r);
    ret->seq = wire_get_u32(r);
    wire_get_str(r, ret->exec_id, sizeof ret->exec_id);
    wire_get_str(r, ret->container, sizeof ret->container);
    ret->flags = wire_get_u32(r);
    ret->state = wire_get_u8(r);
    ret->pid = wire_get_i32(r);
    ret->started_ms = wire_get_i64(r);
    ret->ended_ms = wire_get_i64(r);
    ret->timeout_ms = wire_get_u64(r);
    ret->reason = wire_get_u8(r);
    ret->code = wire_get_i32(r);
    ret->signal = wire_get_i32(r);
    ret->error = wire_get_i32(r);
    wire_get_str(r, ret->step, sizeof ret->step);
    wire_get_str(r, ret->oom_comm, sizeof ret->oom_comm);
    ret->oom_pid = wire_get_i32(r);
    ret->user_us = wire_get_u64(r);
    ret->system_us = wire_get_u64(r);
    ret->max_rss_kb = wire_get_u64(r);
    ret->out_total = wire_get_u64(r);
    ret->out_first = wire_get_u64(r);
    ret->err_total = wire_get_u64(r);
    ret->err_first = wire_get_u64(r);
    ret->out_eof = wire_get_bool(r);
    ret->err_eof = wire_get_bool(r);
    ret->stdin_taken = wire_get_u64(r);
    ret->stdin_closed = wire_get_bool(r);
    wire_get_str(r, ret->command, sizeof ret->command);
    if (ret->state < EXEC_STARTING || ret->state > EXEC_FAILED || ret->reason >= END_MAX_)
        wire_fail(r);
}

size_t exec_record_encode(const struct exec_record *r, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    exec_record_put(&w, r);
    return w.failed ? 0 : w.len;
}

int exec_record_decode(struct exec_record *ret, const void *p, size_t n)
{
    struct exec_record m;
    struct wire_reader r;

    wire_read(&r, p, n);
    exec_record_get(&r, &m);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t sandbox_record_encode(const struct sandbox_record *r, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u16(&w, RECORD_VERSION);
    wire_put_str(&w, r->sandbox);
    wire_put_u8(&w, r->state);
    wire_put_i32(&w, r->monitor_pid);
    wire_put_i64(&w, r->created_ms);
    wire_put_i64(&w, r->started_ms);
    wire_put_i64(&w, r->ended_ms);
    wire_put_i64(&w, r->deadline_ms);
    wire_put_u64(&w, r->idle_ms);
    wire_put_i64(&w, r->last_activity_ms);
    wire_put_str(&w, r->last_activity);
    wire_put_u32(&w, r->execs_live);
    wire_put_u8(&w, r->reason);
    wire_put_i32(&w, r->code);
    wire_put_i32(&w, r->signal);
    wire_put_str(&w, r->actor);
    wire_put_str(&w, r->message);
    wire_put_u64(&w, r->cpu_us);
    wire_put_u64(&w, r->memory_peak);
    wire_put_u64(&w, r->memory_now);
    wire_put_u64(&w, r->pids_now);
    wire_put_u64(&w, r->oom_kills);
    return w.failed ? 0 : w.len;
}

int sandbox_record_decode(struct sandbox_record *ret, const void *p, size_t n)
{
    struct sandbox_record m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    if (wire_get_u16(&r) != RECORD_VERSION)
        wire_fail(&r);
    wire_get_str(&r, m.sandbox, sizeof m.sandbox);
    m.state = wire_get_u8(&r);
    m.monitor_pid = wire_get_i32(&r);
    m.created_ms = wire_get_i64(&r);
    m.started_ms = wire_get_i64(&r);
    m.ended_ms = wire_get_i64(&r);
    m.deadline_ms = wire_get_i64(&r);
    m.idle_ms = wire_get_u64(&r);
    m.last_activity_ms = wire_get_i64(&r);
    wire_get_str(&r, m.last_activity, sizeof m.last_activity);
    m.execs_live = wire_get_u32(&r);
    m.reason = wire_get_u8(&r);
    m.code = wire_get_i32(&r);
    m.signal = wire_get_i32(&r);
    wire_get_str(&r, m.actor, sizeof m.actor);
    wire_get_str(&r, m.message, sizeof m.message);
    m.cpu_us = wire_get_u64(&r);
    m.memory_peak = wire_get_u64(&r);
    m.memory_now = wire_get_u64(&r);
    m.pids_now = wire_get_u64(&r);
    m.oom_kills = wire_get_u64(&r);
    if (!wire_end(&r) || m.state < SB_STARTING || m.state > SB_ENDED || m.reason >= END_MAX_)
        return -EBADMSG;
    *ret = m;
    return 0;
}
