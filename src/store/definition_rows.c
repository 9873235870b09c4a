/*
 * definition_rows.c - rows of image definitions and of sets of files
 */
#include <string.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/store.h"

int store_definition_put(struct store *s, const struct definition_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "INSERT INTO image_definitions (image, hash, operation, created_us) VALUES (?1, ?2, ?3, ?4)"
                               " ON CONFLICT (image) DO UPDATE SET operation = excluded.operation",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->image);
    db_bind_text(st, 2, r->hash);
    db_bind_text(st, 3, r->operation);
    db_bind_int(st, 4, r->created_us);
    return db_run(s, st, e);
}

int store_definition_get(struct store *s, const char *hash, const char *image, struct definition_row *ret, struct err *e)
{
    static const char by_hash[] = "SELECT image, hash, operation, created_us FROM image_definitions WHERE hash = ?1"
                                  " ORDER BY created_us DESC LIMIT 1";
    static const char by_image[] = "SELECT image, hash, operation, created_us FROM image_definitions WHERE image = ?1";
    sqlite3_stmt *st = db_stmt(s, hash != NULL ? by_hash : by_image, e);

    memset(ret, 0, sizeof *ret);
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, hash != NULL ? hash : image);
    int r = db_step(s, st, e);
    if (r <= 0)
        return r;
    db_text(st, 0, ret->image, sizeof ret->image);
    db_text(st, 1, ret->hash, sizeof ret->hash);
    db_text(st, 2, ret->operation, sizeof ret->operation);
    ret->created_us = db_int(st, 3);
    (void)sqlite3_reset(st);
    return 0;
}

int store_mount_put(struct store *s, const char *id, const char *environment, const char *name, const char *files, int64_t now_us,
                    struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT OR REPLACE INTO mounts (id, environment, name, files, created_us) VALUES (?1, ?2, ?3, ?4, ?5)", e);

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
    sqlite3_stmt *st = db_stmt(s, "SELECT id FROM mounts WHERE environment = ?1 AND name = ?2 ORDER BY created_us DESC LIMIT 1", e);

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
