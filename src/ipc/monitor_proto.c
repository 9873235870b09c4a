/*
 * monitor_proto.c - codec of the messages between node and monitor
 *
 * The monitor closes a connection whose message does not decode; values that have an error of their
 * own (an unknown flag, an offset out of range) are its business, not the decoder's.
 */
#include "ipc/monitor_proto.h"

#include <errno.h>
#include <string.h>

#include "ipc/init_proto.h"
#include "ipc/wire.h"

#define SIGNAL_MAX 64

static size_t done(const struct wire_writer *w)
{
    return w->failed ? 0 : w->len;
}

size_t mon_exec_encode(const struct mon_exec *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->exec_id);
    wire_put_str(&w, m->container);
    wire_put_u32(&w, m->flags);
    wire_put_u64(&w, m->timeout_ms);
    wire_put_u32(&w, m->grace_ms);
    wire_put_u64(&w, m->output_limit);
    wire_put_u16(&w, m->rows);
    wire_put_u16(&w, m->cols);
    wire_put_bool(&w, m->lazy);
    wire_put_bytes(&w, m->spec, m->spec_len);
    return done(&w);
}

int mon_exec_decode(struct mon_exec *ret, const void *p, size_t n)
{
    struct mon_exec m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.exec_id, sizeof m.exec_id);
    wire_get_str(&r, m.container, sizeof m.container);
    m.flags = wire_get_u32(&r);
    m.timeout_ms = wire_get_u64(&r);
    m.grace_ms = wire_get_u32(&r);
    m.output_limit = wire_get_u64(&r);
    m.rows = wire_get_u16(&r);
    m.cols = wire_get_u16(&r);
    m.lazy = wire_get_bool(&r);
    m.spec = wire_get_bytes(&r, LIMIT_CHANNEL_MESSAGE, &m.spec_len);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_ref_encode(const struct mon_ref *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->exec_id);
    wire_put_str(&w, m->container);
    return done(&w);
}

int mon_ref_decode(struct mon_ref *ret, const void *p, size_t n)
{
    struct mon_ref m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.exec_id, sizeof m.exec_id);
    wire_get_str(&r, m.container, sizeof m.container);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_read_encode(const struct mon_read *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->exec_id);
    wire_put_str(&w, m->container);
    wire_put_u8(&w, m->stream);
    wire_put_u64(&w, m->offset);
    wire_put_u32(&w, m->max);
    wire_put_u32(&w, m->wait_ms);
    wire_put_bool(&w, m->file_ok);
    wire_put_bool(&w, m->lazy);
    return done(&w);
}

int mon_read_decode(struct mon_read *ret, const void *p, size_t n)
{
    struct mon_read m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.exec_id, sizeof m.exec_id);
    wire_get_str(&r, m.container, sizeof m.container);
    m.stream = wire_get_u8(&r);
    m.offset = wire_get_u64(&r);
    m.max = wire_get_u32(&r);
    m.wait_ms = wire_get_u32(&r);
    m.file_ok = wire_get_bool(&r);
    m.lazy = wire_get_bool(&r);
    if (!wire_end(&r) || m.stream < 1 || m.stream > 2)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_read_r_encode(const struct mon_read_r *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u64(&w, m->offset);
    wire_put_u64(&w, m->total);
    wire_put_bool(&w, m->eof);
    wire_put_bool(&w, m->exited);
    wire_put_bytes(&w, m->data, m->len);
    wire_put_u32(&w, m->file_seq);
    return done(&w);
}

