/*
 * definition_rows.c - rows of image definitions
 */
#include <string.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/store.h"

int store_definition_put(struct store *s, const struct definition_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s,
        "INSERT INTO image_definitions (image, hash, operation, created_us, base) VALUES (?1, ?2, ?3, ?4, ?5)"
        " ON CONFLICT (image) DO UPDATE SET operation = excluded.operation",
        e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->image);
    db_bind_text(st, 2, r->hash);
    db_bind_text(st, 3, r->operation);
    db_bind_int(st, 4, r->created_us);
    db_bind_text(st, 5, r->base);
    return db_run(s, st, e);
}

int store_definition_get(struct store *s, const char *hash, const char *image, struct definition_row *ret, struct err *e)
{
    static const char by_hash[] = "SELECT image, hash, operation, created_us, base FROM image_definitions WHERE hash = ?1"
                                  " ORDER BY created_us DESC LIMIT 1";
    static const char by_image[] = "SELECT image, hash, operation, created_us, base FROM image_definitions WHERE image = ?1";
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
    db_text(st, 4, ret->base, sizeof ret->base);
    (void)sqlite3_reset(st);
    return 0;
}

int store_definition_old(struct store *s, const char *prefix, int64_t before_us, size_t limit, store_definition_fn fn, void *ctx,
                         struct err *e)
{
    static const char sql[] =
        "SELECT image FROM image_definitions WHERE substr(hash, 1, length(?1)) = ?1 AND created_us < ?2"
        " AND NOT EXISTS (SELECT 1 FROM images WHERE images.id = image_definitions.image AND used_us >= ?2) LIMIT ?3";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    char image[ID_SIZE];
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, prefix);
    db_bind_int(st, 2, before_us);
    db_bind_int(st, 3, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        db_text(st, 0, image, sizeof image);
        fn(ctx, image);
    }
    return r;
}

int store_definition_remove(struct store *s, const char *image, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM image_definitions WHERE image = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, image);
    return db_run(s, st, e);
}

int store_definition_expire(struct store *s, int64_t before_us, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM image_definitions WHERE created_us < ?1 AND NOT EXISTS"
                                  " (SELECT 1 FROM images WHERE images.id = image_definitions.image)",
                               e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_us);
    return db_run(s, st, e);
}
