/*
 * sandbox_state.c - waiting for sandboxes, ending them, their names, tags and lists
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/modal/apps.h"
#include "api/modal/sandbox_def.h"
#include "api/modal/sandbox_view.h"
#include "base/mem.h"

#define WAIT_MOST_S 55
#define PAGE 100

/* --- wait, terminate ----------------------------------------------------------------------------------------------- */

static void on_seen(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct mcall *c = ctx;
    M(SandboxWaitResponse) rs = MODAL__CLIENT__SANDBOX_WAIT_RESPONSE__INIT;
    struct view_metadata meta;

    if (e != NULL) {
        m_fail(c, e);
        return;
    }
    view_metadata(c, sb->row, &meta);
    rs.result = meta.m.result;
    rs.metadata = &meta.m;
    m_reply(c, &rs.base);
}

static void on_waiter_gone(struct mcall *c)
{
    sandbox_wait_cancel(c->user);
    m_end(c);
}

void rpc_sandbox_wait(struct mcall *c)
{
    const M(SandboxWaitRequest) *rq = REQ(c, SandboxWaitRequest);
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, rq->sandbox_id, id, NULL, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    struct sandbox_wait *w = sandbox_get(c->m->core, id, m_poll_ms(rq->timeout, WAIT_MOST_S), on_seen, c);
    if (w == NULL)                      /* answered: the call is gone */
        return;
    c->user = w;
    c->on_gone = on_waiter_gone;
}

static void on_terminated(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct mcall *c = ctx;
    M(SandboxTerminateResponse) rs = MODAL__CLIENT__SANDBOX_TERMINATE_RESPONSE__INIT;
    M(GenericResult) result;

    if (e != NULL) {
        m_fail(c, e);
        return;
    }
    if (sb->row->state == STORE_ENDED && c->user != NULL) {
        view_result(sb->row, &result);
        rs.existing_result = &result;
    }
    m_reply(c, &rs.base);
}

void rpc_sandbox_terminate(struct mcall *c)
{
    const struct sandbox_end_how how = {.actor = c->token.id, .grace_ms = -1, .wait_ms = 0};
    auto_sandbox_row row = {0};
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, REQ(c, SandboxTerminateRequest)->sandbox_id, id, NULL, &e) < 0 || view_row(c, id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    c->user = row.state == STORE_ENDED ? c : NULL;      /* it had ended before */
    sandbox_terminate(c->m->core, id, &how, on_terminated, c);
}

/* --- names --------------------------------------------------------------------------------------------------------- */

static void on_named(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct mcall *c = ctx;
    const M(SandboxGetFromNameRequest) *rq = REQ(c, SandboxGetFromNameRequest);
    M(SandboxGetFromNameResponse) rs = MODAL__CLIENT__SANDBOX_GET_FROM_NAME_RESPONSE__INIT;
    struct view_metadata meta;
    char id[ID_SIZE];

    if (e != NULL && e->code != ERR_NOT_FOUND) {
        m_fail(c, e);
        return;
    }
    if (e != NULL || (sb->row->state == STORE_ENDED && !rq->include_terminated)) {
        m_refuse(c, GRPC_NOT_FOUND, "Sandbox with name '%.64s' not found in app '%.64s'", m_text(rq->sandbox_name),
                 m_text(rq->app_name));
        return;
    }
    modal_sandbox_id(sb->row->id, view_generation(sb->row), id);
    view_metadata(c, sb->row, &meta);
    rs.sandbox_id = id;
    rs.metadata = &meta.m;
    m_reply(c, &rs.base);
}

void rpc_sandbox_get_from_name(struct mcall *c)
{
    const M(SandboxGetFromNameRequest) *rq = REQ(c, SandboxGetFromNameRequest);
    struct environment_row env;
    struct app_info app;
    char id[ID_SIZE];
    struct err e;

    if (m_environment(c, rq->environment_name, &env, &e) < 0
        || store_app_by_text(m_store(c), m_env_key(&env), m_text(rq->app_name), &app, &e) < 0
        || sandbox_by_name(c->m->core, app.name, m_text(rq->sandbox_name), rq->include_terminated, id, &e) < 0)
        on_named(c, NULL, &e);
    else
        (void)sandbox_get(c->m->core, id, 0, on_named, c);
}

static void on_renamed(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct mcall *c = ctx;
    M(SandboxSetNameResponse) rs = MODAL__CLIENT__SANDBOX_SET_NAME_RESPONSE__INIT;
    const char *name = m_text(REQ(c, SandboxSetNameRequest)->name);

    if (e != NULL && e->code == ERR_EXISTS)
        m_refuse(c, GRPC_ALREADY_EXISTS, "Sandbox with name '%.64s' already exists", name);
    else if (e != NULL)
        m_fail(c, e);
    else
        m_reply(c, &rs.base);
}

