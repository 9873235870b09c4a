/*
 * limit_fields.c - the limits of a sandbox in bodies and answers
 */
#include "api/rest/limit_fields.h"

#include <math.h>
#include <string.h>

#include "ipc/keeper_proto.h"
#include "json/json.h"

static bool has(const struct call *c, const char *name)
{
    return json_object_get(c->body, name) != NULL;
}

/* null is 0, which is "none" */
static uint64_t value(const struct call *c, const char *name, uint64_t absent)
{
    return has(c, name) ? (uint64_t)call_int(c, name, 0) : absent;
}

static uint32_t cpu_milli(const struct call *c, uint32_t absent)
{
    return has(c, "cpu") ? (uint32_t)llround(call_number(c, "cpu", 0) * 1000) : absent;
}

static uint8_t read_oom(const struct call *c, uint8_t absent)
{
    const char *text = call_string(c, "oom", NULL);

    for (uint8_t i = 0; text != NULL && i < OOM_POLICIES; i++)
        if (strcmp(text, sandbox_oom_name(i)) == 0)
            return i;
    return absent;
}

void limits_read(const struct call *c, struct sandbox_limits *ret)
{
    struct sandbox_limits l = *core_default_limits(c->core);

    l.cpu_milli = cpu_milli(c, l.cpu_milli);
    l.cpu_weight = (uint32_t)value(c, "cpu_weight", l.cpu_weight);
    l.memory_request_mb = value(c, "memory_request_mb", 0);
    /* What was not asked for gives way to what was. */
    if (!has(c, "memory_mb") && l.memory_mb != 0 && l.memory_mb < l.memory_request_mb)
        l.memory_mb = l.memory_request_mb;
    l.memory_mb = value(c, "memory_mb", l.memory_mb);
    l.pids = (uint32_t)value(c, "pids", l.pids);
    l.io_weight = (uint32_t)value(c, "io_weight", l.io_weight);
    l.disk_mb = value(c, "disk_mb", l.disk_mb);
    l.nofile = (uint32_t)value(c, "nofile", l.nofile);
    l.oom = read_oom(c, l.oom);
    *ret = l;
}

void limits_read_patch(const struct call *c, struct sandbox_patch *p)
{
    p->has_cpu = has(c, "cpu");
    p->has_cpu_weight = has(c, "cpu_weight");
    p->has_memory = has(c, "memory_mb");
    p->has_memory_request = has(c, "memory_request_mb");
    p->has_pids = has(c, "pids");
    p->has_io_weight = has(c, "io_weight");
    p->limits = (struct sandbox_limits){
        .cpu_milli = cpu_milli(c, 0),
        .cpu_weight = (uint32_t)value(c, "cpu_weight", 0),
        .memory_mb = value(c, "memory_mb", 0),
        .memory_request_mb = value(c, "memory_request_mb", 0),
        .pids = (uint32_t)value(c, "pids", 0),
        .io_weight = (uint32_t)value(c, "io_weight", 0),
    };
}

static json_t *or_null(uint64_t v)
{
    return v != 0 ? json_integer((json_int_t)v) : json_null();
}

json_t *limits_json(const json_t *spec)
{
    json_t *o = json_object();
    struct sandbox_limits l;

    sandbox_limits_of(spec, &l);
    (void)json_object_set_new(o, "cpu", l.cpu_milli != 0 ? json_real((double)l.cpu_milli / 1000) : json_null());
    (void)json_object_set_new(o, "cpu_weight", or_null(l.cpu_weight));
    (void)json_object_set_new(o, "memory_mb", or_null(l.memory_mb));
    (void)json_object_set_new(o, "memory_request_mb", or_null(l.memory_request_mb));
    (void)json_object_set_new(o, "pids", or_null(l.pids));
    (void)json_object_set_new(o, "io_weight", or_null(l.io_weight));
    (void)json_object_set_new(o, "disk_mb", or_null(l.disk_mb));
    (void)json_object_set_new(o, "nofile", or_null(l.nofile));
    (void)json_object_set_new(o, "oom", json_string(sandbox_oom_name(l.oom)));
    return o;
}
