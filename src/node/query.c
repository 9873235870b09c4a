/*
 * query.c - questions about a sandbox that have one answer whether its monitor lives or not
 */
#include "node/query.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "node/monitor_link.h"
#include "node/spool.h"

#define ANSWER_MS 10000         /* what a monitor answers at once, or after its poll */
#define SOON_MS 3000            /* the same, where many are asked */
#define START_MS 60000          /* a program's start on a machine under load */
#define STDIN_MS (LIMIT_WAIT_MAX * 1000ULL)     /* the program decides when it reads */
#define SPOOL_CHUNK (256 * 1024)

enum kind { SANDBOX, START, EXEC, READ, STDIN, LIST, DO };

struct query {
    struct node *node;
    struct query **slot;
    struct monitor_req *req;
    enum kind kind;
    enum mon_type reply;
    char sandbox[ID_SIZE];
    char exec_id[LIMIT_ID];
    uint64_t offset;            /* of a read */
    uint8_t stream;
    bool file_ok;
    union {
        query_sandbox_cb sandbox;
        query_exec_cb exec;
        query_read_cb read;
        query_stdin_cb in;
        query_list_cb list;
        query_done_cb done;
    } cb;
    void *arg;
};

static uint8_t
    spool_space[SPOOL_CHUNK]; /* one answer at a time, copied before the callback returns */

static void fail(struct query *q, const struct err *e)
{
    switch (q->kind) {
    case SANDBOX:
        q->cb.sandbox(q->arg, NULL, e);
        break;
    case START:
    case EXEC:
        q->cb.exec(q->arg, NULL, e);
        break;
    case READ:
        q->cb.read(q->arg, NULL, e);
        break;
    case STDIN:
        q->cb.in(q->arg, NULL, e);
        break;
    case LIST:
        q->cb.list(q->arg, NULL, 0, 0, e);
        break;
    case DO:
        q->cb.done(q->arg, e);
        break;
    }
}

/* --- answers from the files ------------------------------------------------------------------ */

/* Why something cannot be done in a sandbox without a monitor. */
static void why_not(struct query *q, struct err *e)
{
    struct sandbox_record r;

    if (spool_sandbox(q->node->run_fd, q->sandbox, &r, e) < 0)
        return;
    if (r.state == SB_ENDED)
        err_set(e, ERR_GONE, "sandbox %s has ended (%s)", q->sandbox, end_reason_name(r.reason));
    else
        err_set(e, ERR_UNAVAILABLE, "sandbox %s is still being made", q->sandbox);
}

static void read_spool(struct query *q)
{
    struct exec_record rec;
    struct mon_read_r r = {.offset = q->offset, .exited = true, .data = spool_space};
    struct err e;

    if (spool_exec(q->node->run_fd, q->sandbox, q->exec_id, &rec, &e) < 0) {
        fail(q, &e);
        return;
    }
    long n = spool_read(q->node->run_fd, q->sandbox, &rec, q->stream, &r.offset, spool_space,
                        sizeof spool_space, &e);
    if (n < 0) {
        fail(q, &e);
        return;
    }
    r.total = q->stream == 1 ? rec.out_total : rec.err_total;
    if (q->file_ok && r.offset + (uint64_t)n < r.total)
        r.file_seq = rec.seq;
    else
        r.len = (size_t)n;
    r.eof = r.offset + r.len >= r.total;
    q->cb.read(q->arg, &r, NULL);
}

struct records {
    struct exec_record *r;
    size_t n, size;
};

static void collect(void *arg, const struct exec_record *r)
{
    struct records *all = arg;

    if ((r->flags & MON_EXEC_HIDDEN) != 0)
        return;
    if (all->n == all->size) {
        all->size = all->size == 0 ? 64 : all->size * 2;
        all->r = mem_realloc(all->r, all->size * sizeof *all->r);
    }
    all->r[all->n++] = *r;
}

static void list_spool(struct query *q)
{
    struct records all = {NULL, 0, 0};
    struct err e;

    if (spool_execs(q->node->run_fd, q->sandbox, collect, &all, &e) < 0)
        fail(q, &e);
    else
        q->cb.list(q->arg, all.r, all.n, 0, NULL);
    free(all.r);
}

