/*
 * operation_rows.c - rows of operations, their logs, and results of build steps
 */
#include <string.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/store.h"

#define COLUMNS "id, kind, state, target, request, created_us, ended_us, image, result, error_code, error"

void operation_row_done(struct operation_row *r)
{
    free(r->request);
    free(r->result);
    free(r->error);
    memset(r, 0, sizeof *r);
}

static void read_row(sqlite3_stmt *st, struct operation_row *r)
{
    memset(r, 0, sizeof *r);
    db_text(st, 0, r->id, sizeof r->id);
    db_text(st, 1, r->kind, sizeof r->kind);
    r->state = (uint8_t)db_int(st, 2);
    db_text(st, 3, r->target, sizeof r->target);
    r->request = db_text_dup(st, 4);
    r->created_us = db_int(st, 5);
    r->ended_us = db_int(st, 6);
    db_text(st, 7, r->image, sizeof r->image);
    r->result = db_text_dup(st, 8);
    db_text(st, 9, r->error_code, sizeof r->error_code);
    r->error = db_text_dup(st, 10);
}

static const char *or_empty(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

int store_operation_insert(struct store *s, const struct operation_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "INSERT INTO operations (" COLUMNS
                               ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_text(st, 2, r->kind);
    db_bind_int(st, 3, r->state);
    db_bind_text(st, 4, r->target);
    db_bind_text(st, 5, or_empty(r->request, "{}"));
    db_bind_int(st, 6, r->created_us);
    db_bind_int(st, 7, r->ended_us);
    db_bind_text(st, 8, r->image);
    db_bind_text(st, 9, or_empty(r->result, "{}"));
    db_bind_text(st, 10, r->error_code);
    db_bind_text(st, 11, or_empty(r->error, ""));
    return db_run(s, st, e);
}

int store_operation_end(struct store *s, const struct operation_row *r, struct err *e)
{
    static const char sql[] =
        "UPDATE operations SET state = ?2, ended_us = ?3, image = ?4, result = ?5, error_code = ?6, error = ?7"
        " WHERE id = ?1";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_int(st, 2, r->state);
    db_bind_int(st, 3, r->ended_us);
    db_bind_text(st, 4, r->image);
    db_bind_text(st, 5, or_empty(r->result, "{}"));
    db_bind_text(st, 6, r->error_code);
    db_bind_text(st, 7, or_empty(r->error, ""));
    return db_run(s, st, e);
}

int store_operation_get(struct store *s, const char *id, struct operation_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM operations WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    int r = db_step(s, st, e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no operation '%.40s'", id);
    if (r < 0)
        return -1;
    read_row(st, ret);
    (void)sqlite3_reset(st);
    return 0;
}

int store_operation_list(struct store *s, int64_t cursor_us, const char *cursor_id, size_t limit,
                         store_operation_fn fn, void *ctx, struct err *e)
{
    static const char sql[] = "SELECT " COLUMNS " FROM operations WHERE ?1 = 0 OR (created_us, id) < (?1, ?2)"
                              " ORDER BY created_us DESC, id DESC LIMIT ?3";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, cursor_us);
    db_bind_text(st, 2, cursor_id);
    db_bind_int(st, 3, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        auto_operation_row row = {0};
        read_row(st, &row);
        fn(ctx, &row);
    }
    return r;
}

int store_operation_fail_running(struct store *s, int64_t now_us, const char *code, const char *error, struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s,
        "UPDATE operations SET state = 2, ended_us = ?1, error_code = ?2, error = ?3 WHERE state = 0",
        e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, now_us);
    db_bind_text(st, 2, code);
    db_bind_text(st, 3, error);
    return db_run(s, st, e);
}

int store_operation_expire(struct store *s, int64_t before_us, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM operations WHERE state <> 0 AND ended_us < ?1", e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_us);
    return db_run(s, st, e);
}

int store_operation_line(struct store *s, const char *id, int64_t seq, int64_t at_ms, const char *text, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT INTO operation_lines (operation, seq, at_ms, text) VALUES (?1, ?2, ?3, ?4)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_int(st, 2, seq);
    db_bind_int(st, 3, at_ms);
    db_bind_text(st, 4, text);
    return db_run(s, st, e);
}

