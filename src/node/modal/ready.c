/*
 * ready.c - SandboxWaitUntilReady
 *
 * The probe of a sandbox runs while somebody waits for it, as a hidden exec that is started again every interval until it
 * exits with 0; a port is tried by the file helper. When it has succeeded once, the time is kept with the sandbox's defaults and
 * answers every later call at once.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "node/defaults.h"
#include "node/modal/router.h"
#include "node/ops.h"
#include "node/query.h"

#define INTERVAL_MS 100
#define HELPER "modal-sandbox-fs-tools"
#define PROBE_MS 30000          /* one try may take so long */
#define TIMEOUT_MAX_MS (LIMIT_WAIT_MAX * 1000LL)

typedef Modal__TaskCommandRouter__SandboxWaitUntilReadyTcrRequest Request;

struct wait {
    struct probe *probe;        /* NULL: not (any more) in its list */
    struct wait *next;
    struct op *op;
    int64_t until_ms;           /* CLOCK_BOOTTIME */
    struct loop_timer *timeout;
};

/* Lives while somebody waits. */
struct probe {
    struct node *node;
    char sandbox[ID_SIZE];
    struct mon_ref ref;         /* of the try under way */
    struct query *q;
    struct loop_timer *again;
    uint64_t interval_ms;
    struct wait *waits;
};

static void reply_ready(struct op *op, int64_t ready_ms)
{
    Modal__TaskCommandRouter__SandboxWaitUntilReadyTcrResponse m =
        MODAL__TASK_COMMAND_ROUTER__SANDBOX_WAIT_UNTIL_READY_TCR_RESPONSE__INIT;

    m.has_ready_at = 1;
    m.ready_at = (double)ready_ms / 1000;
    op_reply(op, &m.base);
}

/* --- who waits ------------------------------------------------------------------------------- */

static void probe_free(struct probe *p)
{
    (void)map_del(&p->node->router->probes, p->sandbox);
    query_cancel(&p->q);
    loop_timer_free(p->again);
    free(p);
}

static void leave(struct wait *w)
{
    struct probe *p = w->probe;

    if (p == NULL)
        return;
    struct wait **link = &p->waits;
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
    w->probe = NULL;
    if (p->waits == NULL)
        probe_free(p);
}

static void free_wait(struct op *op)
{
    struct wait *w = op->state;

    leave(w);
    loop_timer_free(w->timeout);
}

/* Ends all calls, and with the last the probe: `p` is gone after it. */
static void end_all(struct probe *p, int64_t ready_ms, const struct err *e)
{
    struct wait *w = p->waits;

    p->waits = NULL;
    probe_free(p);
    while (w != NULL) {
        struct wait *next = w->next;
        w->probe = NULL;
        if (e != NULL)
            router_fail(w->op, e);
        else
            reply_ready(w->op, ready_ms);
        w = next;
    }
}

/* --- tries ----------------------------------------------------------------------------------- */

static void try_again(struct probe *p)
{
    loop_timer_set(p->again, p->interval_ms);
}

static void keep_ready(struct probe *p, int64_t ready_ms)
{
    const Quicksand__Node__Defaults *d = defaults_get(p->node->defaults, p->sandbox);
    struct err e;

    if (d == NULL)
        return;
    /* A copy: saving forgets the one we have. */
    size_t n = quicksand__node__defaults__get_packed_size(d);
    auto_free uint8_t *bytes = mem_alloc(n + 1);
    (void)quicksand__node__defaults__pack(d, bytes);
    Quicksand__Node__Defaults *copy = quicksand__node__defaults__unpack(NULL, n, bytes);
    if (copy == NULL)
        return;
    copy->has_ready_ms = 1;
    copy->ready_ms = ready_ms;
    if (defaults_save(p->node->defaults, p->sandbox, copy, &e) < 0)
        log_warn("ready-not-kept", "sandbox=%s error=\"%s\"", p->sandbox, e.message);
    quicksand__node__defaults__free_unpacked(copy, NULL);
}

static void on_forgotten(void *arg, const struct err *e)
{
    (void)e;                    /* then it goes with the sandbox */
    try_again(arg);
}

/* A try leaves nothing behind. */
static void forget(struct probe *p)
{
    uint8_t space[256];

    query_do(p->node, &p->q, p->sandbox, MON_FORGET, space, mon_ref_encode(&p->ref, space, sizeof space),
             on_forgotten, p);
}

/* The sandbox has ended, or something else that does not pass. */
static bool is_final(const struct err *e)
{
    return e->code == ERR_GONE || e->code == ERR_NOT_FOUND || e->code == ERR_INVALID ||
           e->code == ERR_TOO_LARGE;
}

static void on_ended(void *arg, const struct exec_record *r, const struct err *e)
{
    struct probe *p = arg;

    if (e != NULL && is_final(e)) {
        end_all(p, 0, e);
    } else if (e != NULL) {
        try_again(p);
    } else if (r->state < EXEC_EXITED) {
        query_exec(p->node, &p->q, p->sandbox, &p->ref, QUERY_POLL_MS, on_ended, p);
    } else if (r->state == EXEC_EXITED && r->signal == 0 && r->code == 0) {
        int64_t ready_ms = clock_wall_ms();
        keep_ready(p, ready_ms);
        end_all(p, ready_ms, NULL);
    } else {
        forget(p);
    }
}

