/*
 * file_rows.c - rows of uploaded files, blobs and sets of files
 */
#include "store/files.h"

#include <string.h>

#include "base/mem.h"
#include "store/db.h"

/* A statement whose first parameter is a text and whose second, if it has one, is a number. */
static int run(struct store *s, const char *sql, const char *text, int64_t number, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, text);
    if (sqlite3_bind_parameter_count(st) > 1)
        db_bind_int(st, 2, number);
    return db_run(s, st, e);
}

/* --- files ------------------------------------------------------------------------------------------ */

int store_file_put(struct store *s, const char *hash, int64_t bytes, int64_t now_us, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "INSERT INTO files (hash, bytes, used_us) VALUES (?1, ?2, ?3)"
                               " ON CONFLICT (hash) DO UPDATE SET bytes = excluded.bytes, used_us = excluded.used_us",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, hash);
    db_bind_int(st, 2, bytes);
    db_bind_int(st, 3, now_us);
    return db_run(s, st, e);
}

int store_file_get(struct store *s, const char *hash, int64_t *ret_bytes, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT bytes FROM files WHERE hash = ?1", e);

    *ret_bytes = -1;
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, hash);
    int r = db_step(s, st, e);
    if (r <= 0)
        return r;
    *ret_bytes = db_int(st, 0);
    (void)sqlite3_reset(st);
    return 0;
}

int store_file_used(struct store *s, const char *hash, int64_t now_us, struct err *e)
{
    return run(s, "UPDATE files SET used_us = ?2 WHERE hash = ?1", hash, now_us, e);
}

int store_file_remove(struct store *s, const char *hash, struct err *e)
{
    return run(s, "DELETE FROM files WHERE hash = ?1", hash, 0, e);
}

int store_file_old(struct store *s, int64_t before_us, size_t limit, store_file_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT hash FROM files WHERE used_us < ?1 ORDER BY used_us LIMIT ?2", e);
    char hash[FILE_HASH_SIZE];
    int r;

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_us);
    db_bind_int(st, 2, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        db_text(st, 0, hash, sizeof hash);
        fn(ctx, hash);
    }
    return r;
}

/* --- blobs ------------------------------------------------------------------------------------------ */

#define BLOB_COLUMNS "id, hash, md5, bytes, part_bytes, is_complete, created_us"

static void read_blob(sqlite3_stmt *st, struct blob_row *r)
{
    memset(r, 0, sizeof *r);
    db_text(st, 0, r->id, sizeof r->id);
    db_text(st, 1, r->hash, sizeof r->hash);
    db_text(st, 2, r->md5, sizeof r->md5);
    r->bytes = db_int(st, 3);
    r->part_bytes = db_int(st, 4);
    r->is_complete = db_int(st, 5) != 0;
    r->created_us = db_int(st, 6);
}

int store_blob_put(struct store *s, const struct blob_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT INTO blobs (" BLOB_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_text(st, 2, r->hash);
    db_bind_text(st, 3, r->md5);
    db_bind_int(st, 4, r->bytes);
    db_bind_int(st, 5, r->part_bytes);
    db_bind_int(st, 6, r->is_complete);
    db_bind_int(st, 7, r->created_us);
    return db_run(s, st, e);
}

int store_blob_get(struct store *s, const char *id, struct blob_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT " BLOB_COLUMNS " FROM blobs WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    int r = db_step(s, st, e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "Blob '%.40s' not found", id);
    if (r < 0)
        return -1;
    read_blob(st, ret);
    (void)sqlite3_reset(st);
    return 0;
}

int store_blob_set_complete(struct store *s, const char *id, struct err *e)
{
    return run(s, "UPDATE blobs SET is_complete = 1 WHERE id = ?1", id, 0, e);
}

int store_blob_count_open(struct store *s, int64_t *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT count(*) FROM blobs WHERE is_complete = 0", e);

    if (st == NULL || db_step(s, st, e) < 0)
        return -1;
    *ret = db_int(st, 0);
    (void)sqlite3_reset(st);
    return 0;
}

int store_blob_remove(struct store *s, const char *id, struct err *e)
{
    return run(s, "DELETE FROM blobs WHERE id = ?1", id, 0, e);     /* parts follow by cascade */
}

int store_blob_old(struct store *s, int64_t complete_us, int64_t open_us, size_t limit,
                   store_blob_fn fn, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT " BLOB_COLUMNS
        " FROM blobs WHERE created_us < CASE is_complete WHEN 1 THEN ?1 ELSE ?2 END LIMIT ?3";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    struct blob_row row;
    int r;

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, complete_us);
    db_bind_int(st, 2, open_us);
    db_bind_int(st, 3, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        read_blob(st, &row);
        fn(ctx, &row);
    }
    return r;
}

