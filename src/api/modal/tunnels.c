/*
 * tunnels.c - where the ports of a sandbox can be reached, and tokens for HTTP to one of them
 *
 * Ports are opened with their sandbox, so there is nothing to wait for: `timeout` has no work to do.
 */
#include <string.h>

#include "api/modal/mcall.h"
#include "api/modal/sandbox_view.h"
#include "base/mem.h"
#include "core/ports.h"

#define ASK_MS 30000
#define CONNECT_PORT_DEFAULT 8080

static void on_gone(struct mcall *c)
{
    node_call_cancel(c->user);
    c->on_gone = NULL;
    m_refuse(c, GRPC_CANCELLED, "the client left");
}

static void on_ports(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__PortListResponse *list = (const Quicksand__Node__PortListResponse *)reply;
    M(SandboxGetTunnelsResponse) rs = MODAL__CLIENT__SANDBOX_GET_TUNNELS_RESPONSE__INIT;
    M(GenericResult) result;
    struct mcall *c = ctx;

    c->on_gone = NULL;
    if (e != NULL) {
        m_fail(c, e);
        return;
    }
    auto_free char *host = core_tunnel_host(c->m->core, grpc_call_authority(c->grpc));
    auto_free M(TunnelData) *items = mem_array(list->n_tunnels + 1, sizeof *items);
    auto_free M(TunnelData) **refs = mem_array(list->n_tunnels + 1, sizeof *refs);
    for (size_t i = 0; i < list->n_tunnels; i++) {
        const Quicksand__Node__Tunnel *t = list->tunnels[i];
        modal__client__tunnel_data__init(&items[i]);
        items[i].host = t->host != NULL && t->host[0] != '\0' ? t->host : host;
        items[i].has_port = items[i].has_container_port = true;
        items[i].port = t->tls_port;
        items[i].container_port = t->port;
        if (t->raw_port != 0) {
            items[i].unencrypted_host = host;
            items[i].has_unencrypted_port = true;
            items[i].unencrypted_port = t->raw_port;
        }
        refs[i] = &items[i];
    }
    modal__client__generic_result__init(&result);
    result.has_status = true;
    result.status = MODAL__CLIENT__GENERIC_RESULT__GENERIC_STATUS__GENERIC_STATUS_SUCCESS;
    rs.result = &result;
    rs.tunnels = refs;
    rs.n_tunnels = list->n_tunnels;
    m_reply(c, &rs.base);
}

void rpc_sandbox_get_tunnels(struct mcall *c)
{
    Quicksand__Node__PortRequest rq = QUICKSAND__NODE__PORT_REQUEST__INIT;
    auto_sandbox_row row = {0};
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, REQ(c, SandboxGetTunnelsRequest)->sandbox_id, id, NULL, &e) < 0 || view_row(c, id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rq.sandbox_id = id;
    c->on_gone = on_gone;
    c->user = node_unary(c->m->core, "PortList", &rq.base, &quicksand__node__port_list_response__descriptor, ASK_MS, true,
                         on_ports, c);
}

/* --- connect tokens ------------------------------------------------------------------------------------------------ */

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
    auto_free char *url = core_tunnel_url(c->m->core, grpc_call_authority(c->grpc), m->host, m->proxy_port);
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
    ask.port = rq->has_port && rq->port != 0 ? rq->port : CONNECT_PORT_DEFAULT;
    ask.metadata = (char *)(uintptr_t)m_text(rq->user_metadata);
    ask.restricted = in.restricted;
    ask.allowed = in.allowed;
    ask.n_allowed = in.n;
    c->on_gone = on_gone;
    c->user = node_unary(c->m->core, "PassMake", &ask.base, &quicksand__node__pass_made__descriptor, ASK_MS, false, on_made, c);
    inbound_done(&in);
}
