/*
 * map.h - hash map from strings to pointers, SipHash-keyed against chosen collisions
 *
 * Keys are copied; values are borrowed. Iteration order is unspecified; the map may not be changed
 * while it is iterated, except by removing the entry just returned.
 */
#ifndef QS_BASE_MAP_H
#define QS_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>

struct map {
    struct map_entry **slots;   /* owned */
    size_t nslots;
    size_t count;
};

void map_init(struct map *m);
void map_done(struct map *m);                               /* values are the caller's */
void *map_get(const struct map *m, const char *key);        /* NULL if absent */
void *map_put(struct map *m, const char *key, void *value); /* returns the former value or NULL */
void *map_del(struct map *m, const char *key);              /* returns the value or NULL */

struct map_iter {
    size_t slot;
    struct map_entry *next;
};
#define MAP_ITER {0, NULL}
bool map_next(const struct map *m, struct map_iter *it, const char **ret_key, void **ret_value);

#endif
