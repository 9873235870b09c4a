/*
 * sandbox_create.c - making a sandbox
 *
 * One commit writes the row as `creating` together with its name and its idempotency key; then the
 * node is asked; a second commit makes it `running`. A creation that fails removes the row again,
 * so neither name nor key stay taken, and the node removes what it may have made. When the process
 * dies in between, the next start finishes a creation that has a key (its client will ask again)
 * and removes any other (its client got no id).
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/image.h"
#include "core/life.h"
#include "core/policies.h"
#include "core/policy_json.h"
#include "core/policy_secrets.h"
#include "json/json.h"

#define CREATE_TIMEOUT_MS 120000 /* the node's own limits are shorter */
#define TRIES 8                  /* holders of a name that came and went meanwhile */

struct creation {
    struct core *core;
    struct sandbox_row row; /* id is fixed; the rest is written once */
    struct image_row image;
    enum sandbox_if_exists if_exists;
    char *token, *key; /* owned; key NULL = none */
    uint8_t hash[IDEM_HASH_SIZE];
    int64_t timeout_ms; /* 0 = no cap */
    int tries;
    struct life_waiter waiter;
    char holder[ID_SIZE]; /* whoever has the name */
    char replayed[IDEM_OBJECT_SIZE];
    struct err failure;
    sandbox_fn fn;
    void *ctx;
};

static void claim(struct creation *cr);

static void creation_free(struct creation *cr)
{
    sandbox_row_done(&cr->row);
    image_row_done(&cr->image);
    free(cr->token);
    free(cr->key);
    free(cr);
}

static void fail(struct creation *cr, const struct err *e)
{
    if (cr->fn != NULL)
        cr->fn(cr->ctx, NULL, e);
    creation_free(cr);
}

static void on_found(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct creation *cr = ctx;
    struct sandbox copy;

    if (e != NULL) {
        fail(cr, e);
        return;
    }
    copy = *sb;
    copy.is_replay = cr->replayed[0] != '\0';
    copy.is_existing = !copy.is_replay;
    cr->fn(cr->ctx, &copy, NULL);
    creation_free(cr);
}

/* --- the node -------------------------------------------------------------------------------- */

static void on_cleaned(void *ctx, const struct err *e)
{
    struct creation *cr = ctx;

    /* Why the creation failed, not how the cleaning went: that goes on by itself. */
    fail(cr, &cr->failure);
}

/* The node could not make it: name and key are free from here on. */
static void undo(struct creation *cr, const struct err *e)
{
    struct core *c = cr->core;
    struct box *b = life_box(c, cr->row.id);
    struct err local;

    cr->failure = *e;
    core_log(LOG_L_WARN, "sandbox.create", cr->row.id, e);
    if (store_begin(c->store, STORE_FAST, &local) < 0 ||
        store_idem_remove_object(c->store, cr->row.id, &local) < 0 ||
        life_move(c, &cr->row, STORE_DELETING, &local) < 0 || store_commit(c->store, &local) < 0) {
        store_rollback(c->store);
        core_log(LOG_L_ERROR, "sandbox.create", cr->row.id, &local);
    }
    life_remove(c, b, on_cleaned, cr);
}

static void on_created(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct creation *cr = ctx;
    struct core *c = cr->core;
    const Quicksand__Node__Sandbox *s = (const Quicksand__Node__Sandbox *)reply;
    struct box *b = life_box(c, cr->row.id);
    struct err local;

    if (e != NULL && c->is_stopping) { /* the next start decides */
        fail(cr, e);
        return;
    }
    if (e != NULL) {
        undo(cr, e);
        return;
    }
    cr->row.started_ms = s->started_ms != 0 ? s->started_ms : clock_wall_ms();
    if (life_move(c, &cr->row, STORE_RUNNING, &local) < 0) {
        undo(cr, &local);
        return;
    }
    if (life_observe(c, s, &local) < 0) /* it may have ended already; the poll tries again */
        core_log(LOG_L_WARN, "sandbox.end", cr->row.id, &local);
    char id[ID_SIZE];
    memcpy(id, cr->row.id, sizeof id);
    if (cr->fn != NULL)
        life_answer(c, id, cr->fn, cr->ctx);
    creation_free(cr);
    b = life_box(c, id);
    if (b != NULL)
        life_set_busy(c, b, false);
}

static void send_request(void *ctx, const Quicksand__Node__CreateRequest *rq)
{
    struct creation *cr = ctx;

    (void)node_unary(cr->core, "Create", &rq->base, &quicksand__node__sandbox__descriptor,
                     CREATE_TIMEOUT_MS, true, on_created, cr);
}

