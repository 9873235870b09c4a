/*
 * calls.c - what control asks about tunnels
 */
#include "base/mem.h"
#include "node/call.h"
#include "node/ops.h"
#include "node/tunnel/name.h"
#include "node/tunnel/pass.h"
#include "node/tunnel/tunnel.h"

static void fill(const struct tunnel *t, Quicksand__Node__Tunnel *ret)
{
    quicksand__node__tunnel__init(ret);
    ret->has_port = ret->has_h2 = ret->has_tls_port = ret->has_raw_port = ret->has_shared_port = true;
    ret->port = t->port;
    ret->h2 = t->h2;
    ret->host = (char *)(uintptr_t)tunnel_host(t);
    ret->tls_port = tunnel_tls_port(t);
    ret->shared_port = tunnels_shared_port(t->node);
    ret->raw_port = t->raw_port != NULL ? t->raw_port->number : 0;
}

void op_port_open(struct op *op)
{
    const Quicksand__Node__PortRequest *rq = (Quicksand__Node__PortRequest *)op->rq;
    const struct tunnel *t;
    Quicksand__Node__Tunnel m;
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (rq->port == NULL) {
        (void)err_param(&e, ERR_INVALID, "port", "no port given");
        op_fail(op, &e);
        return;
    }
    if (tunnel_open(op->node, rq->sandbox_id, rq->port, &t, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    fill(t, &m);
    op_reply(op, &m.base);
}

void op_port_close(struct op *op)
{
    const Quicksand__Node__PortRequest *rq = (Quicksand__Node__PortRequest *)op->rq;
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    uint32_t port = rq->port != NULL ? rq->port->port : 0;
    if (port < 1 || port > 65535 || tunnel_close(op->node, rq->sandbox_id, (uint16_t)port) == 0) {
        (void)err_param(&e, ERR_NOT_FOUND, "port", "port %u is not open", port);
        op_fail(op, &e);
        return;
    }
    op_reply_empty(op);
}

void op_port_list(struct op *op)
{
    const Quicksand__Node__PortRequest *rq = (Quicksand__Node__PortRequest *)op->rq;
    Quicksand__Node__PortListResponse rs = QUICKSAND__NODE__PORT_LIST_RESPONSE__INIT;
    const struct tunnel *t = NULL;
    struct err e;
    size_t n = 0;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    while ((t = tunnel_next(op->node, rq->sandbox_id, t)) != NULL)
        n++;
    auto_free Quicksand__Node__Tunnel *items = mem_array(n + 1, sizeof *items);
    auto_free Quicksand__Node__Tunnel **list = mem_array(n + 1, sizeof *list);
    for (size_t i = 0; i < n; i++) {
        t = tunnel_next(op->node, rq->sandbox_id, t);
        fill(t, &items[i]);
        list[i] = &items[i];
    }
    rs.tunnels = list;
    rs.n_tunnels = n;
    op_reply(op, &rs.base);
}

static void fill_pass(const struct pass *p, Quicksand__Node__Pass *ret)
{
    quicksand__node__pass__init(ret);
    ret->id = (char *)(uintptr_t)p->id;
    ret->metadata = p->metadata;
    ret->has_port = ret->has_until_ms = ret->has_uses_left = true;
    ret->port = p->port;
    ret->until_ms = p->until_ms;
    ret->uses_left = p->uses_left;
}

void op_pass_make(struct op *op)
{
    const Quicksand__Node__PassRequest *rq = (Quicksand__Node__PassRequest *)op->rq;
    Quicksand__Node__PassMade rs = QUICKSAND__NODE__PASS_MADE__INIT;
    Quicksand__Node__Pass m;
    const struct pass *p;
    char token[PASS_TOKEN], host[NET_TLS_NAME] = "";
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    rs.has_proxy_port = true;
    rs.proxy_port = tunnels_shared_port(op->node);
    if (rs.proxy_port == 0) {
        (void)err_set(&e, ERR_UNSUPPORTED, "this node has no port for connect tokens: tunnel_listen is empty");
        op_fail(op, &e);
        return;
    }
    if (pass_make(op->node, rq, token, &p, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    fill_pass(p, &m);
    if (op->node->conf.tunnel_domain[0] != '\0')
        name_host(op->node->conf.tunnel_domain, p->sandbox, p->port, host);
    rs.host = host;
    rs.pass = &m;
    rs.token = token;
    op_reply(op, &rs.base);
}

void op_pass_revoke(struct op *op)
{
    const Quicksand__Node__PassRequest *rq = (Quicksand__Node__PassRequest *)op->rq;
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (rq->id == NULL || rq->id[0] == '\0' || pass_revoke(op->node, rq->sandbox_id, rq->id) == 0) {
        (void)err_set(&e, ERR_NOT_FOUND, "the sandbox has no connect token '%.40s'", rq->id != NULL ? rq->id : "");
        op_fail(op, &e);
        return;
    }
    op_reply_empty(op);
}

void op_pass_list(struct op *op)
{
    const Quicksand__Node__PassRequest *rq = (Quicksand__Node__PassRequest *)op->rq;
    Quicksand__Node__PassListResponse rs = QUICKSAND__NODE__PASS_LIST_RESPONSE__INIT;
    const struct pass *p = NULL;
    struct err e;
    size_t n = 0;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    while ((p = pass_next(op->node, rq->sandbox_id, p)) != NULL)
        n++;
    auto_free Quicksand__Node__Pass *items = mem_array(n + 1, sizeof *items);
    auto_free Quicksand__Node__Pass **list = mem_array(n + 1, sizeof *list);
    for (size_t i = 0; i < n; i++) {
        p = pass_next(op->node, rq->sandbox_id, p);
        fill_pass(p, &items[i]);
        list[i] = &items[i];
    }
    rs.passes = list;
    rs.n_passes = n;
    rs.has_proxy_port = true;
    rs.proxy_port = tunnels_shared_port(op->node);
    op_reply(op, &rs.base);
}
