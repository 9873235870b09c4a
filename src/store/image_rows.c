/*
 * image_rows.c - rows of images, their names and layers, and of layers to be removed
 */
#include <string.h>

#include "base/mem.h"
#include "json/json.h"
#include "store/db.h"
#include "store/store.h"

#define COLUMNS \
    "id, created_us, size_bytes, files, env, workdir, user," \
    " (SELECT json_group_array(layer) FROM" \
    "  (SELECT layer FROM image_layers WHERE image_layers.image = images.id ORDER BY position))," \
    " (SELECT json_group_array(name) FROM" \
    "  (SELECT name FROM image_names WHERE image_names.image = images.id ORDER BY name))," \
    " config, source, digest, used_us"

void image_row_done(struct image_row *r)
{
    free(r->layers);
    free(r->env);
    free(r->workdir);
    free(r->user);
    free(r->names);
    free(r->config);
    free(r->source);
    memset(r, 0, sizeof *r);
}

static void read_row(sqlite3_stmt *st, struct image_row *r)
{
    memset(r, 0, sizeof *r);
    db_text(st, 0, r->id, sizeof r->id);
    r->created_us = db_int(st, 1);
    r->size_bytes = db_int(st, 2);
    r->files = db_int(st, 3);
    r->env = db_text_dup(st, 4);
    r->workdir = db_text_dup(st, 5);
    r->user = db_text_dup(st, 6);
    r->layers = db_text_dup(st, 7);
    r->names = db_text_dup(st, 8);
    r->config = db_text_dup(st, 9);
    r->source = db_text_dup(st, 10);
    db_text(st, 11, r->digest, sizeof r->digest);
    r->used_us = db_int(st, 12);
}

static int insert_layers(struct store *s, const struct image_row *r, struct err *e)
{
    auto_json *layers = js_parse(r->layers, strlen(r->layers), 1 << 20, e);

    if (layers == NULL)
        return -1;
    for (size_t i = 0; i < json_array_size(layers); i++) {
        sqlite3_stmt *st =
            db_stmt(s, "INSERT INTO image_layers (image, position, layer) VALUES (?1, ?2, ?3)", e);
        if (st == NULL)
            return -1;
        db_bind_text(st, 1, r->id);
        db_bind_int(st, 2, (int64_t)i);
        db_bind_text(st, 3, json_string_value(json_array_get(layers, i)));
        if (db_run(s, st, e) < 0)
            return -1;
        st = db_stmt(s, "DELETE FROM garbage WHERE layer = ?1", e); /* it is wanted again */
        if (st == NULL)
            return -1;
        db_bind_text(st, 1, json_string_value(json_array_get(layers, i)));
        if (db_run(s, st, e) < 0)
            return -1;
    }
    return 0;
}

int store_image_insert(struct store *s, const struct image_row *r, struct err *e)
{
    static const char sql[] =
        "INSERT INTO images (id, created_us, size_bytes, files, env, workdir, user, config, source, digest)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->id);
    db_bind_int(st, 2, r->created_us);
    db_bind_int(st, 3, r->size_bytes);
    db_bind_int(st, 4, r->files);
    db_bind_text(st, 5, r->env);
    db_bind_text(st, 6, r->workdir);
    db_bind_text(st, 7, r->user);
    db_bind_text(st, 8, r->config != NULL ? r->config : "{}");
    db_bind_text(st, 9, r->source != NULL ? r->source : "");
    db_bind_text(st, 10, r->digest);
    if (db_run(s, st, e) < 0)
        return -1;
    return insert_layers(s, r, e);
}

int store_image_get(struct store *s, const char *id_or_name, struct image_row *ret, struct err *e)
{
    static const char by_id[] = "SELECT " COLUMNS " FROM images WHERE id = ?1";
    static const char by_name[] = "SELECT " COLUMNS " FROM images"
                                  " WHERE id = (SELECT image FROM image_names WHERE name = ?1)";
    sqlite3_stmt *st = db_stmt(s, id_is(id_or_name, "im-") ? by_id : by_name, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id_or_name);
    int r = db_step(s, st, e);
    if (r == 0) {
        (void)err_set(e, ERR_NOT_FOUND, "no image '%.80s'", id_or_name);
        err_hint(e, "import or pull it first; 'quicksand image ls' and GET /v1/images list those that are there");
        return -1;
    }
    if (r < 0)
        return -1;
    read_row(st, ret);
    (void)sqlite3_reset(st);
    return 0;
}