static void ask_node(struct creation *cr)
{
    struct err e;

    if (spec_with_request(cr->core, &cr->row, &cr->image, send_request, cr, &e) < 0)
        undo(cr, &e);
}

/* --- a name that is taken -------------------------------------------------------------------- */

static void on_holder_free(void *ctx)
{
    claim(ctx);
}

static void name_is_taken(struct creation *cr)
{
    struct err e;

    err_param(&e, ERR_EXISTS, "name", "the app '%s' has a live sandbox '%s' already: %s",
              cr->row.app, cr->row.name, cr->holder);
    fail(cr, &e);
}

static void on_holder_seen(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct creation *cr = ctx;

    if (e != NULL && e->code != ERR_NOT_FOUND) {
        fail(cr, e);
        return;
    }
    if (e != NULL ||
        sb->row->state == STORE_ENDED) { /* it had ended, unnoticed: the name is free */
        claim(cr);
        return;
    }
    if (cr->if_exists == IF_EXISTS_RETURN) {
        on_found(cr, sb, NULL);
        return;
    }
    name_is_taken(cr);
}

static void wait_for_holder(struct creation *cr)
{
    struct core *c = cr->core;
    struct box *b = life_box(c, cr->holder);
    struct err e;

    if (++cr->tries > TRIES) {
        err_set(&e, ERR_UNAVAILABLE, "the name '%s' changes hands too fast", cr->row.name);
        fail(cr, &e);
        return;
    }
    if (b != NULL && b->is_busy) {
        if (cr->if_exists == IF_EXISTS_ERROR) {
            name_is_taken(cr);
            return;
        }
        cr->waiter.fn = on_holder_free;
        cr->waiter.ctx = cr;
        life_wait(c, cr->holder, &cr->waiter);
        return;
    }
    (void)sandbox_get(c, cr->holder, 0, on_holder_seen, cr);
}

/* --- the row --------------------------------------------------------------------------------- */

enum claimed { CLAIMED, REPLAY, TAKEN, REPLACED, FAILED };

/* With if_exists=replace the name passes from the row of the holder to the new one in the same
 * transaction. */
static enum claimed write_rows(struct creation *cr, struct sandbox_row *holder, struct err *e)
{
    struct core *c = cr->core;
    struct err local = {0};
    enum idem_result how = IDEM_NEW;
    bool is_evicting = false;

    if (cr->key != NULL) {
        if (idem_begin(c, cr->token, cr->key, cr->hash, cr->row.id, &how, cr->replayed, e) < 0)
            return FAILED;
        if (how == IDEM_REPLAY)
            return REPLAY;
        cr->replayed[0] = '\0';
    }
    if (cr->row.name[0] != '\0') {
        if (store_sandbox_by_name(c->store, cr->row.app, cr->row.name, false, holder, &local) ==
            0) {
            struct box *b = life_box(c, holder->id);
            memcpy(cr->holder, holder->id, sizeof cr->holder);
            if (cr->if_exists != IF_EXISTS_REPLACE || (b != NULL && b->is_busy))
                return TAKEN;
            if (life_store(c, holder, STORE_DELETING, e) < 0)
                return FAILED;
            is_evicting = true;
        } else if (local.code != ERR_NOT_FOUND) {
            *e = local;
            return FAILED;
        }
    }
    cr->row.created_us = clock_wall_us();
    cr->row.expires_ms = cr->timeout_ms != 0 ? cr->row.created_us / 1000 + cr->timeout_ms : 0;
    if (store_app_ensure(c->store, cr->row.app, cr->row.created_us, e) < 0 ||
        store_image_set_used(c->store, cr->row.image, cr->row.created_us, e) < 0 ||
        store_sandbox_insert(c->store, &cr->row, e) < 0)
        return FAILED;
    return is_evicting ? REPLACED : CLAIMED;
}

static void on_evicted(void *ctx, const struct err *e)
{
    struct creation *cr = ctx;

    if (e != NULL)
        undo(cr, e); /* the old one goes on being removed */
    else
        ask_node(cr);
}

/* Its creation may still be under way. */
static void on_replay_free(void *ctx)
{
    struct creation *cr = ctx;
    struct idem_row row;
    struct err e;

    if (store_idem_get(cr->core->store, cr->token, cr->key, &row, &e) < 0 ||
        strcmp(row.object, cr->replayed) != 0)
        claim(cr); /* the first try failed and left nothing: this is now the first */
    else
        (void)sandbox_get(cr->core, cr->replayed, 0, on_found, cr);
}