static int make_try(struct probe *p, struct mon_exec *ret, struct buf *spec, struct err *e)
{
    const Quicksand__Node__Defaults *d = defaults_get(p->node->defaults, p->sandbox);
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    Quicksand__Node__ExecStartRequest rq = QUICKSAND__NODE__EXEC_START_REQUEST__INIT;
    ProtobufCBinaryData helper[2] = {{sizeof HELPER - 1, (uint8_t *)(uintptr_t)HELPER}};
    char json[64], exec_id[ID_SIZE];

    if (d == NULL || d->probe == NULL)
        return err_set(e, ERR_NOT_FOUND, "the sandbox has gone");
    id_make(exec_id, "probe-");
    (void)snprintf(p->ref.exec_id, sizeof p->ref.exec_id, "%s", exec_id);
    ref.sandbox_id = p->sandbox;
    ref.exec_id = exec_id;
    rq.ref = &ref;
    rq.command = &command;
    rq.hidden = rq.drop_stdout = rq.drop_stderr = 1;
    rq.timeout_ms = PROBE_MS;
    command.n_argv = d->probe->n_argv;
    command.argv = d->probe->argv;
    if (command.n_argv == 0) {
        (void)snprintf(json, sizeof json, "{\"Probe\":{\"tcp_port\":%u}}", d->probe->tcp_port);
        helper[1] = (ProtobufCBinaryData){strlen(json), (uint8_t *)json};
        command.argv = helper;
        command.n_argv = 2;
        rq.helper = 1;
    }
    return exec_request(p->node, &rq, ret, spec, e);
}

static void start_try(void *arg)
{
    struct probe *p = arg;
    struct mon_exec m;
    struct err e;
    auto_buf spec = {0};

    buf_init(&spec, LIMIT_CHANNEL_MESSAGE);
    if (make_try(p, &m, &spec, &e) < 0)
        end_all(p, 0, &e);
    else
        query_start(p->node, &p->q, p->sandbox, &m, on_ended, p);
}

/* --- the call -------------------------------------------------------------------------------- */

static struct probe *probe_of(struct node *n, const char *sandbox, const Quicksand__Node__Probe *spec)
{
    struct probe *p = map_get(&n->router->probes, sandbox);

    if (p != NULL)
        return p;
    p = mem_zalloc(sizeof *p);
    p->node = n;
    p->interval_ms = spec->interval_ms != 0 ? spec->interval_ms : INTERVAL_MS;
    p->again = loop_timer_new(n->loop, start_try, p);
    (void)snprintf(p->sandbox, sizeof p->sandbox, "%s", sandbox);
    (void)map_put(&n->router->probes, sandbox, p);
    loop_timer_set(p->again, 0);
    return p;
}

static void on_timeout(void *arg)
{
    struct op *op = arg;
    struct err e;

    err_set(&e, ERR_TIMEOUT, "the sandbox has not become ready in time");
    op_fail(op, &e);
}

static int64_t timeout_of(const Request *rq)
{
    if (!rq->has_timeout || !(rq->timeout < (float)LIMIT_WAIT_MAX))
        return TIMEOUT_MAX_MS;
    return rq->timeout > 0 ? (int64_t)((double)rq->timeout * 1000) : 0;
}

static void on_state(void *arg, const struct sandbox_record *r, const struct err *e)
{
    struct op *op = arg;
    struct wait *w = op->state;
    struct err gone;

    if (e != NULL) {
        router_fail(op, e);
        return;
    }
    const Quicksand__Node__Defaults *d = defaults_get(op->node->defaults, op->granted);
    if (r->state == SB_ENDED) {
        err_set(&gone, ERR_NOT_FOUND, "the sandbox has ended");
        op_fail(op, &gone);
    } else if (d == NULL || d->probe == NULL) {
        err_set(&gone, ERR_PRECONDITION, "the sandbox has no readiness probe");
        op_fail(op, &gone);
    } else if (d->has_ready_ms) {
        reply_ready(op, d->ready_ms);
    } else {
        int64_t left = w->until_ms - clock_boot_ms();
        loop_timer_set(w->timeout, left > 0 ? (uint64_t)left : 0);
        w->probe = probe_of(op->node, op->granted, d->probe);
        w->next = w->probe->waits;
        w->probe->waits = w;
    }
}

void router_wait_until_ready(struct op *op)
{
    const Request *rq = (const Request *)op->rq;
    struct wait *w = op_state(op, sizeof *w);
    char sandbox[ID_SIZE];
    struct err e;

    w->op = op;
    op->on_free = free_wait;
    if (router_sandbox(op, rq->task_id, NULL, sandbox, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    op->on_gone = op_drop;
    w->timeout = loop_timer_new(op->node->loop, on_timeout, op);
    w->until_ms = clock_boot_ms() + timeout_of(rq);     /* counts once it is known that it is not ready yet */
    query_sandbox(op->node, &op->q[0], sandbox, 0, on_state, op);
}
