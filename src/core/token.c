/*
 * token.c - making, checking and revoking tokens
 */
#include "core/token.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/internal.h"
#include "sys/fd.h"

#define CACHE_MAX 10000

const char *const token_scopes[] = {
    "sandbox:create", "sandbox:read", "sandbox:write", "exec:read",   "exec:write", "files:read",
    "files:write",    "image:read",   "image:write",   "secret:read",
    "secret:write",   "token:admin",  "*",
};
const size_t token_nscopes = array_len(token_scopes);

bool token_has_scope(const struct token *t, const char *scope)
{
    size_t n = strlen(scope);

    for (const char *p = t->scopes; *p != '\0';) {
        size_t len = strcspn(p, " ");
        if ((len == 1 && *p == '*') || (len == n && memcmp(p, scope, n) == 0))
            return true;
        p += len;
        p += strspn(p, " ");
    }
    return false;
}

static void hash_secret(const char *secret, uint8_t out[STORE_HASH_SIZE])
{
    struct sha256 h;

    sha256_init(&h);
    sha256_add(&h, secret, strlen(secret));
    sha256_end(&h, out);
}

/* In constant time: how long a comparison took must not tell how much of a guess was right. */
static bool is_same(const uint8_t *a, const uint8_t *b)
{
    uint8_t diff = 0;

    for (size_t i = 0; i < STORE_HASH_SIZE; i++)
        diff |= a[i] ^ b[i];
    return diff == 0;
}

static void cache_clear(struct core *c)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *row;

    while (map_next(&c->tokens, &it, &id, &row)) {
        (void)map_del(&c->tokens, id);
        free(row);
    }
}

void tokens_close(struct core *c)
{
    cache_clear(c);
    map_done(&c->tokens);
}

static const struct token_row *find(struct core *c, const char *id, struct err *e)
{
    struct token_row *row = map_get(&c->tokens, id);

    if (row != NULL)
        return row;
    row = mem_zalloc(sizeof *row);
    if (store_token_get(c->store, id, row, e) < 0) {
        free(row);
        return NULL;
    }
    if (c->tokens.count >= CACHE_MAX)
        cache_clear(c);
    (void)map_put(&c->tokens, row->id, row);
    return row;
}

static void to_token(const struct token_row *r, struct token *ret)
{
    memset(ret, 0, sizeof *ret);
    memcpy(ret->id, r->id, sizeof ret->id);
    memcpy(ret->name, r->name, sizeof ret->name);
    memcpy(ret->scopes, r->scopes, sizeof ret->scopes);
    ret->created_ms = r->created_ms;
    ret->expires_ms = r->expires_ms;
}

int token_check(struct core *c, const char *authorization, struct token *ret, struct err *e)
{
    char id[ID_SIZE];
    uint8_t hash[STORE_HASH_SIZE];
    struct err local = {0};

    if (authorization == NULL)
        return err_set(e, ERR_UNAUTHENTICATED, "no Authorization header came with the request");
    const size_t id_len = 3 + ID_SUFFIX;
    if (strncasecmp(authorization, "Bearer ", 7) != 0 ||
        strlen(authorization) != 7 + id_len + 1 + TOKEN_SECRET_LEN ||
        authorization[7 + id_len] != '.')
        return err_set(e, ERR_UNAUTHENTICATED,
                       "the Authorization header has no token of this server");
    memcpy(id, authorization + 7, id_len);
    id[id_len] = '\0';
    if (!id_is(id, "tk-"))
        return err_set(e, ERR_UNAUTHENTICATED,
                       "the Authorization header has no token of this server");

    const struct token_row *row = find(c, id, &local);
    if (row == NULL && local.code != ERR_NOT_FOUND) {
        if (e != NULL)
            *e = local;
        return -1;
    }
    hash_secret(authorization + 7 + id_len + 1, hash);
    if (row == NULL || !is_same(hash, row->hash))
        return err_set(e, ERR_UNAUTHENTICATED, "the token is not valid (any more)");
    if (row->expires_ms != 0 && clock_wall_ms() >= row->expires_ms)
        return err_set(e, ERR_UNAUTHENTICATED, "the token has expired");
    to_token(row, ret);
    return 0;
}

/* 32 bytes as 43 characters of base64url. */
static void make_secret(char out[TOKEN_SECRET_LEN + 1])
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t raw[33];

    random_bytes(raw, 32);
    raw[32] = 0;
    for (size_t i = 0, o = 0; i < 33 && o < TOKEN_SECRET_LEN; i += 3) {
        unsigned v = (unsigned)raw[i] << 16 | (unsigned)raw[i + 1] << 8 | raw[i + 2];
        for (int shift = 18; shift >= 0 && o < TOKEN_SECRET_LEN; shift -= 6)
            out[o++] = alphabet[v >> shift & 63];
    }
    out[TOKEN_SECRET_LEN] = '\0';
}

int token_create(struct core *c, const char *name, const char *scopes, int64_t expires_ms,
                 struct token *ret, char ret_secret[TOKEN_SECRET_LEN + 1], struct err *e)
{
    struct token_row r = {.created_ms = clock_wall_ms(), .expires_ms = expires_ms};
    char secret[TOKEN_SECRET_LEN + 1];

    id_make(r.id, "tk-");
    (void)snprintf(r.name, sizeof r.name, "%s", name);
    if ((size_t)snprintf(r.scopes, sizeof r.scopes, "%s", scopes) >= sizeof r.scopes)
        return err_param(e, ERR_TOO_LARGE, "scopes", "the scopes are longer than %zu bytes",
                         sizeof r.scopes - 1);
    make_secret(secret);
    hash_secret(secret, r.hash);
    if (store_begin(c->store, STORE_DURABLE, e) < 0)
        return -1;
    if (store_token_insert(c->store, &r, e) < 0 || store_commit(c->store, e) < 0) {
        store_rollback(c->store);
        return -1;
    }
    to_token(&r, ret);
    memcpy(ret_secret, secret, sizeof secret);
    return 0;
}

int token_revoke(struct core *c, const char *id, struct err *e)
{
    free(map_del(&c->tokens, id));
    if (store_begin(c->store, STORE_DURABLE, e) < 0)
        return -1;
    if (store_token_remove(c->store, id, e) < 0 || store_commit(c->store, e) < 0) {
        store_rollback(c->store);
        return -1;
    }
    return 0;
}

int token_list(struct core *c, int64_t cursor_ms, const char *cursor_id, size_t limit,
               store_token_fn fn, void *ctx, struct err *e)
{
    return store_token_list(c->store, cursor_ms, cursor_id, limit, fn, ctx, e);
}

static void note_token(void *ctx, const struct token_row *r)
{
    *(bool *)ctx = true;
}

int token_admin_file(struct core *c, const char *path, struct err *e)
{
    char secret[TOKEN_SECRET_LEN + 1];
    char line[ID_SIZE + TOKEN_SECRET_LEN + 3];
    struct token t;
    bool is_any = false;

    if (store_token_list(c->store, 0, NULL, 1, note_token, &is_any, e) < 0)
        return -1;
    if (is_any && access(path, F_OK) == 0)
        return 0;
    if (token_create(c, "admin", "*", 0, &t, secret, e) < 0)
        return err_wrap(e, "make the admin token");
    int n = snprintf(line, sizeof line, "%s.%s\n", t.id, secret);
    int r = fd_replace_file(AT_FDCWD, path, line, (size_t)n, 0600, true);
    if (r < 0) {
        (void)token_revoke(c, t.id, NULL); /* nobody knows its secret */
        return err_sys(e, -r, "write the admin token to %s", path);
    }
    return 0;
}
