/*
 * object_rows.c - rows of queues and dicts and of what is in them
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/objects.h"

#define COLUMNS "id, kind, environment, name, created_us, seen_ms"

static const char *kind_name(enum object_kind kind)
{
    return kind == OBJECT_QUEUE ? "Queue" : "Dict";
}

static void read_row(sqlite3_stmt *st, struct object_row *r)
{
    memset(r, 0, sizeof *r);
    db_text(st, 0, r->id, sizeof r->id);
    r->kind = (enum object_kind)db_int(st, 1);
    db_text(st, 2, r->environment, sizeof r->environment);
    db_text(st, 3, r->name, sizeof r->name);
    r->created_us = db_int(st, 4);
    r->seen_ms = db_int(st, 5);
}

int store_object_insert(struct store *s, const struct object_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT INTO objects (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_int(st, 2, r->kind);
    db_bind_text(st, 3, r->environment);
    db_bind_text(st, 4, r->name);
    db_bind_int(st, 5, r->created_us);
    db_bind_int(st, 6, r->seen_ms);
    return db_run(s, st, e);
}

static int one(struct store *s, sqlite3_stmt *st, enum object_kind kind, const char *what, struct object_row *ret,
               struct err *e)
{
    int r = db_step(s, st, e);

    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "%s '%.64s' not found", kind_name(kind), what);
    if (r < 0)
        return -1;
    read_row(st, ret);
    (void)sqlite3_reset(st);
    return 0;
}

int store_object_get(struct store *s, enum object_kind kind, const char *id, struct object_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM objects WHERE id = ?1 AND kind = ?2", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_int(st, 2, kind);
    return one(s, st, kind, id, ret, e);
}

int store_object_by_name(struct store *s, enum object_kind kind, const char *environment, const char *name,
                         struct object_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM objects WHERE kind = ?1 AND environment = ?2 AND name = ?3"
                                  " AND name <> ''", e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, kind);
    db_bind_text(st, 2, environment);
    db_bind_text(st, 3, name);
    return one(s, st, kind, name, ret, e);
}

int store_object_seen(struct store *s, const char *id, int64_t seen_ms, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE objects SET seen_ms = ?2 WHERE id = ?1 AND seen_ms <> 0", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_int(st, 2, seen_ms);
    return db_run(s, st, e);
}

int store_object_remove(struct store *s, const char *id, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM objects WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    return db_run(s, st, e);
}

int store_object_list(struct store *s, enum object_kind kind, const char *environment, int64_t before_us, size_t limit,
                      store_object_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " COLUMNS " FROM objects WHERE kind = ?1 AND environment = ?2 AND name <> ''"
                                  " AND (?3 = 0 OR created_us < ?3) ORDER BY created_us DESC LIMIT ?4", e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, kind);
    db_bind_text(st, 2, environment);
    db_bind_int(st, 3, before_us);
    db_bind_int(st, 4, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        struct object_row row;
        read_row(st, &row);
        fn(ctx, &row);
    }
    return r;
}

int store_object_expire(struct store *s, int64_t seen_before_ms, int64_t now_ms, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM objects WHERE seen_ms <> 0 AND seen_ms < ?1", e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, seen_before_ms);
    if (db_run(s, st, e) < 0)
        return -1;
    st = db_stmt(s, "DELETE FROM queue_items WHERE expires_ms < ?1", e);
    if (st == NULL)
        return -1;
    db_bind_int(st, 1, now_ms);
    return db_run(s, st, e);
}

/* --- queues -------------------------------------------------------------------------------------------------------- */

/* An empty blob, and not NULL, when there are no bytes. */
static void bind(sqlite3_stmt *st, int at, struct blob b)
{
    db_bind_blob(st, at, b.n > 0 ? b.p : "", b.n);
}

static struct blob column(sqlite3_stmt *st, int at)
{
    const void *p = sqlite3_column_blob(st, at);

    return (struct blob){p != NULL ? p : "", (size_t)sqlite3_column_bytes(st, at)};
}

int store_queue_put(struct store *s, const char *queue, struct blob part, int64_t expires_ms, struct blob value,
                    struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT INTO queue_items (queue, part, expires_ms, value) VALUES (?1, ?2, ?3, ?4)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, queue);
    bind(st, 2, part);
    db_bind_int(st, 3, expires_ms);
    bind(st, 4, value);
    return db_run(s, st, e);
}

int store_queue_touch(struct store *s, const char *queue, struct blob part, int64_t expires_ms, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE queue_items SET expires_ms = ?3 WHERE queue = ?1 AND part = ?2", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, queue);
    bind(st, 2, part);
    db_bind_int(st, 3, expires_ms);
    return db_run(s, st, e);
}

