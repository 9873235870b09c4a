/*
 * ready.c - see ready.h
 */
#include "node/ready.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "json/json.h"
#include "node/call.h"
#include "node/defaults.h"
#include "node/monitor_link.h"
#include "node/ops.h"
#include "node/query.h"

#define INTERVAL_MS 100
#define HELPER "modal-sandbox-fs-tools"
#define TRY_MS 30000  /* one try may take so long, if the probe does not say */
#define SAID_MAX 1024 /* of the output of a try that failed */
#define LOG_MAX \
    (12 * \
     1024) /* of a stream that a try looks at, as an argument; what is left is looked at by the next */

struct ready_wait {
    struct probe *probe; /* NULL: not (any more) in its list */
    struct ready_wait *next;
    struct node *node;
    struct query *q; /* is it there? */
    struct loop_timer *timeout;
    int64_t timeout_ms;
    char sandbox[ID_SIZE];
    ready_cb cb;
    void *ctx;
};

/* Lives while somebody waits. */
struct probe {
    struct node *node;
    char sandbox[ID_SIZE];
    struct mon_ref ref; /* of the try under way */
    struct query *q, *ending;
    struct loop_timer *again;
    uint64_t interval_ms;
    uint32_t threshold, successes;
    struct ready_wait *waits;
    char said[SAID_MAX + 128]; /* of the last try that failed; "" = none has yet */
    /* log lines: what is looked at is from `at` on */
    int stream; /* 0 stdout, 1 stderr */
    uint64_t at[2];
    bool has_more; /* than the last try saw */
    struct buf lines;
};

/* --- who waits ------------------------------------------------------------------------------- */

static void probe_free(struct probe *p)
{
    (void)map_del(&p->node->probes, p->sandbox);
    query_cancel(&p->q);
    query_cancel(&p->ending);
    loop_timer_free(p->again);
    buf_done(&p->lines);
    free(p);
}

static void leave(struct ready_wait *w)
{
    struct probe *p = w->probe;

    if (p == NULL)
        return;
    struct ready_wait **link = &p->waits;
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
    w->probe = NULL;
    if (p->waits == NULL)
        probe_free(p);
}

void ready_cancel(struct ready_wait *w)
{
    if (w == NULL)
        return;
    leave(w);
    query_cancel(&w->q);
    loop_timer_free(w->timeout);
    free(w);
}

static void answer(struct ready_wait *w, int64_t ready_ms, const struct err *e)
{
    ready_cb cb = w->cb;
    void *ctx = w->ctx;

    ready_cancel(w);
    cb(ctx, ready_ms, e);
}

/* Ends all waits, and with the last the probe: `p` is gone after it. */
static void end_all(struct probe *p, int64_t ready_ms, const struct err *e)
{
    struct ready_wait *w = p->waits;

    p->waits = NULL;
    probe_free(p);
    while (w != NULL) {
        struct ready_wait *next = w->next;
        w->probe = NULL;
        answer(w, ready_ms, e);
        w = next;
    }
}

/* --- the end of a try ------------------------------------------------------------------------ */

static void try_again(struct probe *p)
{
    loop_timer_set(p->again, p->has_more ? 0 : p->interval_ms);
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
    (void)e; /* then it goes with the sandbox */
    try_again(arg);
}

/* A try leaves nothing behind. */
static void forget(struct probe *p)
{
    uint8_t space[256];

    query_do(p->node, &p->q, p->sandbox, MON_FORGET, space,
             mon_ref_encode(&p->ref, space, sizeof space), on_forgotten, p);
}

/* The sandbox has ended, or something else that does not pass. */
static bool is_final(const struct err *e)
{
    return e->code == ERR_GONE || e->code == ERR_NOT_FOUND || e->code == ERR_INVALID ||
           e->code == ERR_TOO_LARGE;
}