int store_operation_lines(struct store *s, const char *id, int64_t after, size_t limit,
                          store_line_fn fn, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT seq, at_ms, text FROM operation_lines WHERE operation = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_int(st, 2, after);
    db_bind_int(st, 3, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        auto_free char *text = db_text_dup(st, 2);
        fn(ctx, db_int(st, 0), db_int(st, 1), text);
    }
    return r;
}

/* --- build steps ------------------------------------------------------------------------------- */

int store_step_get(struct store *s, const char *key, int64_t now_us, bool *ret_found, char ret_layer[72], struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE build_steps SET used_us = ?2 WHERE key = ?1 RETURNING layer", e);

    *ret_found = false;
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, key);
    db_bind_int(st, 2, now_us);
    int r = db_step(s, st, e);
    if (r < 0)
        return -1;
    if (r == 1) {
        *ret_found = true;
        db_text(st, 0, ret_layer, 72);
    }
    (void)sqlite3_reset(st);
    return 0;
}

int store_step_put(struct store *s, const char *key, const char *layer, int64_t now_us, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "INSERT INTO build_steps (key, layer, used_us) VALUES (?1, ?2, ?3)"
                               " ON CONFLICT (key) DO UPDATE SET layer = excluded.layer, used_us = excluded.used_us",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, key);
    db_bind_text(st, 2, layer);
    db_bind_int(st, 3, now_us);
    if (db_run(s, st, e) < 0)
        return -1;
    st = db_stmt(s, "DELETE FROM garbage WHERE layer = ?1", e);
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, layer);
    return db_run(s, st, e);
}

int store_step_list(struct store *s, const char *prefix, store_step_fn fn, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT substr(key, length(?1) + 1), ifnull(layers.bytes, 0), used_us FROM build_steps"
        " LEFT JOIN layers ON layers.layer = build_steps.layer WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, prefix);
    while ((r = db_step(s, st, e)) == 1) {
        auto_free char *rest = db_text_dup(st, 0);
        fn(ctx, rest, db_int(st, 1), db_int(st, 2));
    }
    return r;
}

int store_step_remove(struct store *s, const char *key, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM build_steps WHERE key = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, key);
    return db_run(s, st, e);
}

int store_step_take(struct store *s, const char *prefix, bool *ret_found, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "DELETE FROM build_steps WHERE key ="
                               " (SELECT key FROM build_steps WHERE substr(key, 1, length(?1)) = ?1 ORDER BY used_us LIMIT 1)",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, prefix);
    if (db_run(s, st, e) < 0)
        return -1;
    *ret_found = db_changes(s) > 0;
    return 0;
}

int store_step_expire(struct store *s, const char *prefix, int64_t before_us, int64_t *ret_forgotten, struct err *e)
{
    static const char garbage[] =
        "INSERT OR IGNORE INTO garbage (layer)"
        " SELECT layer FROM build_steps AS old WHERE used_us < ?1 AND substr(key, 1, length(?2)) = ?2 AND layer <> ''"
        " AND NOT EXISTS (SELECT 1 FROM image_layers WHERE image_layers.layer = old.layer)"
        " AND NOT EXISTS (SELECT 1 FROM build_steps AS kept WHERE kept.layer = old.layer"
        " AND (kept.used_us >= ?1 OR substr(kept.key, 1, length(?2)) <> ?2))";
    sqlite3_stmt *st = db_stmt(s, garbage, e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_us);
    db_bind_text(st, 2, prefix);
    if (db_run(s, st, e) < 0)
        return -1;
    st = db_stmt(s, "DELETE FROM build_steps WHERE used_us < ?1 AND substr(key, 1, length(?2)) = ?2", e);
    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_us);
    db_bind_text(st, 2, prefix);
    if (db_run(s, st, e) < 0)
        return -1;
    *ret_forgotten = db_changes(s);
    return 0;
}
