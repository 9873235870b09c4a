/*
 * stdin.c - SandboxStdinWrite: stdin of an entry point, one numbered piece a call
 *
 * Clients number pieces from 1 and repeat one whose answer was lost. Pieces of a sandbox are written one after the other, each at
 * the offset where the one before ended, so a repeated piece adds nothing. A piece goes on when its client leaves: the client
 * will repeat it. After a restart of control the numbers are not known any more; the next piece is taken to be the next one.
 */
#include "api/modal/stdin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/modal/sandbox_view.h"
#include "api/shared/stdin_pump.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"

struct piece {
    struct piece *next;
    struct mcall *c;
};

struct stdin_state {
    struct modal *m;
    char sandbox[ID_SIZE];
    uint32_t next_index;                /* 0 = not known */
    uint64_t offset;
    struct piece *first, *last;         /* the first one is being written */
    struct stdin_pump *pump;
};

static void write_next(struct stdin_state *s);

static struct mcall *take_first(struct stdin_state *s)
{
    struct piece *p = s->first;
    struct mcall *c = p->c;

    s->first = p->next;
    if (s->first == NULL)
        s->last = NULL;
    free(p);
    return c;
}

static void refuse(struct mcall *c, const struct err *e)
{
    if (e->code == ERR_GONE || e->code == ERR_CONFLICT)
        m_refuse(c, GRPC_FAILED_PRECONDITION, "Sandbox has finished, or its stdin is closed: %s", e->message);
    else if (e->code == ERR_NOT_FOUND)
        m_refuse(c, GRPC_FAILED_PRECONDITION, "Sandbox has no entry point that reads stdin");
    else
        m_fail(c, e);
}

static void on_done(void *ctx, const struct err *e, uint64_t taken, bool closed)
{
    struct stdin_state *s = ctx;
    struct mcall *c = take_first(s);

    stdin_pump_free(s->pump);
    s->pump = NULL;
    if (e != NULL) {
        refuse(c, e);
    } else {
        M(SandboxStdinWriteResponse) rs = MODAL__CLIENT__SANDBOX_STDIN_WRITE_RESPONSE__INIT;
        s->next_index = REQ(c, SandboxStdinWriteRequest)->index + 1;
        s->offset = taken;
        m_reply(c, &rs.base);
    }
    write_next(s);
}

static void on_taken(void *ctx, size_t n)
{
}

static void write_next(struct stdin_state *s)
{
    static const struct stdin_pump_ops ops = {.on_taken = on_taken, .on_done = on_done};
    M(SandboxStdinWriteResponse) rs = MODAL__CLIENT__SANDBOX_STDIN_WRITE_RESPONSE__INIT;

    while (s->first != NULL) {
        const M(SandboxStdinWriteRequest) *rq = REQ(s->first->c, SandboxStdinWriteRequest);
        if (s->next_index != 0 && rq->index < s->next_index) {
            m_reply(take_first(s), &rs.base);           /* it has been written */
            continue;
        }
        uint64_t at = s->next_index != 0 ? s->offset : rq->index <= 1 ? 0 : STDIN_APPEND;
        s->pump = stdin_pump_new(s->m->core, s->sandbox, ENTRY_EXEC_ID, at, &ops, s);
        if (rq->has_input && rq->input.len > 0 && !stdin_pump_write(s->pump, rq->input.data, rq->input.len)) {
            stdin_pump_free(s->pump);
            s->pump = NULL;
            m_refuse(take_first(s), GRPC_INVALID_ARGUMENT, "the input is too large for one write");
            continue;
        }
        stdin_pump_end(s->pump, rq->eof);
        return;
    }
}

void rpc_sandbox_stdin_write(struct mcall *c)
{
    auto_sandbox_row row = {0};
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, REQ(c, SandboxStdinWriteRequest)->sandbox_id, id, NULL, &e) < 0 || view_row(c, id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    if (row.state == STORE_ENDED) {
        m_refuse(c, GRPC_FAILED_PRECONDITION, "Sandbox has finished");
        return;
    }
    struct stdin_state *s = map_get(&c->m->stdins, id);
    if (s == NULL) {
        s = mem_zalloc(sizeof *s);
        s->m = c->m;
        memcpy(s->sandbox, id, sizeof s->sandbox);
        (void)map_put(&c->m->stdins, id, s);
    }
    struct piece *p = mem_zalloc(sizeof *p);
    bool is_first = s->first == NULL;
    p->c = c;
    if (is_first)
        s->first = p;
    else
        s->last->next = p;
    s->last = p;
    if (is_first)
        write_next(s);
}

void stdins_sweep(struct modal *m)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;

    while (map_next(&m->stdins, &it, &id, &value)) {
        struct stdin_state *s = value;
        auto_sandbox_row row = {0};
        if (s->first != NULL || (store_sandbox_get(core_store(m->core), id, &row, NULL) == 0 && row.state < STORE_ENDED))
            continue;
        (void)map_del(&m->stdins, id);
        free(s);
    }
}

void stdins_free(struct modal *m)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;

    while (map_next(&m->stdins, &it, &id, &value)) {
        struct stdin_state *s = value;
        (void)map_del(&m->stdins, id);
        stdin_pump_free(s->pump);
        while (s->first != NULL)
            m_end(take_first(s));       /* their clients are gone: the server ended before */
        free(s);
    }
}
