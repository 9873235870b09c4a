/*
 * sandbox_life.c - the table of boxes, and every change of state
 *
 *   creating -> running | deleting        a creation that fails is removed
 *   running  -> stopping | ended | deleting
 *   stopping -> ended | deleting
 *   ended    -> deleting
 *   deleting -> (the row is removed)
 */
#include "core/life.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/record.h"

#define DESTROY_TIMEOUT_MS 60000
#define RETRY_MS 1000

static const char *const state_names[] = {
    [STORE_CREATING] = "creating", [STORE_RUNNING] = "running",   [STORE_STOPPING] = "stopping",
    [STORE_ENDED] = "ended",       [STORE_DELETING] = "deleting",
};

#define TO(state) (1u << (state))

static const unsigned allowed[] = {
    [STORE_CREATING] = TO(STORE_RUNNING) | TO(STORE_DELETING),
    [STORE_RUNNING] = TO(STORE_STOPPING) | TO(STORE_ENDED) | TO(STORE_DELETING),
    [STORE_STOPPING] = TO(STORE_ENDED) | TO(STORE_DELETING),
    [STORE_ENDED] = TO(STORE_DELETING),
    [STORE_DELETING] = 0,
};

static bool is_live(unsigned state)
{
    return (STORE_LIVE_STATES & 1u << state) != 0;
}

const char *sandbox_state_name(const struct sandbox *sb)
{
    /* A deadline fires in the monitor: the node knows before the row does. */
    if (sb->row->state == STORE_RUNNING && sb->seen.state == SB_STOPPING)
        return state_names[STORE_STOPPING];
    return state_names[sb->row->state];
}

size_t sandbox_live_count(const struct core *c)
{
    return c->live;
}

struct box *life_box(struct core *c, const char *id)
{
    return map_get(&c->boxes, id);
}

struct box *life_add(struct core *c, const struct sandbox_row *row)
{
    struct box *b = mem_zalloc(sizeof *b);

    (void)snprintf(b->id, sizeof b->id, "%s", row->id);
    b->state = row->state;
    b->since_ms = clock_boot_ms();
    b->expires_ms = row->expires_ms;
    b->idle_ms = row->idle_ms;
    (void)map_put(&c->boxes, b->id, b);
    if (is_live(b->state))
        c->live++;
    poll_wake(c);
    return b;
}

static void wake(struct box *b)
{
    /* A waiter may wait again, or for something else: take the list first. */
    struct life_waiter *w = b->waiters;

    b->waiters = NULL;
    if (w != NULL)
        w->link = &w;
    while (w != NULL) {
        struct life_waiter *now = w;
        life_wait_cancel(now);
        now->fn(now->ctx);
    }
}

void life_drop(struct core *c, struct box *b)
{
    (void)map_del(&c->boxes, b->id);
    if (is_live(b->state))
        c->live--;
    b->is_busy = false;
    wake(b);
    free(b);
}

void life_set_busy(struct core *c, struct box *b, bool is_busy)
{
    b->is_busy = is_busy;
    if (!is_busy)
        wake(b);
}

void life_wait(struct core *c, const char *id, struct life_waiter *w)
{
    struct box *b = life_box(c, id);

    if (b == NULL || !b->is_busy) {
        w->link = NULL;
        w->fn(w->ctx);
        return;
    }
    w->next = b->waiters;
    w->link = &b->waiters;
    if (w->next != NULL)
        w->next->link = &w->next;
    b->waiters = w;
}

void life_wait_cancel(struct life_waiter *w)
{
    if (w->link == NULL)
        return;
    *w->link = w->next;
    if (w->next != NULL)
        w->next->link = w->link;
    w->link = NULL;
}

static struct box *any_awaited(struct core *c)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *b;

    while (map_next(&c->boxes, &it, &id, &b))
        if (((struct box *)b)->waiters != NULL)
            return b;
    return NULL;
}

void life_wake_all(struct core *c)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *b;

    while (map_next(&c->boxes, &it, &id, &b))
        ((struct box *)b)->is_busy = false;
    while ((b = any_awaited(c)) != NULL)
        life_set_busy(c, b, false);
}

