/*
 * create.c - making a sandbox and starting its entry point
 *
 * The order: defaults on disk; the keeper makes the sandbox (or has it already: then it is
 * adopted); the monitor starts the entry point, or is asked until init is up. Nothing of a sandbox
 * whose entry point cannot be started stays behind. A client that leaves does not stop a creation:
 * whoever asks again with the same id finds what was made.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/exec_spec.h"
#include "ipc/keeper_proto.h"
#include "node/call.h"
#include "node/defaults.h"
#include "node/exec_env.h"
#include "node/keeper_link.h"
#include "node/map.h"
#include "node/monitor_link.h"
#include "node/network.h"
#include "node/ops.h"
#include "node/query.h"
#include "node/spool.h"
#include "node/tunnel/tunnel.h"
#include "sys/fd.h"

#define KEEPER_MS 60000
#define READY_MS 30000          /* from the keeper's answer to a running init */
#define ADOPT_MS 3000           /* a half-built sandbox may become whole for as long as this */
#define HALF_BUILT_POLL_MS 50
#define CREATE_MESSAGE_MAX 16384

struct create {
    char sandbox[ID_SIZE];
    struct buf spec;            /* of the entry point */
    struct mon_exec entry;
    int64_t give_up_ms;         /* on remains without a monitor */
    int64_t start_by_ms;        /* init must be up */
    uint64_t pause_ms;
    bool adopted;               /* the keeper had it already */
    bool is_trusted;            /* its authority is in place, if it has one */
    bool rebuilt;               /* remains of it were removed once */
    struct loop_timer *again;
    struct exec_record entry_record;
    struct err failure;         /* while the remains are removed */
};

static const Quicksand__Node__CreateRequest *request(const struct op *op)
{
    return (const Quicksand__Node__CreateRequest *)op->rq;
}

static void free_create(struct op *op)
{
    struct create *c = op->state;

    (void)map_del(&op->node->creating, c->sandbox);
    loop_timer_free(c->again);
    buf_done(&c->spec);
}

/* --- failure --------------------------------------------------------------------------------- */

static void ask_keeper(struct op *op);

static void on_removed(void *arg, const struct err *e, const uint8_t *payload, size_t len, int *fd)
{
    struct op *op = arg;
    struct create *c = op->state;

    (void)payload;
    (void)len;
    (void)fd;
    if (e != NULL && e->code != ERR_NOT_FOUND)
        log_warn("remains-not-removed", "sandbox=%s error=\"%s\"", c->sandbox, e->message);
    monitor_forget(op->node->monitors, c->sandbox);
    if (c->failure.code == ERR_OK) {
        ask_keeper(op);         /* remains of an earlier try are gone: once more */
        return;
    }
    tunnels_end(op->node, c->sandbox);
    network_remove(op->node->network, c->sandbox);
    defaults_remove(op->node->defaults, c->sandbox);
    op_fail(op, &c->failure);
}

static void remove_remains(struct op *op)
{
    struct create *c = op->state;
    struct keeper_destroy m = {{0}};
    uint8_t space[128];

    (void)snprintf(m.sandbox, sizeof m.sandbox, "%s", c->sandbox);
    keeper_call(op->node->keeper, KEEPER_DESTROY, space,
                keeper_destroy_encode(&m, space, sizeof space), KEEPER_MS, on_removed, op);
}

/* Ends the call with *e after nothing of the sandbox is left. */
static void fail_create(struct op *op, const struct err *e)
{
    struct create *c = op->state;

    c->failure = *e;
    remove_remains(op);
}

/* --- the sandbox is up ----------------------------------------------------------------------- */

static void reply(struct op *op, const struct sandbox_record *r)
{
    struct create *c = op->state;
    Quicksand__Node__Usage usage;
    Quicksand__Node__Exec entry;
    Quicksand__Node__Sandbox sb;
    bool has_entry = c->entry_record.exec_id[0] != '\0';

    if (has_entry)
        map_exec(&c->entry_record, &entry);
    map_sandbox(r, &usage, has_entry ? &entry : NULL, &sb);
    op_reply(op, &sb.base);
}

