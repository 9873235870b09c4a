/*
 * path.c - names of archive entries
 *
 * Pure text: what a name resolves to on disk is the business of tree.c.
 */
#include "image/path.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

int path_normalize(const char *name, char *out, size_t size)
{
    size_t used = 0;

    for (const char *at = name; *at != '\0';) {
        size_t n = strcspn(at, "/");
        const char *next = at[n] == '/' ? at + n + 1 : at + n;
        if (n == 2 && memcmp(at, "..", 2) == 0)
            return -EINVAL;
        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        if (n > 0 && !(n == 1 && at[0] == '.')) {
            if (used + n + 2 > size)
                return -ENAMETOOLONG;
            if (used > 0)
                out[used++] = '/';
            memcpy(out + used, at, n);
            used += n;
        }
        at = next;
    }
    if (size == 0)
        return -ENAMETOOLONG;
    out[used] = '\0';
    return 0;
}

char *path_split(char *path, const char **ret_parent)
{
    char *slash = strrchr(path, '/');

    if (slash == NULL) {
        *ret_parent = "";
        return path;
    }
    *slash = '\0';
    *ret_parent = path;
    return slash + 1;
}
