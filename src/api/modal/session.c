/*
 * session.c - tokens and the workspace: who calls, and what this server is called
 *
 * There is one workspace. Users are not told apart from their tokens.
 */
#include <stdio.h>
#include <string.h>

#include "api/modal/mcall.h"
#include "base/clock.h"
#include "base/mem.h"

#define WORKSPACE "quicksand"
#define WORKSPACE_ID "ac-0000000000000000000000"
#define AUTH_TOKEN_S (6 * 3600)
#define BUILDER_VERSION "2025.06"

void rpc_auth_token_get(struct mcall *c)
{
    M(AuthTokenGetResponse) rs = MODAL__CLIENT__AUTH_TOKEN_GET_RESPONSE__INIT;
    json_int_t now_s = clock_wall_ms() / 1000, end_s = now_s + AUTH_TOKEN_S;
    struct err e;
    /* Clients decode the claims with another base64 alphabet: nothing in them may give '-' or '_', so no '>', '?' or '~'. */
    auto_json *claims = json_pack("{s:s, s:s, s:I, s:I}", "iss", "quicksand", "sub", c->token.id, "iat", now_s, "exp",
                                  end_s);
    auto_free char *jwt = vault_sign(c->m->vault, claims, &e);

    if (jwt == NULL) {
        m_fail(c, &e);
        return;
    }
    rs.token = jwt;
    m_reply(c, &rs.base);
}

void rpc_client_hello(struct mcall *c)
{
    M(ClientHelloResponse) rs = MODAL__CLIENT__CLIENT_HELLO_RESPONSE__INIT;

    m_reply(c, &rs.base);
}

static M(Timestamp) timestamp(int64_t ms)
{
    M(Timestamp) t = MODAL__CLIENT__TIMESTAMP__INIT;

    t.has_seconds = t.has_nanos = true;
    t.seconds = ms / 1000;
    t.nanos = (int32_t)(ms % 1000) * 1000000;
    return t;
}

void rpc_token_info_get(struct mcall *c)
{
    M(TokenInfoGetResponse) rs = MODAL__CLIENT__TOKEN_INFO_GET_RESPONSE__INIT;
    M(UserIdentity) user = MODAL__CLIENT__USER_IDENTITY__INIT;
    M(Timestamp) created = timestamp(c->token.created_ms), expires = timestamp(c->token.expires_ms);

    user.user_id = STR("us-0000000000000000000000");
    user.username = c->token.name;
    rs.token_id = c->token.id;
    rs.workspace_id = STR(WORKSPACE_ID);
    rs.workspace_name = STR(WORKSPACE);
    rs.identity_case = MODAL__CLIENT__TOKEN_INFO_GET_RESPONSE__IDENTITY_USER_IDENTITY;
    rs.user_identity = &user;
    rs.created_at = &created;
    rs.expires_at = c->token.expires_ms != 0 ? &expires : NULL;
    rs.token_name = c->token.name;
    m_reply(c, &rs.base);
}

void rpc_workspace_name_lookup(struct mcall *c)
{
    M(WorkspaceNameLookupResponse) rs = MODAL__CLIENT__WORKSPACE_NAME_LOOKUP_RESPONSE__INIT;

    rs.workspace_name = STR(WORKSPACE);
    rs.username = STR(WORKSPACE);
    m_reply(c, &rs.base);
}

