/*
 * sandbox_ops.c - what callers do with a sandbox that exists
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/life.h"
#include "ipc/record.h"
#include "json/json.h"

#define ASK_TIMEOUT_MS 10000
#define WAIT_CHUNK_MS \
    10000 /* of one Get: repeated for a node that restarted, it waits no longer than this anew */
#define WAIT_MARGIN_MS 10000 /* the node answers before the call's deadline */

/* --- get ------------------------------------------------------------------------------------- */

struct sandbox_wait {
    struct core *core;
    char id[ID_SIZE];
    int64_t until_ms; /* CLOCK_BOOTTIME; 0 = no wait */
    struct life_waiter waiter;
    struct node_call *call;
    bool is_answered;
    bool is_starting; /* inside sandbox_get: it frees */
    sandbox_fn fn;
    void *ctx;
};

static void wait_end(struct sandbox_wait *w)
{
    w->is_answered = true;
    if (!w->is_starting)
        free(w);
}

static void wait_fail(struct sandbox_wait *w, const struct err *e)
{
    w->fn(w->ctx, NULL, e);
    wait_end(w);
}

static void wait_reply(struct sandbox_wait *w)
{
    life_answer(w->core, w->id, w->fn, w->ctx);
    wait_end(w);
}

static void look(void *ctx);

static void on_got(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct sandbox_wait *w = ctx;
    struct core *c = w->core;
    struct err local;
    int r;

    w->call = NULL;
    if (e != NULL && e->code == ERR_NOT_FOUND) {
        r = life_lost(c, w->id, &local);
    } else if (e != NULL) {
        wait_fail(w, e);
        return;
    } else {
        r = life_observe(c, (const Quicksand__Node__Sandbox *)reply, &local);
    }
    if (r < 0) {
        wait_fail(w, &local);
        return;
    }
    if (life_box(c, w->id) != NULL && w->until_ms != 0 && clock_boot_ms() < w->until_ms)
        look(w);
    else
        wait_reply(w);
}

static void ask(struct sandbox_wait *w)
{
    Quicksand__Node__GetRequest rq = QUICKSAND__NODE__GET_REQUEST__INIT;
    int64_t left = w->until_ms != 0 ? w->until_ms - clock_boot_ms() : 0;

    rq.sandbox_id = w->id;
    rq.has_wait_ms = true;
    rq.wait_ms = left > 0 ? (uint32_t)(left < WAIT_CHUNK_MS ? left : WAIT_CHUNK_MS) : 0;
    w->call = node_unary(w->core, "Get", &rq.base, &quicksand__node__sandbox__descriptor,
                         rq.wait_ms + ASK_TIMEOUT_MS, true, on_got, w);
}

static void look(void *ctx)
{
    struct sandbox_wait *w = ctx;
    struct box *b = life_box(w->core, w->id);
    auto_sandbox_row row = {0};
    struct err e;

    if (life_row(w->core, w->id, &row, &e) < 0) {
        wait_fail(w, &e);
        return;
    }
    if (b != NULL && b->is_busy && w->until_ms != 0) {
        w->waiter.fn = look;
        w->waiter.ctx = w;
        life_wait(w->core, w->id, &w->waiter);
        return;
    }
    if (row.state == STORE_RUNNING || row.state == STORE_STOPPING)
        ask(w);
    else
        wait_reply(w);
}

struct sandbox_wait *sandbox_get(struct core *c, const char *id, uint64_t wait_ms, sandbox_fn fn,
                                 void *ctx)
{
    struct sandbox_wait *w = mem_zalloc(sizeof *w);

    w->core = c;
    (void)snprintf(w->id, sizeof w->id, "%s", id);
    w->until_ms = wait_ms != 0 ? clock_boot_ms() + (int64_t)wait_ms : 0;
    w->fn = fn;
    w->ctx = ctx;
    w->is_starting = true;
    look(w);
    w->is_starting =
        false; /* NOLINT(clang-analyzer-unix.Malloc): while starting, an answer does not free */
    if (!w->is_answered)
        return w;
    free(w);
    return NULL;
}

void sandbox_wait_cancel(struct sandbox_wait *w)
{
    if (w == NULL)
        return;
    life_wait_cancel(&w->waiter);
    if (w->call != NULL)
        node_call_cancel(w->call);
    free(w);
}

/* --- terminate ------------------------------------------------------------------------------- */

