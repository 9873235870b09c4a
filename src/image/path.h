/*
 * path.h - names of archive entries
 */
#ifndef QS_IMAGE_PATH_H
#define QS_IMAGE_PATH_H

#include <stddef.h>

#include "base/limits.h"

/*
 * The name of an archive entry as a path below the root: no leading slash, no empty and no "." parts; "" is
 * the root itself. 0, or -EINVAL if a part is "..", -ENAMETOOLONG if the whole or a part is too long. An archive with
 * ".." in its names has no meaning that is both safe and what its maker wanted, so it is refused, not repaired.
 */
int path_normalize(const char *name, char *out, size_t size);

/* Splits a normalized path in place: returns its last part; *ret_parent is "" or the rest. */
char *path_split(char *path, const char **ret_parent);

#endif
