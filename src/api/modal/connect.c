/*
 * connect.c - connect tokens: HTTP to one port of a sandbox through the node's proxy
 */
#include "api/modal/mcall.h"
#include "api/modal/sandbox_view.h"
#include "base/mem.h"
#include "core/ports.h"

#define ASK_MS 30000
#define PORT_DEFAULT 8080

static void on_gone(struct mcall *c)
{
    node_call_cancel(c->user);
    c->on_gone = NULL;
    m_refuse(c, GRPC_CANCELLED, "the client left");
}

static void on_made(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__PassMade *m = (const Quicksand__Node__PassMade *)reply;
    M(SandboxCreateConnectTokenResponse) rs = MODAL__CLIENT__SANDBOX_CREATE_CONNECT_TOKEN_RESPONSE__INIT;
    struct mcall *c = ctx;

    c->on_gone = NULL;
    if (e != NULL) {
        m_fail(c, e);
        return;
    }
    auto_free char *host = core_tunnel_host(c->m->core, grpc_call_authority(c->grpc));
    auto_free char *url = mem_printf("https://%s:%u", host, m->proxy_port);
    rs.url = url;
    rs.token = m->token;
    m_reply(c, &rs.base);
}

void rpc_sandbox_create_connect_token(struct mcall *c)
{
    const M(SandboxCreateConnectTokenRequest) *rq = REQ(c, SandboxCreateConnectTokenRequest);
    Quicksand__Node__PassRequest ask = QUICKSAND__NODE__PASS_REQUEST__INIT;
    auto_sandbox_row row = {0};
    struct inbound in;
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, rq->sandbox_id, id, NULL, &e) < 0 || view_row(c, id, &row, &e) < 0 ||
        inbound_of_sandbox(c->m->core, id, &in, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    ask.sandbox_id = id;
    ask.has_port = ask.has_restricted = true;
    ask.port = rq->has_port && rq->port != 0 ? rq->port : PORT_DEFAULT;
    ask.metadata = (char *)(uintptr_t)m_text(rq->user_metadata);
    ask.restricted = in.restricted;
    ask.allowed = in.allowed;
    ask.n_allowed = in.n;
    c->on_gone = on_gone;
    c->user = node_unary(c->m->core, "PassMake", &ask.base, &quicksand__node__pass_made__descriptor, ASK_MS, false, on_made, c);
    inbound_done(&in);
}
