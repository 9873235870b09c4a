/*
 * keeper_proto.c - codec of the keeper's messages
 *
 * Form only; the keeper checks the values again whoever asks.
 */
#include "ipc/keeper_proto.h"

#include <errno.h>
#include <string.h>

#include "ipc/wire.h"

static size_t done(const struct wire_writer *w)
{
    return w->failed ? 0 : w->len;
}

static void put_resources(struct wire_writer *w, const struct keeper_resources *r)
{
    wire_put_u32(w, r->cpu_milli);
    wire_put_u32(w, r->cpu_weight);
    wire_put_u64(w, r->memory_bytes);
    wire_put_u64(w, r->memory_request_bytes);
    wire_put_u32(w, r->pids);
    wire_put_u32(w, r->io_weight);
}

static void get_resources(struct wire_reader *r, struct keeper_resources *ret)
{
    ret->cpu_milli = wire_get_u32(r);
    ret->cpu_weight = wire_get_u32(r);
    ret->memory_bytes = wire_get_u64(r);
    ret->memory_request_bytes = wire_get_u64(r);
    ret->pids = wire_get_u32(r);
    ret->io_weight = wire_get_u32(r);
}

size_t keeper_create_encode(const struct keeper_create *m, void *out, size_t size)
{
    struct wire_writer w;

    if (m->nlayers > LIMIT_LAYERS)
        return 0;
    wire_init(&w, out, size);
    wire_put_str(&w, m->sandbox);
    wire_put_str(&w, m->hostname);
    wire_put_u32(&w, m->nlayers);
    for (uint32_t i = 0; i < m->nlayers; i++)
        wire_put_str(&w, m->layers[i]);
    wire_put_str(&w, m->delta);
    put_resources(&w, &m->r);
    wire_put_u64(&w, m->disk_bytes);
    wire_put_i64(&w, m->deadline_ms);
    wire_put_u64(&w, m->idle_ms);
    wire_put_u32(&w, m->grace_ms);
    wire_put_u64(&w, m->log_bytes);
    wire_put_u64(&w, m->spool_bytes);
    wire_put_u8(&w, m->oom);
    wire_put_u32(&w, m->options);
    return done(&w);
}

int keeper_create_decode(struct keeper_create *ret, const void *p, size_t n)
{
    struct keeper_create m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.sandbox, sizeof m.sandbox);
    wire_get_str(&r, m.hostname, sizeof m.hostname);
    m.nlayers = wire_get_u32(&r);
    if (r.failed || m.nlayers > LIMIT_LAYERS)
        return -EBADMSG;
    for (uint32_t i = 0; i < m.nlayers; i++)
        wire_get_str(&r, m.layers[i], sizeof m.layers[i]);
    wire_get_str(&r, m.delta, sizeof m.delta);
    get_resources(&r, &m.r);
    m.disk_bytes = wire_get_u64(&r);
    m.deadline_ms = wire_get_i64(&r);
    m.idle_ms = wire_get_u64(&r);
    m.grace_ms = wire_get_u32(&r);
    m.log_bytes = wire_get_u64(&r);
    m.spool_bytes = wire_get_u64(&r);
    m.oom = wire_get_u8(&r);
    m.options = wire_get_u32(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t keeper_destroy_encode(const struct keeper_destroy *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->sandbox);
    return done(&w);
}

int keeper_destroy_decode(struct keeper_destroy *ret, const void *p, size_t n)
{
    struct keeper_destroy m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.sandbox, sizeof m.sandbox);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t keeper_tree_encode(const struct keeper_tree *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->sandbox);
    return done(&w);
}

int keeper_tree_decode(struct keeper_tree *ret, const void *p, size_t n)
{
    struct keeper_tree m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.sandbox, sizeof m.sandbox);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t keeper_limits_encode(const struct keeper_limits *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->sandbox);
    put_resources(&w, &m->r);
    return done(&w);
}