int store_queue_len(struct store *s, const char *queue, const struct blob *part, int64_t now_ms, int64_t *ret_items,
                    int64_t *ret_parts, struct err *e)
{
    static const char all[] = "SELECT count(*), count(DISTINCT part) FROM queue_items WHERE queue = ?1 AND expires_ms >= ?2";
    static const char one_part[] = "SELECT count(*), 1 FROM queue_items WHERE queue = ?1 AND expires_ms >= ?2 AND part = ?3";
    sqlite3_stmt *st = db_stmt(s, part != NULL ? one_part : all, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, queue);
    db_bind_int(st, 2, now_ms);
    if (part != NULL)
        bind(st, 3, *part);
    if (db_step(s, st, e) < 0)
        return -1;
    *ret_items = db_int(st, 0);
    if (ret_parts != NULL)
        *ret_parts = db_int(st, 1);
    (void)sqlite3_reset(st);
    return 0;
}

int store_queue_clear(struct store *s, const char *queue, const struct blob *part, struct err *e)
{
    static const char all[] = "DELETE FROM queue_items WHERE queue = ?1";
    static const char one_part[] = "DELETE FROM queue_items WHERE queue = ?1 AND part = ?2";
    sqlite3_stmt *st = db_stmt(s, part != NULL ? one_part : all, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, queue);
    if (part != NULL)
        bind(st, 2, *part);
    return db_run(s, st, e);
}

int store_queue_peek(struct store *s, const char *queue, struct blob part, int64_t now_ms, int64_t after, size_t limit,
                     store_item_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT seq, value FROM queue_items WHERE queue = ?1 AND part = ?2 AND expires_ms >= ?3"
                                  " AND seq > ?4 ORDER BY seq LIMIT ?5", e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, queue);
    bind(st, 2, part);
    db_bind_int(st, 3, now_ms);
    db_bind_int(st, 4, after);
    db_bind_int(st, 5, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1)
        fn(ctx, db_int(st, 0), column(st, 1));
    return r;
}

int store_queue_drop(struct store *s, const char *queue, struct blob part, int64_t seq, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM queue_items WHERE queue = ?1 AND part = ?2 AND seq <= ?3", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, queue);
    bind(st, 2, part);
    db_bind_int(st, 3, seq);
    return db_run(s, st, e);
}

/* --- dicts --------------------------------------------------------------------------------------------------------- */

int store_dict_put(struct store *s, const char *dict, struct blob key, struct blob value, bool if_absent, bool *ret_new,
                   struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT OR IGNORE INTO dict_items (dict, key, value) VALUES (?1, ?2, ?3)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, dict);
    bind(st, 2, key);
    bind(st, 3, value);
    if (db_run(s, st, e) < 0)
        return -1;
    *ret_new = db_changes(s) != 0;
    if (*ret_new || if_absent)
        return 0;
    st = db_stmt(s, "UPDATE dict_items SET value = ?3 WHERE dict = ?1 AND key = ?2", e);
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, dict);
    bind(st, 2, key);
    bind(st, 3, value);
    return db_run(s, st, e);
}

int store_dict_get(struct store *s, const char *dict, struct blob key, void **ret_value, size_t *ret_n, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT value FROM dict_items WHERE dict = ?1 AND key = ?2", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, dict);
    bind(st, 2, key);
    *ret_value = NULL;
    int r = db_step(s, st, e);
    if (r == 1) {
        struct blob b = column(st, 0);
        *ret_value = mem_dup(b.p, b.n);
        *ret_n = b.n;
        (void)sqlite3_reset(st);
        return 0;
    }
    return r;
}

int store_dict_remove(struct store *s, const char *dict, const struct blob *key, struct err *e)
{
    static const char all[] = "DELETE FROM dict_items WHERE dict = ?1";
    static const char one_key[] = "DELETE FROM dict_items WHERE dict = ?1 AND key = ?2";
    sqlite3_stmt *st = db_stmt(s, key != NULL ? one_key : all, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, dict);
    if (key != NULL)
        bind(st, 2, *key);
    return db_run(s, st, e);
}

int store_dict_len(struct store *s, const char *dict, int64_t *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT count(*) FROM dict_items WHERE dict = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, dict);
    if (db_step(s, st, e) < 0)
        return -1;
    *ret = db_int(st, 0);
    (void)sqlite3_reset(st);
    return 0;
}

int store_dict_each(struct store *s, const char *dict, store_entry_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT key, value FROM dict_items WHERE dict = ?1 ORDER BY key", e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, dict);
    while ((r = db_step(s, st, e)) == 1)
        fn(ctx, column(st, 0), column(st, 1));
    return r;
}
