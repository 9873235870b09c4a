/*
 * policy_rows.c - named network policies, one row a version
 */
#include <string.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/store.h"

void policy_row_done(struct policy_row *r)
{
    free(r->policy);
    r->policy = NULL;
}

static void read_row(sqlite3_stmt *st, struct policy_row *r)
{
    db_text(st, 0, r->name, sizeof r->name);
    r->version = (uint32_t)db_int(st, 1);
    r->policy = db_text_dup(st, 2);
    db_text(st, 3, r->token, sizeof r->token);
    r->created_us = db_int(st, 4);
}

int store_policy_insert(struct store *s, const struct policy_row *r, uint32_t keep, struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s,
        "INSERT INTO policies (name, version, policy, token, created_us) VALUES (?1, ?2, ?3, ?4, ?5)",
        e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->name);
    db_bind_int(st, 2, r->version);
    db_bind_text(st, 3, r->policy);
    db_bind_text(st, 4, r->token);
    db_bind_int(st, 5, r->created_us);
    if (db_run(s, st, e) < 0)
        return -1;
    st = db_stmt(s, "DELETE FROM policies WHERE name = ?1 AND version <= ?2", e);
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, r->name);
    db_bind_int(st, 2, (int64_t)r->version - keep);
    return db_run(s, st, e);
}

int store_policy_get(struct store *s, const char *name, uint32_t version, struct policy_row *ret, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "SELECT name, version, policy, token, created_us FROM policies"
                               " WHERE name = ?1 AND (?2 = 0 OR version = ?2) ORDER BY version DESC LIMIT 1",
                               e);

    memset(ret, 0, sizeof *ret);
    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    db_bind_int(st, 2, version);
    int r = db_step(s, st, e);
    if (r == 0 && version != 0)
        return err_set(e, ERR_NOT_FOUND, "the policy '%.64s' has no version %u", name, version);
    if (r == 0)
        return err_set(e, ERR_NOT_FOUND, "no policy '%.64s'", name);
    if (r < 0)
        return -1;
    read_row(st, ret);
    (void)sqlite3_reset(st);
    return 0;
}

static int each(struct store *s, sqlite3_stmt *st, store_policy_fn fn, void *ctx, struct err *e)
{
    int r;

    while ((r = db_step(s, st, e)) == 1) {
        struct policy_row row = {0};
        read_row(st, &row);
        fn(ctx, &row);
        policy_row_done(&row);
    }
    return r;
}

int store_policy_list(struct store *s, const char *after, size_t limit, store_policy_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "SELECT name, max(version), policy, token, created_us FROM policies WHERE name > ?1"
                               " GROUP BY name ORDER BY name LIMIT ?2",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, after);
    db_bind_int(st, 2, (int64_t)limit);
    return each(s, st, fn, ctx, e);
}

int store_policy_versions(struct store *s, const char *name, store_policy_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s,
                               "SELECT name, version, policy, token, created_us FROM policies WHERE name = ?1"
                               " ORDER BY version DESC",
                               e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    return each(s, st, fn, ctx, e);
}

int store_policy_remove(struct store *s, const char *name, struct err *e)
{
    sqlite3_stmt *st = db_stmt(s, "DELETE FROM policies WHERE name = ?1", e);

    if (st == NULL)
        return -1;
    db_bind_text(st, 1, name);
    if (db_run(s, st, e) < 0)
        return -1;
    return db_changes(s) > 0 ? 0 : err_set(e, ERR_NOT_FOUND, "no policy '%.64s'", name);
}