/*
 * The keeper has the sandbox and there is no monitor to talk to: the keeper is still at it, or died over
 * it. True if we go on: look again, or, when that has gone on for too long, remove what there is and make
 * it anew, once.
 */
static bool is_half_built(struct op *op)
{
    struct create *c = op->state;

    if (!c->adopted)
        return false;
    if (clock_boot_ms() < c->give_up_ms) {
        loop_timer_set(c->again, HALF_BUILT_POLL_MS);
        return true;
    }
    if (c->rebuilt)
        return false;
    c->rebuilt = true;
    remove_remains(op);
    return true;
}

static bool is_absent(const struct err *e)
{
    return e->code == ERR_UNAVAILABLE || e->code == ERR_NOT_FOUND;
}

static void on_status(void *arg, const struct sandbox_record *r, const struct err *e)
{
    struct op *op = arg;
    struct create *c = op->state;
    struct err failure;

    /* Without a monitor there is no time of creation. */
    if ((e != NULL ? is_absent(e) : r->created_ms == 0) && is_half_built(op))
        return;
    if (e != NULL) {
        op_fail(op, e);         /* it may be fine: the client asks again */
        return;
    }
    if (r->state == SB_ENDED && r->started_ms == 0 && !c->adopted) {
        err_set(&failure, ERR_INTERNAL, "the sandbox could not be started: %s",
                r->message[0] != '\0' ? r->message : end_reason_name(r->reason));
        fail_create(op, &failure);
        return;
    }
    if (r->state != SB_STARTING) {
        reply(op, r);
        return;
    }
    if (clock_boot_ms() >= c->start_by_ms) {
        err_set(&failure, ERR_TIMEOUT, "the sandbox did not come up in time");
        fail_create(op, &failure);
        return;
    }
    c->pause_ms = c->pause_ms * 2 > 50 ? 50 : c->pause_ms * 2;
    loop_timer_set(c->again, c->pause_ms);
}

static void look(void *arg)
{
    struct op *op = arg;
    struct create *c = op->state;

    query_sandbox(op->node, &op->q[0], c->sandbox, 0, on_status, op);
}

static void on_entry(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    struct create *c = op->state;
    struct err failure;

    if (e != NULL && is_absent(e) && is_half_built(op))
        return;
    if (e != NULL && e->code == ERR_GONE && c->adopted) {
        look(op);               /* it has lived and ended: that is the answer */
        return;
    }
    if (e != NULL) {
        if (c->adopted)
            op_fail(op, e);
        else
            fail_create(op, e);
        return;
    }
    if (r->state == EXEC_FAILED) {
        exec_failure(op->node, c->sandbox, request(op)->entry, r, &failure);
        fail_create(op, &failure);
        return;
    }
    c->entry_record = *r;
    look(op);
}

static void start_entry(void *arg)
{
    struct op *op = arg;
    struct create *c = op->state;

    query_start(op->node, &op->q[0], c->sandbox, &c->entry, on_entry, op);
}

static void begin(struct op *op)
{
    struct create *c = op->state;

    c->is_trusted = true;
    if (request(op)->entry != NULL)
        start_entry(op);
    else
        look(op);
}

static void on_trusted(void *arg, const struct err *e)
{
    struct op *op = arg;
    struct create *c = op->state;

    if (e != NULL && is_absent(e) && is_half_built(op))
        return;
    if (e == NULL)
        begin(op);
    else if (e->code == ERR_GONE && c->adopted)
        look(op);               /* it has lived and ended: that is the answer */
    else if (c->adopted)
        op_fail(op, e);
    else
        fail_create(op, e);
}

/* Nothing runs before it could find the sandbox's authority. */
static void trust(void *arg)
{
    struct op *op = arg;
    struct create *c = op->state;

    if (request(op)->network == NULL || c->is_trusted)
        begin(op);
    else
        network_trust(op->node->network, c->sandbox, on_trusted, op);
}

static int open_ports(struct op *op, struct err *e)
{
    const Quicksand__Node__CreateRequest *rq = request(op);
    const struct tunnel *t;

    for (size_t i = 0; i < rq->n_ports; i++)
        if (tunnel_open(op->node, rq->sandbox_id, rq->ports[i], &t, e) < 0)
            return -1;
    return 0;
}

