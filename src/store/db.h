/*
 * db.h - SQLite for the files of this folder: cached statements, binding, errors
 */
#ifndef QS_STORE_DB_H
#define QS_STORE_DB_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store;

/* The prepared form of `sql`, reset and without bindings. The text must be a constant: its
 * address is the key of the cache. NULL with the error. */
sqlite3_stmt *db_stmt(struct store *s, const char *sql, struct err *e);
/* 1 a row, 0 the end, -1 the error (a broken UNIQUE constraint is ERR_EXISTS). The statement is
 * reset unless it is 1. */
int db_step(struct store *s, sqlite3_stmt *st, struct err *e);
/* For statements that give no rows: 0 or -1. */
int db_run(struct store *s, sqlite3_stmt *st, struct err *e);
int db_changes(struct store *s);
struct sqlite3 *db_handle(struct store *s);
int db_fail(struct store *s, struct err *e);    /* the error of the last call; returns -1 */

/* Columns count from 0, parameters from 1, as in SQLite. */
void db_bind_text(sqlite3_stmt *st, int at, const char *text);      /* borrowed until the statement is reset; NULL = NULL */
void db_bind_int(sqlite3_stmt *st, int at, int64_t v);
void db_bind_blob(sqlite3_stmt *st, int at, const void *p, size_t n);
void db_text(sqlite3_stmt *st, int column, char *out, size_t size);
char *db_text_dup(sqlite3_stmt *st, int column);                    /* NULL for NULL */
int64_t db_int(sqlite3_stmt *st, int column);

#endif