int store_image_name(struct store *s, const char *name, const char *id, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "INSERT INTO image_names (name, image) VALUES (?1, ?2)"
                               " ON CONFLICT (name) DO UPDATE SET image = excluded.image",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    db_bind_text(st, 2, id);
    return db_run(s, st, e);
}

int store_image_list(struct store *s, int64_t cursor_us, const char *cursor_id, size_t limit,
                     store_image_fn fn, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS " FROM images WHERE ?1 = 0 OR (created_us, id) < (?1, ?2)"
        " ORDER BY created_us DESC, id DESC LIMIT ?3";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, cursor_us);
    db_bind_text(st, 2, cursor_id);
    db_bind_int(st, 3, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        auto_image_row row = {0};
        read_row(st, &row);
        fn(ctx, &row);
    }
    return r;
}

int store_image_is_used(struct store *s, const char *id, bool *ret, struct err *e)
{
    sqlite3_stmt *st =
        db_stmt(s, "SELECT 1 FROM sandboxes WHERE state <> 4 AND image = ?1 LIMIT 1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    int r = db_step(s, st, e);
    if (r < 0)
        return -1;
    (void)sqlite3_reset(st);
    *ret = r == 1;
    return 0;
}

int store_image_remove(struct store *s, const char *id, struct err *e)
{
    static const char garbage[] =
        "INSERT OR IGNORE INTO garbage (layer)"
        " SELECT layer FROM image_layers AS mine WHERE image = ?1 AND NOT EXISTS"
        " (SELECT 1 FROM image_layers AS o WHERE o.layer = mine.layer AND o.image <> ?1)"
        " AND NOT EXISTS (SELECT 1 FROM build_steps WHERE build_steps.layer = mine.layer)";
    sqlite3_stmt *st = db_stmt(s, garbage, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    if (db_run(s, st, e) < 0)
        return -1;
    st = db_stmt(s, "DELETE FROM images WHERE id = ?1", e); /* names and layers follow by cascade */
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    return db_run(s, st, e);
}

int store_image_set_used(struct store *s, const char *id, int64_t now_us, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "UPDATE images SET used_us = ?2 WHERE id = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    db_bind_int(st, 2, now_us);
    return db_run(s, st, e);
}

int store_image_unname(struct store *s, const char *name, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM image_names WHERE name = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    if (db_run(s, st, e) < 0)
        return -1;
    return db_changes(s) > 0 ? 0 : err_set(e, ERR_NOT_FOUND, "no image has the name '%.80s'", name);
}

int store_image_by_digest(struct store *s, const char *digest, char ret[ID_SIZE], struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT id FROM images WHERE digest = ?1 AND ?1 <> '' ORDER BY created_us LIMIT 1", e);

    ret[0] = '\0';
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, digest);
    int r = db_step(s, st, e);
    if (r < 0)
        return -1;
    if (r == 1)
        db_text(st, 0, ret, ID_SIZE);
    (void)sqlite3_reset(st);
    return 0;
}

int store_layer_release(struct store *s, const char *layer, struct err *e)
{
    static const char sql[] = "INSERT OR IGNORE INTO garbage (layer) SELECT ?1 WHERE ?1 <> ''"
                              " AND NOT EXISTS (SELECT 1 FROM image_layers WHERE image_layers.layer = ?1)"
                              " AND NOT EXISTS (SELECT 1 FROM build_steps WHERE build_steps.layer = ?1)";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, layer);
    return db_run(s, st, e);
}

int store_layer_release_unnamed(struct store *s, int64_t before_us, struct err *e)
{
    static const char sql[] =
        "INSERT OR IGNORE INTO garbage (layer) SELECT layer FROM layers"
        " WHERE created_us < ?1 AND NOT EXISTS (SELECT 1 FROM image_layers WHERE image_layers.layer = layers.layer)"
        " AND NOT EXISTS (SELECT 1 FROM build_steps WHERE build_steps.layer = layers.layer)";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_us);
    return db_run(s, st, e);
}

