/*
 * secrets.c - secrets by name, of one client, and their list
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/modal/mcall.h"
#include "base/mem.h"

#define LIST_MAX 1000

/* --- make and look up ---------------------------------------------------------------------------------------------- */

static void reply_secret(struct mcall *c, const char *id)
{
    M(SecretGetOrCreateResponse) rs = MODAL__CLIENT__SECRET_GET_OR_CREATE_RESPONSE__INIT;
    M(SecretMetadata) meta = MODAL__CLIENT__SECRET_METADATA__INIT;
    struct environment_row env;
    auto_secret_row row = {0};
    auto_json *keys = NULL;
    auto_free char **list = NULL;
    struct err e;

    (void)snprintf(c->target, sizeof c->target, "%s", id);
    if (store_secret_get(m_store(c), id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    keys = json_loads(row.keys, 0, NULL);
    list = mem_array(json_array_size(keys) + 1, sizeof *list);
    for (size_t i = 0; i < json_array_size(keys); i++)
        list[i] = STR(json_string_value(json_array_get(keys, i)));
    M(CreationInfo) creation = m_creation(row.created_us);
    meta.creation_info = &creation;
    meta.has_last_used_at = true;
    meta.last_used_at = (double)row.used_us / 1e6;
    meta.name = row.name;
    meta.keys = list;
    meta.n_keys = json_array_size(keys);
    meta.environment_name = STR(m_env_name(c, row.environment, &env));
    rs.secret_id = row.id;
    rs.metadata = &meta;
    m_reply(c, &rs.base);
}

static void on_made(void *ctx, const char *id, const struct err *e)
{
    struct mcall *c = ctx;

    if (e != NULL) {
        m_fail(c, e);
        return;
    }
    if (c->user != NULL) {              /* the key of this call names it from now on */
        enum idem_result how;
        char object[IDEM_OBJECT_SIZE];
        struct err local;
        (void)m_idem(c, id, &how, object, &local);
    }
    reply_secret(c, id);
}

/* Which of the required keys are not there, as a list; "" = none. */
static void missing_keys(const struct secret_row *row, char *const *required, size_t n, struct buf *out)
{
    auto_json *keys = json_loads(row->keys, 0, NULL);

    for (size_t i = 0; i < n; i++) {
        bool has = false;
        for (size_t k = 0; k < json_array_size(keys); k++)
            has |= strcmp(json_string_value(json_array_get(keys, k)), required[i]) == 0;
        if (!has)
            (void)buf_addf(out, "%s%.60s", out->len > 0 ? ", " : "", required[i]);
    }
}

static void look_up(struct mcall *c, const struct environment_row *env, const char *name)
{
    const M(SecretGetOrCreateRequest) *rq = REQ(c, SecretGetOrCreateRequest);
    auto_secret_row row = {0};
    auto_buf missing = {0};
    struct err e;

    buf_init(&missing, 300);
    if (store_secret_by_name(m_store(c), m_env_key(env), name, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    missing_keys(&row, rq->required_keys, rq->n_required_keys, &missing);
    if (missing.len > 0)
        m_refuse(c, GRPC_FAILED_PRECONDITION, "Secret is missing key(s): %s", buf_str(&missing));
    else
        reply_secret(c, row.id);
}

void rpc_secret_get_or_create(struct mcall *c)
{
    const M(SecretGetOrCreateRequest) *rq = REQ(c, SecretGetOrCreateRequest);
    const char *name = m_text(rq->deployment_name);
    int how = (int)rq->object_creation_type;
    bool is_anonymous = how == CREATE_EPHEMERAL || how == CREATE_ANONYMOUS;
    auto_secret_values *values = json_object();
    struct environment_row env;
    char object[IDEM_OBJECT_SIZE];
    struct idem_row known;
    const char *key = m_idem_key(c);
    struct err e;

    if (m_environment(c, rq->environment_name, &env, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    if (how == CREATE_LOOKUP) {
        look_up(c, &env, name);
        return;
    }
    if (!is_anonymous && m_check_name("secret", name, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    if (key != NULL && store_idem_get(m_store(c), c->token.id, key, &known, NULL) == 0
        && memcmp(known.hash, c->hash, sizeof known.hash) == 0) {
        (void)snprintf(object, sizeof object, "%s", known.object);
        reply_secret(c, object);
        return;
    }
    for (size_t i = 0; i < rq->n_env_dict; i++)
        (void)json_object_set_new(values, m_text(rq->env_dict[i]->key), json_string(m_text(rq->env_dict[i]->value)));
    const struct secret_spec spec = {
        .environment = m_env_key(&env),
        .name = is_anonymous ? "" : name,
        .values = values,
        .mode = how == CREATE_NEW ? SECRET_NEW : how == CREATE_OVERWRITE ? SECRET_OVERWRITE : SECRET_IF_MISSING,
        .ttl_ms = is_anonymous ? SECRET_EPHEMERAL_MS : 0,
    };
    c->user = key != NULL ? c : NULL;
    secret_create(c->m->vault, &spec, on_made, c);
}

/* --- change and remove --------------------------------------------------------------------------------------------- */

static void on_changed(void *ctx, const char *id, const struct err *e)
{
    if (e != NULL)
        m_fail(ctx, e);
    else
        m_reply_empty(ctx);
}

void rpc_secret_delete(struct mcall *c)
{
    secret_delete(c->m->vault, m_text(REQ(c, SecretDeleteRequest)->secret_id), on_changed, c);
}

void rpc_secret_update(struct mcall *c)
{
    const M(SecretUpdateRequest) *rq = REQ(c, SecretUpdateRequest);
    auto_secret_values *changes = json_object();

    for (size_t i = 0; i < rq->n_updates; i++)
        (void)json_object_set_new(changes, m_text(rq->updates[i]->key),
                                  rq->updates[i]->value != NULL ? json_string(rq->updates[i]->value) : json_null());
    secret_update(c->m->vault, m_text(rq->secret_id), changes, on_changed, c);
}

void rpc_secret_get_info(struct mcall *c)
{
    M(SecretGetInfoResponse) rs = MODAL__CLIENT__SECRET_GET_INFO_RESPONSE__INIT;
    M(SecretMetadata) meta = MODAL__CLIENT__SECRET_METADATA__INIT;
    struct environment_row env;
    auto_secret_row row = {0};
    struct err e;

    if (store_secret_get(m_store(c), m_text(REQ(c, SecretGetInfoRequest)->secret_id), &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    M(CreationInfo) creation = m_creation(row.created_us);
    meta.creation_info = &creation;
    meta.has_last_used_at = true;
    meta.last_used_at = (double)row.used_us / 1e6;
    meta.name = row.name;
    meta.environment_name = STR(m_env_name(c, row.environment, &env));
    rs.metadata = &meta;
    m_reply(c, &rs.base);
}

/* --- list ---------------------------------------------------------------------------------------------------------- */

struct item {
    M(SecretListItem) m;
    M(SecretMetadata) meta;
    M(CreationInfo) creation;
    char id[ID_SIZE], name[LIMIT_NAME + 1];
};

struct list {
    struct item *items[LIST_MAX];
    M(SecretListItem) *out[LIST_MAX];
    size_t n;
    const char *environment;            /* its name */
};

static void add_secret(void *ctx, const struct secret_row *r)
{
    struct list *l = ctx;

    if (l->n == LIST_MAX)
        return;
    struct item *i = mem_zalloc(sizeof *i);
    memcpy(i->id, r->id, sizeof i->id);
    memcpy(i->name, r->name, sizeof i->name);
    i->creation = m_creation(r->created_us);
    modal__client__secret_metadata__init(&i->meta);
    i->meta.name = i->name;
    i->meta.creation_info = &i->creation;
    i->meta.has_last_used_at = true;
    i->meta.last_used_at = (double)r->used_us / 1e6;
    i->meta.environment_name = STR(l->environment);
    modal__client__secret_list_item__init(&i->m);
    i->m.label = i->name;
    i->m.secret_id = i->id;
    i->m.environment_name = STR(l->environment);
    i->m.has_created_at = i->m.has_last_used_at = true;
    i->m.created_at = (double)r->created_us / 1e6;
    i->m.last_used_at = (double)r->used_us / 1e6;
    i->m.metadata = &i->meta;
    l->items[l->n] = i;
    l->out[l->n++] = &i->m;
}

void m_page(const M(ListPagination) *p, int64_t *ret_before_us, size_t *ret_limit)
{
    *ret_before_us = p != NULL && p->created_before > 0 ? (int64_t)llround(p->created_before * 1e6) : 0;
    *ret_limit = p != NULL && p->max_objects > 0 && p->max_objects < LIST_MAX ? (size_t)p->max_objects : LIST_MAX;
}

void rpc_secret_list(struct mcall *c)
{
    const M(SecretListRequest) *rq = REQ(c, SecretListRequest);
    M(SecretListResponse) rs = MODAL__CLIENT__SECRET_LIST_RESPONSE__INIT;
    auto_free struct list *l = mem_zalloc(sizeof *l);
    struct environment_row env;
    int64_t before_us;
    size_t limit;
    struct err e;

    m_page(rq->pagination, &before_us, &limit);
    if (m_environment(c, rq->environment_name, &env, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    l->environment = env.name;
    int r = store_secret_list(m_store(c), m_env_key(&env), before_us, limit, add_secret, l, &e);
    rs.items = l->out;
    rs.n_items = l->n;
    rs.environment_name = env.name;
    if (r < 0)
        m_fail(c, &e);
    else
        m_reply(c, &rs.base);
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i]);
}
