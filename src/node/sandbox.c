/*
 * sandbox.c - get, terminate, update and destroy
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "ipc/keeper_proto.h"
#include "node/call.h"
#include "node/defaults.h"
#include "node/keeper_link.h"
#include "node/map.h"
#include "node/monitor_link.h"
#include "node/network.h"
#include "node/ops.h"
#include "node/query.h"
#include "node/tunnel/tunnel.h"

#define DESTROY_MS 60000
#define LIMITS_MS 20000
#define HALF_BUILT_POLL_MS 50   /* a sandbox without a monitor yet is looked at this often */

/* --- get, and the end of terminate and update ------------------------------------------------ */

struct get {
    char sandbox[ID_SIZE];
    int64_t until_ms;           /* CLOCK_BOOTTIME; 0 = do not wait */
    struct sandbox_record record;
    struct loop_timer *again;
};

static void free_get(struct op *op)
{
    struct get *g = op->state;

    loop_timer_free(g->again);
}

static void on_entry(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    struct get *g = op->state;
    Quicksand__Node__Usage usage;
    Quicksand__Node__Exec entry;
    Quicksand__Node__Sandbox sb;

    (void)e;                    /* without an entry point there is none to show */
    if (r != NULL)
        map_exec(r, &entry);
    map_sandbox(&g->record, &usage, r != NULL ? &entry : NULL, &sb);
    op_reply(op, &sb.base);
}

static void poll_sandbox(void *arg);

static void on_sandbox(void *arg, const struct sandbox_record *r, const struct err *e)
{
    struct op *op = arg;
    struct get *g = op->state;
    const struct mon_ref entry = {.exec_id = ENTRY_EXEC_ID};

    if (e != NULL) {
        op_fail(op, e);
        return;
    }
    g->record = *r;
    if (r->state != SB_ENDED && clock_boot_ms() < g->until_ms) {
        /* A poll that came back early found no monitor: do not spin. */
        loop_timer_set(g->again, r->state == SB_STARTING ? HALF_BUILT_POLL_MS : 0);
        return;
    }
    query_exec(op->node, &op->q[0], g->sandbox, &entry, 0, on_entry, op);
}

static void poll_sandbox(void *arg)
{
    struct op *op = arg;
    struct get *g = op->state;
    int64_t left = g->until_ms == 0 ? 0 : g->until_ms - clock_boot_ms();

    query_sandbox(op->node, &op->q[0], g->sandbox, left > 0 ? (uint64_t)left : 0, on_sandbox, op);
}

void sandbox_reply(struct op *op, const char *sandbox, uint64_t wait_ms)
{
    free(op->state);
    struct get *g = op_state(op, sizeof *g);

    if (wait_ms > LIMIT_WAIT_MAX * 1000ULL)
        wait_ms = LIMIT_WAIT_MAX * 1000ULL;
    (void)snprintf(g->sandbox, sizeof g->sandbox, "%s", sandbox);
    g->until_ms = wait_ms > 0 ? clock_boot_ms() + (int64_t)wait_ms : 0;
    g->again = loop_timer_new(op->node->loop, poll_sandbox, op);
    op->on_free = free_get;
    op->on_gone = op_drop;
    if (op->call == NULL)
        op_drop(op);
    else
        poll_sandbox(op);
}

void op_get(struct op *op)
{
    const Quicksand__Node__GetRequest *rq = (Quicksand__Node__GetRequest *)op->rq;
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0)
        op_fail(op, &e);
    else
        sandbox_reply(op, rq->sandbox_id, rq->wait_ms);
}

/* --- terminate ------------------------------------------------------------------------------- */

static void on_terminated(void *arg, const struct err *e)
{
    struct op *op = arg;
    const Quicksand__Node__TerminateRequest *rq = (Quicksand__Node__TerminateRequest *)op->rq;

    /* Ended before: the record says how. */
    if (e != NULL && e->code != ERR_GONE)
        op_fail(op, e);
    else
        sandbox_reply(op, rq->sandbox_id, rq->wait_ms);
}