/* Behind how it ended. Control characters and what is no text are left to who shows it. */
static void on_said(void *arg, const struct mon_read_r *r, const struct err *e)
{
    struct probe *p = arg;
    size_t at = strlen(p->said), n = r != NULL ? r->len : 0;

    while (n > 0 && (r->data[n - 1] == '\n' || r->data[n - 1] == ' '))
        n--;
    if (n > SAID_MAX)
        n = SAID_MAX;
    if (n > 0) {
        (void)snprintf(p->said + at, sizeof p->said - at, ": ");
        at = strlen(p->said);
        for (size_t i = 0; i < n && at + 1 < sizeof p->said; i++)
            p->said[at++] = r->data[i] >= 0x20 && r->data[i] < 0x7f ? (char)r->data[i]
                            : r->data[i] == '\n'                    ? ' '
                                                                    : '?';
        p->said[at] = '\0';
    }
    forget(p);
}

static void try_failed(struct probe *p, const struct exec_record *r)
{
    struct mon_read m = {.stream = 1, .max = SAID_MAX};

    if (r->state != EXEC_EXITED)
        (void)snprintf(p->said, sizeof p->said, "the command could not be started");
    else if (r->signal != 0)
        (void)snprintf(p->said, sizeof p->said, "it was ended by signal %d", r->signal);
    else
        (void)snprintf(p->said, sizeof p->said, "it exited with code %d", r->code);
    p->successes = 0;
    memcpy(m.exec_id, p->ref.exec_id, sizeof m.exec_id);
    query_read(p->node, &p->q, p->sandbox, &m, on_said, p);
}

static void on_ended(void *arg, const struct exec_record *r, const struct err *e)
{
    struct probe *p = arg;

    if (e != NULL && is_final(e)) {
        end_all(p, 0, e);
    } else if (e != NULL) {
        (void)snprintf(p->said, sizeof p->said, "%s", e->message);
        try_again(p);
    } else if (r->state < EXEC_EXITED) {
        query_exec(p->node, &p->q, p->sandbox, &p->ref, QUERY_POLL_MS, on_ended, p);
    } else if (r->state != EXEC_EXITED || r->signal != 0 || r->code != 0) {
        try_failed(p, r);
    } else if (++p->successes < p->threshold) {
        forget(p);
    } else {
        int64_t ready_ms = clock_wall_ms();
        keep_ready(p, ready_ms);
        end_all(p, ready_ms, NULL);
    }
}

/* --- a try ----------------------------------------------------------------------------------- */

/* The helper's argument. */
static char *helper_argument(struct probe *p, const Quicksand__Node__Probe *spec)
{
    if (spec->check == NULL)
        return mem_printf("{\"Probe\":{\"tcp_port\":%u}}", spec->tcp_port);
    auto_json *args = json_loads(spec->check, 0, NULL);
    if (spec->log) {
        json_decref(args);
        args = json_pack("{s:s, s:o}", "match", spec->check, "text",
                         js_string_lossy(buf_str(&p->lines)));
    }
    auto_json *all = json_pack("{s:O}", "Probe", args != NULL ? args : json_null());
    return js_text(all, false);
}

static int make_try(struct probe *p, struct mon_exec *ret, struct buf *spec, struct err *e)
{
    const Quicksand__Node__Defaults *d = defaults_get(p->node->defaults, p->sandbox);
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    Quicksand__Node__ExecStartRequest rq = QUICKSAND__NODE__EXEC_START_REQUEST__INIT;
    ProtobufCBinaryData helper[2] = {{sizeof HELPER - 1, (uint8_t *)(uintptr_t)HELPER}};
    auto_free char *argument = NULL;
    char exec_id[ID_SIZE];

    if (d == NULL || d->probe == NULL)
        return err_set(e, ERR_NOT_FOUND, "the sandbox has gone");
    id_make(exec_id, "probe-");
    (void)snprintf(p->ref.exec_id, sizeof p->ref.exec_id, "%s", exec_id);
    ref.sandbox_id = p->sandbox;
    ref.exec_id = exec_id;
    rq.ref = &ref;
    rq.command = &command;
    rq.has_hidden = rq.has_merge_stderr = rq.has_timeout_ms = rq.has_helper = 1;
    rq.hidden = rq.merge_stderr = 1;
    rq.timeout_ms = d->probe->try_ms != 0 ? d->probe->try_ms : TRY_MS;
    command.n_argv = d->probe->n_argv;
    command.argv = d->probe->argv;
    if (command.n_argv == 0) {
        argument = helper_argument(p, d->probe);
        helper[1] = (ProtobufCBinaryData){strlen(argument), (uint8_t *)argument};
        command.argv = helper;
        command.n_argv = 2;
        rq.helper = 1;
    }
    return exec_request(p->node, &rq, ret, spec, e);
}

