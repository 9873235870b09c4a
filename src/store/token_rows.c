/*
 * token_rows.c - rows of tokens and of idempotency keys
 */
#include <string.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/store.h"

#define COLUMNS "id, name, scopes, hash, created_ms, expires_ms"

static int read_hash(sqlite3_stmt *st, int column, uint8_t out[STORE_HASH_SIZE], struct err *e)
{
    const void *p = sqlite3_column_blob(st, column);

    if (p == NULL || sqlite3_column_bytes(st, column) != STORE_HASH_SIZE)
        return err_set(e, ERR_INTERNAL, "state database: a hash has a wrong size");
    memcpy(out, p, STORE_HASH_SIZE);
    return 0;
}

static int read_row(sqlite3_stmt *st, struct token_row *r, struct err *e)
{
    memset(r, 0, sizeof *r);
    db_text(st, 0, r->id, sizeof r->id);
    db_text(st, 1, r->name, sizeof r->name);
    db_text(st, 2, r->scopes, sizeof r->scopes);
    r->created_ms = db_int(st, 4);
    r->expires_ms = db_int(st, 5);
    return read_hash(st, 3, r->hash, e);
}

int store_token_insert(struct store *s, const struct token_row *r, struct err *e)
{
    sqlite3_stmt *st =
        db_stmt(s, "INSERT INTO tokens (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_text(st, 2, r->name);
    db_bind_text(st, 3, r->scopes);
    db_bind_blob(st, 4, r->hash, sizeof r->hash);
    db_bind_int(st, 5, r->created_ms);
    db_bind_int(st, 6, r->expires_ms);
    return db_run(s, st, e);
}

int store_token_get(struct store *s, const char *id, struct token_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM tokens WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    int r = db_step(s, st, e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no token '%.40s'", id);
    if (r == 1) {
        r = read_row(st, ret, e);
        (void)sqlite3_reset(st);
    }
    return r;
}

int store_token_remove(struct store *s, const char *id, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM tokens WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    if (db_run(s, st, e) < 0)
        return -1;
    return db_changes(s) > 0 ? 0 : err_set(e, ERR_NOT_FOUND, "no token '%.40s'", id);
}

int store_token_list(struct store *s, int64_t cursor_ms, const char *cursor_id, size_t limit,
                     store_token_fn fn, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS " FROM tokens WHERE ?1 = 0 OR (created_ms, id) < (?1, ?2)"
        " ORDER BY created_ms DESC, id DESC LIMIT ?3";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, cursor_ms);
    db_bind_text(st, 2, cursor_id);
    db_bind_int(st, 3, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        struct token_row row;
        if (read_row(st, &row, e) < 0) {
            (void)sqlite3_reset(st);
            return -1;
        }
        fn(ctx, &row);
    }
    return r;
}

int store_idem_get(struct store *s, const char *token, const char *key, struct idem_row *ret,
                   struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s, "SELECT hash, object, created_ms FROM idempotency WHERE token = ?1 AND key = ?2", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, token);
    db_bind_text(st, 2, key);
    int r = db_step(s, st, e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no such idempotency key");
    if (r == 1) {
        db_text(st, 1, ret->object, sizeof ret->object);
        ret->created_ms = db_int(st, 2);
        r = read_hash(st, 0, ret->hash, e);
        (void)sqlite3_reset(st);
    }
    return r;
}

int store_idem_insert(struct store *s, const char *token, const char *key, const struct idem_row *r,
                      struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s,
        "INSERT INTO idempotency (token, key, hash, object, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
        e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, token);
    db_bind_text(st, 2, key);
    db_bind_blob(st, 3, r->hash, sizeof r->hash);
    db_bind_text(st, 4, r->object);
    db_bind_int(st, 5, r->created_ms);
    return db_run(s, st, e);
}

int store_idem_remove(struct store *s, const char *token, const char *key, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM idempotency WHERE token = ?1 AND key = ?2", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, token);
    db_bind_text(st, 2, key);
    return db_run(s, st, e);
}

int store_idem_remove_object(struct store *s, const char *object, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM idempotency WHERE object = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, object);
    return db_run(s, st, e);
}

int store_idem_expire(struct store *s, int64_t before_ms, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM idempotency WHERE created_ms < ?1", e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_ms);
    return db_run(s, st, e);
}
