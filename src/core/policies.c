/*
 * policies.c - network policies with names
 */
#include "core/policies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/internal.h"
#include "core/network.h"
#include "core/policy_json.h"

static int check_name(const char *name, struct err *e)
{
    if (name_is_valid(name, strlen(name)))
        return 0;
    return err_param(e, ERR_INVALID, "name", "a policy's name must be 1 to %d of the characters A-Z a-z 0-9 . _ -, not '%.80s'",
                     LIMIT_NAME, name);
}

int policies_put(struct core *c, const char *name, const json_t *policy, const char *token_id, struct policy_row *ret,
                 bool *ret_is_new, struct err *e)
{
    struct policy_row last;
    struct policy p;

    memset(ret, 0, sizeof *ret);
    if (policy_is_reference(policy))
        return err_param(e, ERR_INVALID, "network", "a policy cannot be another one's name");
    if (check_name(name, e) < 0 || policy_from_json(policy, &p, e) < 0)
        return -1;
    policy_done(&p);
    auto_free char *text = js_text(policy, true);
    int r = store_policy_get(c->store, name, 0, &last, e);
    if (r < 0 && e->code != ERR_NOT_FOUND)
        return -1;
    *ret_is_new = r < 0 || strcmp(last.policy, text) != 0;
    if (!*ret_is_new) {
        *ret = last;
        return 0;
    }
    (void)snprintf(ret->name, sizeof ret->name, "%s", name);
    (void)snprintf(ret->token, sizeof ret->token, "%s", token_id);
    ret->version = r < 0 ? 1 : last.version + 1;
    ret->created_us = clock_wall_us();
    ret->policy = take_ptr(&text);
    policy_row_done(&last);
    if (store_begin(c->store, STORE_FAST, e) < 0)
        goto failed;
    if (store_policy_insert(c->store, ret, POLICY_VERSIONS, e) == 0 && store_commit(c->store, e) == 0) {
        log_info("policy.version", "name=%s version=%u token=%s", name, ret->version, token_id);
        return 0;
    }
    store_rollback(c->store);
failed:
    policy_row_done(ret);
    return -1;
}

bool policy_is_reference(const json_t *network)
{
    return json_object_get(network, "name") != NULL;
}

static int read_reference(const json_t *j, struct policy_origin *ret, struct err *e)
{
    const char *name = json_string_value(json_object_get(j, "name")), *key;
    const json_t *version = json_object_get(j, "version");
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)j, key, value)
        if (strcmp(key, "name") != 0 && strcmp(key, "version") != 0)
            return err_param(e, ERR_UNKNOWN_FIELD, "network", "a policy by name has name and version alone, not '%.60s'", key);
    if (name == NULL || !name_is_valid(name, strlen(name)))
        return err_param(e, ERR_INVALID, "network", "the name of a policy must be 1 to %d of the characters A-Z a-z 0-9 . _ -",
                         LIMIT_NAME);
    if (version != NULL && !json_is_null(version) &&
        (!json_is_integer(version) || json_integer_value(version) < 1 || json_integer_value(version) > INT32_MAX))
        return err_param(e, ERR_INVALID, "network", "version must be a whole number from 1 on, or null for the latest");
    *ret = (struct policy_origin){.version = (uint32_t)json_integer_value(version), .follows = !json_is_integer(version)};
    (void)snprintf(ret->name, sizeof ret->name, "%s", name);
    return 0;
}

json_t *policies_resolve(struct core *c, const json_t *network, struct policy_origin *ret, struct err *e)
{
    struct policy_row row;

    *ret = (struct policy_origin){{0}};
    if (!policy_is_reference(network))
        return json_incref((json_t *)(uintptr_t)network);
    if (read_reference(network, ret, e) < 0)
        return NULL;
    if (store_policy_get(c->store, ret->name, ret->version, &row, e) < 0) {
        (void)snprintf(e->param, sizeof e->param, "network");
        return NULL;
    }
    ret->version = row.version;
    json_t *policy = js_parse(row.policy, strlen(row.policy), 4 * LIMIT_JSON_BODY, e);
    policy_row_done(&row);
    return policy;
}