static void bring_up(struct op *op)
{
    struct create *c = op->state;
    struct err e;

    if (open_ports(op, &e) < 0) {
        if (c->adopted)
            op_fail(op, &e);
        else
            fail_create(op, &e);
        return;
    }
    c->is_trusted = false;
    c->give_up_ms = clock_boot_ms() + ADOPT_MS;
    c->start_by_ms = clock_boot_ms() + READY_MS;
    c->pause_ms = 1;
    loop_timer_free(c->again);
    c->again = loop_timer_new(op->node->loop, trust, op);
    trust(op);
}

/* --- the keeper ------------------------------------------------------------------------------ */

static void on_created(void *arg, const struct err *e, const uint8_t *payload, size_t len, int *fd)
{
    struct op *op = arg;
    struct create *c = op->state;

    (void)payload;
    (void)len;
    if (e != NULL && e->code == ERR_EXISTS) {
        c->adopted = true;
        if (request(op)->network != NULL)
            network_attach(op->node->network, c->sandbox);
        bring_up(op);
        return;
    }
    if (e != NULL) {
        /* Unreachable or late: it may exist all the same, and a repeated call adopts it. */
        if (e->code != ERR_UNAVAILABLE && e->code != ERR_TIMEOUT)
            fail_create(op, e);
        else
            op_fail(op, e);
        return;
    }
    c->adopted = false;
    if (*fd >= 0)
        monitor_attach(op->node->monitors, c->sandbox, fd);
    /* Nothing leaves before egress has sockets and policy, so the start need not wait for it. */
    if (request(op)->network != NULL)
        network_attach(op->node->network, c->sandbox);
    bring_up(op);
}

static int keeper_message(const Quicksand__Node__CreateRequest *rq, struct keeper_create *m,
                          struct err *e)
{
    const char *hostname = rq->hostname != NULL && rq->hostname[0] != '\0' ? rq->hostname
                                                                           : rq->sandbox_id;

    if (rq->n_layers == 0)
        return err_param(e, ERR_INVALID, "layers", "no layers given");
    if (rq->n_layers > LIMIT_LAYERS)
        return err_param(e, ERR_TOO_LARGE, "layers", "%zu layers are more than %d", rq->n_layers,
                         LIMIT_LAYERS);
    for (size_t i = 0; i < rq->n_layers; i++) {
        if (strlen(rq->layers[i]) != 64)
            return err_param(e, ERR_INVALID, "layers", "layer %zu is not 64 hex digits", i);
        (void)snprintf(m->layers[i], sizeof m->layers[i], "%s", rq->layers[i]);
    }
    if (rq->delta != NULL && strlen(rq->delta) >= sizeof m->delta)
        return err_param(e, ERR_INVALID, "delta", "the delta is not an id");
    if (strlen(hostname) >= sizeof m->hostname)
        return err_param(e, ERR_INVALID, "hostname", "the host name is too long");
    (void)snprintf(m->sandbox, sizeof m->sandbox, "%s", rq->sandbox_id);
    (void)snprintf(m->hostname, sizeof m->hostname, "%s", hostname);
    (void)snprintf(m->delta, sizeof m->delta, "%s", rq->delta != NULL ? rq->delta : "");
    m->nlayers = (uint32_t)rq->n_layers;
    m->r.cpu_milli = rq->cpu_milli;
    m->r.cpu_weight = rq->cpu_weight != 0 ? rq->cpu_weight : 100;
    m->r.memory_bytes = rq->memory_bytes;
    m->r.memory_request_bytes = rq->memory_request_bytes;
    m->r.pids = rq->pids;
    m->r.io_weight = rq->io_weight;
    if (rq->oom >= OOM_POLICIES)
        return err_param(e, ERR_INVALID, "oom", "oom is %u, but must be below %d", rq->oom, OOM_POLICIES);
    m->oom = (uint8_t)rq->oom;
    m->spool_bytes = rq->spool_bytes;
    m->disk_bytes = rq->disk_bytes;
    m->deadline_ms = rq->deadline_ms;
    m->idle_ms = rq->idle_ms;
    m->grace_ms = rq->has_grace_ms ? rq->grace_ms : LIMIT_GRACE_DEFAULT * 1000;
    m->log_bytes = rq->log_bytes != 0 ? rq->log_bytes : LIMIT_LOG_BYTES;
    m->options = (rq->no_new_privileges ? KEEPER_NO_NEW_PRIVILEGES : 0) | (rq->user_namespaces ? KEEPER_USER_NAMESPACES : 0) |
                 (rq->network != NULL ? KEEPER_NETWORK : 0);
    return 0;
}

