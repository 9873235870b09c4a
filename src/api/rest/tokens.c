/*
 * tokens.c - token.* operations and me
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/rest/list.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/token.h"
#include "json/json.h"

static json_t *scope_list(const char *scopes)
{
    json_t *list = json_array();

    for (const char *p = scopes; *p != '\0';) {
        size_t n = strcspn(p, " ");
        (void)json_array_append_new(list, json_stringn(p, n));
        p += n;
        p += strspn(p, " ");
    }
    return list;
}

static json_t *token_json(const char *id, const char *name, const char *scopes, int64_t created_ms,
                          int64_t expires_ms)
{
    json_t *o = json_object();

    (void)json_object_set_new(o, "id", json_string(id));
    (void)json_object_set_new(o, "name", json_string(name));
    (void)json_object_set_new(o, "scopes", scope_list(scopes));
    (void)json_object_set_new(o, "created_at", js_time_ms(created_ms));
    (void)json_object_set_new(o, "expires_at", js_time_ms(expires_ms));
    return o;
}

/* Joins the scopes. A scope must exist, and the caller must have it: no token makes one that may
 * do more. */
static int read_scopes(const struct call *c, struct buf *out, struct err *e)
{
    size_t i;
    const json_t *item;

    json_array_foreach(json_object_get(c->body, "scopes"), i, item)
    {
        const char *scope = json_string_value(item);
        bool is_known = false;
        for (size_t k = 0; k < token_nscopes; k++)
            is_known = is_known || strcmp(token_scopes[k], scope) == 0;
        if (!is_known) {
            err_param(e, ERR_INVALID, "scopes", "item %zu of scopes is '%.40s', which is no scope", i, scope);
            const char *near = js_nearest(scope, token_scopes, token_nscopes);
            if (near != NULL)
                err_hint(e, "did you mean '%s'?", near);
            else
                err_hint(e, "scopes are * or such as sandbox:create, exec:write, files:read; docs/api/rest.md lists them");
            return -1;
        }
        if (!token_has_scope(c->token, scope))
            return err_param(e, ERR_DENIED, "scopes",
                             "the token %s lacks the scope %s and cannot give it", c->token->id,
                             scope);
        (void)buf_addf(out, "%s%s", i > 0 ? " " : "", scope);
    }
    return 0;
}

static void create(struct call *c)
{
    struct err e;
    struct token t;
    char secret[TOKEN_SECRET_LEN + 1];
    double expires_s = call_number(c, "expires_s", 0);
    auto_buf scopes = {0};

    buf_init(&scopes, sizeof t.scopes);
    if (read_scopes(c, &scopes, &e) < 0 ||
        token_create(c->core, call_string(c, "name", ""), buf_str(&scopes),
                     expires_s > 0 ? clock_wall_ms() + (int64_t)(expires_s * 1000) : 0, &t, secret,
                     &e) < 0) {
        call_fail(c, &e);
        return;
    }
    json_t *o = token_json(t.id, t.name, t.scopes, t.created_ms, t.expires_ms);
    (void)json_object_set_new(o, "secret", json_string(secret));
    call_set_target(c, t.id);
    call_reply(c, 201, o);
}

static void add_row(void *ctx, const struct token_row *r)
{
    page_add(ctx, token_json(r->id, r->name, r->scopes, r->created_ms, r->expires_ms),
             r->created_ms, r->id);
}

static void list(struct call *c)
{
    struct page p;
    struct err e;

    if (page_init(&p, c, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    if (token_list(c->core, p.cursor, p.cursor_id, page_limit(&p), add_row, &p, &e) < 0)
        page_fail(&p, c, &e);
    else
        page_reply(&p, c);
}

static void revoke(struct call *c)
{
    struct err e;

    if (token_revoke(c->core, call_param(c, "id"), &e) < 0)
        call_fail(c, &e);
    else
        call_reply_empty(c, 204);
}

static void me(struct call *c)
{
    const struct token *t = c->token;

    call_reply(c, 200, token_json(t->id, t->name, t->scopes, t->created_ms, t->expires_ms));
}

static const struct field create_body[] = {
    {"name", FIELD_STRING, FIELD_REQUIRED | FIELD_NAME, 1, LIMIT_NAME, NULL,
     "what the token is for"},
    {"scopes", FIELD_STRINGS, FIELD_REQUIRED, 1, 13, NULL,
     "what it may do; none that the caller lacks"},
    {"expires_s", FIELD_NUMBER, FIELD_NULLABLE | FIELD_OPEN_MIN, 0, 3153600000.0, NULL,
     "lifetime; null = no end"},
};
static const struct field list_query[] = {LIST_FIELDS};

const struct op rest_token_ops[] = {
    {"token.create", "POST", "/v1/tokens", "token:admin", 0,
     "Make a token; the answer shows its secret, once", NULL, 0, create_body,
     array_len(create_body), 201, create},
    {"token.list", "GET", "/v1/tokens", "token:admin", 0, "List tokens", list_query,
     array_len(list_query), NULL, 0, 200, list},
    {"token.revoke", "DELETE", "/v1/tokens/{id}", "token:admin", 0,
     "Revoke a token, in force at once", NULL, 0, NULL, 0, 204, revoke},
    {"token.me", "GET", "/v1/me", NULL, 0, "The caller's own token", NULL, 0, NULL, 0, 200, me},
};
const size_t rest_token_nops = array_len(rest_token_ops);