static void run_try(struct probe *p)
{
    struct mon_exec m;
    struct err e;
    auto_buf spec = {0};

    buf_init(&spec, LIMIT_CHANNEL_MESSAGE);
    if (make_try(p, &m, &spec, &e) < 0)
        end_all(p, 0, &e);
    else
        query_start(p->node, &p->q, p->sandbox, &m, on_ended, p);
}

/* Whole lines of the entry point's streams, one after the other; a last one without an end is seen again. */
static void on_lines(void *arg, const struct mon_read_r *r, const struct err *e)
{
    struct probe *p = arg;
    int s = p->stream;

    if (e != NULL && is_final(e) && e->code != ERR_NOT_FOUND) {
        end_all(p, 0, e);
        return;
    }
    if (r != NULL && r->len > 0) {
        const uint8_t *nl = memrchr(r->data, '\n', r->len);
        bool is_full = r->len == LOG_MAX;
        size_t whole = nl != NULL ? (size_t)(nl - r->data) + 1 : is_full ? r->len : 0;
        for (size_t i = 0; i < r->len; i++)
            (void)buf_addc(&p->lines,
                           r->data[i] < 0x20 && r->data[i] != '\n' ? ' ' : (char)r->data[i]);
        (void)buf_addc(&p->lines, '\n');
        p->at[s] = r->offset + whole;
        p->has_more = p->has_more || is_full;
    }
    if (s == 1) {
        run_try(p);
        return;
    }
    p->stream = 1;
    struct mon_read m = {.exec_id = ENTRY_EXEC_ID, .stream = 2, .offset = p->at[1], .max = LOG_MAX};
    query_read(p->node, &p->q, p->sandbox, &m, on_lines, p);
}

static void start_try(void *arg)
{
    struct probe *p = arg;
    const Quicksand__Node__Defaults *d = defaults_get(p->node->defaults, p->sandbox);

    if (d == NULL || d->probe == NULL || !d->probe->log) {
        run_try(p);
        return;
    }
    struct mon_read m = {.exec_id = ENTRY_EXEC_ID, .stream = 1, .offset = p->at[0], .max = LOG_MAX};
    p->stream = 0;
    p->has_more = false;
    buf_clear(&p->lines);
    query_read(p->node, &p->q, p->sandbox, &m, on_lines, p);
}

/* --- waiting --------------------------------------------------------------------------------- */

static struct probe *probe_of(struct node *n, const char *sandbox,
                              const Quicksand__Node__Probe *spec)
{
    struct probe *p = map_get(&n->probes, sandbox);

    if (p != NULL)
        return p;
    p = mem_zalloc(sizeof *p);
    p->node = n;
    p->interval_ms = spec->interval_ms != 0 ? spec->interval_ms : INTERVAL_MS;
    p->threshold = spec->threshold != 0 ? spec->threshold : 1;
    p->again = loop_timer_new(n->loop, start_try, p);
    buf_init(&p->lines, 2 * LOG_MAX + 2);
    (void)snprintf(p->sandbox, sizeof p->sandbox, "%s", sandbox);
    (void)map_put(&n->probes, sandbox, p);
    loop_timer_set(p->again, 0);
    return p;
}

static void on_terminated(void *arg, enum monitor_result res, const struct chan_msg *m,
                          const struct err *e)
{
    if (res == MONITOR_ERROR)
        log_warn("probe.terminate", "cause=\"%s\"", e->message);
}

