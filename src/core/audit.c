/*
 * audit.c - collecting and writing audit lines
 */
#include "core/audit.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "core/internal.h"

#define BATCH 256
#define FLUSH_MS 500
#define ANONYMOUS_PER_S 20

void audit_flush(struct core *c)
{
    struct err e;

    if (c->naudit == 0)
        return;
    size_t n = c->naudit;
    c->naudit = 0;
    if (store_begin(c->store, STORE_FAST, &e) < 0)
        goto lost;
    for (size_t i = 0; i < n; i++)
        if (store_audit_insert(c->store, &c->audit[i], &e) < 0)
            goto lost;
    if (store_commit(c->store, &e) == 0)
        return;
lost:
    store_rollback(c->store);
    c->audit_lost += n;
    log_error("audit.lost", "lines=%zu total=%" PRIu64 " cause=\"%s\"", n, c->audit_lost,
              e.message);
}

static void on_timer(void *arg)
{
    audit_flush(arg);
}

static bool is_too_many(struct core *c, const struct audit_row *r)
{
    int64_t second = r->at_ms / 1000;

    if (r->token[0] != '\0')
        return false;
    if (second != c->anonymous_second) {
        c->anonymous_second = second;
        c->anonymous = 0;
    }
    return ++c->anonymous > ANONYMOUS_PER_S;
}

void audit_add(struct core *c, const struct audit_row *r)
{
    if (is_too_many(c, r))
        return;
    if (c->naudit == BATCH)
        audit_flush(c);
    if (c->naudit == 0)
        loop_timer_set(c->audit_timer, FLUSH_MS);
    c->audit[c->naudit++] = *r;
}

void audit_open(struct core *c)
{
    c->audit = mem_array(BATCH, sizeof *c->audit);
    c->audit_timer = loop_timer_new(c->loop, on_timer, c);
}

void audit_close(struct core *c)
{
    audit_flush(c);
    loop_timer_free(c->audit_timer);
    free(c->audit);
    c->audit_timer = NULL;
    c->audit = NULL;
}
