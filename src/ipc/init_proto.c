/*
 * init_proto.c - codec of the messages between monitor and init
 *
 * What init sends is a sandbox's word: the decoders check every range that the monitor relies on.
 */
#include "ipc/init_proto.h"

#include <errno.h>
#include <string.h>

#define SIGNAL_MAX 64
#define EXEC_FLAGS                                                                          \
    (INIT_EXEC_TTY | INIT_EXEC_STDIN | INIT_EXEC_STDOUT | INIT_EXEC_STDERR | INIT_EXEC_MERGE | \
     INIT_EXEC_CGROUP | INIT_EXEC_ENTRY)

static size_t done(const struct wire_writer *w)
{
    return w->failed ? 0 : w->len;
}

static void get_cpus(struct wire_reader *r, uint8_t ret[KEEPER_CPUS])
{
    size_t n;
    const void *p = wire_get_bytes(r, KEEPER_CPUS, &n);

    if (p == NULL || n != KEEPER_CPUS)
        wire_fail(r);
    else
        memcpy(ret, p, n);
}

size_t init_setup_encode(const struct init_setup *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->sandbox);
    wire_put_str(&w, m->hostname);
    wire_put_u32(&w, m->nlayers);
    wire_put_u64(&w, m->shm_bytes);
    wire_put_bool(&w, m->volatile_upper);
    wire_put_bool(&w, m->no_new_privs);
    wire_put_bool(&w, m->user_namespaces);
    wire_put_bytes(&w, m->cpus, sizeof m->cpus);
    return done(&w);
}

int init_setup_decode(struct init_setup *ret, const void *p, size_t n)
{
    struct init_setup m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.sandbox, sizeof m.sandbox);
    wire_get_str(&r, m.hostname, sizeof m.hostname);
    m.nlayers = wire_get_u32(&r);
    m.shm_bytes = wire_get_u64(&r);
    m.volatile_upper = wire_get_bool(&r);
    m.no_new_privs = wire_get_bool(&r);
    m.user_namespaces = wire_get_bool(&r);
    get_cpus(&r, m.cpus);
    /* One more than LIMIT_LAYERS: the scaffold. */
    if (!wire_end(&r) || m.nlayers == 0 || m.nlayers > LIMIT_LAYERS + 1)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t init_ready_encode(const struct init_ready *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_i32(&w, m->error);
    wire_put_str(&w, m->step);
    return done(&w);
}

int init_ready_decode(struct init_ready *ret, const void *p, size_t n)
{
    struct init_ready m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.error = wire_get_i32(&r);
    wire_get_str(&r, m.step, sizeof m.step);
    if (!wire_end(&r) || m.error < 0)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t init_exec_encode(const struct init_exec *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->seq);
    wire_put_u32(&w, m->flags);
    wire_put_bytes(&w, m->spec, m->spec_len);
    return done(&w);
}

int init_exec_decode(struct init_exec *ret, const void *p, size_t n)
{
    struct init_exec m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.seq = wire_get_u32(&r);
    m.flags = wire_get_u32(&r);
    m.spec = wire_get_bytes(&r, LIMIT_CHANNEL_MESSAGE, &m.spec_len);
    if (!wire_end(&r) || (m.flags & ~(uint32_t)EXEC_FLAGS) != 0)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t init_started_encode(const struct init_started *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->seq);
    wire_put_i32(&w, m->pid);
    wire_put_i32(&w, m->error);
    wire_put_str(&w, m->step);
    return done(&w);
}

int init_started_decode(struct init_started *ret, const void *p, size_t n)
{
    struct init_started m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.seq = wire_get_u32(&r);
    m.pid = wire_get_i32(&r);
    m.error = wire_get_i32(&r);
    wire_get_str(&r, m.step, sizeof m.step);
    if (!wire_end(&r) || m.pid < 0 || m.error < 0)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t init_exited_encode(const struct init_exited *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->seq);
    wire_put_i32(&w, m->code);
    wire_put_i32(&w, m->signal);
    wire_put_u64(&w, m->user_us);
    wire_put_u64(&w, m->system_us);
    wire_put_u64(&w, m->max_rss_kb);
    wire_put_str(&w, m->comm);
    return done(&w);
}

int init_exited_decode(struct init_exited *ret, const void *p, size_t n)
{
    struct init_exited m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.seq = wire_get_u32(&r);
    m.code = wire_get_i32(&r);
    m.signal = wire_get_i32(&r);
    m.user_us = wire_get_u64(&r);
    m.system_us = wire_get_u64(&r);
    m.max_rss_kb = wire_get_u64(&r);
    wire_get_str(&r, m.comm, sizeof m.comm);
    if (!wire_end(&r) || m.signal < 0 || m.signal > SIGNAL_MAX || m.code < -1 || m.code > 255)
        return -EBADMSG;
    if ((m.code == -1) != (m.signal != 0))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t init_signal_encode(const struct init_signal *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->seq);
    wire_put_i32(&w, m->signal);
    wire_put_u8(&w, m->scope);
    return done(&w);
}

int init_signal_decode(struct init_signal *ret, const void *p, size_t n)
{
    struct init_signal m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.seq = wire_get_u32(&r);
    m.signal = wire_get_i32(&r);
    m.scope = wire_get_u8(&r);
    if (!wire_end(&r) || m.signal < 0 || m.signal > SIGNAL_MAX || m.scope > INIT_SIG_ALL)
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t init_cpus_encode(const struct init_cpus *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_bytes(&w, m->cpus, sizeof m->cpus);
    return done(&w);
}

int init_cpus_decode(struct init_cpus *ret, const void *p, size_t n)
{
    struct init_cpus m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    get_cpus(&r, m.cpus);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t init_oom_encode(const struct init_oom *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->tag);
    return done(&w);
}

int init_oom_decode(struct init_oom *ret, const void *p, size_t n)
{
    struct init_oom m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.tag = wire_get_u32(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t init_oom_r_encode(const struct init_oom_r *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->tag);
    wire_put_bool(&w, m->certain);
    wire_put_i32(&w, m->pid);
    wire_put_i32(&w, m->group);
    wire_put_str(&w, m->comm);
    return done(&w);
}

int init_oom_r_decode(struct init_oom_r *ret, const void *p, size_t n)
{
    struct init_oom_r m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.tag = wire_get_u32(&r);
    m.certain = wire_get_bool(&r);
    m.pid = wire_get_i32(&r);
    m.group = wire_get_i32(&r);
    wire_get_str(&r, m.comm, sizeof m.comm);
    if (!wire_end(&r) || m.pid < 0 || m.group < -1)
        return -EBADMSG;
    *ret = m;
    return 0;
}
