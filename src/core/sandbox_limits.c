/*
 * sandbox_limits.c - the limits of sandboxes: defaults, the form in the row, and their change
 *
 * A change is in force before the row tells of it: the keeper may refuse one (more memory is in use than
 * the new limit, no more can be set aside), and then nothing has changed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/life.h"
#include "ipc/keeper_proto.h"
#include "json/json.h"

#define UPDATE_MS 30000

static uint32_t number(const json_t *spec, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(spec, key));
}

const struct sandbox_limits *core_default_limits(const struct core *c)
{
    return &c->defaults;
}

void core_set_default_limits(struct core *c, const struct sandbox_limits *l, uint32_t nofile_max)
{
    c->nofile_max = nofile_max;
    c->defaults = *l;
}

/* Ranges were checked by the dialect; this is what they say together. */
int limits_check(const struct core *c, const struct sandbox_limits *l, struct err *e)
{
    if (l->nofile > c->nofile_max)
        return err_param(e, ERR_INVALID, "nofile",
                         "nofile is %" PRIu32 ", but a process of this host may have at most %" PRIu32 " open files",
                         l->nofile, c->nofile_max);
    if (l->memory_mb != 0 && l->memory_request_mb > l->memory_mb)
        return err_param(e, ERR_INVALID, "memory_request_mb",
                         "memory_request_mb is %" PRIu64 ", but must be at most the limit memory_mb, which is %" PRIu64,
                         l->memory_request_mb, l->memory_mb);
    return 0;
}

void limits_put(json_t *o, const struct sandbox_limits *l)
{
    (void)json_object_set_new(o, "cpu_milli", json_integer(l->cpu_milli));
    (void)json_object_set_new(o, "cpu_weight", json_integer(l->cpu_weight));
    (void)json_object_set_new(o, "memory_mb", json_integer((json_int_t)l->memory_mb));
    (void)json_object_set_new(o, "memory_request_mb", json_integer((json_int_t)l->memory_request_mb));
    (void)json_object_set_new(o, "pids", json_integer(l->pids));
    (void)json_object_set_new(o, "io_weight", json_integer(l->io_weight));
    (void)json_object_set_new(o, "disk_mb", json_integer((json_int_t)l->disk_mb));
    (void)json_object_set_new(o, "nofile", json_integer(l->nofile));
    (void)json_object_set_new(o, "oom", json_integer(l->oom));
    (void)json_object_set_new(o, "spool_mb", json_integer((json_int_t)l->spool_mb));
}

/* Also of rows from before there were all of these. */
void sandbox_limits_of(const json_t *o, struct sandbox_limits *ret)
{
    *ret = (struct sandbox_limits){
        .cpu_milli = number(o, "cpu_milli"),
        .cpu_weight = number(o, "cpu_weight"),
        .memory_mb = (uint64_t)json_integer_value(json_object_get(o, "memory_mb")),
        .memory_request_mb = (uint64_t)json_integer_value(json_object_get(o, "memory_request_mb")),
        .pids = number(o, "pids"),
        .io_weight = number(o, "io_weight"),
        .disk_mb = (uint64_t)json_integer_value(json_object_get(o, "disk_mb")),
        .nofile = number(o, "nofile"),
        .oom = (uint8_t)number(o, "oom"),
        .spool_mb = (uint64_t)json_integer_value(json_object_get(o, "spool_mb")),
    };
}

const char *sandbox_oom_name(uint8_t oom)
{
    static const char *const names[OOM_POLICIES] = {"exec", "sandbox", "process"};

    return oom < OOM_POLICIES ? names[oom] : "exec";
}

/* --- change ---------------------------------------------------------------------------------- */

struct limits_change {
    struct core *core;
    char id[ID_SIZE];
    struct sandbox_patch patch;
    limits_changed_fn fn;
    void *ctx;
};

static void apply(const struct sandbox_patch *p, struct sandbox_limits *l)
{
    if (p->has_cpu)
        l->cpu_milli = p->limits.cpu_milli;
    if (p->has_cpu_weight)
        l->cpu_weight = p->limits.cpu_weight;
    if (p->has_memory)
        l->memory_mb = p->limits.memory_mb;
    if (p->has_memory_request)
        l->memory_request_mb = p->limits.memory_request_mb;
    if (p->has_pids)
        l->pids = p->limits.pids;
    if (p->has_io_weight)
        l->io_weight = p->limits.io_weight;
}

static void finish(struct limits_change *ch, const struct err *e)
{
    struct box *b = life_box(ch->core, ch->id);

    if (b != NULL)
        life_set_busy(ch->core, b, false);
    ch->fn(ch->ctx, e);
    free(ch);
}

/* The spec of the row with the new limits in place of the old. */
static int write_row(struct limits_change *ch, struct err *e)
{
    auto_sandbox_row row = {0};
    struct sandbox_limits l;

    if (life_row(ch->core, ch->id, &row, e) < 0)
        return -1;
    auto_json *spec = js_parse(row.spec, strlen(row.spec), 4 * LIMIT_JSON_BODY, e);
    if (spec == NULL)
        return err_wrap(e, "row of %s", row.id);
    sandbox_limits_of(spec, &l);
    apply(&ch->patch, &l);
    limits_put(spec, &l);
    auto_free char *text = js_text(spec, false);
    return store_sandbox_set_spec(ch->core->store, row.id, text, e);
}

static void on_limited(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct limits_change *ch = ctx;
    struct err local;

    (void)reply;
    if (e == NULL && write_row(ch, &local) < 0)
        e = &local;
    finish(ch, e);
}

bool limits_are_patched(const struct sandbox_patch *p)
{
    return p->has_cpu || p->has_cpu_weight || p->has_memory || p->has_memory_request || p->has_pids || p->has_io_weight;
}

void limits_change(struct core *c, const struct sandbox_row *row, const struct sandbox_patch *p, limits_changed_fn fn,
                   void *ctx)
{
    Quicksand__Node__UpdateRequest rq = QUICKSAND__NODE__UPDATE_REQUEST__INIT;
    Quicksand__Node__Resources r = QUICKSAND__NODE__RESOURCES__INIT;
    struct box *b = life_box(c, row->id);
    struct sandbox_limits l;
    struct err e;

    auto_json *spec = js_parse(row->spec, strlen(row->spec), 4 * LIMIT_JSON_BODY, &e);
    if (spec == NULL) {
        fn(ctx, &e);
        return;
    }
    sandbox_limits_of(spec, &l);
    apply(p, &l);
    if (limits_check(c, &l, &e) < 0) {
        fn(ctx, &e);
        return;
    }
    struct limits_change *ch = mem_zalloc(sizeof *ch);
    *ch = (struct limits_change){.core = c, .patch = *p, .fn = fn, .ctx = ctx};
    memcpy(ch->id, row->id, strlen(row->id) + 1);
    r.has_cpu_milli = r.has_cpu_weight = r.has_memory_bytes = r.has_memory_request_bytes = r.has_pids = r.has_io_weight = true;
    r.cpu_milli = l.cpu_milli;
    r.cpu_weight = l.cpu_weight;
    r.memory_bytes = l.memory_mb << 20;
    r.memory_request_bytes = l.memory_request_mb << 20;
    r.pids = l.pids;
    r.io_weight = l.io_weight;
    rq.sandbox_id = ch->id;
    rq.resources = &r;
    if (b != NULL)              /* a second change waits for this one, or would undo it */
        life_set_busy(c, b, true);
    (void)node_unary(c, "Update", &rq.base, &quicksand__node__sandbox__descriptor, UPDATE_MS, true, on_limited, ch);
}
