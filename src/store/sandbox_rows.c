/*
 * sandbox_rows.c - rows of sandboxes and apps
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "store/db.h"
#include "store/store.h"

/* The order that bind_row and read_row keep. */
#define COLUMNS \
    "id, app, name, image, state, created_us, started_ms, ended_ms, expires_ms, idle_ms, grace_ms, retain_ms, spec, tags, " \
    "tags_revision, idem_token, reason, code, signal, actor, message, cpu_us, memory_peak, oom_kills, " \
    "last_activity_ms, last_activity"

void sandbox_row_done(struct sandbox_row *r)
{
    free(r->spec);
    free(r->tags);
    memset(r, 0, sizeof *r);
}

static void read_row(sqlite3_stmt *st, struct sandbox_row *r)
{
    memset(r, 0, sizeof *r);
    db_text(st, 0, r->id, sizeof r->id);
    db_text(st, 1, r->app, sizeof r->app);
    db_text(st, 2, r->name, sizeof r->name);
    db_text(st, 3, r->image, sizeof r->image);
    r->state = (uint8_t)db_int(st, 4);
    r->created_us = db_int(st, 5);
    r->started_ms = db_int(st, 6);
    r->ended_ms = db_int(st, 7);
    r->expires_ms = db_int(st, 8);
    r->idle_ms = (uint64_t)db_int(st, 9);
    r->grace_ms = (uint32_t)db_int(st, 10);
    r->retain_ms = (uint64_t)db_int(st, 11);
    r->spec = db_text_dup(st, 12);
    r->tags = db_text_dup(st, 13);
    r->tags_revision = db_int(st, 14);
    db_text(st, 15, r->idem_token, sizeof r->idem_token);
    db_text(st, 16, r->reason, sizeof r->reason);
    r->code = (int32_t)db_int(st, 17);
    r->signal = (int32_t)db_int(st, 18);
    db_text(st, 19, r->actor, sizeof r->actor);
    db_text(st, 20, r->message, sizeof r->message);
    r->cpu_us = (uint64_t)db_int(st, 21);
    r->memory_peak = (uint64_t)db_int(st, 22);
    r->oom_kills = (uint64_t)db_int(st, 23);
    r->last_activity_ms = db_int(st, 24);
    db_text(st, 25, r->last_activity, sizeof r->last_activity);
}

int store_sandbox_insert(struct store *s, const struct sandbox_row *r, struct err *e)
{
    static const char sql[] =
        "INSERT INTO sandboxes (" COLUMNS ") VALUES "
        "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,?25,?26)";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_text(st, 2, r->app);
    db_bind_text(st, 3, r->name);
    db_bind_text(st, 4, r->image);
    db_bind_int(st, 5, r->state);
    db_bind_int(st, 6, r->created_us);
    db_bind_int(st, 7, r->started_ms);
    db_bind_int(st, 8, r->ended_ms);
    db_bind_int(st, 9, r->expires_ms);
    db_bind_int(st, 10, (int64_t)r->idle_ms);
    db_bind_int(st, 11, r->grace_ms);
    db_bind_int(st, 12, (int64_t)r->retain_ms);
    db_bind_text(st, 13, r->spec);
    db_bind_text(st, 14, r->tags);
    db_bind_int(st, 15, r->tags_revision);
    db_bind_text(st, 16, r->idem_token);
    db_bind_text(st, 17, r->reason);
    db_bind_int(st, 18, r->code);
    db_bind_int(st, 19, r->signal);
    db_bind_text(st, 20, r->actor);
    db_bind_text(st, 21, r->message);
    db_bind_int(st, 22, (int64_t)r->cpu_us);
    db_bind_int(st, 23, (int64_t)r->memory_peak);
    db_bind_int(st, 24, (int64_t)r->oom_kills);
    db_bind_int(st, 25, r->last_activity_ms);
    db_bind_text(st, 26, r->last_activity);
    return db_run(s, st, e);
}

static int read_one(struct store *s, sqlite3_stmt *st, struct sandbox_row *ret, struct err *e,
                    const char *what)
{
    int r = db_step(s, st, e);

    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no sandbox '%.80s'", what);
    if (r < 0)
        return -1;
    read_row(st, ret);
    (void)sqlite3_reset(st);
    return 0;
}

int store_sandbox_get(struct store *s, const char *id, struct sandbox_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM sandboxes WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    return read_one(s, st, ret, e, id);
}

int store_sandbox_by_name(struct store *s, const char *app, const char *name, bool any,
                          struct sandbox_row *ret, struct err *e)
{
    static const char live[] =
        "SELECT " COLUMNS
        " FROM sandboxes WHERE app = ?1 AND name = ?2 AND name <> '' AND state < 4";
    static const char latest[] =
        "SELECT " COLUMNS " FROM sandboxes WHERE app = ?1 AND name = ?2 AND name <> ''"
        " AND state < 5 ORDER BY created_us DESC, id DESC LIMIT 1";
    sqlite3_stmt *st = db_stmt(s, any ? latest : live, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, app);
    db_bind_text(st, 2, name);
    return read_one(s, st, ret, e, name);
}