struct ending {
    struct core *core;
    char id[ID_SIZE];
    char actor[LIMIT_ID];
    int32_t signal;
    int64_t grace_ms, wait_ms;
    struct life_waiter waiter;
    sandbox_fn fn;
    void *ctx;
};

static void ending_fail(struct ending *t, const struct err *e)
{
    t->fn(t->ctx, NULL, e);
    free(t);
}

static void ending_reply(struct ending *t)
{
    life_answer(t->core, t->id, t->fn, t->ctx);
    free(t);
}

static void on_terminated(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct ending *t = ctx;
    struct err local;
    int r;

    if (e != NULL && e->code == ERR_NOT_FOUND)
        r = life_lost(t->core, t->id, &local);
    else if (e != NULL)
        r = (local = *e, -1);
    else
        r = life_observe(t->core, (const Quicksand__Node__Sandbox *)reply, &local);
    if (r < 0)
        ending_fail(t, &local);
    else
        ending_reply(t);
}

static void terminate(void *ctx)
{
    struct ending *t = ctx;
    struct core *c = t->core;
    auto_sandbox_row row = {0};
    struct err e;

    if (life_row(c, t->id, &row, &e) < 0) {
        ending_fail(t, &e);
        return;
    }
    if (row.state == STORE_ENDED) {
        ending_reply(t);
        return;
    }
    if (row.state == STORE_RUNNING && life_move(c, &row, STORE_STOPPING, &e) < 0) {
        ending_fail(t, &e);
        return;
    }
    Quicksand__Node__TerminateRequest rq = QUICKSAND__NODE__TERMINATE_REQUEST__INIT;
    int64_t grace = t->grace_ms >= 0 ? t->grace_ms : row.grace_ms;
    int64_t wait = t->wait_ms >= 0 ? t->wait_ms : grace + 10000;
    rq.sandbox_id = t->id;
    rq.has_reason = rq.has_signal = rq.has_wait_ms = true;
    rq.reason = END_TERMINATED;
    rq.actor = t->actor;
    rq.signal = t->signal;
    rq.has_grace_ms = t->grace_ms >= 0;
    rq.grace_ms = (uint32_t)grace;
    rq.wait_ms = (uint32_t)wait;
    (void)node_unary(c, "Terminate", &rq.base, &quicksand__node__sandbox__descriptor,
                     (uint64_t)wait + WAIT_MARGIN_MS, true, on_terminated, t);
}

void sandbox_terminate(struct core *c, const char *id, const struct sandbox_end_how *how,
                       sandbox_fn fn, void *ctx)
{
    struct ending *t = mem_zalloc(sizeof *t);

    t->core = c;
    (void)snprintf(t->id, sizeof t->id, "%s", id);
    (void)snprintf(t->actor, sizeof t->actor, "%s", how->actor);
    t->signal = how->signal;
    t->grace_ms = how->grace_ms;
    t->wait_ms = how->wait_ms;
    t->fn = fn;
    t->ctx = ctx;
    t->waiter.fn = terminate;
    t->waiter.ctx = t;
    life_wait(c, id, &t->waiter); /* one that is being created is ended once it is there */
}

/* --- delete ---------------------------------------------------------------------------------- */

static void on_deleted(void *ctx, const struct err *e)
{
    struct ending *t = ctx;

    t->fn(t->ctx, NULL, e);
    free(t);
}

static void delete (void *ctx)
{
    struct ending *t = ctx;
    auto_sandbox_row row = {0};
    struct err e;

    if (life_row(t->core, t->id, &row, &e) < 0 ||
        life_move(t->core, &row, STORE_DELETING, &e) < 0) {
        on_deleted(t, &e);
        return;
    }
    life_remove(t->core, life_box(t->core, t->id), on_deleted, t);
}

void sandbox_delete(struct core *c, const char *id, sandbox_fn fn, void *ctx)
{
    struct ending *t = mem_zalloc(sizeof *t);

    t->core = c;
    (void)snprintf(t->id, sizeof t->id, "%s", id);
    t->fn = fn;
    t->ctx = ctx;
    t->waiter.fn = delete;
    t->waiter.ctx = t;
    life_wait(c, id, &t->waiter);
}

/* --- change ---------------------------------------------------------------------------------- */

struct change {
    struct core *core;
    char id[ID_SIZE];
    struct sandbox_patch patch;
    char name[LIMIT_NAME + 1];
    bool limits_are_done;
    struct life_waiter waiter;
    sandbox_fn fn;
    void *ctx;
};

