/*
 * network.c - the network policy of a running sandbox
 */
#include "core/network.h"

#include <string.h>

#include "base/mem.h"
#include "core/internal.h"
#include "core/life.h"
#include "core/policy_json.h"
#include "core/policy_secrets.h"
#include "ipc/policy_wire.h"

#define ASK_TIMEOUT_MS 15000

struct ask {
    network_fn fn;
    void *ctx;
};

int network_request(struct core *c, const json_t *policy, const struct policy_origin *origin, Quicksand__Node__Network *ret,
                    uint8_t **ret_bytes, struct err *e)
{
    struct policy p;

    if (policy_from_json(policy, &p, e) < 0)
        return -1;
    if (policy_find_secrets(c, &p, e) < 0) {
        policy_done(&p);
        return -1;
    }
    if (origin != NULL && origin->name[0] != '\0') {
        ret->name = (char *)(uintptr_t)origin->name;
        ret->has_version = ret->has_follows = true;
        ret->version = origin->version;
        ret->follows = origin->follows;
    }
    *ret_bytes = mem_alloc(LIMIT_POLICY_BYTES);
    ret->has_policy = true;
    ret->policy.data = *ret_bytes;
    ret->policy.len = policy_encode(&p, *ret_bytes, LIMIT_POLICY_BYTES);
    policy_done(&p);
    return 0;
}

/* One word of build_network: a prefix is a rule of addresses, anything else of names. */
static void add_word(json_t *domains, json_t *cidrs, const char *word)
{
    struct cidr c;

    (void)json_array_append_new(cidr_parse(word, &c) == NULL ? cidrs : domains, js_string_lossy(word));
}

int core_set_build_network(struct core *c, const char *words, struct err *e)
{
    auto_json *domains = json_array(), *cidrs = json_array();
    json_t *rules = json_array();
    bool open = false, block = false;
    struct policy p;

    for (const char *at = words + strspn(words, " \t,"); *at != '\0'; at += strspn(at, " \t,")) {
        auto_free char *word = mem_strndup(at, strcspn(at, " \t,"));
        at += strlen(word);
        if (strcmp(word, "open") == 0)
            open = true;
        else if (strcmp(word, "block") == 0)
            block = true;
        else
            add_word(domains, cidrs, word);
    }
    if (json_array_size(cidrs) > 0)
        (void)json_array_append_new(rules, json_pack("{s:s, s:O}", "name", "build_network", "cidrs", cidrs));
    if (json_array_size(domains) > 0)
        (void)json_array_append_new(rules, json_pack("{s:s, s:O}", "name", "build_network", "domains", domains));
    size_t n = json_array_size(rules);
    if (open)
        (void)json_array_append_new(rules, json_pack("{s:s}", "action", "allow"));
    auto_json *policy = json_pack("{s:o, s:s}", "rules", rules, "dns", open ? "open" : "rules");
    if (block && (open || n > 0))
        return err_param(e, ERR_INVALID, "build_network", "build_network: 'block' stands alone");
    if (n > 0 && policy_from_json(policy, &p, e) < 0)
        return err_wrap(e, "build_network");
    if (n > 0)
        policy_done(&p);
    json_decref(c->build_network);
    c->build_network = n > 0 ? take_ptr(&policy) : json_string(open ? "open" : "block");
    return 0;
}

const json_t *core_build_network(const struct core *c)
{
    return c->build_network;
}

static void on_answer(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    auto_free struct ask *a = ctx;

    a->fn(a->ctx, (const Quicksand__Node__NetworkStatus *)reply, e);
}

static struct ask *ask_new(network_fn fn, void *ctx)
{
    struct ask *a = mem_zalloc(sizeof *a);

    a->fn = fn;
    a->ctx = ctx;
    return a;
}

/* A sandbox whose network can be asked about: not one that is gone, and not one that never had any. */
static int check(struct core *c, const char *id, bool live, struct err *e)
{
    auto_sandbox_row row = {0};

    if (life_row(c, id, &row, e) < 0)
        return -1;
    if (live && row.state != STORE_RUNNING)
        return err_set(e, row.state == STORE_ENDED ? ERR_GONE : ERR_CONFLICT, "the sandbox %s %s", id,
                       row.state == STORE_ENDED ? "has ended" : "is not running");
    auto_json *spec = js_parse(row.spec, strlen(row.spec), 4 * LIMIT_JSON_BODY, e);
    if (spec == NULL)
        return err_wrap(e, "row of %s", id);
    if (json_object_get(spec, "network") == NULL)
        return err_param(e, ERR_CONFLICT, "network", "the network of sandbox %s is blocked for good", id);
    return 0;
}

