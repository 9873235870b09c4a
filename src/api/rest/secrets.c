/*
 * secrets.c - secret.* operations: values that rules of a network policy put into requests, and that nobody is told again
 *
 * They are the same secrets as the Modal dialect's in its default environment. Answers hold names, keys and times alone.
 */
#include <stdio.h>
#include <string.h>

#include "api/rest/list.h"
#include "base/mem.h"
#include "core/vault.h"

#define PARAM "values"

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

static json_t *secret_json(const struct secret_row *r)
{
    json_t *o = json_object(), *keys = json_loads(r->keys, 0, NULL);

    set(o, "name", json_string(r->name));
    set(o, "keys", keys != NULL ? keys : json_array());
    set(o, "version", json_integer((json_int_t)r->version));
    set(o, "created_at", js_time_us(r->created_us));
    set(o, "last_used_at", js_time_us(r->used_us));
    return o;
}

static int find(struct call *c, struct secret_row *ret, struct err *e)
{
    return store_secret_by_name(core_store(c->core), "", call_param(c, "name"), ret, e);
}

/* --- changes --------------------------------------------------------------------------------- */

struct change {
    struct call *call;
    int status;
};

static void on_changed(void *ctx, const char *id, const struct err *e)
{
    auto_free struct change *ch = ctx;
    struct call *c = ch->call;
    auto_secret_row row = {0};
    struct err local;

    if (e == NULL && store_secret_get(core_store(c->core), id, &row, &local) < 0)
        e = &local;
    if (e != NULL) {
        local = *e;
        if (local.param[0] != '\0')
            (void)snprintf(local.param, sizeof local.param, PARAM);
        call_fail(c, &local);
        return;
    }
    call_reply(c, ch->status, secret_json(&row));
}

static struct change *change_new(struct call *c, int status)
{
    struct change *ch = mem_zalloc(sizeof *ch);

    ch->call = c;
    ch->status = status;
    call_set_target(c, call_param(c, "name"));
    return ch;
}

static int check_name(const char *name, struct err *e)
{
    if (name_is_valid(name, strlen(name)))
        return 0;
    return err_param(e, ERR_INVALID, "name", "a secret's name must be 1 to %d of the characters A-Z a-z 0-9 . _ -, not '%.80s'",
                     LIMIT_NAME, name);
}

static void put(struct call *c)
{
    auto_secret_values *values = json_incref(json_object_get(c->body, PARAM));     /* c may be gone by the end */
    auto_secret_row row = {0};
    struct err e = {0};

    if (check_name(call_param(c, "name"), &e) < 0) {
        call_fail(c, &e);
        return;
    }
    bool is_new = find(c, &row, &e) < 0;
    if (is_new && e.code != ERR_NOT_FOUND) {
        call_fail(c, &e);
        return;
    }
    const struct secret_spec spec = {
        .environment = "", .name = call_param(c, "name"), .values = values, .mode = SECRET_OVERWRITE};
    secret_create(core_vault(c->core), &spec, on_changed, change_new(c, is_new ? 201 : 200));
}

static void patch(struct call *c)
{
    auto_secret_row row = {0};
    auto_secret_values *changes = json_object();
    const char *key;
    json_t *value;
    size_t i;
    struct err e;

    json_array_foreach(json_object_get(c->body, "unset"), i, value)
        set(changes, json_string_value(value), json_null());
    json_object_foreach(json_object_get(c->body, "set"), key, value)
        (void)json_object_set(changes, key, value);
    if (find(c, &row, &e) < 0)
        call_fail(c, &e);
    else
        secret_update(core_vault(c->core), row.id, changes, on_changed, change_new(c, 200));
}

static void on_deleted(void *ctx, const char *id, const struct err *e)
{
    if (e != NULL)
        call_fail(ctx, e);
    else
        call_reply_empty(ctx, 204);
}

static void delete(struct call *c)
{
    auto_secret_row row = {0};
    struct err e;

    if (find(c, &row, &e) < 0)
        call_fail(c, &e);
    else
        secret_delete(core_vault(c->core), row.id, on_deleted, c);
}

/* --- reading --------------------------------------------------------------------------------- */

static void get(struct call *c)
{
    auto_secret_row row = {0};
    struct err e;

    if (find(c, &row, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, 200, secret_json(&row));
}

static void add_row(void *ctx, const struct secret_row *r)
{
    page_add(ctx, secret_json(r), r->created_us, r->id);
}

static void list(struct call *c)
{
    struct page p;
    struct err e;

    if (page_init(&p, c, &e) < 0)
        call_fail(c, &e);
    else if (store_secret_list(core_store(c->core), "", p.cursor, page_limit(&p), add_row, &p, &e) < 0)
        page_fail(&p, c, &e);
    else
        page_reply(&p, c);
}

static const struct field list_query[] = {LIST_FIELDS};
static const struct field put_body[] = {
    {PARAM, FIELD_STRING_MAP, FIELD_REQUIRED, 0, LIMIT_ENVC, NULL, "keys and their values; what was there before is gone"}};
static const struct field patch_body[] = {
    {"set", FIELD_STRING_MAP, 0, 0, LIMIT_ENVC, NULL, "keys that are new or get another value"},
    {"unset", FIELD_STRINGS, 0, 0, LIMIT_ENVC, NULL, "keys to remove"},
};

const struct op rest_secret_ops[] = {
    {"secret.list", "GET", "/v1/secrets", "secret:read", 0, "Secrets with their keys, newest first; never a value", list_query,
     array_len(list_query), NULL, 0, 200, list},
    {"secret.put", "PUT", "/v1/secrets/{name}", "secret:write", 0, "Make a secret, or replace all its values", NULL, 0,
     put_body, array_len(put_body), 200, put},
    {"secret.patch", "PATCH", "/v1/secrets/{name}", "secret:write", 0, "Change some values of a secret", NULL, 0, patch_body,
     array_len(patch_body), 200, patch},
    {"secret.get", "GET", "/v1/secrets/{name}", "secret:read", 0, "A secret's keys and times, not its values", NULL, 0, NULL, 0,
     200, get},
    {"secret.delete", "DELETE", "/v1/secrets/{name}", "secret:write", 0,
     "Remove a secret; requests that rules would put it into are refused from then on", NULL, 0, NULL, 0, 204, delete},
};
const size_t rest_secret_nops = array_len(rest_secret_ops);
