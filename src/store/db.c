/*
 * db.c - the SQLite back end: opening, migrations, transactions, cached statements
 */
#include "store/db.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "store/migrations.h"
#include "store/store.h"
#include "sys/fd.h"

#define MAX_STATEMENTS 256
#define RESERVE (16LL << 20)    /* room on disk ahead of the file and its log, so that a full disk stops no removal */

struct store {
    sqlite3 *db;
    struct {
        const char *sql;
        sqlite3_stmt *st;
    } cache[MAX_STATEMENTS];
    size_t ncache;
    bool is_durable; /* the open transaction syncs */
    int file;        /* of the database, opened before SQLite's own and closed after it: closing it drops the locks */
    off_t reserved;  /* the file has room on disk up to here */
};

struct sqlite3 *db_handle(struct store *s)
{
    return s->db;
}

int db_fail(struct store *s, struct err *e)
{
    int r = sqlite3_extended_errcode(s->db);

    if (r == SQLITE_CONSTRAINT_UNIQUE || r == SQLITE_CONSTRAINT_PRIMARYKEY)
        return err_set(e, ERR_EXISTS, "an object of that name or id is there already");
    if ((r & 0xff) == SQLITE_FULL)
        return err_set(e, ERR_CAPACITY, "the state database cannot grow: the disk is full");
    return err_set(e, ERR_INTERNAL, "state database: %s", sqlite3_errmsg(s->db));
}

sqlite3_stmt *db_stmt(struct store *s, const char *sql, struct err *e)
{
    for (size_t i = 0; i < s->ncache; i++) {
        if (s->cache[i].sql != sql)
            continue;
        (void)sqlite3_reset(
            s->cache[i].st); /* repeats the error of the last step, already reported */
        (void)sqlite3_clear_bindings(s->cache[i].st);
        return s->cache[i].st;
    }
    sqlite3_stmt *st;
    if (s->ncache == MAX_STATEMENTS) {
        err_set(e, ERR_INTERNAL, "state database: more than %d statements", MAX_STATEMENTS);
        return NULL;
    }
    if (sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL) != SQLITE_OK) {
        db_fail(s, e);
        return NULL;
    }
    s->cache[s->ncache].sql = sql;
    s->cache[s->ncache].st = st;
    s->ncache++;
    return st;
}

int db_step(struct store *s, sqlite3_stmt *st, struct err *e)
{
    int r = sqlite3_step(st);

    if (r == SQLITE_ROW)
        return 1;
    if (r != SQLITE_DONE) {
        db_fail(s, e);
        (void)sqlite3_reset(st);
        return -1;
    }
    (void)sqlite3_reset(st);
    return 0;
}

int db_run(struct store *s, sqlite3_stmt *st, struct err *e)
{
    int r;

    if (st == NULL)
        return -1;
    do
        r = db_step(s, st, e);
    while (r == 1);
    return r;
}

int db_changes(struct store *s)
{
    return sqlite3_changes(s->db);
}

void db_bind_text(sqlite3_stmt *st, int at, const char *text)
{
    (void)sqlite3_bind_text(st, at, text, -1,
                            SQLITE_STATIC); /* fails only for a wrong index: a bug tests show */
}

void db_bind_int(sqlite3_stmt *st, int at, int64_t v)
{
    (void)sqlite3_bind_int64(st, at, v);
}

void db_bind_blob(sqlite3_stmt *st, int at, const void *p, size_t n)
{
    (void)sqlite3_bind_blob64(st, at, p, n, SQLITE_STATIC);
}

void db_text(sqlite3_stmt *st, int column, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(st, column);

    (void)snprintf(out, size, "%s", text != NULL ? text : "");
}

char *db_text_dup(sqlite3_stmt *st, int column)
{
    const char *text = (const char *)sqlite3_column_text(st, column);

    return text != NULL ? mem_strdup(text) : NULL;
}

int64_t db_int(sqlite3_stmt *st, int column)
{
    return sqlite3_column_int64(st, column);
}

