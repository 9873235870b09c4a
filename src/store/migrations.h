/*
 * migrations.h - how the tables came to be: number n brings a database from version n to n + 1
 *
 * A released migration is never edited; a change is a new one at the end.
 */
#ifndef QS_STORE_MIGRATIONS_H
#define QS_STORE_MIGRATIONS_H

#include <stddef.h>

extern const char *const migrations[];
extern const size_t migrations_count;

#endif
