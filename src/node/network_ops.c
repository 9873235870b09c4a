/*
 * network_ops.c - operations about the network of a sandbox: its policy, its counters, its log
 */
#include "node/network_internal.h"

#include <string.h>

#include "base/mem.h"
#include "node/call.h"
#include "node/ops.h"

#define STATUS_MS 2000

int network_check(const struct network *w, const char *sandbox, struct err *e)
{
    if (call_sandbox(sandbox, e) < 0)
        return -1;
    if (network_is_known(w, sandbox))
        return 0;
    return err_param(e, ERR_CONFLICT, "network", "the network of sandbox %s is blocked for good", sandbox);
}

static void reply_revision(struct op *op, const struct err *failure)
{
    const Quicksand__Node__SetNetworkRequest *rq = (Quicksand__Node__SetNetworkRequest *)op->rq;
    Quicksand__Node__NetworkStatus out = QUICKSAND__NODE__NETWORK_STATUS__INIT;
    auto_free uint8_t *bytes = mem_alloc(NETWORK_FILE_MAX);
    struct egress_policy p;
    struct err e;

    if (failure != NULL) {
        op_fail(op, failure);
        return;
    }
    if (network_load(op->node->network, rq->sandbox_id, bytes, &p, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    out.has_revision = 1;
    out.revision = p.revision;
    op_reply(op, &out.base);
}

void op_set_network(struct op *op)
{
    const Quicksand__Node__SetNetworkRequest *rq = (Quicksand__Node__SetNetworkRequest *)op->rq;
    struct err e;

    if (rq->network == NULL) {
        err_param(&e, ERR_INVALID, "network", "a policy is missing");
        op_fail(op, &e);
        return;
    }
    network_replace(op, rq->sandbox_id, rq->network, rq->if_follows, reply_revision);
}

static void put_denials(Quicksand__Node__NetworkStatus *out, struct egress_status *s, Quicksand__Node__Denial *rows,
                        Quicksand__Node__Denial **list, char *texts)
{
    for (uint32_t i = 0; i < s->ndenials; i++) {
        struct egress_denial *d = &s->denials[i];
        rows[i] = (Quicksand__Node__Denial)QUICKSAND__NODE__DENIAL__INIT;
        rows[i].has_seq = rows[i].has_when_ms = rows[i].has_port = 1;
        rows[i].seq = d->seq;
        rows[i].when_ms = d->when_ms;
        rows[i].port = d->port;
        rows[i].reason = (char *)(uintptr_t)egress_reason_name(d->reason);
        rows[i].protocol = (char *)(uintptr_t)egress_protocol_name(d->protocol);
        rows[i].address = (char *)(uintptr_t)address_text(&d->to, texts + (size_t)i * ADDRESS_TEXT);
        rows[i].rule = d->rule;
        rows[i].name = d->name;
        list[i] = &rows[i];
    }
    out->n_denials = s->ndenials;
    out->denials = list;
}

static void put_counters(Quicksand__Node__NetworkStatus *out, const struct egress_totals *t)
{
    out->has_sent = out->has_received = out->has_flows = out->has_failed = out->has_queries = out->has_denied = out->has_noted =
        out->has_injected = 1;
    out->sent = t->sent;
    out->received = t->received;
    out->flows = t->flows;
    out->failed = t->failed;
    out->queries = t->queries;
    out->denied = t->denied;
    out->noted = t->noted;
    out->injected = t->injected;
}

static void put_name(Quicksand__Node__NetworkStatus *out, const struct egress_policy *p)
{
    out->has_version = out->has_follows = p->name[0] != '\0';
    out->name = p->name[0] != '\0' ? (char *)(uintptr_t)p->name : NULL;
    out->version = p->version;
    out->follows = p->follows;
}

/* Where egress does not answer, or has forgotten the sandbox because it ended, what it told last counts. */
static void on_network_status(void *arg, const struct chan_msg *m, const struct err *e)
{
    struct op *op = arg;
    const Quicksand__Node__GetNetworkRequest *rq = (Quicksand__Node__GetNetworkRequest *)op->rq;
    Quicksand__Node__NetworkStatus out = QUICKSAND__NODE__NETWORK_STATUS__INIT;
    auto_free struct egress_status *s = mem_zalloc(sizeof *s);
    auto_free Quicksand__Node__Denial *rows = mem_array(EGRESS_DENIALS, sizeof *rows);
    auto_free Quicksand__Node__Denial **list = mem_array(EGRESS_DENIALS, sizeof *list);
    auto_free char *texts = mem_array(EGRESS_DENIALS, ADDRESS_TEXT);
    auto_free uint8_t *bytes = mem_alloc(NETWORK_FILE_MAX);
    struct egress_policy p;
    struct err bad;

    if (network_load(op->node->network, rq->sandbox_id, bytes, &p, &bad) < 0) {
        op_fail(op, &bad);
        return;
    }
    if (e == NULL && m->type == EGRESS_STATUS_R && egress_status_decode(s, m->data, m->len) == 0) {
        out.revision = s->revision;
        out.flows_now = s->flows_now;
        put_denials(&out, s, rows, list, texts);
    } else {
        out.revision = p.revision;
        network_log_get_totals(op->node->network->log, rq->sandbox_id, &s->totals);
    }
    out.has_revision = out.has_flows_now = 1;
    out.problem = map_get(&op->node->network->problems, rq->sandbox_id);
    put_counters(&out, &s->totals);
    put_name(&out, &p);
    out.has_policy = 1;
    out.policy = (ProtobufCBinaryData){p.policy_len, (uint8_t *)(uintptr_t)p.policy};
    op_reply(op, &out.base);
}

void op_get_network(struct op *op)
{
    const Quicksand__Node__GetNetworkRequest *rq = (Quicksand__Node__GetNetworkRequest *)op->rq;
    uint8_t out[64];
    struct err e;

    if (network_check(op->node->network, rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    egress_call(op->node->network->link, EGRESS_STATUS, out, egress_ref_encode(rq->sandbox_id, out, sizeof out), NULL, 0,
                STATUS_MS, on_network_status, op);
}

void op_network_log(struct op *op)
{
    const Quicksand__Node__NetworkLogRequest *rq = (Quicksand__Node__NetworkLogRequest *)op->rq;
    struct err e;

    if (network_check(op->node->network, rq->sandbox_id, &e) < 0)
        op_fail(op, &e);
    else
        network_log_answer(op->node->network->log, op);
}
