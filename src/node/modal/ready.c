/*
 * ready.c - SandboxWaitUntilReady
 */
#include "node/ready.h"

#include "base/limits.h"
#include "node/modal/router.h"

#define TIMEOUT_MAX_MS (LIMIT_WAIT_MAX * 1000LL)

typedef Modal__TaskCommandRouter__SandboxWaitUntilReadyTcrRequest Request;

static void free_wait(struct op *op)
{
    struct ready_wait **w = op->state;

    ready_cancel(*w);
}

static void on_ready(void *ctx, int64_t ready_ms, const struct err *e)
{
    struct op *op = ctx;
    struct ready_wait **w = op->state;
    Modal__TaskCommandRouter__SandboxWaitUntilReadyTcrResponse m =
        MODAL__TASK_COMMAND_ROUTER__SANDBOX_WAIT_UNTIL_READY_TCR_RESPONSE__INIT;

    *w = NULL;
    if (e != NULL) {
        router_fail(op, e);
        return;
    }
    m.has_ready_at = 1;
    m.ready_at = (double)ready_ms / 1000;
    op_reply(op, &m.base);
}

static int64_t timeout_of(const Request *rq)
{
    if (!rq->has_timeout || !(rq->timeout < (float)LIMIT_WAIT_MAX))
        return TIMEOUT_MAX_MS;
    return rq->timeout > 0 ? (int64_t)((double)rq->timeout * 1000) : 0;
}

void router_wait_until_ready(struct op *op)
{
    const Request *rq = (const Request *)op->rq;
    struct ready_wait **w = op_state(op, sizeof(struct ready_wait *));
    char sandbox[ID_SIZE];
    struct err e;

    op->on_free = free_wait;
    if (router_sandbox(op, rq->task_id, NULL, sandbox, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    op->on_gone = op_drop;
    *w = ready_wait(op->node, sandbox, timeout_of(rq), on_ready, op);
}