/* For statements that must touch one row. */
static int run_on(struct store *s, sqlite3_stmt *st, const char *id, struct err *e)
{
    if (db_run(s, st, e) < 0)
        return -1;
    if (db_changes(s) == 0)
        return err_set(e, ERR_NOT_FOUND, "no sandbox '%.40s'", id);
    return 0;
}

int store_sandbox_set_state(struct store *s, const char *id, enum store_state state,
                            int64_t started_ms, struct err *e)
{
    sqlite3_stmt *st =
        db_stmt(s, "UPDATE sandboxes SET state = ?2, started_ms = ?3 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_int(st, 2, (int64_t)state);
    db_bind_int(st, 3, started_ms);
    return run_on(s, st, id, e);
}

int store_sandbox_end(struct store *s, const struct sandbox_row *r, struct err *e)
{
    static const char sql[] =
        "UPDATE sandboxes SET state = 4, ended_ms = ?2, reason = ?3, code = ?4, signal = ?5, actor = ?6,"
        " message = ?7, cpu_us = ?8, memory_peak = ?9, oom_kills = ?10, started_ms = ?11,"
        " last_activity_ms = ?12, last_activity = ?13"
        " WHERE id = ?1";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_int(st, 2, r->ended_ms);
    db_bind_text(st, 3, r->reason);
    db_bind_int(st, 4, r->code);
    db_bind_int(st, 5, r->signal);
    db_bind_text(st, 6, r->actor);
    db_bind_text(st, 7, r->message);
    db_bind_int(st, 8, (int64_t)r->cpu_us);
    db_bind_int(st, 9, (int64_t)r->memory_peak);
    db_bind_int(st, 10, (int64_t)r->oom_kills);
    db_bind_int(st, 11, r->started_ms);
    db_bind_int(st, 12, r->last_activity_ms);
    db_bind_text(st, 13, r->last_activity);
    return run_on(s, st, r->id, e);
}

int store_sandbox_set_times(struct store *s, const char *id, int64_t expires_ms, uint64_t idle_ms,
                            struct err *e)
{
    sqlite3_stmt *st =
        db_stmt(s, "UPDATE sandboxes SET expires_ms = ?2, idle_ms = ?3 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_int(st, 2, expires_ms);
    db_bind_int(st, 3, (int64_t)idle_ms);
    return run_on(s, st, id, e);
}

int store_sandbox_set_spec(struct store *s, const char *id, const char *spec, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE sandboxes SET spec = ?2 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_text(st, 2, spec);
    return run_on(s, st, id, e);
}

int store_sandbox_set_name(struct store *s, const char *id, const char *name, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE sandboxes SET name = ?2 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_text(st, 2, name);
    return run_on(s, st, id, e);
}

int store_sandbox_set_tags(struct store *s, const char *id, const char *tags, int64_t expected,
                           int64_t *ret_revision, struct err *e)
{
    static const char sql[] =
        "UPDATE sandboxes SET tags = ?2, tags_revision = tags_revision + 1"
        " WHERE id = ?1 AND (?3 < 0 OR tags_revision = ?3) RETURNING tags_revision";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_text(st, 2, tags);
    db_bind_int(st, 3, expected);
    int r = db_step(s, st, e);
    if (r < 0)
        return -1;
    if (r == 0)
        return err_set(e, ERR_PRECONDITION,
                       "the tags of %.40s are not at revision %" PRId64 " any more", id, expected);
    *ret_revision = db_int(st, 0);
    return db_run(s, st, e);
}

int store_sandbox_remove(struct store *s, const char *id, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM sandboxes WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    return db_run(s, st, e);
}

static int each(struct store *s, sqlite3_stmt *st, store_sandbox_fn fn, void *ctx, struct err *e)
{
    int r;

    while ((r = db_step(s, st, e)) == 1) {
        auto_sandbox_row row = {0};
        read_row(st, &row);
        fn(ctx, &row);
    }
    return r;
}

static void add_filters(struct buf *sql, const struct sandbox_filter *f)
{
    if (f->app != NULL)
        buf_adds(sql, " AND app = :app");
    if (f->name != NULL)
        buf_adds(sql, " AND name = :name AND name <> ''");
    if (f->image != NULL)
        buf_adds(sql, " AND image = :image");
    if (f->created_after_us != 0)
        buf_adds(sql, " AND created_us > :after");
    if (f->created_before_us != 0)
        buf_adds(sql, " AND created_us < :before");
    for (size_t i = 0; i < f->ntags; i++)
        buf_addf(
            sql,
            " AND EXISTS (SELECT 1 FROM json_each(tags) AS t WHERE t.key = :k%zu AND t.value = :v%zu)",
            i, i);
}

static void bind_named(sqlite3_stmt *st, const char *name, const char *text)
{
    int at = sqlite3_bind_parameter_index(st, name);

    if (at > 0)
        db_bind_text(st, at, text);
}

static void bind_named_int(sqlite3_stmt *st, const char *name, int64_t v)
{
    int at = sqlite3_bind_parameter_index(st, name);

    if (at > 0)
        db_bind_int(st, at, v);
}

static sqlite3_stmt *prepare(struct store *s, struct buf *sql, const struct sandbox_filter *f, struct err *e)
{
    sqlite3_stmt *st;
    char name[32];

    if (sql->failed) {
        (void)err_set(e, ERR_TOO_LARGE, "too many filters in one list");
        return NULL;
    }
    if (sqlite3_prepare_v2(db_handle(s), buf_str(sql), -1, &st, NULL) != SQLITE_OK) {
        (void)db_fail(s, e);
        return NULL;
    }
    bind_named_int(st, ":states", f->states);
    bind_named(st, ":app", f->app);
    bind_named(st, ":name", f->name);
    bind_named(st, ":image", f->image);
    bind_named_int(st, ":after", f->created_after_us);
    bind_named_int(st, ":before", f->created_before_us);
    bind_named_int(st, ":cursor_us", f->cursor_us);
    bind_named(st, ":cursor_id", f->cursor_id);
    bind_named_int(st, ":limit", (int64_t)f->limit);
    for (size_t i = 0; i < f->ntags; i++) {
        (void)snprintf(name, sizeof name, ":k%zu", i);
        bind_named(st, name, f->tags[i].key);
        (void)snprintf(name, sizeof name, ":v%zu", i);
        bind_named(st, name, f->tags[i].value);
    }
    return st;
}

int store_sandbox_list(struct store *s, const struct sandbox_filter *f, store_sandbox_fn fn,
                       void *ctx, struct err *e)
{
    const char *after = f->oldest_first ? ">" : "<", *order = f->oldest_first ? "ASC" : "DESC";
    auto_buf sql = {0};

    buf_init(&sql, 64 * 1024);
    buf_adds(&sql, "SELECT " COLUMNS " FROM sandboxes WHERE (1 << state) & :states");
    add_filters(&sql, f);
    if (f->cursor_us != 0)
        buf_addf(&sql, " AND (created_us, id) %s (:cursor_us, :cursor_id)", after);
    buf_addf(&sql, " ORDER BY created_us %s, id %s LIMIT :limit", order, order);
    sqlite3_stmt *st = prepare(s, &sql, f, e);
    if (st == NULL)
        return -1;
    int r = each(s, st, fn, ctx, e);
    (void)sqlite3_finalize(st);
    return r;
}

int store_sandbox_count(struct store *s, const struct sandbox_filter *f, int64_t *ret, struct err *e)
{
    auto_buf sql = {0};

    buf_init(&sql, 64 * 1024);
    buf_adds(&sql, "SELECT count(*) FROM sandboxes WHERE (1 << state) & :states");
    add_filters(&sql, f);
    sqlite3_stmt *st = prepare(s, &sql, f, e);
    if (st == NULL)
        return -1;
    int r = db_step(s, st, e);
    if (r == 1)
        *ret = db_int(st, 0);
    (void)sqlite3_finalize(st);
    return r == 1 ? 0 : -1;
}

int store_sandbox_unfinished(struct store *s, store_sandbox_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM sandboxes WHERE state <> 4", e);

    return st != NULL ? each(s, st, fn, ctx, e) : -1;
}

int store_sandbox_expired(struct store *s, int64_t now_ms, size_t limit, store_sandbox_fn fn,
                          void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s,
        "SELECT " COLUMNS " FROM sandboxes WHERE state = 4 AND ended_ms + retain_ms <= ?1 LIMIT ?2",
        e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, now_ms);
    db_bind_int(st, 2, (int64_t)limit);
    return each(s, st, fn, ctx, e);
}

int store_app_ensure(struct store *s, const char *name, int64_t now_us, struct err *e)
{
    char id[ID_SIZE];
    sqlite3_stmt *st = db_stmt(s, "SELECT 1 FROM apps WHERE name = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    int r = db_step(s, st, e);
    if (r != 0) {
        (void)sqlite3_reset(st);
        return r < 0 ? -1 : 0;
    }
    st = db_stmt(s, "INSERT INTO apps (name, id, created_us) VALUES (?1, ?2, ?3)", e);
    if (st == NULL)
        return -1;
    id_make(id, "ap-");
    db_bind_text(st, 1, name);
    db_bind_text(st, 2, id);
    db_bind_int(st, 3, now_us);
    return db_run(s, st, e);
}

int store_app_list(struct store *s, int64_t cursor_us, const char *cursor_id, size_t limit,
                   store_app_fn fn, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT id, name, created_us,"
        " (SELECT count(*) FROM sandboxes WHERE sandboxes.app = apps.name AND state < 4)"
        " FROM apps WHERE ?1 = 0 OR (created_us, id) < (?1, ?2)"
        " ORDER BY created_us DESC, id DESC LIMIT ?3";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, cursor_us);
    db_bind_text(st, 2, cursor_id);
    db_bind_int(st, 3, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        struct app_row row = {.created_us = db_int(st, 2), .live = db_int(st, 3)};
        db_text(st, 0, row.id, sizeof row.id);
        db_text(st, 1, row.name, sizeof row.name);
        fn(ctx, &row);
    }
    return r;
}