static void change_fail(struct change *ch, const struct err *e)
{
    ch->fn(ch->ctx, NULL, e);
    free(ch);
}

static int new_deadline(const struct sandbox_patch *p, const struct sandbox_row *row, int64_t *ret,
                        struct err *e)
{
    int64_t most = row->created_us / 1000 + LIMIT_LIFETIME_MAX * 1000;
    const char *param = p->has_extend ? "extend_s" : "expires_at";
    int64_t at = row->expires_ms;

    if (p->has_extend && at == 0)
        return err_param(e, ERR_CONFLICT, param, "the sandbox %s has no deadline to extend",
                         row->id);
    if (p->has_extend && __builtin_add_overflow(at, p->extend_ms, &at))
        at = INT64_MAX;
    if (p->has_expires)
        at = p->expires_ms;
    if (at > most)
        return err_param(e, ERR_INVALID, param,
                         "the deadline would be over %lld s after the creation",
                         LIMIT_LIFETIME_MAX);
    if (at != 0 && at <= clock_wall_ms())
        return err_param(e, ERR_INVALID, param, "the deadline would be in the past");
    *ret = at;
    return 0;
}

static int write_change(struct change *ch, struct sandbox_row *row, struct err *e)
{
    struct store *s = ch->core->store;
    const struct sandbox_patch *p = &ch->patch;

    if (new_deadline(p, row, &row->expires_ms, e) < 0)
        return -1;
    if (p->has_idle)
        row->idle_ms = p->idle_ms;
    if (store_begin(s, STORE_FAST, e) < 0)
        return -1;
    if (p->has_name && store_sandbox_set_name(s, row->id, ch->name, e) < 0) {
        if (e->code == ERR_EXISTS)
            err_param(e, ERR_EXISTS, "name", "the app '%s' has a live sandbox '%s' already",
                      row->app, ch->name);
        goto fail;
    }
    if (store_sandbox_set_times(s, row->id, row->expires_ms, row->idle_ms, e) < 0 ||
        store_commit(s, e) < 0)
        goto fail;
    return 0;
fail:
    store_rollback(s);
    return -1;
}

static void on_updated(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct change *ch = ctx;
    struct err local;

    /* After an error the row says what is wanted and the poll tells the node again; but it is
     * not in force yet. */
    if (e != NULL && e->code == ERR_NOT_FOUND) {
        if (life_lost(ch->core, ch->id, &local) == 0)
            err_set(&local, ERR_GONE, "the sandbox %s has ended", ch->id);
        change_fail(ch, &local);
        return;
    }
    if (e == NULL && life_observe(ch->core, (const Quicksand__Node__Sandbox *)reply, &local) < 0)
        e = &local;
    struct box *b = life_box(ch->core, ch->id);
    if (b != NULL)
        b->is_update_due = e != NULL;
    if (e != NULL) {
        change_fail(ch, e);
        return;
    }
    life_answer(ch->core, ch->id, ch->fn, ch->ctx);
    free(ch);
}

static void change(void *ctx);

/* The limits are in force; now the rest. */
static void on_limits(void *ctx, const struct err *e)
{
    struct change *ch = ctx;

    if (e != NULL) {
        change_fail(ch, e);
        return;
    }
    ch->limits_are_done = true;
    change(ch);
}

static void change(void *ctx)
{
    struct change *ch = ctx;
    struct core *c = ch->core;
    auto_sandbox_row row = {0};
    struct err e;

    if (life_row(c, ch->id, &row, &e) < 0) {
        change_fail(ch, &e);
        return;
    }
    if (row.state != STORE_RUNNING) {
        bool is_over = row.state == STORE_ENDED;
        err_set(&e, is_over ? ERR_GONE : ERR_CONFLICT, "the sandbox %s %s", row.id,
                is_over ? "has ended" : "is stopping");
        change_fail(ch, &e);
        return;
    }
    if (limits_are_patched(&ch->patch) && !ch->limits_are_done) {
        if (new_deadline(&ch->patch, &row, &row.expires_ms, &e) < 0)
            change_fail(ch, &e);
        else
            limits_change(c, &row, &ch->patch, on_limits, ch);
        return;
    }
    if (write_change(ch, &row, &e) < 0) {
        change_fail(ch, &e);
        return;
    }
    struct box *b = life_box(c, row.id);
    if (b != NULL) { /* always, except while core stops */
        b->expires_ms = row.expires_ms;
        b->idle_ms = row.idle_ms;
    }
    if (!ch->patch.has_extend && !ch->patch.has_expires && !ch->patch.has_idle) {
        life_answer(c, ch->id, ch->fn, ch->ctx);
        free(ch);
        return;
    }
    Quicksand__Node__UpdateRequest rq = QUICKSAND__NODE__UPDATE_REQUEST__INIT;
    rq.sandbox_id = ch->id;
    rq.has_deadline_ms = rq.has_idle_ms = true;
    rq.deadline_ms = row.expires_ms;
    rq.idle_ms = row.idle_ms;
    (void)node_unary(c, "Update", &rq.base, &quicksand__node__sandbox__descriptor, ASK_TIMEOUT_MS,
                     true, on_updated, ch);
}

