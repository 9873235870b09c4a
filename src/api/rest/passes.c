/*
 * passes.c - connect_token.* operations: HTTP to a port of a sandbox for who shows a token
 */
#include <math.h>
#include <stdlib.h>

#include "api/rest/node_ask.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/ports.h"
#include "json/json.h"

static json_t *pass_json(const Quicksand__Node__Pass *p)
{
    return json_pack("{s:s, s:i, s:s, s:o, s:o}", "id", p->id, "port", (int)p->port, "metadata", p->metadata, "expires_at",
                     js_time_ms(p->until_ms), "uses_left", p->uses_left < 0 ? json_null() : json_integer(p->uses_left));
}

static void on_made(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__PassMade *m = (const Quicksand__Node__PassMade *)reply;

    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    auto_free char *url = core_tunnel_url(c->core, c->rq->authority, m->host, m->proxy_port);
    json_t *o = pass_json(m->pass);
    json_object_set_new(o, "token", json_string(m->token));
    json_object_set_new(o, "url", json_string(url));
    call_reply(c, 201, o);
}

static void make(struct call *c)
{
    Quicksand__Node__PassRequest rq = QUICKSAND__NODE__PASS_REQUEST__INIT;
    struct inbound in;
    struct err e;

    if (inbound_of_sandbox(c->core, call_param(c, "id"), &in, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    double expires_s = call_number(c, "expires_s", 0);
    rq.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    rq.has_port = rq.has_until_ms = rq.has_uses = rq.has_restricted = true;
    rq.port = (uint32_t)call_int(c, "port", 8080);
    rq.metadata = (char *)(uintptr_t)call_string(c, "metadata", "");
    rq.until_ms = expires_s > 0 ? clock_wall_ms() + llround(expires_s * 1000) : 0;
    rq.uses = (uint64_t)call_int(c, "max_uses", 0);
    rq.restricted = in.restricted;
    rq.allowed = in.allowed;
    rq.n_allowed = in.n;
    node_ask(c, "PassMake", &rq.base, &quicksand__node__pass_made__descriptor, NODE_ASK_MS, false, on_made, NULL);
    inbound_done(&in);
}

static void on_list(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__PassListResponse *rs = (const Quicksand__Node__PassListResponse *)reply;

    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    json_t *o = json_object(), *items = json_array();
    for (size_t i = 0; i < rs->n_passes; i++)
        json_array_append_new(items, pass_json(rs->passes[i]));
    json_object_set_new(o, "items", items);
    call_reply(c, 200, o);
}

static void list(struct call *c)
{
    Quicksand__Node__PassRequest rq = QUICKSAND__NODE__PASS_REQUEST__INIT;

    rq.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    node_ask(c, "PassList", &rq.base, &quicksand__node__pass_list_response__descriptor, NODE_ASK_MS, true, on_list, NULL);
}

static void revoke(struct call *c)
{
    Quicksand__Node__PassRequest rq = QUICKSAND__NODE__PASS_REQUEST__INIT;

    rq.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    rq.id = (char *)(uintptr_t)call_param(c, "token_id");
    node_ask(c, "PassRevoke", &rq.base, &quicksand__node__empty__descriptor, NODE_ASK_MS, false, node_answer_empty, NULL);
}

static const struct field make_body[] = {
    {"port", FIELD_INT, 0, 1, 65535, NULL, "inside; default 8080"},
    {"metadata", FIELD_STRING, 0, 0, LIMIT_PASS_METADATA, NULL, "told to the server inside as x-verified-user-data"},
    {"expires_s", FIELD_NUMBER, FIELD_NULLABLE | FIELD_OPEN_MIN, 0, LIMIT_LIFETIME_MAX, NULL, "null (default): with the sandbox"},
    {"max_uses", FIELD_INT, FIELD_NULLABLE, 1, 1e15, NULL, "requests that it lets in; null (default): any number"},
};

#define PASSES "/v1/sandboxes/{id}/connect-tokens"

const struct op rest_pass_ops[] = {
    {"connect_token.create", "POST", PASSES, "sandbox:write", 0,
     "A token for HTTP to one port; its text is shown this once", NULL, 0, make_body,
     array_len(make_body), 201, make},
    {"connect_token.list", "GET", PASSES, "sandbox:read", 0,
     "Connect tokens of a sandbox, newest first", NULL, 0, NULL, 0, 200, list},
    {"connect_token.revoke", "DELETE", PASSES "/{token_id}", "sandbox:write", 0,
     "In force at once, for new requests", NULL, 0, NULL, 0, 204, revoke},
};
const size_t rest_pass_nops = array_len(rest_pass_ops);
