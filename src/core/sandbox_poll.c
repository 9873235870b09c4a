/*
 * sandbox_poll.c - makes rows and reality equal: recovery at the start, then a look at the node
 * twice a second
 *
 * The first List after the start is complete: what the node has and no row knows is removed. After
 * that the node is asked which of the live ones have ended, and now and then for everything, so
 * that what lists show of usage is not too old. An end is recorded from the node's own record and
 * never guessed. Half-done removals, terminations and updates are driven on here until they are
 * done.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/life.h"
#include "ipc/record.h"

#define POLL_MS 500
#define POLL_PER_BOX 4 /* boxes that make the pause a millisecond longer */
#define SWEEP_MS 1000
#define EXPIRE_MS (600LL * 1000)
#define AUDIT_KEEP_MS (30LL * 24 * 3600 * 1000)
#define AUDIT_KEEP 1000000
#define AUDIT_BATCH 2000
#define IDEM_KEEP_MS (24LL * 3600 * 1000)
#define FULL_MS 60000
#define FRESH_MS 100 /* a look this young is good enough for a list */
#define ASK_TIMEOUT_MS 10000
#define ENDED_TIMEOUT_MS 3000
#define FULL_TIMEOUT_MS 30000
#define CHUNK 250 /* ids of a request: the node does them in one go */
#define RETRY_MS 1000

/* One look at the node: everything, or the live ones chunk by chunk. */
struct look {
    struct core *core;
    int64_t sent_ms; /* CLOCK_BOOTTIME */
    bool is_full;
    char (*ids)[ID_SIZE]; /* owned */
    size_t n, next;
};

struct refresh {
    struct refresh *next;
    void (*fn)(void *ctx);
    void *ctx;
};

void poll_wake(struct core *c)
{
    if (c->poll_timer == NULL || c->is_polling)
        return;
    c->is_polling = true;
    loop_timer_set(c->poll_timer, POLL_MS + c->boxes.count / POLL_PER_BOX);
}

static void answer_refreshes(struct refresh *list)
{
    while (list != NULL) {
        struct refresh *r = list;
        list = r->next;
        r->fn(r->ctx);
        free(r);
    }
}

static void finish(struct look *l)
{
    struct core *c = l->core;
    struct refresh *waiting = take_ptr(&c->refresh_now);

    c->is_looking = false;
    c->is_polling = false;
    c->looked_ms = l->sent_ms;
    free(l->ids);
    free(l);
    if (c->refresh_next != NULL) {
        c->is_polling = true;
        loop_timer_set(c->poll_timer, 0);
    } else if (c->boxes.count > 0 || !c->is_reconciled) {
        poll_wake(c);
    }
    answer_refreshes(waiting);
}

void sandbox_refresh(struct core *c, void (*fn)(void *ctx), void *ctx)
{
    if (c->live == 0 || c->node_is_down || c->is_stopping ||
        clock_boot_ms() - c->looked_ms < FRESH_MS) {
        fn(ctx);
        return;
    }
    struct refresh *r = mem_zalloc(sizeof *r);
    r->fn = fn;
    r->ctx = ctx;
    r->next = c->refresh_next;
    c->refresh_next = r;
    /* A look under way may have passed what has ended since: the next one is theirs. */
    if (!c->is_looking) {
        c->is_polling = true;
        loop_timer_set(c->poll_timer, 0);
    }
}

/* --- single sandboxes ------------------------------------------------------------------------ */

struct query {
    struct core *core;
    char id[ID_SIZE];
};

static void correct(struct core *c, struct box *b, const Quicksand__Node__Sandbox *s);

static void on_answer(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct query *q = ctx;
    struct core *c = q->core;
    const Quicksand__Node__Sandbox *s = (const Quicksand__Node__Sandbox *)reply;
    struct box *b = life_box(c, q->id);
    struct err local;
    int r = 0;

    if (b != NULL) {
        b->is_asked = false;
        b->retry_at_ms = clock_boot_ms() + RETRY_MS;
    }
    if (e != NULL && e->code == ERR_NOT_FOUND)
        r = life_lost(c, q->id, &local);
    else if (e == NULL)
        r = life_observe(c, s, &local);
    if (r < 0)
        core_log(LOG_L_ERROR, "sandbox.observe", q->id, &local);
    b = life_box(c, q->id);
    if (e == NULL && b != NULL && !c->is_stopping) {
        b->is_update_due = false; /* if the node still has other times, the next line asks again */
        correct(c, b, s);
    }
    free(q);
}

