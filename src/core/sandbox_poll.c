/*
 * sandbox_poll.c - makes rows and reality equal: recovery at the start, then a look at the node twice a second
 *
 * The first List after the start is complete: what the node has and no row knows is removed. The later ones name what
 * lives; a row that should live and is not among them is asked for by itself, so an end is recorded from the node's own
 * record and never guessed. Half-done removals and terminations are driven on here until they are done.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/life.h"
#include "ipc/record.h"

#define POLL_MS 500
#define POLL_PER_BOX 4                  /* boxes that make the pause a millisecond longer */
#define SWEEP_MS 1000
#define EXPIRE_MS (3600LL * 1000)
#define AUDIT_KEEP_MS (30LL * 24 * 3600 * 1000)
#define IDEM_KEEP_MS (24LL * 3600 * 1000)
#define ASK_TIMEOUT_MS 10000
#define LIST_TIMEOUT_MS 30000
#define ASKED_AT_ONCE 64
#define RETRY_MS 1000

struct look {
    struct core *core;
    uint64_t round;
    int64_t sent_ms;                    /* CLOCK_BOOTTIME */
    bool is_full;
};

static uint64_t rounds;

void poll_wake(struct core *c)
{
    if (c->poll_timer == NULL || c->is_polling)
        return;
    c->is_polling = true;
    loop_timer_set(c->poll_timer, POLL_MS + c->boxes.count / POLL_PER_BOX);
}

static void schedule(struct core *c)
{
    c->is_polling = false;
    if (c->boxes.count > 0 || !c->is_reconciled)
        poll_wake(c);
}

/* --- single sandboxes ---------------------------------------------------------------------------------------------- */

struct query {
    struct core *core;
    char id[ID_SIZE];
};

static void on_answer(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct query *q = ctx;
    struct box *b = life_box(q->core, q->id);
    struct err local;
    int r = 0;

    if (b != NULL) {
        b->is_asked = false;
        b->retry_at_ms = clock_boot_ms() + RETRY_MS;
    }
    if (e != NULL && e->code == ERR_NOT_FOUND)
        r = life_lost(q->core, q->id, &local);
    else if (e == NULL)
        r = life_observe(q->core, (const Quicksand__Node__Sandbox *)reply, &local);
    if (r < 0)
        log_error("sandbox.observe", "id=%s cause=\"%s\"", q->id, local.message);
    free(q);
}

static void ask(struct core *c, struct box *b, const char *method, const ProtobufCMessage *rq)
{
    struct query *q = mem_zalloc(sizeof *q);

    q->core = c;
    memcpy(q->id, b->id, sizeof q->id);
    b->is_asked = true;
    (void)node_unary(c, method, rq, &quicksand__node__sandbox__descriptor, ASK_TIMEOUT_MS, false, on_answer, q);
}

static void ask_get(struct core *c, struct box *b)
{
    Quicksand__Node__GetRequest rq = QUICKSAND__NODE__GET_REQUEST__INIT;

    rq.sandbox_id = b->id;
    ask(c, b, "Get", &rq.base);
}

/* The row says stopping, the node runs it on: the termination was lost on the way. */
static void ask_terminate(struct core *c, struct box *b)
{
    Quicksand__Node__TerminateRequest rq = QUICKSAND__NODE__TERMINATE_REQUEST__INIT;

    rq.sandbox_id = b->id;
    rq.has_reason = rq.has_wait_ms = true;
    rq.reason = END_TERMINATED;
    rq.actor = (char *)(uintptr_t)"control";
    ask(c, b, "Terminate", &rq.base);
}

static void ask_update(struct core *c, struct box *b)
{
    Quicksand__Node__UpdateRequest rq = QUICKSAND__NODE__UPDATE_REQUEST__INIT;

    rq.sandbox_id = b->id;
    rq.has_deadline_ms = rq.has_idle_ms = true;
    rq.deadline_ms = b->expires_ms;
    rq.idle_ms = b->idle_ms;
    ask(c, b, "Update", &rq.base);
}