int life_store(struct core *c, const struct sandbox_row *row, enum store_state to, struct err *e)
{
    if ((allowed[row->state] & TO(to)) == 0)
        return err_set(e, ERR_CONFLICT, "the sandbox %s is %s and cannot become %s", row->id,
                       state_names[row->state], state_names[to]);
    if (to == STORE_ENDED)
        return store_sandbox_end(c->store, row, e);
    return store_sandbox_set_state(c->store, row->id, to, row->started_ms, e);
}

void life_apply(struct core *c, struct sandbox_row *row, enum store_state to)
{
    struct box *b = life_box(c, row->id);

    log_info("sandbox.state", "id=%s from=%s to=%s reason=%s", row->id, state_names[row->state],
             state_names[to], to == STORE_ENDED ? row->reason : "-");
    row->state = (uint8_t)to;
    if (b == NULL) {
        if (to != STORE_ENDED)
            (void)life_add(c, row);
        return;
    }
    if (to == STORE_ENDED) {
        life_drop(c, b);
        return;
    }
    c->live = c->live - is_live(b->state) + is_live(to);
    b->state = (uint8_t)to;
    b->since_ms = clock_boot_ms();
    b->retry_at_ms = 0;
}

int life_move(struct core *c, struct sandbox_row *row, enum store_state to, struct err *e)
{
    if (life_store(c, row, to, e) < 0)
        return -1;
    life_apply(c, row, to);
    return 0;
}

int life_row(struct core *c, const char *id, struct sandbox_row *ret, struct err *e)
{
    if (store_sandbox_get(c->store, id, ret, e) < 0)
        return -1;
    if (ret->state != STORE_DELETING)
        return 0;
    sandbox_row_done(ret);
    return err_set(e, ERR_NOT_FOUND, "no sandbox '%s'", id);
}

static void note(struct box *b, const Quicksand__Node__Sandbox *s)
{
    b->seen.state = (uint8_t)s->state;
    b->seen.last_activity_ms = s->last_activity_ms;
    (void)snprintf(b->seen.last_activity, sizeof b->seen.last_activity, "%s",
                   s->last_activity != NULL ? s->last_activity : "");
    if (s->usage == NULL)
        return;
    b->seen.cpu_us = s->usage->cpu_us;
    b->seen.memory_peak = s->usage->memory_peak;
    b->seen.memory_now = s->usage->memory_now;
    b->seen.pids_now = s->usage->pids_now;
    b->seen.oom_kills = s->usage->oom_kills;
}

static void fill_exit(struct sandbox_row *row, const Quicksand__Node__Sandbox *s)
{
    row->ended_ms = s->ended_ms != 0 ? s->ended_ms : clock_wall_ms();
    if (s->started_ms != 0)
        row->started_ms = s->started_ms;
    (void)snprintf(row->reason, sizeof row->reason, "%s", end_reason_name((uint8_t)s->reason));
    row->signal = s->signal;
    row->code = s->signal != 0 || !s->has_code ? -1 : s->code;
    (void)snprintf(row->actor, sizeof row->actor, "%s", s->actor != NULL ? s->actor : "");
    row->last_activity_ms = s->last_activity_ms;
    (void)snprintf(row->last_activity, sizeof row->last_activity, "%s",
                   s->last_activity != NULL ? s->last_activity : "");
    (void)snprintf(row->message, sizeof row->message, "%s", s->message != NULL ? s->message : "");
    if (s->usage != NULL) {
        row->cpu_us = s->usage->cpu_us;
        row->memory_peak = s->usage->memory_peak;
        row->oom_kills = s->usage->oom_kills;
    }
}

