/*
 * environment_rows.c - rows of environments and of apps as users see them
 */
#include <stdio.h>
#include <string.h>

#include "store/db.h"
#include "store/objects.h"

static void read_environment(sqlite3_stmt *st, struct environment_row *r)
{
    memset(r, 0, sizeof *r);
    db_text(st, 0, r->name, sizeof r->name);
    db_text(st, 1, r->id, sizeof r->id);
    r->created_us = db_int(st, 2);
    r->is_default = db_int(st, 3) != 0;
}

int store_environment_insert(struct store *s, const struct environment_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT INTO environments (name, id, created_us, is_default) VALUES (?1, ?2, ?3, ?4)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->name);
    db_bind_text(st, 2, r->id);
    db_bind_int(st, 3, r->created_us);
    db_bind_int(st, 4, r->is_default);
    return db_run(s, st, e);
}

int store_environment_get(struct store *s, const char *name, struct environment_row *ret, struct err *e)
{
    static const char sql[] = "SELECT name, id, created_us, is_default FROM environments"
                              " WHERE CASE WHEN ?1 = '' THEN is_default = 1 ELSE name = ?1 END";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name != NULL ? name : "");
    int r = db_step(s, st, e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "Environment '%.64s' not found", name != NULL ? name : "");
    if (r < 0)
        return -1;
    read_environment(st, ret);
    (void)sqlite3_reset(st);
    return 0;
}

static int run2(struct store *s, sqlite3_stmt *st, const char *a, const char *b, struct err *e)
{
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, a);
    if (b != NULL)
        db_bind_text(st, 2, b);
    return db_run(s, st, e);
}

int store_environment_rename(struct store *s, const char *name, const char *new_name, struct err *e)
{
    if (run2(s, db_stmt(s, "UPDATE environments SET name = ?2 WHERE name = ?1", e), name, new_name, e) < 0)
        return -1;
    if (db_changes(s) == 0)
        return err_set(e, ERR_NOT_FOUND, "Environment '%.64s' not found", name);
    if (run2(s, db_stmt(s, "UPDATE apps SET environment = ?2 WHERE environment = ?1", e), name, new_name, e) < 0
        || run2(s, db_stmt(s, "UPDATE secrets SET environment = ?2 WHERE environment = ?1", e), name, new_name, e) < 0)
        return -1;
    return run2(s, db_stmt(s, "UPDATE objects SET environment = ?2 WHERE environment = ?1", e), name, new_name, e);
}

int store_environment_remove(struct store *s, const char *name, struct err *e)
{
    if (run2(s, db_stmt(s, "DELETE FROM environments WHERE name = ?1", e), name, NULL, e) < 0)
        return -1;
    if (db_changes(s) == 0)
        return err_set(e, ERR_NOT_FOUND, "Environment '%.64s' not found", name);
    if (run2(s, db_stmt(s, "DELETE FROM apps WHERE environment = ?1", e), name, NULL, e) < 0
        || run2(s, db_stmt(s, "DELETE FROM secrets WHERE environment = ?1", e), name, NULL, e) < 0)
        return -1;
    return run2(s, db_stmt(s, "DELETE FROM objects WHERE environment = ?1", e), name, NULL, e);
}

int store_environment_list(struct store *s, store_environment_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT name, id, created_us, is_default FROM environments ORDER BY is_default DESC, name", e);
    int r;

    if (st == NULL)
        return -1;
    while ((r = db_step(s, st, e)) == 1) {
        struct environment_row row;
        read_environment(st, &row);
        fn(ctx, &row);
    }
    return r;
}

/* --- apps ---------------------------------------------------------------------------------------------------------- */

#define APP_COLUMNS                                                                                         \
    "id, name, environment, CASE WHEN text = '' THEN name ELSE text END, is_ephemeral, created_us, stopped_us, seen_ms, tags," \
    " (SELECT count(*) FROM sandboxes WHERE sandboxes.app = apps.name AND state < 4)"