int keeper_limits_decode(struct keeper_limits *ret, const void *p, size_t n)
{
    struct keeper_limits m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.sandbox, sizeof m.sandbox);
    get_resources(&r, &m.r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t keeper_layer_encode(const struct keeper_layer *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->layer);
    return done(&w);
}

int keeper_layer_decode(struct keeper_layer *ret, const void *p, size_t n)
{
    struct keeper_layer m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.layer, sizeof m.layer);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t keeper_stats_encode(const struct keeper_stats *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->pool_ready);
    wire_put_u32(&w, m->sandboxes);
    wire_put_u64(&w, m->memory_total);
    wire_put_u64(&w, m->memory_available);
    wire_put_u64(&w, m->trees_total);
    wire_put_u64(&w, m->trees_free);
    return done(&w);
}

int keeper_stats_decode(struct keeper_stats *ret, const void *p, size_t n)
{
    struct keeper_stats m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.pool_ready = wire_get_u32(&r);
    m.sandboxes = wire_get_u32(&r);
    m.memory_total = wire_get_u64(&r);
    m.memory_available = wire_get_u64(&r);
    m.trees_total = wire_get_u64(&r);
    m.trees_free = wire_get_u64(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t keeper_reply_encode(const struct keeper_reply *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u16(&w, m->code);
    wire_put_i32(&w, m->sys_errno);
    wire_put_str(&w, m->param);
    wire_put_str(&w, m->message);
    return done(&w);
}

int keeper_reply_decode(struct keeper_reply *ret, const void *p, size_t n, size_t *ret_used)
{
    struct keeper_reply m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.code = wire_get_u16(&r);
    m.sys_errno = wire_get_i32(&r);
    wire_get_str(&r, m.param, sizeof m.param);
    wire_get_str(&r, m.message, sizeof m.message);
    if (r.failed)
        return -EBADMSG;
    *ret = m;
    *ret_used = r.at;
    return 0;
}

size_t keeper_configure_encode(const struct keeper_configure *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->sandbox);
    wire_put_str(&w, m->hostname);
    wire_put_u32(&w, m->node_uid);
    wire_put_u32(&w, m->nlayers);
    wire_put_u64(&w, m->memory_bytes);
    wire_put_u64(&w, m->shm_bytes);
    wire_put_i64(&w, m->deadline_ms);
    wire_put_u64(&w, m->idle_ms);
    wire_put_u32(&w, m->grace_ms);
    wire_put_u64(&w, m->log_bytes);
    wire_put_u64(&w, m->spool_bytes);
    wire_put_u8(&w, m->oom);
    wire_put_bytes(&w, m->cpus, sizeof m->cpus);
    wire_put_u32(&w, m->options);
    return done(&w);
}

int keeper_configure_decode(struct keeper_configure *ret, const void *p, size_t n)
{
    struct keeper_configure m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    wire_get_str(&r, m.sandbox, sizeof m.sandbox);
    wire_get_str(&r, m.hostname, sizeof m.hostname);
    m.node_uid = wire_get_u32(&r);
    m.nlayers = wire_get_u32(&r);
    m.memory_bytes = wire_get_u64(&r);
    m.shm_bytes = wire_get_u64(&r);
    m.deadline_ms = wire_get_i64(&r);
    m.idle_ms = wire_get_u64(&r);
    m.grace_ms = wire_get_u32(&r);
    m.log_bytes = wire_get_u64(&r);
    m.spool_bytes = wire_get_u64(&r);
    m.oom = wire_get_u8(&r);
    const void *cpus = wire_get_bytes(&r, sizeof m.cpus, &n);
    m.options = wire_get_u32(&r);
    if (!wire_end(&r) || n != sizeof m.cpus || m.nlayers > LIMIT_LAYERS + 1 || m.oom >= OOM_POLICIES)
        return -EBADMSG;
    memcpy(m.cpus, cpus, sizeof m.cpus);
    *ret = m;
    return 0;
}