static void ask_keeper(struct op *op)
{
    auto_free struct keeper_create *m = mem_zalloc(sizeof *m);
    uint8_t space[CREATE_MESSAGE_MAX];
    struct err e;

    if (keeper_message(request(op), m, &e) < 0) {   /* checked before: the request is whole */
        op_fail(op, &e);
        return;
    }
    keeper_call(op->node->keeper, KEEPER_CREATE, space,
                keeper_create_encode(m, space, sizeof space), KEEPER_MS, on_created, op);
}

/* --- the request ----------------------------------------------------------------------------- */

static int entry_message(const Quicksand__Node__CreateRequest *rq, struct create *c, struct err *e)
{
    struct exec_env_input in = {
        .defaults = rq->defaults,
        .command = rq->entry,
        .tty = rq->entry_tty,
    };

    if (rq->rows > UINT16_MAX || rq->cols > UINT16_MAX)
        return err_param(e, ERR_INVALID, "rows", "the terminal is too large");
    buf_init(&c->spec, LIMIT_CHANNEL_MESSAGE);
    struct network_note *note = rq->network != NULL ? network_note_of(rq->network) : NULL;
    in.network = note;
    int r = exec_env_build(&in, &c->spec, e);
    network_note_free(note);
    if (r < 0)
        return -1;
    (void)snprintf(c->entry.exec_id, sizeof c->entry.exec_id, "%s", ENTRY_EXEC_ID);
    c->entry.flags = MON_EXEC_ENTRY | (rq->entry_stdin ? MON_EXEC_STDIN : 0) |
                     (rq->entry_tty ? MON_EXEC_TTY : 0);
    c->entry.rows = (uint16_t)rq->rows;
    c->entry.cols = (uint16_t)rq->cols;
    c->entry.spec = (const uint8_t *)c->spec.data;
    c->entry.spec_len = c->spec.len;
    return 0;
}

static int check(const struct op *op, struct err *e)
{
    const Quicksand__Node__CreateRequest *rq = request(op);
    auto_free struct keeper_create *m = mem_zalloc(sizeof *m);

    if (rq->has_version && rq->version != 1)
        return err_param(e, ERR_UNSUPPORTED, "version", "this node speaks version 1, not %u",
                         rq->version);
    if (call_sandbox(rq->sandbox_id, e) < 0)
        return -1;
    if (map_get(&op->node->creating, rq->sandbox_id) != NULL)
        return err_set(e, ERR_UNAVAILABLE, "sandbox %s is being made by another call",
                       rq->sandbox_id);
    if (rq->defaults != NULL && exec_env_check_defaults(rq->defaults, e) < 0)
        return -1;
    return keeper_message(rq, m, e);
}

void op_create(struct op *op)
{
    const Quicksand__Node__CreateRequest *rq = request(op);
    Quicksand__Node__Defaults none = QUICKSAND__NODE__DEFAULTS__INIT;
    struct err e;

    if (check(op, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    struct create *c = op_state(op, sizeof *c);
    (void)snprintf(c->sandbox, sizeof c->sandbox, "%s", rq->sandbox_id);
    (void)map_put(&op->node->creating, c->sandbox, op->node);
    op->on_free = free_create;
    if (rq->entry != NULL && entry_message(rq, c, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (defaults_save(op->node->defaults, c->sandbox, rq->defaults != NULL ? rq->defaults : &none,
                      &e) < 0 ||
        (rq->network != NULL && network_save(op->node->network, c->sandbox, rq->network, &e) < 0)) {
        op_fail(op, &e);
        return;
    }
    ask_keeper(op);
}