int life_observe(struct core *c, const Quicksand__Node__Sandbox *s, struct err *e)
{
    struct box *b = s->sandbox_id != NULL ? life_box(c, s->sandbox_id) : NULL;
    auto_sandbox_row row = {0};

    if (b == NULL)
        return 0;
    note(b, s);
    if (s->state != SB_ENDED || (b->state != STORE_RUNNING && b->state != STORE_STOPPING))
        return 0;
    if (store_sandbox_get(c->store, s->sandbox_id, &row, e) < 0)
        return -1;
    fill_exit(&row, s);
    return life_move(c, &row, STORE_ENDED, e);
}

int life_lost(struct core *c, const char *id, struct err *e)
{
    struct box *b = life_box(c, id);
    auto_sandbox_row row = {0};

    if (b == NULL || (b->state != STORE_RUNNING && b->state != STORE_STOPPING))
        return 0;
    if (store_sandbox_get(c->store, id, &row, e) < 0)
        return -1;
    row.ended_ms = clock_wall_ms();
    row.code = -1;
    (void)snprintf(row.reason, sizeof row.reason, "%s", end_reason_name(END_NODE_LOST));
    (void)snprintf(row.actor, sizeof row.actor, "control");
    (void)snprintf(row.message, sizeof row.message, "the machine has no trace of it");
    row.cpu_us = b->seen.cpu_us;
    row.memory_peak = b->seen.memory_peak;
    row.oom_kills = b->seen.oom_kills;
    row.last_activity_ms = b->seen.last_activity_ms;
    memcpy(row.last_activity, b->seen.last_activity, sizeof row.last_activity);
    return life_move(c, &row, STORE_ENDED, e);
}

void life_view(struct core *c, const struct sandbox_row *row, struct sandbox *ret)
{
    const struct box *b = life_box(c, row->id);

    memset(ret, 0, sizeof *ret);
    ret->row = row;
    if (b != NULL && row->state != STORE_ENDED) {
        ret->seen = b->seen;
        return;
    }
    ret->seen.cpu_us = row->cpu_us;
    ret->seen.memory_peak = row->memory_peak;
    ret->seen.oom_kills = row->oom_kills;
    ret->seen.last_activity_ms = row->last_activity_ms;
    memcpy(ret->seen.last_activity, row->last_activity, sizeof ret->seen.last_activity);
}

void life_answer(struct core *c, const char *id, sandbox_fn fn, void *ctx)
{
    auto_sandbox_row row = {0};
    struct sandbox sb;
    struct err e;

    if (life_row(c, id, &row, &e) < 0) {
        fn(ctx, NULL, &e);
        return;
    }
    life_view(c, &row, &sb);
    fn(ctx, &sb, NULL);
}

/* --- removal --------------------------------------------------------------------------------- */

struct removal {
    struct core *core;
    char id[ID_SIZE];
    life_removed_fn fn;
    void *ctx;
};

static void on_destroyed(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct removal *r = ctx;
    struct core *c = r->core;
    struct box *b = life_box(c, r->id);
    struct err local;

    if (e != NULL && e->code == ERR_NOT_FOUND)
        e = NULL;
    if (e == NULL && store_sandbox_remove(c->store, r->id, &local) < 0)
        e = &local;
    if (e == NULL) {
        log_info("sandbox.removed", "id=%s", r->id);
        life_drop(c, b);
    } else {
        core_log(LOG_L_WARN, "sandbox.remove", r->id, e);
        b->retry_at_ms = clock_boot_ms() + RETRY_MS;
        life_set_busy(c, b, false);
    }
    if (r->fn != NULL)
        r->fn(r->ctx, e);
    free(r);
}

void life_remove(struct core *c, struct box *b, life_removed_fn fn, void *ctx)
{
    Quicksand__Node__DestroyRequest rq = QUICKSAND__NODE__DESTROY_REQUEST__INIT;
    struct removal *r = mem_zalloc(sizeof *r);

    r->core = c;
    memcpy(r->id, b->id, sizeof r->id);
    r->fn = fn;
    r->ctx = ctx;
    b->is_busy = true;
    rq.sandbox_id = r->id;
    (void)node_unary(c, "Destroy", &rq.base, &quicksand__node__empty__descriptor,
                     DESTROY_TIMEOUT_MS, true, on_destroyed, r);
}
