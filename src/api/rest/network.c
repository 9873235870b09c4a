/*
 * network.c - sandbox.policy and sandbox.network operations: what may leave a sandbox, and what did
 */
#include <string.h>

#include "api/rest/op.h"
#include "api/shared/decision_reader.h"
#include "base/mem.h"
#include "core/network.h"
#include "core/policy_json.h"
#include "ipc/policy_wire.h"
#include "json/json.h"

#define LOG_LINES 100

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

static int read_policy(const Quicksand__Node__NetworkStatus *s, struct policy *ret, struct err *e)
{
    if (policy_decode(ret, s->policy.data, s->policy.len) < 0)
        return err_set(e, ERR_INTERNAL, "the node's policy cannot be read");
    return 0;
}

static void on_policy(void *ctx, const Quicksand__Node__NetworkStatus *s, const struct err *e)
{
    struct call *c = ctx;
    struct policy p;
    struct err bad;

    if (e == NULL && read_policy(s, &p, &bad) < 0)
        e = &bad;
    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    json_t *o = policy_to_json(&p);
    policy_done(&p);
    set(o, "revision", json_integer((json_int_t)s->revision));
    set(o, "name", js_string_or_null(s->name));
    set(o, "version", s->name != NULL ? json_integer(s->version) : json_null());
    set(o, "follows", json_boolean(s->follows));
    call_reply(c, 200, o);
}

static void policy_get(struct call *c)
{
    network_get(c->core, call_param(c, "id"), on_policy, c);
}

static void on_set(void *ctx, const Quicksand__Node__NetworkStatus *s, const struct err *e)
{
    struct call *c = ctx;

    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    json_t *o = json_object();
    set(o, "revision", json_integer((json_int_t)s->revision));
    call_reply(c, 200, o);
}

static void policy_put(struct call *c)
{
    network_set(c->core, call_param(c, "id"), c->body, call_query_bool(c, "keep", false), on_set, c);
}

static void on_explain(void *ctx, const Quicksand__Node__NetworkStatus *s, const struct err *e)
{
    struct call *c = ctx;
    struct policy p;
    struct err bad;
    json_t *o = NULL;

    if (e == NULL && read_policy(s, &p, &bad) < 0)
        e = &bad;
    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    o = policy_explain(&p, call_query(c, "url"), call_query(c, "address"), call_query(c, "method"), &bad);
    policy_done(&p);
    if (o == NULL) {
        call_fail(c, &bad);
        return;
    }
    set(o, "revision", json_integer((json_int_t)s->revision));
    call_reply(c, 200, o);
}

static void explain(struct call *c)
{
    struct err e;

    if (call_query(c, "url") == NULL) {
        err_param(&e, ERR_INVALID, "url", "url is missing");
        call_fail(c, &e);
        return;
    }
    network_get(c->core, call_param(c, "id"), on_explain, c);
}

static json_t *denials(const Quicksand__Node__NetworkStatus *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_denials; i++) {
        const Quicksand__Node__Denial *d = s->denials[i];
        json_t *o = json_object();
        set(o, "seq", json_integer((json_int_t)d->seq));
        set(o, "at", js_time_ms(d->when_ms));
        set(o, "reason", js_string_lossy(d->reason));
        set(o, "protocol", js_string_lossy(d->protocol));
        set(o, "name", d->name[0] != '\0' ? js_string_lossy(d->name) : json_null());
        set(o, "address", strcmp(d->address, "::") != 0 ? js_string_lossy(d->address) : json_null());
        set(o, "port", json_integer(d->port));
        set(o, "rule", d->rule[0] != '\0' ? js_string_lossy(d->rule) : json_null());
        (void)json_array_append_new(list, o);
    }
    return list;
}

static void on_status(void *ctx, const Quicksand__Node__NetworkStatus *s, const struct err *e)
{
    struct call *c = ctx;

    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    json_t *o = json_object();
    set(o, "revision", json_integer((json_int_t)s->revision));
    set(o, "sent_bytes", json_integer((json_int_t)s->sent));
    set(o, "received_bytes", json_integer((json_int_t)s->received));
    set(o, "connections", json_integer((json_int_t)s->flows));
    set(o, "connections_open", json_integer((json_int_t)s->flows_now));
    set(o, "connections_failed", json_integer((json_int_t)s->failed));
    set(o, "dns_queries", json_integer((json_int_t)s->queries));
    set(o, "denied", json_integer((json_int_t)s->denied));
    set(o, "noted", json_integer((json_int_t)s->noted));
    set(o, "injected", json_integer((json_int_t)s->injected));
    set(o, "denials", denials(s));
    set(o, "problem", js_string_or_null(s->problem));
    call_reply(c, 200, o);
}