void rpc_sandbox_set_name(struct mcall *c)
{
    const M(SandboxSetNameRequest) *rq = REQ(c, SandboxSetNameRequest);
    const struct sandbox_patch patch = {.has_name = true, .name = m_text(rq->name)};
    auto_sandbox_row row = {0};
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, rq->sandbox_id, id, NULL, &e) < 0 || view_row(c, id, &row, &e) < 0)
        m_fail(c, &e);
    else if (row.name[0] != '\0' && strcmp(row.name, patch.name) != 0)
        m_refuse(c, GRPC_FAILED_PRECONDITION, "Sandbox %s has the name '%s' already", rq->sandbox_id, row.name);
    else
        sandbox_update(c->m->core, id, &patch, on_renamed, c);
}

/* --- tags ---------------------------------------------------------------------------------------------------------- */

struct tag_room {
    M(SandboxTag) tags[LIMIT_TAGS];
    M(SandboxTag) *list[LIMIT_TAGS];
    size_t n;
    json_t *json;                       /* owned; what the texts point to */
};

static void fill_tags(const char *text, struct tag_room *room)
{
    const char *key;
    json_t *value;

    room->n = 0;
    room->json = json_loads(text, 0, NULL);
    json_object_foreach(room->json, key, value) {
        if (room->n == LIMIT_TAGS)
            return;
        M(SandboxTag) *t = &room->tags[room->n];
        modal__client__sandbox_tag__init(t);
        t->tag_name = STR(key);
        t->tag_value = STR(json_string_value(value));
        room->list[room->n++] = t;
    }
}

void rpc_sandbox_tags_get(struct mcall *c)
{
    M(SandboxTagsGetResponse) rs = MODAL__CLIENT__SANDBOX_TAGS_GET_RESPONSE__INIT;
    auto_free struct tag_room *room = mem_zalloc(sizeof *room);
    auto_free char *text = NULL;
    int64_t revision;
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, REQ(c, SandboxTagsGetRequest)->sandbox_id, id, NULL, &e) < 0
        || sandbox_tags_get(c->m->core, id, &text, &revision, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    fill_tags(text, room);
    rs.tags = room->list;
    rs.n_tags = room->n;
    m_reply(c, &rs.base);
    json_decref(room->json);
}

void rpc_sandbox_tags_set(struct mcall *c)
{
    const M(SandboxTagsSetRequest) *rq = REQ(c, SandboxTagsSetRequest);
    auto_json *tags = sandbox_tags_json(rq->tags, rq->n_tags);
    auto_free char *text = NULL;
    int64_t revision;
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, rq->sandbox_id, id, NULL, &e) < 0
        || sandbox_tags_set(c->m->core, id, tags, false, -1, &text, &revision, &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

/* --- lists --------------------------------------------------------------------------------------------------------- */

struct info {
    M(SandboxInfo) m;
    M(TaskInfo) task;
    M(GenericResult) result;
    struct view_metadata meta;
    struct sandbox_row row;             /* owned copy */
    struct tag_room tags;
    char id[ID_SIZE], task_id[ID_SIZE];
};

struct listing {
    struct mcall *c;
    const char *environment;            /* key */
    bool any_app;
    struct info **items;
    size_t n, size;
    int64_t last_us;                    /* of the last row seen */
    char last_id[ID_SIZE];
    size_t seen;                        /* rows of the last look */
    bool is_tail;                       /* only those made at last_us */
    bool is_over;                       /* a row after them was seen */
};

static void fill_info(struct mcall *c, const struct sandbox_row *row, struct info *i)
{
    enum modal_generation g = view_generation(row);

    i->row = *row;
    i->row.spec = NULL;
    i->row.tags = NULL;
    modal_sandbox_id(row->id, g, i->id);
    modal_task_id(row->id, g, i->task_id);
    view_metadata(c, &i->row, &i->meta);
    fill_tags(row->tags, &i->tags);
    modal__client__task_info__init(&i->task);
    i->task.id = i->task_id;
    i->task.sandbox_id = i->id;
    i->task.has_started_at = i->task.has_finished_at = i->task.has_enqueued_at = true;
    i->task.started_at = (double)row->started_ms / 1e3;
    i->task.finished_at = (double)row->ended_ms / 1e3;
    i->task.enqueued_at = (double)row->created_us / 1e6;
    i->task.result = i->meta.m.result;
    modal__client__sandbox_info__init(&i->m);
    i->m.id = i->id;
    i->m.has_created_at = i->m.has_timeout_secs = true;
    i->m.created_at = (double)row->created_us / 1e6;
    i->m.task_info = &i->task;
    i->m.app_id = i->meta.app_id;
    i->m.tags = i->tags.list;
    i->m.n_tags = i->tags.n;
    i->m.name = i->row.name;
    i->m.image_id = i->row.image;
    i->m.timeout_secs = (uint32_t)view_number(row, "timeout_s");
    i->m.has_idle_timeout_secs = row->idle_ms != 0;
    i->m.idle_timeout_secs = (uint32_t)(row->idle_ms / 1000);
    i->m.metadata = &i->meta.m;
}

static bool is_of_environment(struct listing *l, const char *app)
{
    struct app_info a;

    return !l->any_app || store_app_by_name(m_store(l->c), app, &a, NULL) < 0 || strcmp(a.environment, l->environment) == 0;
}

static void add_row(void *ctx, const struct sandbox *sb)
{
    struct listing *l = ctx;

    l->seen++;
    if (l->is_over || (l->is_tail && sb->row->created_us != l->last_us)) {
        l->is_over = true;
        return;
    }
    l->last_us = sb->row->created_us;
    memcpy(l->last_id, sb->row->id, sizeof l->last_id);
    if (!is_of_environment(l, sb->row->app))
        return;
    if (l->n == l->size) {
        l->size = l->size != 0 ? l->size * 2 : PAGE;
        l->items = mem_realloc(l->items, l->size * sizeof(struct info *));
    }
    struct info *i = mem_zalloc(sizeof *i);
    fill_info(l->c, sb->row, i);
    l->items[l->n++] = i;
}

/* A page ends between two times, as the client goes on strictly before the time of its last item. */
static int collect(struct listing *l, struct sandbox_filter *f, struct err *e)
{
    do {
        l->seen = 0;
        if (sandbox_list(l->c->m->core, f, add_row, l, e) < 0)
            return -1;
        f->cursor_us = l->last_us;
        f->cursor_id = l->last_id;
        l->is_tail = l->n >= PAGE;
    } while (l->seen == f->limit && !l->is_over);
    return 0;
}

static void listing_done(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++) {
        json_decref(l->items[i]->tags.json);
        free(l->items[i]);
    }
    free(l->items);
}