/* --- the list ------------------------------------------------------------------------------------------------------ */

static void on_orphan_removed(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    char *id = ctx;

    if (e != NULL)
        log_warn("sandbox.orphan", "id=%s cause=\"%s\"", id, e->message);
    free(id);
}

static void remove_orphan(struct core *c, const char *id)
{
    Quicksand__Node__DestroyRequest rq = QUICKSAND__NODE__DESTROY_REQUEST__INIT;
    auto_sandbox_row row = {0};
    struct err e;

    if (store_sandbox_get(c->store, id, &row, &e) == 0 || e.code != ERR_NOT_FOUND)
        return;
    log_warn("sandbox.orphan", "id=%s removing=true", id);
    rq.sandbox_id = (char *)(uintptr_t)id;
    (void)node_unary(c, "Destroy", &rq.base, &quicksand__node__empty__descriptor, 60000, true, on_orphan_removed,
                     mem_strdup(id));
}

static void compare(struct core *c, const struct look *l, const Quicksand__Node__Sandbox *s)
{
    struct err e;

    if (s->sandbox_id == NULL || !id_is(s->sandbox_id, "sb-"))
        return;
    struct box *b = life_box(c, s->sandbox_id);
    if (b == NULL) {
        if (l->is_full)
            remove_orphan(c, s->sandbox_id);
        return;
    }
    b->round = l->round;
    if (life_observe(c, s, &e) < 0)
        log_error("sandbox.observe", "id=%s cause=\"%s\"", s->sandbox_id, e.message);
    b = life_box(c, s->sandbox_id);
    if (b == NULL || b->is_asked || b->is_busy || b->since_ms >= l->sent_ms || clock_boot_ms() < b->retry_at_ms)
        return;
    if (b->state == STORE_STOPPING && s->state == SB_RUNNING)
        ask_terminate(c, b);
    else if (b->state == STORE_RUNNING && s->state == SB_RUNNING
             && (s->deadline_ms != b->expires_ms || s->idle_ms != b->idle_ms))
        ask_update(c, b);
}

static void drive(struct core *c, const struct look *l, bool is_listed)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;
    size_t asked = 0;
    int64_t now = clock_boot_ms();

    /* life_remove and ask answer later, never from inside: the map does not change under the iteration. */
    while (map_next(&c->boxes, &it, &id, &value)) {
        struct box *b = value;
        if (b->is_busy || b->is_asked || now < b->retry_at_ms)
            continue;
        if (b->state == STORE_DELETING) {
            life_remove(c, b, NULL, NULL);
        } else if (is_listed && (b->state == STORE_RUNNING || b->state == STORE_STOPPING) && b->round != l->round
                   && b->since_ms < l->sent_ms && asked < ASKED_AT_ONCE) {
            asked++;
            ask_get(c, b);
        }
    }
}

static void on_list(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct look *l = ctx;
    struct core *c = l->core;
    const Quicksand__Node__ListResponse *list = (const Quicksand__Node__ListResponse *)reply;

    if (c->is_stopping) {
        free(l);
        return;
    }
    if (e != NULL && !c->node_is_down)
        log_warn("node.down", "cause=\"%s\"", e->message);
    else if (e == NULL && c->node_is_down)
        log_info("node.up", "sandboxes=%zu", list->n_sandboxes);
    c->node_is_down = e != NULL;
    for (size_t i = 0; e == NULL && i < list->n_sandboxes; i++)
        compare(c, l, list->sandboxes[i]);
    if (e == NULL && l->is_full)
        c->is_reconciled = true;
    drive(c, l, e == NULL);
    free(l);
    schedule(c);
}

static void poll(void *arg)
{
    struct core *c = arg;
    Quicksand__Node__ListRequest rq = QUICKSAND__NODE__LIST_REQUEST__INIT;
    struct look *l = mem_zalloc(sizeof *l);

    l->core = c;
    l->round = ++rounds;
    l->sent_ms = clock_boot_ms();
    l->is_full = !c->is_reconciled;
    rq.has_live_only = true;
    rq.live_only = !l->is_full;
    (void)node_unary(c, "List", &rq.base, &quicksand__node__list_response__descriptor, LIST_TIMEOUT_MS, false, on_list, l);
}