int mon_read_r_decode(struct mon_read_r *ret, const void *p, size_t n)
{
    struct mon_read_r m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.offset = wire_get_u64(&r);
    m.total = wire_get_u64(&r);
    m.eof = wire_get_bool(&r);
    m.exited = wire_get_bool(&r);
    m.data = wire_get_bytes(&r, LIMIT_READ_CHUNK, &m.len);
    m.file_seq = wire_get_u32(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_stdin_encode(const struct mon_stdin *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->exec_id);
    wire_put_str(&w, m->container);
    wire_put_u64(&w, m->offset);
    wire_put_bool(&w, m->eof);
    wire_put_bytes(&w, m->data, m->len);
    return done(&w);
}

int mon_stdin_decode(struct mon_stdin *ret, const void *p, size_t n)
{
    struct mon_stdin m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.exec_id, sizeof m.exec_id);
    wire_get_str(&r, m.container, sizeof m.container);
    m.offset = wire_get_u64(&r);
    m.eof = wire_get_bool(&r);
    m.data = wire_get_bytes(&r, LIMIT_STDIN_CHUNK, &m.len);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_stdin_r_encode(const struct mon_stdin_r *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u64(&w, m->taken);
    wire_put_bool(&w, m->closed);
    return done(&w);
}

int mon_stdin_r_decode(struct mon_stdin_r *ret, const void *p, size_t n)
{
    struct mon_stdin_r m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.taken = wire_get_u64(&r);
    m.closed = wire_get_bool(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_wait_encode(const struct mon_wait *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->exec_id);
    wire_put_str(&w, m->container);
    wire_put_u32(&w, m->wait_ms);
    return done(&w);
}

int mon_wait_decode(struct mon_wait *ret, const void *p, size_t n)
{
    struct mon_wait m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.exec_id, sizeof m.exec_id);
    wire_get_str(&r, m.container, sizeof m.container);
    m.wait_ms = wire_get_u32(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_list_encode(const struct mon_list *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->first);
    return done(&w);
}

int mon_list_decode(struct mon_list *ret, const void *p, size_t n)
{
    struct mon_list m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.first = wire_get_u32(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_signal_encode(const struct mon_signal *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->exec_id);
    wire_put_str(&w, m->container);
    wire_put_i32(&w, m->signal);
    wire_put_u8(&w, m->scope);
    return done(&w);
}

int mon_signal_decode(struct mon_signal *ret, const void *p, size_t n)
{
    struct mon_signal m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.exec_id, sizeof m.exec_id);
    wire_get_str(&r, m.container, sizeof m.container);
    m.signal = wire_get_i32(&r);
    m.scope = wire_get_u8(&r);
    if (!wire_end(&r) || m.signal < 0 || m.signal > SIGNAL_MAX || m.scope > INIT_SIG_ALL)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_resize_encode(const struct mon_resize *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->exec_id);
    wire_put_str(&w, m->container);
    wire_put_u16(&w, m->rows);
    wire_put_u16(&w, m->cols);
    return done(&w);
}

int mon_resize_decode(struct mon_resize *ret, const void *p, size_t n)
{
    struct mon_resize m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.exec_id, sizeof m.exec_id);
    wire_get_str(&r, m.container, sizeof m.container);
    m.rows = wire_get_u16(&r);
    m.cols = wire_get_u16(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_kill_encode(const struct mon_kill *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->exec_id);
    wire_put_str(&w, m->container);
    wire_put_u8(&w, m->reason);
    return done(&w);
}

int mon_kill_decode(struct mon_kill *ret, const void *p, size_t n)
{
    struct mon_kill m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.exec_id, sizeof m.exec_id);
    wire_get_str(&r, m.container, sizeof m.container);
    m.reason = wire_get_u8(&r);
    if (!wire_end(&r) || m.reason >= END_MAX_)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_terminate_encode(const struct mon_terminate *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u8(&w, m->reason);
    wire_put_str(&w, m->actor);
    wire_put_i32(&w, m->signal);
    wire_put_u32(&w, m->grace_ms);
    return done(&w);
}

int mon_terminate_decode(struct mon_terminate *ret, const void *p, size_t n)
{
    struct mon_terminate m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.reason = wire_get_u8(&r);
    wire_get_str(&r, m.actor, sizeof m.actor);
    m.signal = wire_get_i32(&r);
    m.grace_ms = wire_get_u32(&r);
    if (!wire_end(&r) || m.reason >= END_MAX_ || m.signal < 0 || m.signal > SIGNAL_MAX)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_status_encode(const struct mon_status *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->wait_ms);
    return done(&w);
}

int mon_status_decode(struct mon_status *ret, const void *p, size_t n)
{
    struct mon_status m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.wait_ms = wire_get_u32(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_update_encode(const struct mon_update *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_bool(&w, m->set_deadline);
    wire_put_i64(&w, m->deadline_ms);
    wire_put_bool(&w, m->set_idle);
    wire_put_u64(&w, m->idle_ms);
    wire_put_bool(&w, m->set_cpus);
    if (m->set_cpus)
        wire_put_bytes(&w, m->cpus, sizeof m->cpus);
    return done(&w);
}

int mon_update_decode(struct mon_update *ret, const void *p, size_t n)
{
    struct mon_update m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.set_deadline = wire_get_bool(&r);
    m.deadline_ms = wire_get_i64(&r);
    m.set_idle = wire_get_bool(&r);
    m.idle_ms = wire_get_u64(&r);
    m.set_cpus = wire_get_bool(&r);
    size_t ncpus = 0;
    const void *cpus = m.set_cpus ? wire_get_bytes(&r, sizeof m.cpus, &ncpus) : NULL;
    if (!wire_end(&r) || (m.set_cpus && ncpus != sizeof m.cpus))
        return -EBADMSG;
    if (m.set_cpus)
        memcpy(m.cpus, cpus, sizeof m.cpus);
    *ret = m;
    return 0;
}

size_t mon_dial_encode(const struct mon_dial *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->container);
    wire_put_u16(&w, m->port);
    return done(&w);
}

int mon_dial_decode(struct mon_dial *ret, const void *p, size_t n)
{
    struct mon_dial m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.container, sizeof m.container);
    m.port = wire_get_u16(&r);
    if (!wire_end(&r) || m.port == 0)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t mon_error_encode(const struct mon_error *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u16(&w, m->code);
    wire_put_i32(&w, m->sys_errno);
    wire_put_str(&w, m->param);
    wire_put_str(&w, m->message);
    return done(&w);
}

int mon_error_decode(struct mon_error *ret, const void *p, size_t n)
{
    struct mon_error m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.code = wire_get_u16(&r);
    m.sys_errno = wire_get_i32(&r);
    wire_get_str(&r, m.param, sizeof m.param);
    wire_get_str(&r, m.message, sizeof m.message);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}