void rpc_workspace_settings(struct mcall *c)
{
    M(WorkspaceSettingsResponse) rs = MODAL__CLIENT__WORKSPACE_SETTINGS_RESPONSE__INIT;
    struct environment_row env;
    struct err e;

    if (m_environment(c, "", &env, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.default_environment_name = env.name;
    rs.image_builder_version = STR(BUILDER_VERSION);
    m_reply(c, &rs.base);
}

/* --- environments -------------------------------------------------------------------------------------------------- */

const char *m_env_key(const struct environment_row *env)
{
    return env->is_default ? "" : env->name;
}

int m_environment(const struct mcall *c, const char *name, struct environment_row *ret, struct err *e)
{
    return store_environment_get(m_store(c), m_text(name), ret, e);
}

const char *m_env_name(struct mcall *c, const char *key, struct environment_row *room)
{
    if (key[0] != '\0')
        return key;
    return store_environment_get(m_store(c), "", room, NULL) == 0 ? room->name : "";
}

static int check_name(const char *name, struct err *e)
{
    bool is_id = strncmp(name, "en-", 3) == 0;
    char first = name[0];

    if (!is_id && name_is_valid(name, strlen(name))
        && ((first >= '0' && first <= '9') || (first >= 'A' && first <= 'Z') || (first >= 'a' && first <= 'z')))
        return 0;
    return err_set(e, ERR_INVALID, "Invalid environment name '%.80s': it begins with a letter or digit, has at most %d "
                   "characters of A-Z a-z 0-9 . _ - and does not begin with 'en-'", name, LIMIT_NAME);
}

static int make(struct mcall *c, const char *name, bool is_default, struct environment_row *r, struct err *e)
{
    if (check_name(name, e) < 0)
        return -1;
    memset(r, 0, sizeof *r);
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    id_make(r->id, "en-");
    r->created_us = clock_wall_us();
    r->is_default = is_default;
    if (store_environment_insert(m_store(c), r, e) == 0)
        return 0;
    return e->code == ERR_EXISTS ? err_set(e, ERR_EXISTS, "Environment '%s' already exists", name) : -1;
}

void rpc_environment_get_or_create(struct mcall *c)
{
    const M(EnvironmentGetOrCreateRequest) *rq = REQ(c, EnvironmentGetOrCreateRequest);
    M(EnvironmentGetOrCreateResponse) rs = MODAL__CLIENT__ENVIRONMENT_GET_OR_CREATE_RESPONSE__INIT;
    M(EnvironmentMetadata) meta = MODAL__CLIENT__ENVIRONMENT_METADATA__INIT;
    M(EnvironmentSettings) settings = MODAL__CLIENT__ENVIRONMENT_SETTINGS__INIT;
    struct environment_row env;
    struct err e = {0};
    int r = m_environment(c, rq->deployment_name, &env, &e);

    if (r < 0 && e.code == ERR_NOT_FOUND && (int)rq->object_creation_type != CREATE_LOOKUP)
        r = make(c, rq->deployment_name, false, &env, &e);
    if (r < 0) {
        m_fail(c, &e);
        return;
    }
    settings.image_builder_version = STR(BUILDER_VERSION);
    meta.name = env.name;
    meta.settings = &settings;
    rs.environment_id = env.id;
    rs.metadata = &meta;
    m_reply(c, &rs.base);
}

void rpc_environment_create(struct mcall *c)
{
    struct environment_row env;
    struct err e;

    if (make(c, m_text(REQ(c, EnvironmentCreateRequest)->name), false, &env, &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

static void fill_item(const struct environment_row *r, M(EnvironmentListItem) *item)
{
    modal__client__environment_list_item__init(item);
    item->name = STR(r->name);
    item->environment_id = STR(r->id);
    item->has_created_at = item->has_default_ = true;
    item->created_at = (double)r->created_us / 1e6;
    item->default_ = r->is_default;
}

#define ENVIRONMENTS_MAX 1000

struct environment_list {
    struct environment_row rows[ENVIRONMENTS_MAX];
    size_t n;
};

static void add_environment(void *ctx, const struct environment_row *r)
{
    struct environment_list *l = ctx;

    if (l->n < ENVIRONMENTS_MAX)
        l->rows[l->n++] = *r;
}

void rpc_environment_list(struct mcall *c)
{
    M(EnvironmentListResponse) rs = MODAL__CLIENT__ENVIRONMENT_LIST_RESPONSE__INIT;
    auto_free struct environment_list *l = mem_zalloc(sizeof *l);
    struct err e;

    if (store_environment_list(m_store(c), add_environment, l, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    auto_free M(EnvironmentListItem) *items = mem_array(l->n + 1, sizeof *items);
    auto_free M(EnvironmentListItem) **list = mem_array(l->n + 1, sizeof *list);
    for (size_t i = 0; i < l->n; i++) {
        fill_item(&l->rows[i], &items[i]);
        list[i] = &items[i];
    }
    rs.items = list;
    rs.n_items = l->n;
    m_reply(c, &rs.base);
}

void rpc_environment_update(struct mcall *c)
{
    const M(EnvironmentUpdateRequest) *rq = REQ(c, EnvironmentUpdateRequest);
    M(EnvironmentListItem) rs;
    struct environment_row env;
    struct err e;
    const char *name = m_text(rq->current_name);

    if (rq->web_suffix != NULL)
        m_warn(c, "web_suffix is not kept: this server has no web endpoints");
    if (rq->name != NULL && rq->name->value != NULL) {
        if (check_name(rq->name->value, &e) < 0 || store_begin(m_store(c), STORE_FAST, &e) < 0) {
            m_fail(c, &e);
            return;
        }
        if (store_environment_rename(m_store(c), name, rq->name->value, &e) < 0 || store_commit(m_store(c), &e) < 0) {
            store_rollback(m_store(c));
            m_fail(c, &e);
            return;
        }
        name = rq->name->value;
    }
    if (m_environment(c, name, &env, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    fill_item(&env, &rs);
    m_reply(c, &rs.base);
}
