/*
 * apps.c - apps: what sandboxes belong to
 *
 * A named app of the default environment is the app of that name in core; any other (of another environment, or of one run of a
 * client) has a key of its own there, so that equal names do not meet.
 */
#include "api/modal/apps.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/sandbox.h"

#define APPS_MAX 1000
#define SANDBOXES_MAX 20000
#define SILENCE_MS 90000            /* a client of an ephemeral app sends a sign every 15 s */

static int new_app(struct mcall *c, const char *environment, const char *text, bool is_ephemeral, struct app_info *a,
                   struct err *e)
{
    memset(a, 0, sizeof *a);
    id_make(a->id, "ap-");
    if (environment[0] == '\0' && !is_ephemeral)
        (void)snprintf(a->name, sizeof a->name, "%s", text);
    else
        (void)snprintf(a->name, sizeof a->name, "ap_%s", a->id + 3);
    (void)snprintf(a->environment, sizeof a->environment, "%s", environment);
    (void)snprintf(a->text, sizeof a->text, "%s", text);
    (void)snprintf(a->tags, sizeof a->tags, "{}");
    a->is_ephemeral = is_ephemeral;
    a->created_us = clock_wall_us();
    a->seen_ms = clock_wall_ms();
    return store_app_insert(m_store(c), a, e);
}

static enum _Modal__Client__AppState state_of(const struct app_info *a)
{
    if (a->stopped_us != 0)
        return MODAL__CLIENT__APP_STATE__APP_STATE_STOPPED;
    return a->is_ephemeral ? MODAL__CLIENT__APP_STATE__APP_STATE_EPHEMERAL : MODAL__CLIENT__APP_STATE__APP_STATE_DEPLOYED;
}

static void fill_lifecycle(const struct app_info *a, M(AppLifecycle) *l)
{
    modal__client__app_lifecycle__init(l);
    l->has_app_state = l->has_created_at = l->has_deployed_at = l->has_version = l->has_stopped_at = true;
    l->app_state = state_of(a);
    l->created_at = (double)a->created_us / 1e6;
    l->deployed_at = a->is_ephemeral ? 0 : l->created_at;
    l->version = a->is_ephemeral ? 0 : 1;
    l->stopped_at = (double)a->stopped_us / 1e6;
}

struct handle {
    M(AppHandleMetadata) meta;
    M(AppLifecycle) lifecycle;
    struct environment_row env;
};

static void fill_handle(struct mcall *c, const struct app_info *a, struct handle *h)
{
    fill_lifecycle(a, &h->lifecycle);
    modal__client__app_handle_metadata__init(&h->meta);
    h->meta.description = STR(a->text);
    h->meta.app_id = STR(a->id);
    h->meta.environment_name = STR(m_env_name(c, a->environment, &h->env));
    h->meta.lifecycle = &h->lifecycle;
}

/* --- find and make ------------------------------------------------------------------------------------------------- */

static int find_or_make(struct mcall *c, const struct environment_row *env, const char *text, int how, struct app_info *a,
                        struct err *e)
{
    struct err local = {0};

    if (m_check_name("app", text, e) < 0)
        return -1;
    if (store_app_by_text(m_store(c), m_env_key(env), text, a, &local) == 0) {
        if (a->stopped_us == 0)
            return how == CREATE_NEW ? err_set(e, ERR_EXISTS, "App '%s' already exists", text) : 0;
        if (how == CREATE_LOOKUP)
            return err_set(e, ERR_NOT_FOUND, "App '%s' is stopped", text);
        a->stopped_us = 0;
        return store_app_set_stopped(m_store(c), a->id, 0, e);
    }
    if (local.code != ERR_NOT_FOUND || how == CREATE_LOOKUP) {
        *e = local;
        return -1;
    }
    return new_app(c, m_env_key(env), text, false, a, e);
}