/* --- what has been kept long enough -------------------------------------------------------------------------------- */

static void expire(void *ctx, const struct sandbox_row *row)
{
    char (**next)[ID_SIZE] = ctx;

    memcpy(**next, row->id, ID_SIZE);
    (*next)++;
}

static void sweep(void *arg)
{
    enum { BATCH = 64 };
    struct core *c = arg;
    char ids[BATCH][ID_SIZE], (*end)[ID_SIZE] = ids;
    struct err e;
    int64_t now = clock_wall_ms();

    if (store_sandbox_expired(c->store, now, BATCH, expire, &end, &e) < 0)
        log_error("sweep", "cause=\"%s\"", e.message);
    for (char (*id)[ID_SIZE] = ids; id < end; id++) {
        auto_sandbox_row row = {0};
        if (store_sandbox_get(c->store, *id, &row, &e) < 0 || life_move(c, &row, STORE_DELETING, &e) < 0)
            log_error("sweep", "id=%s cause=\"%s\"", *id, e.message);
        else
            life_remove(c, life_box(c, *id), NULL, NULL);
    }
    if (clock_boot_ms() >= c->next_expire_ms) {
        c->next_expire_ms = clock_boot_ms() + EXPIRE_MS;
        if (store_audit_expire(c->store, now - AUDIT_KEEP_MS, &e) < 0 || store_idem_expire(c->store, now - IDEM_KEEP_MS, &e) < 0)
            log_error("sweep", "cause=\"%s\"", e.message);
    }
    images_sweep(c);
    loop_timer_set(c->sweep_timer, SWEEP_MS);
}

/* --- start and end ------------------------------------------------------------------------------------------------- */

struct unfinished {
    struct core *core;
    struct sandbox_row *rows;           /* those in state creating */
    size_t n;
};

static void adopt(void *ctx, const struct sandbox_row *row)
{
    struct unfinished *u = ctx;

    (void)life_add(u->core, row);
    if (row->state != STORE_CREATING)
        return;
    u->rows = mem_realloc(u->rows, (u->n + 1) * sizeof *u->rows);
    u->rows[u->n] = *row;
    u->rows[u->n].spec = mem_strdup(row->spec);
    u->rows[u->n].tags = mem_strdup(row->tags);
    u->n++;
}

static void finish_creation(struct core *c, struct sandbox_row *row)
{
    struct err e;

    log_info("sandbox.recover", "id=%s state=creating has_key=%d", row->id, row->idem_token[0] != '\0');
    if (row->idem_token[0] != '\0')
        create_resume(c, row);
    else if (life_move(c, row, STORE_DELETING, &e) < 0)
        log_error("sandbox.recover", "id=%s cause=\"%s\"", row->id, e.message);
}

int sandboxes_open(struct core *c, struct err *e)
{
    struct unfinished u = {.core = c};

    c->is_polling = true;
    c->poll_timer = loop_timer_new(c->loop, poll, c);
    c->sweep_timer = loop_timer_new(c->loop, sweep, c);
    if (store_sandbox_unfinished(c->store, adopt, &u, e) < 0)
        return err_wrap(e, "read the sandboxes that have not ended");
    for (size_t i = 0; i < u.n; i++) {
        finish_creation(c, &u.rows[i]);
        sandbox_row_done(&u.rows[i]);
    }
    free(u.rows);
    loop_timer_set(c->poll_timer, 0);
    loop_timer_set(c->sweep_timer, SWEEP_MS);
    return 0;
}

void sandboxes_close(struct core *c)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *b;

    loop_timer_free(c->poll_timer);
    loop_timer_free(c->sweep_timer);
    c->poll_timer = NULL;
    c->sweep_timer = NULL;
    while (map_next(&c->boxes, &it, &id, &b)) {
        (void)map_del(&c->boxes, id);
        free(b);
    }
}
