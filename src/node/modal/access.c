/*
 * access.c - what may leave the sandbox, changed by Modal's clients while it runs
 */
#include "base/mem.h"
#include "ipc/policy_wire.h"
#include "node/modal/router.h"
#include "node/network.h"

static void done(struct op *op, const struct err *e)
{
    Modal__TaskCommandRouter__TaskSetNetworkAccessResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_SET_NETWORK_ACCESS_RESPONSE__INIT;
    struct err blocked;

    if (e != NULL && e->code == ERR_CONFLICT) {
        err_set(&blocked, ERR_PRECONDITION, "%s", e->message);
        e = &blocked;
    }
    if (e != NULL)
        op_fail(op, e);
    else
        op_reply(op, &m.base);
}

static int read_access(const Modal__Client__NetworkAccess *n, struct policy *p, struct err *e)
{
    const char *why;

    if (n == NULL)
        return err_param(e, ERR_INVALID, "network_access", "network_access is missing");
    if (n->network_access_type == MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__OPEN) {
        policy_open(p);
        return 0;
    }
    if (n->network_access_type == MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__BLOCKED)
        return 0;
    if (n->network_access_type != MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__ALLOWLIST)
        return err_param(e, ERR_INVALID, "network_access", "the type of network access is not known");
    const char *bad = policy_allow_lists(p, n->allowed_cidrs, n->n_allowed_cidrs, n->allowed_domains, n->n_allowed_domains, &why);
    if (bad != NULL)
        return err_param(e, ERR_INVALID, "network_access", "'%.80s' cannot be allowed: %s", bad, why);
    return 0;
}

void router_set_network_access(struct op *op)
{
    const Modal__TaskCommandRouter__TaskSetNetworkAccessRequest *rq =
        (const Modal__TaskCommandRouter__TaskSetNetworkAccessRequest *)op->rq;
    Quicksand__Node__Network m = QUICKSAND__NODE__NETWORK__INIT;
    auto_free uint8_t *bytes = mem_alloc(LIMIT_POLICY_BYTES);
    char sandbox[ID_SIZE];
    struct policy p;
    struct err e;

    policy_init(&p);
    int r = router_sandbox(op, rq->task_id, NULL, sandbox, &e);
    if (r == 0)
        r = read_access(rq->network_access, &p, &e);
    m.has_policy = true;
    m.policy.data = bytes;
    m.policy.len = r == 0 ? policy_encode(&p, bytes, LIMIT_POLICY_BYTES) : 0;
    policy_done(&p);
    if (r < 0)
        op_fail(op, &e);
    else
        network_replace(op, sandbox, &m, NULL, done);
}
