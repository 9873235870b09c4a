/*
 * sandbox_json.c - the sandbox object of docs/api/rest.md
 */
#include "api/rest/sandbox_json.h"

#include "api/rest/limit_fields.h"
#include "json/json.h"

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

/* Text of the store, which core wrote. */
static json_t *stored(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);

    return j != NULL ? j : json_object();
}

static json_t *or_null(json_int_t v)
{
    return v != 0 ? json_integer(v) : json_null();
}

/* What it was created with; the policy in force is a question of its own. */
static json_t *network(const json_t *n)
{
    return json_string(n == NULL ? "block" : json_is_string(n) ? json_string_value(n) : "policy");
}

static json_t *end_json(const struct sandbox_row *r)
{
    json_t *o = json_object();

    set(o, "reason", json_string(r->reason));
    set(o, "code", r->code >= 0 ? json_integer(r->code) : json_null());
    set(o, "signal", or_null(r->signal));
    set(o, "actor", js_string_lossy(r->actor));
    set(o, "at", js_time_ms(r->ended_ms));
    set(o, "message", js_string_lossy(r->message));
    return o;
}

static json_t *activity(const struct sandbox *sb)
{
    json_t *o = json_object();

    set(o, "at", js_time_ms(sb->seen.last_activity_ms));
    set(o, "kind", sb->seen.last_activity[0] != '\0' ? js_string_lossy(sb->seen.last_activity) : json_null());
    return o;
}

static json_t *usage(const struct sandbox_seen *s)
{
    json_t *o = json_object();

    set(o, "cpu_s", json_real((double)s->cpu_us / 1e6));
    set(o, "memory_peak_bytes", json_integer((json_int_t)s->memory_peak));
    set(o, "memory_bytes", json_integer((json_int_t)s->memory_now));
    set(o, "pids", json_integer((json_int_t)s->pids_now));
    set(o, "oom_kills", json_integer((json_int_t)s->oom_kills));
    return o;
}

json_t *sandbox_json(const struct sandbox *sb)
{
    const struct sandbox_row *r = sb->row;
    auto_json *spec = stored(r->spec);
    json_t *command = json_object_get(spec, "command");
    json_t *o = json_object();

    set(o, "id", json_string(r->id));
    set(o, "app", json_string(r->app));
    set(o, "name", r->name[0] != '\0' ? json_string(r->name) : json_null());
    set(o, "image", json_string(r->image));
    set(o, "state", json_string(sandbox_state_name(sb)));
    set(o, "created_at", js_time_us(r->created_us));
    set(o, "started_at", js_time_ms(r->started_ms));
    set(o, "ended_at", js_time_ms(r->ended_ms));
    set(o, "expires_at", js_time_ms(r->expires_ms));
    set(o, "idle_timeout_s", r->idle_ms != 0 ? json_real((double)r->idle_ms / 1000) : json_null());
    set(o, "last_activity", activity(sb));
    set(o, "tags", stored(r->tags));
    set(o, "tags_revision", json_integer(r->tags_revision));
    set(o, "command", command != NULL ? json_incref(command) : json_null());
    set(o, "workdir", json_incref(json_object_get(spec, "workdir")));
    set(o, "user", json_incref(json_object_get(spec, "user")));
    set(o, "network", network(json_object_get(spec, "network")));
    set(o, "limits", limits_json(spec));
    set(o, "retain_s", json_real((double)r->retain_ms / 1000));
    set(o, "isolation", json_string("native"));
    set(o, "no_new_privileges", json_boolean(json_is_true(json_object_get(spec, "no_new_privileges"))));
    set(o, "user_namespaces", json_boolean(json_is_true(json_object_get(spec, "user_namespaces"))));
    set(o, "exit", r->state == STORE_ENDED ? end_json(r) : json_null());
    set(o, "usage", usage(&sb->seen));
    return o;
}
