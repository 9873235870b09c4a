/*
 * network.c - the network policy of a running sandbox
 */
#include "core/network.h"

#include <string.h>

#include "base/mem.h"
#include "core/life.h"
#include "core/policy_json.h"
#include "ipc/policy_wire.h"

#define ASK_TIMEOUT_MS 15000

struct ask {
    network_fn fn;
    void *ctx;
};

int network_request(const json_t *policy, Quicksand__Node__Network *ret, uint8_t **ret_bytes, struct err *e)
{
    struct policy p;

    if (policy_from_json(policy, &p, e) < 0)
        return -1;
    *ret_bytes = mem_alloc(LIMIT_POLICY_BYTES);
    ret->has_policy = true;
    ret->policy.data = *ret_bytes;
    ret->policy.len = policy_encode(&p, *ret_bytes, LIMIT_POLICY_BYTES);
    policy_done(&p);
    return 0;
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

void network_set(struct core *c, const char *id, const json_t *policy, bool keep, network_fn fn, void *ctx)
{
    Quicksand__Node__SetNetworkRequest rq = QUICKSAND__NODE__SET_NETWORK_REQUEST__INIT;
    Quicksand__Node__Network network = QUICKSAND__NODE__NETWORK__INIT;
    auto_free uint8_t *bytes = NULL;
    struct err e;

    if (check(c, id, true, &e) < 0 || network_request(policy, &network, &bytes, &e) < 0) {
        fn(ctx, NULL, &e);
        return;
    }
    network.has_keep = true;
    network.keep = keep;
    rq.sandbox_id = (char *)(uintptr_t)id;
    rq.network = &network;
    (void)node_unary(c, "SetNetwork", &rq.base, &quicksand__node__network_status__descriptor, ASK_TIMEOUT_MS, true,
                     on_answer, ask_new(fn, ctx));
}