static void ask(struct core *c, struct box *b, const char *method, const ProtobufCMessage *rq)
{
    struct query *q = mem_zalloc(sizeof *q);

    q->core = c;
    memcpy(q->id, b->id, sizeof q->id);
    b->is_asked = true;
    (void)node_unary(c, method, rq, &quicksand__node__sandbox__descriptor, ASK_TIMEOUT_MS, false,
                     on_answer, q);
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
    rq.actor = (char *)(uintptr_t) "control";
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

/* What the node must be told again, because it did not arrive the first time. */
static void correct(struct core *c, struct box *b, const Quicksand__Node__Sandbox *s)
{
    if (b->is_asked || b->is_busy || s->state != SB_RUNNING)
        return;
    if (b->state == STORE_STOPPING)
        ask_terminate(c, b);
    else if (b->state == STORE_RUNNING &&
             (s->deadline_ms != b->expires_ms || s->idle_ms != b->idle_ms))
        ask_update(c, b);
}

/* --- the list -------------------------------------------------------------------------------- */

static void on_orphan_removed(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    char *id = ctx;

    if (e != NULL)
        core_log(LOG_L_WARN, "sandbox.orphan", id, e);
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
    (void)node_unary(c, "Destroy", &rq.base, &quicksand__node__empty__descriptor, 60000, true,
                     on_orphan_removed, mem_strdup(id));
}

static void see(struct core *c, const struct look *l, const Quicksand__Node__Sandbox *s)
{
    struct err e;

    if (s->sandbox_id == NULL || !id_is(s->sandbox_id, "sb-"))
        return;
    struct box *b = life_box(c, s->sandbox_id);
    if (b == NULL) {
        if (!c->is_reconciled)
            remove_orphan(c, s->sandbox_id);
        return;
    }
    if (b->since_ms >= l->sent_ms) /* the answer may be older than the state */
        return;
    if (life_observe(c, s, &e) < 0)
        core_log(LOG_L_ERROR, "sandbox.observe", s->sandbox_id, &e);
    b = life_box(c, s->sandbox_id);
    if (b != NULL)
        correct(c, b, s);
}

/* A creation that failed while the store failed too, so that not even that could be written. */
static void give_up_creation(struct core *c, struct box *b)
{
    auto_sandbox_row row = {0};
    struct err e;

    if (store_sandbox_get(c->store, b->id, &row, &e) < 0 ||
        life_move(c, &row, STORE_DELETING, &e) < 0) {
        core_log(LOG_L_ERROR, "sandbox.create", b->id, &e);
        b->retry_at_ms = clock_boot_ms() + RETRY_MS;
        return;
    }
    life_remove(c, b, NULL, NULL);
}

static void drive(struct core *c)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;
    int64_t now = clock_boot_ms();

    /* life_remove and ask answer later, never from inside: the map does not change under the
     * iteration. */
    while (map_next(&c->boxes, &it, &id, &value)) {
        struct box *b = value;
        if (b->is_busy || b->is_asked || now < b->retry_at_ms)
            continue;
        if (b->state == STORE_CREATING)
            give_up_creation(c, b);
        else if (b->state == STORE_DELETING)
            life_remove(c, b, NULL, NULL);
        else if (b->state == STORE_STOPPING && now - b->since_ms > RETRY_MS)
            ask_get(c, b);
        else if (b->state == STORE_RUNNING && b->is_update_due)
            ask_update(c, b);
    }
}

static void note_node(struct core *c, const struct err *e)
{
    if (e != NULL && !c->node_is_down)
        core_log(LOG_L_WARN, "node.down", "-", e);
    else if (e == NULL && c->node_is_down)
        log_info("node.up", "live=%zu", c->live);
    c->node_is_down = e != NULL;
}

static void next_chunk(struct look *l);

static void on_list(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct look *l = ctx;
    struct core *c = l->core;
    const Quicksand__Node__ListResponse *list = (const Quicksand__Node__ListResponse *)reply;

    if (c->is_stopping) {
        finish(l);
        return;
    }
    note_node(c, e);
    for (size_t i = 0; e == NULL && i < list->n_sandboxes; i++)
        see(c, l, list->sandboxes[i]);
    if (e == NULL && l->is_full) {
        c->is_reconciled = true;
        c->next_full_ms = clock_boot_ms() + FULL_MS;
    }
    if (e == NULL && l->next < l->n) {
        next_chunk(l);
        return;
    }
    drive(c);
    finish(l);
}

