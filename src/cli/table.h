/*
 * table.h - columns of text for people
 */
#ifndef QS_CLI_TABLE_H
#define QS_CLI_TABLE_H

#include <stddef.h>

#include "json/json.h"

#define TABLE_COLUMNS 8

/* Rows are arrays of strings; the first is the head. Control characters are shown as '?'. */
void table_print(const json_t *rows);
/* Seconds since the epoch to "5s", "3m", "2h", "4d" ago; the caller frees. */
char *table_age(const json_t *at);
/* Seconds since the epoch as "2026-01-31 12:00:00.123", UTC. */
void table_time(const json_t *at, char *out, size_t size);
/* An array of strings, with commas between; a new reference. */
json_t *table_join(const json_t *texts);
/* The first string of an array, or the string itself, or "". */
const char *table_text(const json_t *v);

/* On one line. */
void table_json_line(const json_t *v);
/* As indented JSON, with a newline, on stdout. */
void table_json(const json_t *v);

#endif