static void from_files(struct query *q)
{
    int run_fd = q->node->run_fd;
    struct sandbox_record sb;
    struct exec_record rec;
    struct err e;

    switch (q->kind) {
    case SANDBOX:
        if (spool_sandbox(run_fd, q->sandbox, &sb, &e) == 0)
            q->cb.sandbox(q->arg, &sb, NULL);
        else
            fail(q, &e);
        return;
    case READ:
        read_spool(q);
        return;
    case LIST:
        list_spool(q);
        return;
    case START:
    case EXEC:
    case STDIN:
        if (spool_exec(run_fd, q->sandbox, q->exec_id, &rec, &e) < 0)
            break;
        if (q->kind == STDIN)
            q->cb.in(q->arg, &(struct mon_stdin_r){.taken = rec.stdin_taken, .closed = true}, NULL);
        else
            q->cb.exec(q->arg, &rec, NULL);
        return;
    case DO:
        break;
    }
    /* An exec that is not in the journal of a sandbox that was never there or runs no more. */
    if (q->kind != EXEC || !spool_exists(run_fd, q->sandbox))
        why_not(q, &e);
    fail(q, &e);
}

/* --- answers from the monitor ---------------------------------------------------------------- */

static int list_reply(struct query *q, const struct chan_msg *m)
{
    struct wire_reader r;

    wire_read(&r, m->data, m->len);
    uint32_t n = wire_get_u32(&r);
    if (r.failed || n > m->len)
        return -1;
    auto_free struct exec_record *all = mem_array(n + 1, sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        exec_record_get(&r, &all[i]);
    uint32_t next = wire_get_u32(&r);
    if (!wire_end(&r))
        return -1;
    q->cb.list(q->arg, all, n, next, NULL);
    return 0;
}

/* 0 if the callback was made. */
static int from_monitor(struct query *q, const struct chan_msg *m)
{
    struct sandbox_record sb;
    struct exec_record rec;
    struct mon_read_r rd;
    struct mon_stdin_r in;

    if (m->type != (uint16_t)q->reply)
        return -1;
    switch (q->kind) {
    case SANDBOX:
        if (sandbox_record_decode(&sb, m->data, m->len) < 0)
            return -1;
        q->cb.sandbox(q->arg, &sb, NULL);
        return 0;
    case START:
    case EXEC:
        if (exec_record_decode(&rec, m->data, m->len) < 0)
            return -1;
        q->cb.exec(q->arg, &rec, NULL);
        return 0;
    case READ:
        if (mon_read_r_decode(&rd, m->data, m->len) < 0)
            return -1;
        q->cb.read(q->arg, &rd, NULL);
        return 0;
    case STDIN:
        if (mon_stdin_r_decode(&in, m->data, m->len) < 0)
            return -1;
        q->cb.in(q->arg, &in, NULL);
        return 0;
    case LIST:
        return list_reply(q, m);
    case DO:
        q->cb.done(q->arg, NULL);
        return 0;
    }
    return -1;
}

static void on_answer(void *arg, enum monitor_result res, const struct chan_msg *m,
                      const struct err *e)
{
    struct query *q = arg;
    struct err bad;

    *q->slot = NULL;
    switch (res) {
    case MONITOR_REPLY:
        if (from_monitor(q, m) < 0) {
            err_set(&bad, ERR_INTERNAL, "the monitor of %s sent a reply that cannot be read",
                    q->sandbox);
            fail(q, &bad);
        }
        break;
    case MONITOR_ERROR:
        fail(q, e);
        break;
    case MONITOR_GONE:
        from_files(q);
        break;
    }
    free(q);
}

/* --- questions ------------------------------------------------------------------------------- */

static struct query *query_new(struct node *n, struct query **slot, enum kind kind,
                               const char *sandbox, const char *exec_id, enum mon_type reply,
                               void *arg)
{
    struct query *q = mem_zalloc(sizeof *q);

    q->node = n;
    q->slot = slot;
    q->kind = kind;
    q->reply = reply;
    q->arg = arg;
    (void)snprintf(q->sandbox, sizeof q->sandbox, "%s", sandbox);
    (void)snprintf(q->exec_id, sizeof q->exec_id, "%s", exec_id);
    *slot = q;
    return q;
}

/* The messages here are made of checked fields, so encoding them into `space` cannot fail. */
static void ask(struct query *q, enum mon_type type, const void *p, size_t len, uint64_t timeout_ms)
{
    q->req = monitor_call(q->node->monitors, q->sandbox, type, p, len, timeout_ms, on_answer, q);
}

static uint64_t cap_wait(uint64_t wait_ms)
{
    return wait_ms > QUERY_POLL_MS ? QUERY_POLL_MS : wait_ms;
}

static void ask_status(struct query *q, uint64_t wait_ms, uint64_t timeout_ms, query_sandbox_cb cb)
{
    struct mon_status m = {.wait_ms = (uint32_t)wait_ms};
    uint8_t space[64];

    q->cb.sandbox = cb;
    ask(q, MON_STATUS, space, mon_status_encode(&m, space, sizeof space), wait_ms + timeout_ms);
}

void query_sandbox(struct node *n, struct query **slot, const char *sandbox, uint64_t wait_ms,
                   query_sandbox_cb cb, void *arg)
{
    ask_status(query_new(n, slot, SANDBOX, sandbox, "", MON_STATUS_R, arg), cap_wait(wait_ms),
               ANSWER_MS, cb);
}

void query_sandbox_soon(struct node *n, struct query **slot, const char *sandbox,
                        query_sandbox_cb cb, void *arg)
{
    ask_status(query_new(n, slot, SANDBOX, sandbox, "", MON_STATUS_R, arg), 0, SOON_MS, cb);
}

void query_start(struct node *n, struct query **slot, const char *sandbox, const struct mon_exec *m,
                 query_exec_cb cb, void *arg)
{
    struct query *q = query_new(n, slot, START, sandbox, m->exec_id, MON_EXEC_R, arg);
    size_t size = m->spec_len + 1024;
    auto_free uint8_t *space = mem_alloc(size);

    q->cb.exec = cb;
    ask(q, MON_EXEC, space, mon_exec_encode(m, space, size), START_MS);
}

void query_exec(struct node *n, struct query **slot, const char *sandbox, const struct mon_ref *ref,
                uint64_t wait_ms, query_exec_cb cb, void *arg)
{
    struct query *q = query_new(n, slot, EXEC, sandbox, ref->exec_id, MON_EXEC_R, arg);
    struct mon_wait m = {.wait_ms = (uint32_t)cap_wait(wait_ms)};
    uint8_t space[256];

    memcpy(m.exec_id, ref->exec_id, sizeof m.exec_id);
    memcpy(m.container, ref->container, sizeof m.container);
    q->cb.exec = cb;
    ask(q, MON_WAIT, space, mon_wait_encode(&m, space, sizeof space), m.wait_ms + ANSWER_MS);
}

void query_read(struct node *n, struct query **slot, const char *sandbox, const struct mon_read *m,
                query_read_cb cb, void *arg)
{
    struct query *q = query_new(n, slot, READ, sandbox, m->exec_id, MON_READ_R, arg);
    uint8_t space[256];

    q->stream = m->stream;
    q->file_ok = m->file_ok;
    q->offset = m->offset;
    q->cb.read = cb;
    ask(q, MON_READ, space, mon_read_encode(m, space, sizeof space), m->wait_ms + ANSWER_MS);
}

void query_stdin(struct node *n, struct query **slot, const char *sandbox,
                 const struct mon_stdin *m, query_stdin_cb cb, void *arg)
{
    struct query *q = query_new(n, slot, STDIN, sandbox, m->exec_id, MON_STDIN_R, arg);
    uint8_t space[LIMIT_STDIN_CHUNK + 512];

    q->cb.in = cb;
    ask(q, MON_STDIN, space, mon_stdin_encode(m, space, sizeof space), STDIN_MS);
}

void query_stdin_status(struct node *n, struct query **slot, const char *sandbox,
                        const struct mon_ref *ref, query_stdin_cb cb, void *arg)
{
    struct query *q = query_new(n, slot, STDIN, sandbox, ref->exec_id, MON_STDIN_R, arg);
    uint8_t space[256];

    q->cb.in = cb;
    ask(q, MON_STDIN_STATUS, space, mon_ref_encode(ref, space, sizeof space), ANSWER_MS);
}

void query_list(struct node *n, struct query **slot, const char *sandbox, uint32_t first,
                query_list_cb cb, void *arg)
{
    struct query *q = query_new(n, slot, LIST, sandbox, "", MON_LIST_R, arg);
    struct mon_list m = {.first = first};
    uint8_t space[64];

    q->cb.list = cb;
    ask(q, MON_LIST, space, mon_list_encode(&m, space, sizeof space), ANSWER_MS);
}

void query_do(struct node *n, struct query **slot, const char *sandbox, enum mon_type type,
              const void *payload, size_t len, query_done_cb cb, void *arg)
{
    struct query *q = query_new(n, slot, DO, sandbox, "", MON_OK, arg);

    q->cb.done = cb;
    ask(q, type, payload, len, ANSWER_MS);
}

void query_cancel(struct query **slot)
{
    struct query *q = *slot;

    if (q == NULL)
        return;
    *slot = NULL;
    monitor_cancel(q->req);
    free(q);
}