static void next_chunk(struct look *l)
{
    Quicksand__Node__ListRequest rq = QUICKSAND__NODE__LIST_REQUEST__INIT;
    char *ids[CHUNK];

    while (l->next < l->n && rq.n_ended_of < CHUNK)
        ids[rq.n_ended_of++] = l->ids[l->next++];
    rq.ended_of = ids;
    (void)node_unary(l->core, "List", &rq.base, &quicksand__node__list_response__descriptor,
                     ENDED_TIMEOUT_MS, false, on_list, l);
}

static void collect(struct look *l)
{
    struct core *c = l->core;
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;

    l->ids = mem_array(c->boxes.count + 1, sizeof *l->ids);
    while (map_next(&c->boxes, &it, &id, &value)) {
        const struct box *b = value;
        if (b->state == STORE_RUNNING || b->state == STORE_STOPPING)
            memcpy(l->ids[l->n++], b->id, ID_SIZE);
    }
}

static void poll(void *arg)
{
    struct core *c = arg;
    Quicksand__Node__ListRequest rq = QUICKSAND__NODE__LIST_REQUEST__INIT;
    struct look *l = mem_zalloc(sizeof *l);

    l->core = c;
    l->sent_ms = clock_boot_ms();
    c->is_looking = true;
    c->refresh_now = take_ptr(&c->refresh_next);
    l->is_full = !c->is_reconciled || l->sent_ms >= c->next_full_ms;
    if (l->is_full) {
        (void)node_unary(c, "List", &rq.base, &quicksand__node__list_response__descriptor,
                         FULL_TIMEOUT_MS, false, on_list, l);
        return;
    }
    collect(l);
    if (l->n > 0) {
        next_chunk(l);
        return;
    }
    drive(c);
    finish(l);
}

/* --- what has been kept long enough ---------------------------------------------------------- */

static void expire(void *ctx, const struct sandbox_row *row)
{
    char(**next)[ID_SIZE] = ctx;

    memcpy(**next, row->id, ID_SIZE);
    (*next)++;
}

static void expire_lines(struct core *c, int64_t now)
{
    struct err e;
    bool is_more = false;

    if (store_audit_expire(c->store, now - AUDIT_KEEP_MS, AUDIT_KEEP, AUDIT_BATCH, &is_more, &e) <
            0 ||
        store_idem_expire(c->store, now - IDEM_KEEP_MS, &e) < 0)
        core_log(LOG_L_ERROR, "sweep", "-", &e);
    layers_expire(c, now * 1000);
    layers_survey(c);
    c->next_expire_ms = is_more ? 0 : clock_boot_ms() + EXPIRE_MS;
}

static void sweep(void *arg)
{
    enum { BATCH = 64 };
    struct core *c = arg;
    char ids[BATCH][ID_SIZE], (*end)[ID_SIZE] = ids;
    struct err e;
    int64_t now = clock_wall_ms();

    if (store_sandbox_expired(c->store, now, BATCH, expire, &end, &e) < 0)
        core_log(LOG_L_ERROR, "sweep", "-", &e);
    for (char(*id)[ID_SIZE] = ids; id < end; id++) {
        auto_sandbox_row row = {0};
        if (store_sandbox_get(c->store, *id, &row, &e) < 0 ||
            life_move(c, &row, STORE_DELETING, &e) < 0)
            core_log(LOG_L_ERROR, "sweep", *id, &e);
        else
            life_remove(c, life_box(c, *id), NULL, NULL);
    }
    if (clock_boot_ms() >= c->next_expire_ms)
        expire_lines(c, now);
    images_sweep(c);
    loop_timer_set(c->sweep_timer, SWEEP_MS);
}

/* --- start and end --------------------------------------------------------------------------- */

struct unfinished {
    struct core *core;
    struct sandbox_row *rows; /* those in state creating */
    size_t n;
};

static void adopt(void *ctx, const struct sandbox_row *row)
{
    struct unfinished *u = ctx;

    life_add(u->core, row)->since_ms = 0; /* older than any look at the node */
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

    log_info("sandbox.recover", "id=%s state=creating has_key=%d", row->id,
             row->idem_token[0] != '\0');
    if (row->idem_token[0] != '\0')
        create_resume(c, row);
    else if (life_move(c, row, STORE_DELETING, &e) < 0)
        core_log(LOG_L_ERROR, "sandbox.recover", row->id, &e);
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
    answer_refreshes(take_ptr(&c->refresh_now));
    answer_refreshes(take_ptr(&c->refresh_next));
    while (map_next(&c->boxes, &it, &id, &b)) {
        (void)map_del(&c->boxes, id);
        free(b);
    }
}
