/*
 * policies.c - policy.* operations: network policies with names
 */
#include <stdio.h>
#include <string.h>

#include "api/rest/list.h"
#include "base/mem.h"
#include "core/network.h"
#include "core/policies.h"
#include "core/policy_json.h"
#include "json/json.h"

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

static json_t *policy_json(const struct policy_row *r, bool with_policy)
{
    json_t *o = json_object();
    struct err e;

    set(o, "name", json_string(r->name));
    set(o, "version", json_integer(r->version));
    set(o, "created_at", js_time_ms(r->created_us / 1000));
    set(o, "created_by", json_string(r->token));
    if (with_policy) {
        json_t *policy = js_parse(r->policy, strlen(r->policy), 4 * LIMIT_JSON_BODY, &e);
        set(o, "policy", policy != NULL ? policy : json_null());
    }
    return o;
}

/* --- bringing followers up to date ----------------------------------------------------------- */

struct applying {
    struct call *call;
    json_t *answer, *applied, *failed;
    int status;
};

static void on_each(void *ctx, const char *sandbox, uint64_t revision, const struct err *e)
{
    struct applying *a = ctx;
    json_t *o = json_object();

    set(o, "sandbox", json_string(sandbox));
    if (e == NULL) {
        set(o, "revision", json_integer((json_int_t)revision));
        (void)json_array_append_new(a->applied, o);
        return;
    }
    set(o, "code", json_string(err_row(e->code)->name));
    set(o, "message", js_string_lossy(e->message));
    (void)json_array_append_new(a->failed, o);
}

static void on_done(void *ctx, uint32_t version, const struct err *e)
{
    struct applying *a = ctx;
    struct call *c = a->call;

    if (e != NULL) {
        call_fail(c, e);
    } else {
        set(a->answer, "version", json_integer(version));
        set(a->answer, "applied", json_incref(a->applied));
        set(a->answer, "failed", json_incref(a->failed));
        call_reply(c, a->status, json_incref(a->answer));
    }
    json_decref(a->answer);
    json_decref(a->applied);
    json_decref(a->failed);
    free(a);
}

/* The client may leave: sandboxes are changed all the same. `answer` is consumed. */
static void apply_to(struct call *c, int status, json_t *answer)
{
    static const struct policies_apply_ops ops = {.each = on_each, .done = on_done};
    struct applying *a = mem_zalloc(sizeof *a);

    *a = (struct applying){.call = c, .answer = answer, .applied = json_array(), .failed = json_array(), .status = status};
    policies_apply(c->core, call_param(c, "name"), call_query_bool(c, "keep", false), &ops, a);
}

/* --- operations ------------------------------------------------------------------------------ */