static void read_app(sqlite3_stmt *st, struct app_info *a)
{
    memset(a, 0, sizeof *a);
    db_text(st, 0, a->id, sizeof a->id);
    db_text(st, 1, a->name, sizeof a->name);
    db_text(st, 2, a->environment, sizeof a->environment);
    db_text(st, 3, a->text, sizeof a->text);
    a->is_ephemeral = db_int(st, 4) != 0;
    a->created_us = db_int(st, 5);
    a->stopped_us = db_int(st, 6);
    a->seen_ms = db_int(st, 7);
    db_text(st, 8, a->tags, sizeof a->tags);
    a->live = db_int(st, 9);
}

int store_app_insert(struct store *s, const struct app_info *a, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT INTO apps (id, name, environment, text, is_ephemeral, created_us, seen_ms, tags)"
                                  " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, a->id);
    db_bind_text(st, 2, a->name);
    db_bind_text(st, 3, a->environment);
    db_bind_text(st, 4, a->text);
    db_bind_int(st, 5, a->is_ephemeral);
    db_bind_int(st, 6, a->created_us);
    db_bind_int(st, 7, a->seen_ms);
    db_bind_text(st, 8, a->tags[0] != '\0' ? a->tags : "{}");
    return db_run(s, st, e);
}

static int one_app(struct store *s, sqlite3_stmt *st, const char *what, struct app_info *ret, struct err *e)
{
    int r = db_step(s, st, e);

    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "App '%.80s' not found", what);
    if (r < 0)
        return -1;
    read_app(st, ret);
    (void)sqlite3_reset(st);
    return 0;
}

int store_app_get(struct store *s, const char *id, struct app_info *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " APP_COLUMNS " FROM apps WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    return one_app(s, st, id, ret, e);
}

int store_app_by_name(struct store *s, const char *name, struct app_info *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " APP_COLUMNS " FROM apps WHERE name = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    return one_app(s, st, name, ret, e);
}

int store_app_by_text(struct store *s, const char *environment, const char *text, struct app_info *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " APP_COLUMNS " FROM apps WHERE environment = ?1 AND is_ephemeral = 0"
                                  " AND CASE WHEN text = '' THEN name ELSE text END = ?2 ORDER BY created_us DESC LIMIT 1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, environment);
    db_bind_text(st, 2, text);
    return one_app(s, st, text, ret, e);
}

static int set_app(struct store *s, sqlite3_stmt *st, const char *id, struct err *e)
{
    db_bind_text(st, 1, id);
    if (db_run(s, st, e) < 0)
        return -1;
    return db_changes(s) != 0 ? 0 : err_set(e, ERR_NOT_FOUND, "App '%.80s' not found", id);
}

int store_app_set_stopped(struct store *s, const char *id, int64_t stopped_us, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE apps SET stopped_us = ?2 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 2, stopped_us);
    return set_app(s, st, id, e);
}

int store_app_set_seen(struct store *s, const char *id, int64_t seen_ms, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE apps SET seen_ms = ?2 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 2, seen_ms);
    return set_app(s, st, id, e);
}

int store_app_set_tags(struct store *s, const char *id, const char *tags, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE apps SET tags = ?2 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 2, tags);
    return set_app(s, st, id, e);
}

static int each_app(struct store *s, sqlite3_stmt *st, store_app_info_fn fn, void *ctx, struct err *e)
{
    int r;

    while ((r = db_step(s, st, e)) == 1) {
        struct app_info a;
        read_app(st, &a);
        fn(ctx, &a);
    }
    return r;
}

int store_app_each(struct store *s, const char *environment, size_t limit, store_app_info_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " APP_COLUMNS " FROM apps WHERE environment = ?1 ORDER BY created_us DESC LIMIT ?2", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, environment);
    db_bind_int(st, 2, (int64_t)limit);
    return each_app(s, st, fn, ctx, e);
}

int store_app_silent(struct store *s, int64_t before_ms, store_app_info_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " APP_COLUMNS " FROM apps WHERE is_ephemeral = 1 AND stopped_us = 0"
                                  " AND seen_ms < ?1", e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_ms);
    return each_app(s, st, fn, ctx, e);
}
