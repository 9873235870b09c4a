/*
 * secret_rows.c - rows of secrets; their values come sealed
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/objects.h"

#define COLUMNS "id, environment, name, created_us, used_us, expires_ms, version, keys, sealed"

void secret_row_done(struct secret_row *r)
{
    free(r->keys);
    free(r->sealed);
    memset(r, 0, sizeof *r);
}

static void read_row(sqlite3_stmt *st, struct secret_row *r)
{
    memset(r, 0, sizeof *r);
    db_text(st, 0, r->id, sizeof r->id);
    db_text(st, 1, r->environment, sizeof r->environment);
    db_text(st, 2, r->name, sizeof r->name);
    r->created_us = db_int(st, 3);
    r->used_us = db_int(st, 4);
    r->expires_ms = db_int(st, 5);
    r->version = db_int(st, 6);
    r->keys = db_text_dup(st, 7);
    const void *p = sqlite3_column_blob(st, 8);
    r->sealed_len = p != NULL ? (size_t)sqlite3_column_bytes(st, 8) : 0;
    r->sealed = mem_dup(p != NULL ? p : "", r->sealed_len);
}

int store_secret_insert(struct store *s, const struct secret_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT INTO secrets (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_text(st, 2, r->environment);
    db_bind_text(st, 3, r->name);
    db_bind_int(st, 4, r->created_us);
    db_bind_int(st, 5, r->used_us);
    db_bind_int(st, 6, r->expires_ms);
    db_bind_int(st, 7, r->version);
    db_bind_text(st, 8, r->keys);
    db_bind_blob(st, 9, r->sealed, r->sealed_len);
    return db_run(s, st, e);
}

static int one(struct store *s, sqlite3_stmt *st, struct secret_row *ret, struct err *e)
{
    int r = db_step(s, st, e);

    if (r == 1) {
        read_row(st, ret);
        (void)sqlite3_reset(st);
        return 0;
    }
    return r;
}

int store_secret_get(struct store *s, const char *id, struct secret_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM secrets WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    memset(ret, 0, sizeof *ret);
    if (one(s, st, ret, e) < 0)
        return -1;
    return ret->id[0] != '\0' ? 0 : err_set(e, ERR_NOT_FOUND, "Secret with ID '%.40s' not found", id);
}

int store_secret_by_name(struct store *s, const char *environment, const char *name, struct secret_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM secrets WHERE environment = ?1 AND name = ?2 AND name <> ''", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, environment);
    db_bind_text(st, 2, name);
    memset(ret, 0, sizeof *ret);
    if (one(s, st, ret, e) < 0)
        return -1;
    return ret->id[0] != '\0' ? 0 : err_set(e, ERR_NOT_FOUND, "Secret '%.64s' not found", name);
}

int store_secret_update(struct store *s, const struct secret_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE secrets SET keys = ?2, sealed = ?3, version = version + 1 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_text(st, 2, r->keys);
    db_bind_blob(st, 3, r->sealed, r->sealed_len);
    return db_run(s, st, e);
}

int store_secret_used(struct store *s, const char *id, int64_t used_us, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE secrets SET used_us = ?2 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_int(st, 2, used_us);
    return db_run(s, st, e);
}

int store_secret_remove(struct store *s, const char *id, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM secrets WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    if (db_run(s, st, e) < 0)
        return -1;
    return db_changes(s) != 0 ? 0 : err_set(e, ERR_NOT_FOUND, "Secret with ID '%.40s' not found", id);
}

static int each(struct store *s, sqlite3_stmt *st, store_secret_fn fn, void *ctx, struct err *e)
{
    int r;

    while ((r = db_step(s, st, e)) == 1) {
        auto_secret_row row = {0};
        read_row(st, &row);
        fn(ctx, &row);
    }
    return r;
}

int store_secret_list(struct store *s, const char *environment, int64_t before_us, size_t limit, store_secret_fn fn,
                      void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM secrets WHERE environment = ?1 AND name <> ''"
                                  " AND (?2 = 0 OR created_us < ?2) ORDER BY created_us DESC LIMIT ?3", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, environment);
    db_bind_int(st, 2, before_us);
    db_bind_int(st, 3, (int64_t)limit);
    return each(s, st, fn, ctx, e);
}

int store_secret_each(struct store *s, store_secret_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM secrets ORDER BY id", e);

    return st != NULL ? each(s, st, fn, ctx, e) : -1;
}

int store_secret_expire(struct store *s, int64_t now_ms, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM secrets WHERE expires_ms <> 0 AND expires_ms < ?1", e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, now_ms);
    return db_run(s, st, e);
}
