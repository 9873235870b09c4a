/*
 * image_name_rows.c - rows of images' names and of what they stood for
 */
#include <string.h>

#include "store/db.h"
#include "store/store.h"

int store_image_names(struct store *s, const char *after, size_t limit, store_image_name_fn fn, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT n.name, n.image, ifnull(min(r.published_us), i.created_us), ifnull(max(r.published_us), i.created_us)"
        " FROM image_names AS n JOIN images AS i ON i.id = n.image LEFT JOIN image_revisions AS r ON r.name = n.name"
        " WHERE n.name > ?1 GROUP BY n.name ORDER BY n.name LIMIT ?2";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, after);
    db_bind_int(st, 2, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        const struct image_name_row row = {(const char *)sqlite3_column_text(st, 0), (const char *)sqlite3_column_text(st, 1),
                                           db_int(st, 2), db_int(st, 3)};
        fn(ctx, &row);
    }
    return r;
}

int store_revision_put(struct store *s, const char *name, const struct revision_row *r, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "INSERT INTO image_revisions (name, image, revision, published_us, published_by)"
                               " VALUES (?1, ?2, ?3, ?4, ?5)",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    db_bind_text(st, 2, r->image);
    db_bind_text(st, 3, r->revision);
    db_bind_int(st, 4, r->published_us);
    db_bind_text(st, 5, r->published_by);
    return db_run(s, st, e);
}

int store_revision_list(struct store *s, const char *name, int64_t before_seq, size_t limit, store_revision_fn fn, void *ctx,
                        struct err *e)
{
    static const char sql[] = "SELECT seq, image, revision, published_us, published_by FROM image_revisions"
                              " WHERE name = ?1 AND (?2 = 0 OR seq < ?2) ORDER BY seq DESC LIMIT ?3";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    struct revision_row row;
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    db_bind_int(st, 2, before_seq);
    db_bind_int(st, 3, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        memset(&row, 0, sizeof row);
        row.seq = db_int(st, 0);
        db_text(st, 1, row.image, sizeof row.image);
        db_text(st, 2, row.revision, sizeof row.revision);
        row.published_us = db_int(st, 3);
        db_text(st, 4, row.published_by, sizeof row.published_by);
        fn(ctx, &row);
    }
    return r;
}

int store_revision_remove(struct store *s, const char *name, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM image_revisions WHERE name = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    return db_run(s, st, e);
}