int store_part_put(struct store *s, const char *blob, int part, const char *md5, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT OR REPLACE INTO blob_parts (blob, part, md5) VALUES (?1, ?2, ?3)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, blob);
    db_bind_int(st, 2, part);
    db_bind_text(st, 3, md5);
    return db_run(s, st, e);
}

int store_part_each(struct store *s, const char *blob, store_part_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT part, md5 FROM blob_parts WHERE blob = ?1 ORDER BY part", e);
    char md5[33];
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, blob);
    while ((r = db_step(s, st, e)) == 1) {
        db_text(st, 1, md5, sizeof md5);
        fn(ctx, (int)db_int(st, 0), md5);
    }
    return r;
}

/* --- mounts ----------------------------------------------------------------------------------------- */

int store_mount_put(struct store *s, const char *id, const char *environment, const char *name, const char *files, int64_t now_us,
                    struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s,
        "INSERT INTO mounts (id, environment, name, files, created_us, used_us) VALUES (?1, ?2, ?3, ?4, ?5, ?5)"
        " ON CONFLICT (id) DO UPDATE SET used_us = excluded.used_us, created_us = excluded.created_us",
        e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_text(st, 2, environment);
    db_bind_text(st, 3, name);
    db_bind_text(st, 4, files);
    db_bind_int(st, 5, now_us);
    return db_run(s, st, e);
}

int store_mount_get(struct store *s, const char *id, char **ret_files, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT files FROM mounts WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    int r = db_step(s, st, e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "Mount '%.40s' not found", id);
    if (r < 0)
        return -1;
    *ret_files = db_text_dup(st, 0);
    (void)sqlite3_reset(st);
    return 0;
}

int store_mount_by_name(struct store *s, const char *environment, const char *name, char ret_id[ID_SIZE], struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s,
        "SELECT id FROM mounts WHERE environment = ?1 AND name = ?2 ORDER BY created_us DESC LIMIT 1",
        e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, environment);
    db_bind_text(st, 2, name);
    int r = db_step(s, st, e);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "Mount '%.100s' not found", name);
    if (r < 0)
        return -1;
    db_text(st, 0, ret_id, ID_SIZE);
    (void)sqlite3_reset(st);
    return 0;
}

int store_mount_used(struct store *s, const char *id, int64_t now_us, struct err *e)
{
    return run(s, "UPDATE mounts SET used_us = ?2 WHERE id = ?1", id, now_us, e);
}

int store_mount_expire(struct store *s, int64_t before_us, struct err *e)
{
    return run(s, "DELETE FROM mounts WHERE name = ?1 AND used_us < ?2", "", before_us, e);
}

int store_mount_named(struct store *s, store_mount_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT id, files FROM mounts WHERE name <> ''", e);
    char id[ID_SIZE];
    int r;

    if (st == NULL)
        return -1;
    while ((r = db_step(s, st, e)) == 1) {
        auto_free char *files = db_text_dup(st, 1);
        db_text(st, 0, id, sizeof id);
        fn(ctx, id, files);
    }
    return r;
}
