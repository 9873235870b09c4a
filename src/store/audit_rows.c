/*
 * audit_rows.c - one row a call
 */
#include "base/mem.h"
#include "store/db.h"
#include "store/store.h"

int store_audit_insert(struct store *s, const struct audit_row *r, struct err *e)
{
    sqlite3_stmt *st =
        db_stmt(s,
                "INSERT INTO audit (at_ms, token, method, path, op, target, status, request_id, ms)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, r->at_ms);
    db_bind_text(st, 2, r->token);
    db_bind_text(st, 3, r->method);
    db_bind_text(st, 4, r->path);
    db_bind_text(st, 5, r->op);
    db_bind_text(st, 6, r->target);
    db_bind_int(st, 7, r->status);
    db_bind_text(st, 8, r->request_id);
    db_bind_int(st, 9, r->ms);
    return db_run(s, st, e);
}

int store_audit_list(struct store *s, int64_t before_seq, size_t limit, store_audit_fn fn,
                     void *ctx, struct err *e)
{
    sqlite3_stmt *st = db_stmt(
        s,
        "SELECT seq, at_ms, token, method, path, op, target, status, request_id, ms FROM audit"
        " WHERE ?1 = 0 OR seq < ?1 ORDER BY seq DESC LIMIT ?2",
        e);
    int r;

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_seq);
    db_bind_int(st, 2, (int64_t)limit);
    while ((r = db_step(s, st, e)) == 1) {
        struct audit_row row = {
            .seq = db_int(st, 0),
            .at_ms = db_int(st, 1),
            .status = (int32_t)db_int(st, 7),
            .ms = (int32_t)db_int(st, 9),
        };
        db_text(st, 2, row.token, sizeof row.token);
        db_text(st, 3, row.method, sizeof row.method);
        db_text(st, 4, row.path, sizeof row.path);
        db_text(st, 5, row.op, sizeof row.op);
        db_text(st, 6, row.target, sizeof row.target);
        db_text(st, 8, row.request_id, sizeof row.request_id);
        fn(ctx, &row);
    }
    return r;
}

int store_audit_expire(struct store *s, int64_t before_ms, int64_t keep, int64_t limit,
                       bool *ret_more, struct err *e)
{
    static const char sql[] =
        "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit"
        " WHERE at_ms < ?1 OR seq <= (SELECT max(seq) FROM audit) - ?2 ORDER BY seq LIMIT ?3)";
    sqlite3_stmt *st = db_stmt(s, sql, e);

    if (st == NULL)
        return -1;
    db_bind_int(st, 1, before_ms);
    db_bind_int(st, 2, keep);
    db_bind_int(st, 3, limit);
    if (db_run(s, st, e) < 0)
        return -1;
    *ret_more = db_changes(s) == limit;
    return 0;
}