static int exec(struct store *s, const char *sql, struct err *e)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : db_fail(s, e);
}

static int migrate(struct store *s, struct err *e)
{
    char number[48];
    sqlite3_stmt *st;

    if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &st, NULL) != SQLITE_OK)
        return db_fail(s, e);
    int version = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int(st, 0) : -1;
    (void)sqlite3_finalize(st);
    if (version < 0)
        return db_fail(s, e);
    if ((size_t)version > migrations_count)
        return err_set(e, ERR_CONFLICT,
                       "the state database has version %d, this program knows %zu: it is older",
                       version, migrations_count);
    for (size_t i = (size_t)version; i < migrations_count; i++) {
        (void)snprintf(number, sizeof number, "PRAGMA user_version = %zu", i + 1);
        if (store_begin(s, STORE_DURABLE, e) < 0)
            return -1;
        if (exec(s, migrations[i], e) < 0 || exec(s, number, e) < 0 || store_commit(s, e) < 0) {
            store_rollback(s);
            return err_wrap(e, "migration %zu", i + 1);
        }
    }
    return 0;
}

/* Where the file system cannot, a full disk is met sooner. */
static void reserve(struct store *s)
{
    struct stat st;

    if (s->file < 0 || fstat(s->file, &st) < 0 || st.st_size + RESERVE / 2 <= s->reserved)
        return;
    if (fallocate(s->file, FALLOC_FL_KEEP_SIZE, 0, st.st_size + RESERVE) == 0)
        s->reserved = st.st_size + RESERVE;
}

/* The log is used again from its start after each checkpoint, so it needs no more than this. */
static void reserve_log(const char *path)
{
    auto_free char *log = mem_printf("%s-wal", path);
    auto_close int fd = open(log, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0)
        (void)fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, RESERVE);
}

int store_open(const char *path, struct store **ret, struct err *e)
{
    struct store *s = mem_zalloc(sizeof *s);
    mode_t before = umask(0077); /* the database holds environments and hashes */

    s->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int r = sqlite3_open_v2(path, &s->db,
                            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

    if (r == SQLITE_OK) {
        (void)sqlite3_extended_result_codes(s->db, 1);
        (void)sqlite3_busy_timeout(s->db, 5000);
        r = exec(
            s,
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;"
            "PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 2000; PRAGMA trusted_schema = OFF;",
            e);
        if (r == 0)
            r = migrate(s, e);
    } else {
        r = err_set(e, ERR_INTERNAL, "open it: %s",
                    s->db != NULL ? sqlite3_errmsg(s->db) : "out of memory");
    }
    (void)umask(before);
    if (r < 0) {
        store_close(s);
        return err_wrap(e, "state database %s", path);
    }
    reserve(s);
    reserve_log(path);
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->ncache; i++)
        (void)sqlite3_finalize(s->cache[i].st);
    (void)sqlite3_close(s->db);
    fd_close(&s->file);
    free(s);
}

int store_begin(struct store *s, enum store_durability d, struct err *e)
{
    /* The setting is read when the transaction commits, and may not change inside one. */
    if (d == STORE_DURABLE && exec(s, "PRAGMA synchronous = FULL", e) < 0)
        return -1;
    s->is_durable = d == STORE_DURABLE;
    return db_run(s, db_stmt(s, "BEGIN IMMEDIATE", e), e);
}

static void end_durable(struct store *s)
{
    if (s->is_durable) {
        (void)exec(s, "PRAGMA synchronous = NORMAL", NULL); /* staying at FULL is only slower */
        reserve(s);
    }
    s->is_durable = false;
}

int store_commit(struct store *s, struct err *e)
{
    if (db_run(s, db_stmt(s, "COMMIT", e), e) < 0) {
        store_rollback(s);
        return -1;
    }
    end_durable(s);
    return 0;
}

void store_rollback(struct store *s)
{
    if (sqlite3_get_autocommit(s->db) == 0)
        (void)exec(s, "ROLLBACK", NULL); /* fails only when SQLite rolled back on its own */
    end_durable(s);
}