void op_terminate(struct op *op)
{
    const Quicksand__Node__TerminateRequest *rq = (Quicksand__Node__TerminateRequest *)op->rq;
    struct mon_terminate m = {
        .reason = END_TERMINATED,
        .signal = rq->signal,
        .grace_ms = rq->has_grace_ms ? rq->grace_ms : UINT32_MAX,
    };
    uint8_t space[256];
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (rq->has_reason && (rq->reason == END_NONE || rq->reason >= END_MAX_)) {
        err_param(&e, ERR_INVALID, "reason", "no such reason: %u", rq->reason);
        op_fail(op, &e);
        return;
    }
    if (rq->signal < 0 || rq->signal > 64) {
        err_param(&e, ERR_INVALID, "signal", "no such signal: %d", rq->signal);
        op_fail(op, &e);
        return;
    }
    if (rq->has_reason)
        m.reason = (uint8_t)rq->reason;
    (void)snprintf(m.actor, sizeof m.actor, "%s", rq->actor != NULL ? rq->actor : "");
    query_do(op->node, &op->q[0], rq->sandbox_id, MON_TERMINATE, space,
             mon_terminate_encode(&m, space, sizeof space), on_terminated, op);
}

/* --- update ---------------------------------------------------------------------------------- */

static void on_updated(void *arg, const struct err *e)
{
    struct op *op = arg;
    const Quicksand__Node__UpdateRequest *rq = (Quicksand__Node__UpdateRequest *)op->rq;

    if (e != NULL)
        op_fail(op, e);
    else
        sandbox_reply(op, rq->sandbox_id, 0);
}

static void update_monitor(struct op *op, const uint8_t *cpus)
{
    const Quicksand__Node__UpdateRequest *rq = (Quicksand__Node__UpdateRequest *)op->rq;
    struct mon_update m = {
        .set_deadline = rq->has_deadline_ms,
        .deadline_ms = rq->deadline_ms,
        .set_idle = rq->has_idle_ms,
        .idle_ms = rq->idle_ms,
        .set_cpus = cpus != NULL,
    };
    uint8_t space[256];

    if (cpus != NULL)
        memcpy(m.cpus, cpus, sizeof m.cpus);
    query_do(op->node, &op->q[0], rq->sandbox_id, MON_UPDATE, space,
             mon_update_encode(&m, space, sizeof space), on_updated, op);
}

static void on_limits(void *arg, const struct err *e, const uint8_t *payload, size_t len, int *fd)
{
    struct op *op = arg;

    (void)fd;
    if (e != NULL)
        op_fail(op, e);
    else
        update_monitor(op, len == KEEPER_CPUS ? payload : NULL);
}

static void update_limits(struct op *op, const Quicksand__Node__Resources *r)
{
    const Quicksand__Node__UpdateRequest *rq = (Quicksand__Node__UpdateRequest *)op->rq;
    struct keeper_limits m = {
        .r = {
            .cpu_milli = r->cpu_milli,
            .cpu_weight = r->cpu_weight != 0 ? r->cpu_weight : 100,
            .memory_bytes = r->memory_bytes,
            .memory_request_bytes = r->memory_request_bytes,
            .pids = r->pids,
            .io_weight = r->io_weight,
        },
    };
    uint8_t space[256];

    (void)snprintf(m.sandbox, sizeof m.sandbox, "%s", rq->sandbox_id);
    keeper_call(op->node->keeper, KEEPER_LIMITS, space, keeper_limits_encode(&m, space, sizeof space), LIMITS_MS,
                on_limits, op);
}

void op_update(struct op *op)
{
    const Quicksand__Node__UpdateRequest *rq = (Quicksand__Node__UpdateRequest *)op->rq;
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0)
        op_fail(op, &e);
    else if (rq->resources != NULL)
        update_limits(op, rq->resources);
    else
        update_monitor(op, NULL);
}

/* --- destroy --------------------------------------------------------------------------------- */

static void on_destroyed(void *arg, const struct err *e, const uint8_t *payload, size_t len,
                         int *fd)
{
    struct op *op = arg;
    const Quicksand__Node__DestroyRequest *rq = (Quicksand__Node__DestroyRequest *)op->rq;

    (void)payload;
    (void)len;
    (void)fd;
    if (e != NULL && e->code != ERR_NOT_FOUND) {
        op_fail(op, e);
        return;
    }
    monitor_forget(op->node->monitors, rq->sandbox_id);
    tunnels_end(op->node, rq->sandbox_id);
    network_remove(op->node->network, rq->sandbox_id);
    defaults_remove(op->node->defaults, rq->sandbox_id);
    op_reply_empty(op);
}

void op_destroy(struct op *op)
{
    const Quicksand__Node__DestroyRequest *rq = (Quicksand__Node__DestroyRequest *)op->rq;
    struct keeper_destroy m = {{0}};
    uint8_t space[128];
    struct err e;

    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    (void)snprintf(m.sandbox, sizeof m.sandbox, "%s", rq->sandbox_id);
    keeper_call(op->node->keeper, KEEPER_DESTROY, space,
                keeper_destroy_encode(&m, space, sizeof space), DESTROY_MS, on_destroyed, op);
}