static void status(struct call *c)
{
    network_get(c->core, call_param(c, "id"), on_status, c);
}

/* --- the log --------------------------------------------------------------------------------- */

static void on_log(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__NetworkLogResponse *m = (const Quicksand__Node__NetworkLogResponse *)reply;
    struct call *c = ctx;
    uint64_t next = 0;

    c->user = NULL;
    c->on_gone = NULL;
    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    json_t *o = json_object(), *items = json_array();
    for (size_t i = 0; i < m->n_decisions; i++)
        (void)json_array_append_new(items, decision_json(m->decisions[i]));
    next = m->n_decisions > 0 ? m->decisions[m->n_decisions - 1]->seq : (uint64_t)call_query_int(c, "after", 0);
    set(o, "items", items);
    set(o, "next", json_integer((json_int_t)next));
    set(o, "last", json_integer((json_int_t)m->last));
    call_reply(c, 200, o);
}

static void on_log_gone(struct call *c)
{
    node_call_cancel(c->user);
    c->user = NULL;
    call_done(c, CALL_CLIENT_GONE);
}

static void log_get(struct call *c)
{
    struct node_call *nc = network_log(c->core, call_param(c, "id"), (uint64_t)call_query_int(c, "after", 0),
                                       (uint32_t)call_query_int(c, "limit", LOG_LINES),
                                       (uint64_t)(call_query_number(c, "wait_s", 0) * 1000), on_log, c);

    if (nc == NULL)
        return;                 /* answered, and c may be gone */
    c->user = nc;
    c->on_gone = on_log_gone;
}

static const struct field log_query[] = {
    {"after", FIELD_INT, 0, 0, 9e15, NULL, "only lines with a greater number: `next` of the answer before"},
    {"limit", FIELD_INT, 0, 1, LIMIT_LIST, NULL, "lines of an answer, default 100; the oldest first"},
    {"wait_s", FIELD_NUMBER, 0, 0, LIMIT_WAIT_MAX, NULL, "wait until there is a line"},
};
static const struct field put_query[] = {
    {"keep", FIELD_BOOL, 0, 0, 0, NULL, "open connections stay open, whatever the policy says of them"},
};
static const struct field explain_query[] = {
    {"url", FIELD_STRING, FIELD_REQUIRED, 1, 2048, NULL, "https://host/, http://host:8080/, tcp://host:22"},
    {"address", FIELD_STRING, 0, 1, 64, NULL, "as where the name leads"},
    {"method", FIELD_STRING, 0, 1, 20, NULL, "of the request, as GET (the default)"},
};

const struct op rest_network_ops[] = {
    {"sandbox.policy", "GET", "/v1/sandboxes/{id}/policy", "sandbox:read", 0, "The network policy in force", NULL, 0, NULL, 0,
     200, policy_get},
    {"sandbox.set_policy", "PUT", "/v1/sandboxes/{id}/policy", "sandbox:write", OP_OPEN_BODY,
     "Replace the network policy by that of the body; connections that it does not allow are cut", put_query,
     array_len(put_query), NULL, 0, 200, policy_put},
    {"sandbox.explain_policy", "GET", "/v1/sandboxes/{id}/policy/explain", "sandbox:read", 0,
     "Which rule decides about a URL", explain_query, array_len(explain_query), NULL, 0, 200, explain},
    {"sandbox.network", "GET", "/v1/sandboxes/{id}/network", "sandbox:read", 0,
     "Connections and bytes of the sandbox, and what it was refused", NULL, 0, NULL, 0, 200, status},
    {"sandbox.network_log", "GET", "/v1/sandboxes/{id}/network/log", "sandbox:read", 0,
     "What the network policy denied, and what went out under a rule of action log, line by line", log_query,
     array_len(log_query), NULL, 0, 200, log_get},
};
const size_t rest_network_nops = array_len(rest_network_ops);