static void on_timeout(void *arg)
{
    struct ready_wait *w = arg;
    const Quicksand__Node__Defaults *d = defaults_get(w->node->defaults, w->sandbox);
    struct mon_terminate m = {
        .reason = END_TERMINATED, .actor = "readiness probe", .grace_ms = UINT32_MAX};
    const char *said = w->probe != NULL ? w->probe->said : "";
    bool ends = d != NULL && d->probe != NULL && d->probe->terminate;
    uint8_t space[256];
    struct err e;

    (void)err_set(&e, ERR_TIMEOUT, "the sandbox has not become ready in time%s; %s%s",
                  ends ? " and is ended" : "",
                  said[0] != '\0' ? "the last try failed: " : "no try has ended yet", said);
    if (ends)
        (void)monitor_call(w->node->monitors, w->sandbox, MON_TERMINATE, space,
                           mon_terminate_encode(&m, space, sizeof space), TRY_MS, on_terminated,
                           NULL);
    answer(w, 0, &e);
}

static void on_state(void *arg, const struct sandbox_record *r, const struct err *e)
{
    struct ready_wait *w = arg;
    const Quicksand__Node__Defaults *d = defaults_get(w->node->defaults, w->sandbox);
    struct err why;

    if (e != NULL) {
        why = *e;
        answer(w, 0, &why);
    } else if (r->state == SB_ENDED) {
        (void)err_set(&why, ERR_GONE, "the sandbox has ended");
        answer(w, 0, &why);
    } else if (d == NULL || d->probe == NULL) {
        (void)err_set(&why, ERR_PRECONDITION, "the sandbox has no readiness probe");
        answer(w, 0, &why);
    } else if (d->has_ready_ms) {
        answer(w, d->ready_ms, NULL);
    } else {
        /* The time counts once it is known that it is not ready yet. */
        loop_timer_set(w->timeout, w->timeout_ms > 0 ? (uint64_t)w->timeout_ms : 0);
        w->probe = probe_of(w->node, w->sandbox, d->probe);
        w->next = w->probe->waits;
        w->probe->waits = w;
    }
}

struct ready_wait *ready_wait(struct node *n, const char *sandbox, int64_t timeout_ms, ready_cb cb,
                              void *ctx)
{
    struct ready_wait *w = mem_zalloc(sizeof *w);

    w->node = n;
    w->cb = cb;
    w->ctx = ctx;
    w->timeout_ms = timeout_ms;
    w->timeout = loop_timer_new(n->loop, on_timeout, w);
    (void)snprintf(w->sandbox, sizeof w->sandbox, "%s", sandbox);
    query_sandbox(n, &w->q, sandbox, 0, on_state, w);
    return w;
}

/* --- the call of control ----------------------------------------------------------------------------------------- */

static void free_wait(struct op *op)
{
    struct ready_wait **w = op->state;

    ready_cancel(*w);
}

static void on_ready(void *ctx, int64_t ready_ms, const struct err *e)
{
    struct op *op = ctx;
    struct ready_wait **w = op->state;
    Quicksand__Node__ReadyResponse rs = QUICKSAND__NODE__READY_RESPONSE__INIT;

    *w = NULL;
    if (e != NULL) {
        op_fail(op, e);
        return;
    }
    rs.has_ready_ms = true;
    rs.ready_ms = ready_ms;
    op_reply(op, &rs.base);
}

void op_wait_ready(struct op *op)
{
    const Quicksand__Node__ReadyRequest *rq = (const Quicksand__Node__ReadyRequest *)op->rq;
    struct ready_wait **w = op_state(op, sizeof(struct ready_wait *));
    struct err e;

    op->on_free = free_wait;
    if (call_sandbox(rq->sandbox_id, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    op->on_gone = op_drop;
    *w = ready_wait(op->node, rq->sandbox_id, (int64_t)rq->timeout_ms, on_ready, op);
}