void rpc_app_get_or_create(struct mcall *c)
{
    const M(AppGetOrCreateRequest) *rq = REQ(c, AppGetOrCreateRequest);
    M(AppGetOrCreateResponse) rs = MODAL__CLIENT__APP_GET_OR_CREATE_RESPONSE__INIT;
    struct environment_row env;
    struct app_info a;
    struct handle h;
    struct err e;

    if (m_environment(c, rq->environment_name, &env, &e) < 0
        || find_or_make(c, &env, m_text(rq->app_name), (int)rq->object_creation_type, &a, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    fill_handle(c, &a, &h);
    rs.app_id = a.id;
    rs.handle_metadata = &h.meta;
    m_reply(c, &rs.base);
}

void rpc_app_create(struct mcall *c)
{
    const M(AppCreateRequest) *rq = REQ(c, AppCreateRequest);
    M(AppCreateResponse) rs = MODAL__CLIENT__APP_CREATE_RESPONSE__INIT;
    struct environment_row env;
    struct app_info a;
    struct err e;
    bool is_named = rq->has_app_state && rq->app_state == MODAL__CLIENT__APP_STATE__APP_STATE_INITIALIZING;
    const char *text = m_text(rq->description);

    if (strlen(text) >= sizeof a.text) {
        m_refuse(c, GRPC_INVALID_ARGUMENT, "description has more than %zu bytes", sizeof a.text - 1);
        return;
    }
    if (m_environment(c, rq->environment_name, &env, &e) < 0
        || (is_named ? find_or_make(c, &env, text, CREATE_IF_MISSING, &a, &e) : new_app(c, m_env_key(&env), text, true, &a, &e))
               < 0) {
        m_fail(c, &e);
        return;
    }
    rs.app_id = a.id;
    rs.app_page_url = STR("");
    rs.app_logs_url = STR("");
    m_reply(c, &rs.base);
}

int app_get(struct mcall *c, const char *id, struct app_info *ret, struct err *e)
{
    return store_app_get(m_store(c), m_text(id), ret, e);
}

void rpc_app_get_info(struct mcall *c)
{
    M(AppGetInfoResponse) rs = MODAL__CLIENT__APP_GET_INFO_RESPONSE__INIT;
    struct app_info a;
    struct handle h;
    struct err e;

    if (app_get(c, REQ(c, AppGetInfoRequest)->app_id, &a, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    fill_handle(c, &a, &h);
    rs.info = &h.meta;
    m_reply(c, &rs.base);
}

void rpc_app_get_by_deployment_name(struct mcall *c)
{
    const M(AppGetByDeploymentNameRequest) *rq = REQ(c, AppGetByDeploymentNameRequest);
    M(AppGetByDeploymentNameResponse) rs = MODAL__CLIENT__APP_GET_BY_DEPLOYMENT_NAME_RESPONSE__INIT;
    struct environment_row env;
    struct app_info a;
    struct handle h;
    struct err e;

    if (m_environment(c, rq->environment_name, &env, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.environment_name = env.name;
    if (store_app_by_text(m_store(c), m_env_key(&env), m_text(rq->name), &a, &e) == 0) {
        fill_handle(c, &a, &h);
        rs.app_id = a.stopped_us == 0 ? a.id : STR("");
        rs.previous_app_id = a.stopped_us != 0 ? a.id : NULL;
        rs.lifecycle = &h.lifecycle;
    } else if (e.code == ERR_NOT_FOUND) {
        rs.app_id = STR("");            /* how the protocol says that there is none */
    } else {
        m_fail(c, &e);
        return;
    }
    m_reply(c, &rs.base);
}

void rpc_app_get_lifecycle(struct mcall *c)
{
    M(AppGetLifecycleResponse) rs = MODAL__CLIENT__APP_GET_LIFECYCLE_RESPONSE__INIT;
    M(AppLifecycle) lifecycle;
    struct app_info a;
    struct err e;

    if (app_get(c, REQ(c, AppGetLifecycleRequest)->app_id, &a, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    fill_lifecycle(&a, &lifecycle);
    rs.lifecycle = &lifecycle;
    m_reply(c, &rs.base);
}

/* --- list ---------------------------------------------------------------------------------------------------------- */

struct app_list {
    struct app_info rows[APPS_MAX];
    size_t n;
};

static void add_app(void *ctx, const struct app_info *a)
{
    struct app_list *l = ctx;

    if (l->n < APPS_MAX)
        l->rows[l->n++] = *a;
}

void rpc_app_list(struct mcall *c)
{
    M(AppListResponse) rs = MODAL__CLIENT__APP_LIST_RESPONSE__INIT;
    auto_free struct app_list *l = mem_zalloc(sizeof *l);
    struct environment_row env;
    struct err e;

    if (m_environment(c, REQ(c, AppListRequest)->environment_name, &env, &e) < 0
        || store_app_each(m_store(c), m_env_key(&env), APPS_MAX, add_app, l, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    auto_free M(AppListResponse__AppListItem) *items = mem_array(l->n + 1, sizeof *items);
    auto_free M(AppListResponse__AppListItem) **list = mem_array(l->n + 1, sizeof *list);
    auto_free struct handle *handles = mem_array(l->n + 1, sizeof *handles);
    for (size_t i = 0; i < l->n; i++) {
        const struct app_info *a = &l->rows[i];
        list[i] = &items[i];
        modal__client__app_list_response__app_list_item__init(&items[i]);
        fill_handle(c, a, &handles[i]);
        items[i].app_id = STR(a->id);
        items[i].description = STR(a->text);
        items[i].name = a->is_ephemeral ? STR("") : STR(a->text);
        items[i].has_state = items[i].has_created_at = items[i].has_stopped_at = items[i].has_n_running_tasks = true;
        items[i].state = state_of(a);
        items[i].created_at = (double)a->created_us / 1e6;
        items[i].stopped_at = (double)a->stopped_us / 1e6;
        items[i].n_running_tasks = (int32_t)a->live;
        items[i].metadata = &handles[i].meta;
    }
    rs.apps = list;
    rs.n_apps = l->n;
    m_reply(c, &rs.base);
}

/* --- stop ---------------------------------------------------------------------------------------------------------- */

struct ids {
    char (*list)[ID_SIZE];
    size_t n;
};

static void add_id(void *ctx, const struct sandbox *sb)
{
    struct ids *ids = ctx;

    if (ids->n < SANDBOXES_MAX)
        memcpy(ids->list[ids->n++], sb->row->id, ID_SIZE);
}

static void on_terminated(void *ctx, const struct sandbox *sb, const struct err *e)
{
    if (e != NULL && e->code != ERR_NOT_FOUND)
        log_warn("app.stop", "cause=\"%s\"", e->message);       /* its row says stopping: the poll goes on with it */
}

static int stop_app(struct core *core, const struct app_info *a, const char *actor, struct err *e)
{
    auto_free char (*room)[ID_SIZE] = mem_array(SANDBOXES_MAX, ID_SIZE);
    struct ids ids = {room, 0};
    struct sandbox_filter f = {.app = a->name, .states = STORE_LIVE_STATES, .limit = SANDBOXES_MAX};
    struct sandbox_end_how how = {.actor = actor, .grace_ms = -1, .wait_ms = 0};

    if (sandbox_list(core, &f, add_id, &ids, e) < 0
        || (a->stopped_us == 0 && store_app_set_stopped(core_store(core), a->id, clock_wall_us(), e) < 0))
        return -1;
    for (size_t i = 0; i < ids.n; i++)
        sandbox_terminate(core, room[i], &how, on_terminated, NULL);
    return 0;
}

static void stop_by_id(struct mcall *c, const char *id, bool only_ephemeral)
{
    struct app_info a;
    struct err e;

    (void)snprintf(c->target, sizeof c->target, "%.40s", m_text(id));
    if (app_get(c, id, &a, &e) < 0
        || ((a.is_ephemeral || !only_ephemeral) && stop_app(c->m->core, &a, c->token.id, &e) < 0))
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

void rpc_app_stop(struct mcall *c)
{
    stop_by_id(c, REQ(c, AppStopRequest)->app_id, false);
}

void rpc_app_client_disconnect(struct mcall *c)
{
    stop_by_id(c, REQ(c, AppClientDisconnectRequest)->app_id, true);
}

void rpc_app_heartbeat(struct mcall *c)
{
    struct err e;

    if (store_app_set_seen(m_store(c), m_text(REQ(c, AppHeartbeatRequest)->app_id), clock_wall_ms(), &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

void apps_sweep(struct modal *m)
{
    auto_free struct app_list *l = mem_zalloc(sizeof *l);
    struct err e;

    if (store_app_silent(core_store(m->core), clock_wall_ms() - SILENCE_MS, add_app, l, &e) < 0)
        log_warn("app.sweep", "cause=\"%s\"", e.message);
    for (size_t i = 0; i < l->n; i++) {
        log_info("app.silent", "id=%s", l->rows[i].id);
        if (stop_app(m->core, &l->rows[i], "app", &e) < 0)
            log_warn("app.stop", "id=%s cause=\"%s\"", l->rows[i].id, e.message);
    }
}

void rpc_environment_delete(struct mcall *c)
{
    const char *name = m_text(REQ(c, EnvironmentDeleteRequest)->name);
    auto_free struct app_list *l = mem_zalloc(sizeof *l);
    struct environment_row env;
    struct err e;

    if (name[0] == '\0' || m_environment(c, name, &env, &e) < 0) {
        m_refuse(c, GRPC_NOT_FOUND, "Environment '%.64s' not found", name);
        return;
    }
    if (env.is_default) {
        m_refuse(c, GRPC_FAILED_PRECONDITION, "the default environment '%s' cannot be deleted", env.name);
        return;
    }
    int r = store_app_each(m_store(c), env.name, APPS_MAX, add_app, l, &e);
    for (size_t i = 0; i < l->n && r == 0; i++)
        r = stop_app(c->m->core, &l->rows[i], c->token.id, &e);
    if (r == 0)
        r = store_begin(m_store(c), STORE_FAST, &e);
    if (r == 0 && (store_environment_remove(m_store(c), env.name, &e) < 0 || store_commit(m_store(c), &e) < 0)) {
        store_rollback(m_store(c));
        r = -1;
    }
    if (r < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

/* --- publish, tags ------------------------------------------------------------------------------------------------- */

void rpc_app_publish(struct mcall *c)
{
    const M(AppPublishRequest) *rq = REQ(c, AppPublishRequest);
    M(AppPublishResponse) rs = MODAL__CLIENT__APP_PUBLISH_RESPONSE__INIT;
    struct app_info a;
    struct err e;

    if (rq->n_function_ids > 0 || rq->n_class_ids > 0) {
        m_refuse(c, GRPC_UNIMPLEMENTED, "functions and classes are not served: this server runs sandboxes");
        return;
    }
    if (app_get(c, rq->app_id, &a, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.url = STR("");
    rs.has_deployed_at = true;
    rs.deployed_at = (double)clock_wall_us() / 1e6;
    m_reply(c, &rs.base);
}

void rpc_app_get_tags(struct mcall *c)
{
    M(AppGetTagsResponse) rs = MODAL__CLIENT__APP_GET_TAGS_RESPONSE__INIT;
    struct app_info a;
    struct err e;
    const char *key;
    json_t *value;
    size_t n = 0;

    if (app_get(c, REQ(c, AppGetTagsRequest)->app_id, &a, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    auto_json *tags = json_loads(a.tags, 0, NULL);
    auto_free M(AppGetTagsResponse__TagsEntry) *entries = mem_array(json_object_size(tags) + 1, sizeof *entries);
    auto_free M(AppGetTagsResponse__TagsEntry) **list = mem_array(json_object_size(tags) + 1, sizeof *list);
    json_object_foreach(tags, key, value) {
        modal__client__app_get_tags_response__tags_entry__init(&entries[n]);
        entries[n].key = STR(key);
        entries[n].value = STR(json_string_value(value));
        list[n] = &entries[n];
        n++;
    }
    rs.tags = list;
    rs.n_tags = n;
    m_reply(c, &rs.base);
}

void rpc_app_set_tags(struct mcall *c)
{
    const M(AppSetTagsRequest) *rq = REQ(c, AppSetTagsRequest);
    auto_json *tags = json_object();
    struct app_info a;
    struct err e;

    for (size_t i = 0; i < rq->n_tags; i++)
        (void)json_object_set_new(tags, m_text(rq->tags[i]->key), json_string(m_text(rq->tags[i]->value)));
    auto_free char *text = js_text(tags, true);
    if (strlen(text) >= sizeof a.tags) {
        m_refuse(c, GRPC_INVALID_ARGUMENT, "the tags of an app have at most %zu bytes", sizeof a.tags - 1);
        return;
    }
    if (app_get(c, rq->app_id, &a, &e) < 0 || store_app_set_tags(m_store(c), a.id, text, &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}