static int list(struct mcall *c, struct listing *l, struct err *e)
{
    const M(SandboxListRequest) *rq = REQ(c, SandboxListRequest);
    auto_free struct store_tag *tags = mem_array(rq->n_tags + 1, sizeof *tags);
    struct sandbox_filter f = {.states = STORE_LIVE_STATES, .limit = PAGE, .tags = tags, .ntags = rq->n_tags};
    struct environment_row env;
    struct app_info app;

    for (size_t i = 0; i < rq->n_tags; i++)
        tags[i] = (struct store_tag){m_text(rq->tags[i]->tag_name), m_text(rq->tags[i]->tag_value)};
    if (rq->n_tags > LIMIT_TAGS)
        return err_param(e, ERR_INVALID, "tags", "a list is by at most %d tags", LIMIT_TAGS);
    if (m_environment(c, rq->environment_name, &env, e) < 0)
        return -1;
    l->c = c;
    l->environment = m_env_key(&env);
    if (m_text(rq->app_id)[0] != '\0') {
        if (app_get(c, rq->app_id, &app, e) < 0)
            return -1;
        f.app = app.name;
    } else {
        l->any_app = true;
    }
    if (rq->include_finished)
        f.states |= 1u << STORE_ENDED;
    if (rq->before_timestamp > 0)
        f.created_before_us = (int64_t)llround(rq->before_timestamp * 1e6);
    return collect(l, &f, e);
}

static void list_now(void *ctx)
{
    struct mcall *c = ctx;
    M(SandboxListResponse) rs = MODAL__CLIENT__SANDBOX_LIST_RESPONSE__INIT;
    struct listing l = {0};
    struct err e;

    if (list(c, &l, &e) < 0) {
        listing_done(&l);
        m_fail(c, &e);
        return;
    }
    auto_free M(SandboxInfo) **items = mem_array(l.n + 1, sizeof *items);
    for (size_t i = 0; i < l.n; i++)
        items[i] = &l.items[i]->m;
    rs.sandboxes = items;
    rs.n_sandboxes = l.n;
    m_reply(c, &rs.base);
    listing_done(&l);
}

void rpc_sandbox_list(struct mcall *c)
{
    sandbox_refresh(c->m->core, list_now, c);
}

/* --- what does not exist yet --------------------------------------------------------------------------------------- */

void rpc_sandbox_get_exit_snapshot(struct mcall *c)
{
    const char *text = REQ(c, SandboxGetExitSnapshotRequest)->sandbox_id;
    auto_sandbox_row row = {0};
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, text, id, NULL, &e) < 0 || view_row(c, id, &row, &e) < 0)
        m_fail(c, &e);
    else                                /* creating one with it is refused */
        m_refuse(c, GRPC_INVALID_ARGUMENT, "Sandbox %s was not created with enable_exit_snapshot", text);
}