static void put(struct call *c)
{
    struct policy_row r;
    bool is_new;
    struct err e;

    if (policies_put(c->core, call_param(c, "name"), c->body, c->token->id, &r, &is_new, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    json_t *o = policy_json(&r, false);
    int status = is_new && r.version == 1 ? 201 : 200;
    policy_row_done(&r);
    call_set_target(c, call_param(c, "name"));
    if (call_query_bool(c, "apply", false))
        apply_to(c, status, o);
    else
        call_reply(c, status, o);
}

static void apply(struct call *c)
{
    struct policy_row r;
    struct err e;

    if (store_policy_get(core_store(c->core), call_param(c, "name"), 0, &r, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    policy_row_done(&r);
    json_t *o = json_object();
    set(o, "name", json_string(call_param(c, "name")));
    apply_to(c, 200, o);
}

static int load(struct call *c, struct policy_row *ret, struct err *e)
{
    return store_policy_get(core_store(c->core), call_param(c, "name"), (uint32_t)call_query_int(c, "version", 0), ret, e);
}

static void get(struct call *c)
{
    struct policy_row r;
    struct err e;

    if (load(c, &r, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    json_t *o = policy_json(&r, true);
    policy_row_done(&r);
    call_reply(c, 200, o);
}

static void explain(struct call *c)
{
    struct policy_row r = {0};
    struct policy p;
    struct err e;
    json_t *o = NULL;

    if (call_query(c, "url") == NULL) {
        err_param(&e, ERR_INVALID, "url", "url is missing");
    } else if (load(c, &r, &e) == 0) {
        auto_json *j = js_parse(r.policy, strlen(r.policy), 4 * LIMIT_JSON_BODY, &e);
        if (j != NULL && policy_from_json(j, &p, &e) == 0) {
            o = policy_explain(&p, call_query(c, "url"), call_query(c, "address"), call_query(c, "method"), &e);
            policy_done(&p);
        }
    }
    if (o == NULL) {
        call_fail(c, &e);
    } else {
        set(o, "version", json_integer(r.version));
        call_reply(c, 200, o);
    }
    policy_row_done(&r);
}

static void add(void *ctx, const struct policy_row *r)
{
    (void)json_array_append_new(ctx, policy_json(r, false));
}

static void list(struct call *c)
{
    const char *after = call_query(c, "cursor");
    size_t limit = (size_t)call_query_int(c, "limit", LIST_DEFAULT);
    json_t *items = json_array(), *next = json_null();
    struct err e;

    if (store_policy_list(core_store(c->core), after != NULL ? after : "", limit + 1, add, items, &e) < 0) {
        json_decref(items);
        call_fail(c, &e);
        return;
    }
    if (json_array_size(items) > limit) {
        (void)json_array_remove(items, limit);
        next = json_incref(json_object_get(json_array_get(items, limit - 1), "name"));
    }
    call_reply(c, 200, json_pack("{s:o, s:o}", "items", items, "next", next));
}

static void versions(struct call *c)
{
    json_t *items = json_array();
    struct err e;

    if (store_policy_versions(core_store(c->core), call_param(c, "name"), add, items, &e) == 0 && json_array_size(items) > 0) {
        call_reply(c, 200, json_pack("{s:o, s:n}", "items", items, "next"));
        return;
    }
    if (json_array_size(items) == 0)
        err_set(&e, ERR_NOT_FOUND, "no policy '%.64s'", call_param(c, "name"));
    json_decref(items);
    call_fail(c, &e);
}

static void delete(struct call *c)
{
    struct err e;

    if (policies_remove(c->core, call_param(c, "name"), call_query_bool(c, "force", false), &e) < 0)
        call_fail(c, &e);
    else
        call_reply_empty(c, 204);
}

#define KEEP {"keep", FIELD_BOOL, 0, 0, 0, NULL, "open connections stay open, whatever the policy says of them"}
#define VERSION {"version", FIELD_INT, 0, 1, INT32_MAX, NULL, "a version; the latest, if nothing is said"}

static const struct field put_query[] = {
    {"apply", FIELD_BOOL, 0, 0, 0, NULL, "put it in force in the sandboxes that follow the name"}, KEEP};
static const struct field apply_query[] = {KEEP};
static const struct field get_query[] = {VERSION};
static const struct field explain_query[] = {
    {"url", FIELD_STRING, FIELD_REQUIRED, 1, 2048, NULL, "https://host/, http://host:8080/, tcp://host:22"},
    {"address", FIELD_STRING, 0, 1, 64, NULL, "as where the name leads"},
    {"method", FIELD_STRING, 0, 1, 32, NULL, "of the request; GET, if nothing is said"},
    VERSION,
};
static const struct field list_query[] = {
    {"limit", FIELD_INT, 0, 1, LIMIT_LIST, NULL, "items of a page, default 100"},
    {"cursor", FIELD_STRING, 0, 1, LIMIT_NAME, NULL, "`next` of the page before"},
};
static const struct field delete_query[] = {
    {"force", FIELD_BOOL, 0, 0, 0, NULL, "also while sandboxes follow it; they keep what they have"}};

const struct op rest_policy_ops[] = {
    {"policy.list", "GET", "/v1/policies", "sandbox:read", 0,
     "Network policies with names, by name", list_query, array_len(list_query), NULL, 0, 200, list},
    {"policy.put", "PUT", "/v1/policies/{name}", "sandbox:write", OP_OPEN_BODY,
     "Make a policy, or its next version, of the body; the same again changes nothing", put_query,
     array_len(put_query), NULL, 0, 200, put},
    {"policy.get", "GET", "/v1/policies/{name}", "sandbox:read", 0, "A policy", get_query,
     array_len(get_query), NULL, 0, 200, get},
    {"policy.versions", "GET", "/v1/policies/{name}/versions", "sandbox:read", 0,
     "Its versions, the latest first", NULL, 0, NULL, 0, 200, versions},
    {"policy.explain", "GET", "/v1/policies/{name}/explain", "sandbox:read", 0,
     "Which rule decides about a URL", explain_query, array_len(explain_query), NULL, 0, 200,
     explain},
    {"policy.apply", "POST", "/v1/policies/{name}/apply", "sandbox:write", 0,
     "Put the latest version in force in the sandboxes that follow the name", apply_query,
     array_len(apply_query), NULL, 0, 200, apply},
    {"policy.delete", "DELETE", "/v1/policies/{name}", "sandbox:write", 0,
     "Remove a policy with its versions", delete_query, array_len(delete_query), NULL, 0, 204,
     delete},
};
const size_t rest_policy_nops = array_len(rest_policy_ops);