void sandbox_update(struct core *c, const char *id, const struct sandbox_patch *p, sandbox_fn fn,
                    void *ctx)
{
    struct change *ch = mem_zalloc(sizeof *ch);
    struct err e;

    ch->core = c;
    (void)snprintf(ch->id, sizeof ch->id, "%s", id);
    ch->patch = *p;
    ch->patch.name = NULL;
    ch->fn = fn;
    ch->ctx = ctx;
    if (p->has_name && p->name != NULL) {
        if (spec_check_name(p->name, "name", &e) < 0) {
            change_fail(ch, &e);
            return;
        }
        (void)snprintf(ch->name, sizeof ch->name, "%s", p->name);
    }
    ch->waiter.fn = change;
    ch->waiter.ctx = ch;
    life_wait(c, id, &ch->waiter);
}

/* --- tags ------------------------------------------------------------------------------------ */

int sandbox_tags_get(struct core *c, const char *id, char **ret_tags, int64_t *ret_revision,
                     struct err *e)
{
    auto_sandbox_row row = {0};

    if (life_row(c, id, &row, e) < 0)
        return -1;
    *ret_tags = take_ptr(&row.tags);
    *ret_revision = row.tags_revision;
    return 0;
}

/* The present tags with the changes of a merge. */
static json_t *merged(const struct sandbox_row *row, const json_t *changes, struct err *e)
{
    json_t *tags = js_parse(row->tags, strlen(row->tags), LIMIT_JSON_BODY, e), *value;
    const char *key;

    if (tags == NULL)
        return NULL;
    json_object_foreach((json_t *)(uintptr_t)changes, key, value)
    {
        if (json_is_null(value))
            (void)json_object_del(tags, key);
        else
            (void)json_object_set(tags, key, value);
    }
    return tags;
}

int sandbox_tags_set(struct core *c, const char *id, const json_t *tags, bool merge,
                     int64_t expected, char **ret_tags, int64_t *ret_revision, struct err *e)
{
    auto_sandbox_row row = {0};

    if (spec_check_tags(tags, merge, e) < 0 || life_row(c, id, &row, e) < 0)
        return -1;
    if (expected >= 0 && expected != row.tags_revision)
        return err_param(e, ERR_PRECONDITION, "If-Match",
                         "the tags are at revision %" PRId64 ", not %" PRId64, row.tags_revision,
                         expected);
    auto_json *whole = merge ? merged(&row, tags, e) : json_deep_copy(tags);
    if (whole == NULL || spec_check_tags(whole, false, e) < 0)
        return -1;
    auto_free char *text = js_text(whole, true);
    if (store_sandbox_set_tags(c->store, id, text, expected, ret_revision, e) < 0)
        return -1;
    *ret_tags = take_ptr(&text);
    return 0;
}

/* --- lists ----------------------------------------------------------------------------------- */

struct listing {
    struct core *core;
    sandbox_each_fn fn;
    void *ctx;
};

static void on_row(void *ctx, const struct sandbox_row *row)
{
    struct listing *l = ctx;
    struct sandbox sb;

    life_view(l->core, row, &sb);
    l->fn(l->ctx, &sb);
}

int sandbox_list(struct core *c, const struct sandbox_filter *f, sandbox_each_fn fn, void *ctx,
                 struct err *e)
{
    struct listing l = {c, fn, ctx};

    return store_sandbox_list(c->store, f, on_row, &l, e);
}

int sandbox_by_name(struct core *c, const char *app, const char *name, bool any,
                    char ret_id[ID_SIZE], struct err *e)
{
    auto_sandbox_row row = {0};

    if (store_sandbox_by_name(c->store, app, name, any, &row, e) < 0)
        return -1;
    memcpy(ret_id, row.id, ID_SIZE);
    return 0;
}