json_t *policy_origin_json(const struct policy_origin *o)
{
    return json_pack("{s:s, s:I, s:b}", "name", o->name, "version", (json_int_t)o->version, "follows", o->follows);
}

void policy_origin_read(const json_t *j, struct policy_origin *ret)
{
    const char *name = json_string_value(json_object_get(j, "name"));

    *ret = (struct policy_origin){.version = (uint32_t)json_integer_value(json_object_get(j, "version")),
                                  .follows = json_is_true(json_object_get(j, "follows"))};
    (void)snprintf(ret->name, sizeof ret->name, "%s", name != NULL ? name : "");
}

/* --- followers ------------------------------------------------------------------------------- */

struct apply {
    struct core *core;
    const struct policies_apply_ops *ops;
    void *ctx;
    char name[LIMIT_NAME + 1];
    struct policy_origin origin;
    json_t *policy;                 /* owned */
    bool keep;
    size_t n, at;
    char (*ids)[ID_SIZE];           /* owned */
};

static void collect(void *ctx, const struct sandbox_row *r)
{
    struct apply *a = ctx;
    struct policy_origin o;
    struct err e;

    if (r->state == STORE_DELETING)
        return;
    auto_json *spec = js_parse(r->spec, strlen(r->spec), 4 * LIMIT_JSON_BODY, &e);
    policy_origin_read(json_object_get(spec, "network_policy"), &o);
    if (!o.follows || strcmp(o.name, a->name) != 0)
        return;
    if ((a->n & (a->n - 1)) == 0)
        a->ids = mem_realloc(a->ids, (a->n == 0 ? 1 : a->n * 2) * sizeof *a->ids);
    memcpy(a->ids[a->n++], r->id, ID_SIZE);
}

static int find_followers(struct core *c, const char *name, struct apply *ret, struct err *e)
{
    (void)snprintf(ret->name, sizeof ret->name, "%s", name);
    return store_sandbox_unfinished(c->store, collect, ret, e);
}

int policies_remove(struct core *c, const char *name, bool force, struct err *e)
{
    struct apply a = {0};
    int r = force ? 0 : find_followers(c, name, &a, e);

    if (r == 0 && a.n > 0)
        r = err_set(
            e, ERR_CONFLICT,
            "%zu sandboxes follow the policy %.64s, such as %s; with force it is removed, and they keep what they have",
            a.n, name, a.ids[0]);
    free(a.ids);
    return r < 0 ? -1 : store_policy_remove(c->store, name, e);
}

static void apply_end(struct apply *a, const struct err *e)
{
    a->ops->done(a->ctx, a->origin.version, e);
    json_decref(a->policy);
    free(a->ids);
    free(a);
}

static void next(void *arg);

static void on_set(void *ctx, const Quicksand__Node__NetworkStatus *s, const struct err *e)
{
    struct apply *a = ctx;
    const char *id = a->ids[a->at++];

    /* Gone, or with another policy by now: nobody waits for it. */
    if (e != NULL && e->code == ERR_PRECONDITION)
        network_forget_origin(a->core, id);
    if (e == NULL || (e->code != ERR_PRECONDITION && e->code != ERR_NOT_FOUND && e->code != ERR_GONE))
        a->ops->each(a->ctx, id, e == NULL ? s->revision : 0, e);
    loop_defer(a->core->loop, next, a);
}

static void next(void *arg)
{
    struct apply *a = arg;

    if (a->at == a->n)
        apply_end(a, NULL);
    else
        network_follow(a->core, a->ids[a->at], a->policy, &a->origin, a->keep, on_set, a);
}

void policies_apply(struct core *c, const char *name, bool keep, const struct policies_apply_ops *ops, void *ctx)
{
    struct apply *a = mem_zalloc(sizeof *a);
    auto_json *reference = json_pack("{s:s}", "name", name);
    struct err e;

    a->core = c;
    a->ops = ops;
    a->ctx = ctx;
    a->keep = keep;
    a->policy = policies_resolve(c, reference, &a->origin, &e);
    if (a->policy == NULL || find_followers(c, name, a, &e) < 0)
        apply_end(a, &e);
    else
        next(a);
}