int store_image_measure(struct store *s, const char *id, struct err *e)
{
    static const char sql[] =
        "UPDATE images SET (size_bytes, files) = (SELECT ifnull(sum(layers.bytes), 0), ifnull(sum(layers.files), 0)"
        " FROM image_layers JOIN layers ON layers.layer = image_layers.layer WHERE image_layers.image = ?1) WHERE id = ?1";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, id);
    return db_run(s, st, e);
}

int store_layer_note(struct store *s, const char *layer, int64_t bytes, int64_t files, int64_t now_us, bool *ret_is_new,
                     struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "INSERT OR IGNORE INTO layers (layer, bytes, files, created_us) VALUES (?1, ?2, ?3, ?4)", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, layer);
    db_bind_int(st, 2, bytes);
    db_bind_int(st, 3, files);
    db_bind_int(st, 4, now_us);
    if (db_run(s, st, e) < 0)
        return -1;
    *ret_is_new = db_changes(s) > 0;
    return 0;
}

int store_layer_put(struct store *s, const char *layer, int64_t bytes, int64_t files, int64_t now_us, struct err *e)
{
    static const char sql[] = "INSERT INTO layers (layer, bytes, files, created_us) VALUES (?1, ?2, ?3, ?4)"
                              " ON CONFLICT (layer) DO UPDATE SET bytes = excluded.bytes, files = excluded.files"
                              " WHERE excluded.bytes > 0 OR excluded.files > 0";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, layer);
    db_bind_int(st, 2, bytes);
    db_bind_int(st, 3, files);
    db_bind_int(st, 4, now_us);
    return db_run(s, st, e);
}

int store_image_layers(struct store *s, const char *image, store_layer_fn fn, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT mine.layer, ifnull(layers.bytes, 0), ifnull(layers.files, 0), ifnull(layers.created_us, 0),"
        " (SELECT count(DISTINCT o.image) FROM image_layers AS o WHERE o.layer = mine.layer)"
        " FROM image_layers AS mine LEFT JOIN layers ON layers.layer = mine.layer"
        " WHERE mine.image = ?1 ORDER BY mine.position";
    sqlite3_stmt *st = db_stmt(s, sql, e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, image);
    while ((r = db_step(s, st, e)) == 1) {
        struct layer_row row = {.bytes = db_int(st, 1),
                                .files = db_int(st, 2),
                                .created_us = db_int(st, 3),
                                .images = db_int(st, 4)};
        db_text(st, 0, row.layer, sizeof row.layer);
        fn(ctx, &row);
    }
    return r;
}

int store_garbage_next(struct store *s, char *ret, size_t size, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "SELECT layer FROM garbage LIMIT 1", e);

    if (st == NULL)
        return -1;
    int r = db_step(s, st, e);
    if (r < 0)
        return -1;
    ret[0] = '\0';
    if (r == 1)
        db_text(st, 0, ret, size);
    (void)sqlite3_reset(st);
    return 0;
}

int store_garbage_remove(struct store *s, const char *layer, struct err *e)
{
    static const char forget[] = "DELETE FROM layers WHERE layer = ?1"
                                 " AND NOT EXISTS (SELECT 1 FROM image_layers WHERE image_layers.layer = ?1)"
                                 " AND NOT EXISTS (SELECT 1 FROM build_steps WHERE build_steps.layer = ?1)";
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM garbage WHERE layer = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, layer);
    if (db_run(s, st, e) < 0)
        return -1;
    st = db_stmt(s, forget, e);
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, layer);
    return db_run(s, st, e);
}

int store_garbage_bytes(struct store *s, int64_t *ret, struct err *e)
{
    sqlite3_stmt *st =
        db_stmt(s, "SELECT ifnull(sum(bytes), 0) FROM garbage JOIN layers ON layers.layer = garbage.layer", e);

    if (st == NULL || db_step(s, st, e) < 0)
        return -1;
    *ret = db_int(st, 0);
    (void)sqlite3_reset(st);
    return 0;
}
