/*
 * entry.h - how files are described to clients
 */
#ifndef QS_INIT_FS_ENTRY_H
#define QS_INIT_FS_ENTRY_H

#include <stddef.h>
#include <sys/stat.h>

#include "init/fs/out.h"

/*
 * Prints the entry object of `name` in `dirfd`. The path is `base` (as the client gave it), a slash and `rel`, or
 * `base` alone if rel is NULL.
 */
void entry_print(struct out *o, int dirfd, const char *name, const struct stat *st, const char *base,
                 const char *rel);

#endif