void network_get(struct core *c, const char *id, network_fn fn, void *ctx)
{
    Quicksand__Node__GetNetworkRequest rq = QUICKSAND__NODE__GET_NETWORK_REQUEST__INIT;
    struct err e;

    if (check(c, id, false, &e) < 0) {
        fn(ctx, NULL, &e);
        return;
    }
    rq.sandbox_id = (char *)(uintptr_t)id;
    (void)node_unary(c, "GetNetwork", &rq.base, &quicksand__node__network_status__descriptor, ASK_TIMEOUT_MS, true,
                     on_answer, ask_new(fn, ctx));
}

/* Which sandboxes may follow a name is in their rows; whether they do, the node knows. */
static int note_origin(struct core *c, const char *id, const struct policy_origin *o, struct err *e)
{
    auto_sandbox_row row = {0};

    if (life_row(c, id, &row, e) < 0)
        return -1;
    auto_json *spec = js_parse(row.spec, strlen(row.spec), 4 * LIMIT_JSON_BODY, e);
    if (spec == NULL)
        return err_wrap(e, "row of %s", id);
    if (o->name[0] == '\0' && json_object_get(spec, "network_policy") == NULL)
        return 0;
    if (o->name[0] == '\0')
        (void)json_object_del(spec, "network_policy");
    else
        (void)json_object_set_new(spec, "network_policy", policy_origin_json(o));
    auto_free char *text = js_text(spec, false);
    return store_sandbox_set_spec(c->store, id, text, e);
}

static void put(struct core *c, const char *id, const json_t *policy, const struct policy_origin *origin, const char *if_follows,
                bool keep, network_fn fn, void *ctx)
{
    Quicksand__Node__SetNetworkRequest rq = QUICKSAND__NODE__SET_NETWORK_REQUEST__INIT;
    Quicksand__Node__Network network = QUICKSAND__NODE__NETWORK__INIT;
    auto_free uint8_t *bytes = NULL;
    struct err e;

    if (check(c, id, true, &e) < 0 || network_request(c, policy, origin, &network, &bytes, &e) < 0 ||
        note_origin(c, id, origin, &e) < 0) {
        fn(ctx, NULL, &e);
        return;
    }
    network.has_keep = true;
    network.keep = keep;
    rq.sandbox_id = (char *)(uintptr_t)id;
    rq.network = &network;
    rq.if_follows = (char *)(uintptr_t)if_follows;
    (void)node_unary(c, "SetNetwork", &rq.base, &quicksand__node__network_status__descriptor, ASK_TIMEOUT_MS, true,
                     on_answer, ask_new(fn, ctx));
}

void network_forget_origin(struct core *c, const char *id)
{
    const struct policy_origin none = {{0}};
    struct err e;

    (void)note_origin(c, id, &none, &e);        /* it is asked again the next time */
}

void network_set(struct core *c, const char *id, const json_t *policy, bool keep, network_fn fn, void *ctx)
{
    struct policy_origin origin;
    struct err e;
    auto_json *resolved = policies_resolve(c, policy, &origin, &e);

    if (resolved == NULL)
        fn(ctx, NULL, &e);
    else
        put(c, id, resolved, &origin, NULL, keep, fn, ctx);
}

void network_follow(struct core *c, const char *id, const json_t *policy, const struct policy_origin *origin, bool keep,
                    network_fn fn, void *ctx)
{
    put(c, id, policy, origin, origin->name, keep, fn, ctx);
}

struct node_call *network_log(struct core *c, const char *id, uint64_t after, uint32_t limit, uint64_t wait_ms, node_reply_fn fn,
                              void *ctx)
{
    Quicksand__Node__NetworkLogRequest rq = QUICKSAND__NODE__NETWORK_LOG_REQUEST__INIT;
    struct err e;

    if (check(c, id, false, &e) < 0) {
        fn(ctx, NULL, &e);
        return NULL;
    }
    rq.sandbox_id = (char *)(uintptr_t)id;
    rq.has_after = rq.has_limit = rq.has_wait_ms = true;
    rq.after = after;
    rq.limit = limit;
    rq.wait_ms = wait_ms;
    return node_unary(c, "NetworkLog", &rq.base, &quicksand__node__network_log_response__descriptor,
                      ASK_TIMEOUT_MS + wait_ms, true, fn, ctx);
}