static void claim(struct creation *cr)
{
    struct core *c = cr->core;
    auto_sandbox_row holder = {0};
    struct err e = {0};
    enum claimed got = FAILED;

    if (c->is_stopping) {
        err_set(&e, ERR_UNAVAILABLE, "the service is stopping");
    } else if (store_begin(c->store, STORE_FAST, &e) == 0) {
        got = write_rows(cr, &holder, &e);
        if (got != CLAIMED && got != REPLACED)
            store_rollback(c->store);
        else if (store_commit(c->store, &e) < 0)
            got = FAILED;
    }
    switch (got) {
    case FAILED:
        fail(cr, &e);
        return;
    case REPLAY:
        cr->waiter.fn = on_replay_free;
        cr->waiter.ctx = cr;
        life_wait(c, cr->replayed, &cr->waiter);
        return;
    case TAKEN:
        wait_for_holder(cr);
        return;
    case CLAIMED:
    case REPLACED:
        break;
    }
    life_add(c, &cr->row)->is_busy = true;
    if (got == REPLACED) {
        life_apply(c, &holder, STORE_DELETING);
        life_remove(c, life_box(c, cr->holder), on_evicted, cr);
    } else {
        ask_node(cr);
    }
}

/* A policy's name becomes the policy; both are the caller's. What it says is checked. */
static int resolve_network(struct core *c, struct sandbox_spec *spec, json_t **ret_policy, json_t **ret_origin, struct err *e)
{
    struct policy_origin origin;

    if (network_is_blocked(spec->network))
        return 0;
    spec->network = *ret_policy = policies_resolve(c, spec->network, &origin, e);
    if (spec->network != NULL && origin.name[0] != '\0')
        spec->network_policy = *ret_origin = policy_origin_json(&origin);
    struct policy p;
    if (spec->network == NULL || policy_from_json(spec->network, &p, e) < 0)
        return -1;
    int r = policy_find_secrets(c, &p, e);
    policy_done(&p);
    return r;
}

void sandbox_create(struct core *c, const struct sandbox_spec *asked, const char *token_id,
                    const char *key, const uint8_t hash[IDEM_HASH_SIZE], sandbox_fn fn, void *ctx)
{
    struct sandbox_spec resolved = *asked;
    const struct sandbox_spec *spec = &resolved;
    auto_json *policy = NULL, *origin = NULL;
    struct creation *cr = mem_zalloc(sizeof *cr);
    struct sandbox_row *r = &cr->row;
    struct err e = {0};

    cr->core = c;
    cr->fn = fn;
    cr->ctx = ctx;
    cr->if_exists = spec->if_exists;
    if (resolve_network(c, &resolved, &policy, &origin, &e) < 0 || spec_check(spec, &e) < 0 ||
        limits_check(c, &spec->limits, &e) < 0) {
        fail(cr, &e);
        return;
    }
    if (image_get(c, spec->image, &cr->image, &e) < 0) {
        (void)snprintf(e.param, sizeof e.param, "image");
        fail(cr, &e);
        return;
    }
    r->spec = spec_text(spec, &cr->image, &e);
    if (r->spec == NULL) {
        fail(cr, &e);
        return;
    }
    id_make(r->id, "sb-");
    (void)snprintf(r->app, sizeof r->app, "%s", spec->app);
    (void)snprintf(r->name, sizeof r->name, "%s", spec->name != NULL ? spec->name : "");
    memcpy(r->image, cr->image.id, sizeof r->image);
    r->state = STORE_CREATING;
    cr->timeout_ms = spec->timeout_ms;
    r->idle_ms = spec->idle_ms;
    r->grace_ms = spec->grace_ms;
    r->retain_ms = spec->retain_ms;
    r->tags = spec->tags != NULL ? js_text(spec->tags, true) : mem_strdup("{}");
    r->tags_revision = 1;
    r->code = -1;
    if (key != NULL) {
        cr->token = mem_strdup(token_id);
        cr->key = mem_strdup(key);
        memcpy(cr->hash, hash, sizeof cr->hash);
        (void)snprintf(r->idem_token, sizeof r->idem_token, "%s", token_id);
    }
    claim(cr);
}

void create_resume(struct core *c, const struct sandbox_row *row)
{
    struct creation *cr = mem_zalloc(sizeof *cr);
    struct err e;

    cr->core = c;
    cr->row = *row;
    cr->row.spec = mem_strdup(row->spec);
    cr->row.tags = mem_strdup(row->tags);
    life_box(c, row->id)->is_busy = true;
    if (store_image_get(c->store, row->image, &cr->image, &e) < 0)
        undo(cr, &e);
    else
        ask_node(cr);
}
