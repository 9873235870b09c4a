/*
 * names.c - what is in a directory, and which extended attributes are carried along
 */
#include "image/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/mem.h"
#include "sys/fd.h"

#define XATTR_NAMES_MAX 65536       /* the kernel's limit of a list */

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add(char ***list, size_t *n, const char *name)
{
    if ((*n & (*n - 1)) == 0)           /* at 0 and at the powers of two */
        *list = mem_realloc(*list, (*n > 0 ? *n * 2 : 1) * sizeof **list);
    (*list)[(*n)++] = mem_strdup(name);
}

int names_read(int dir, char ***ret, size_t *ret_n)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *d;

    *ret = NULL;
    *ret_n = 0;
    if (list == NULL) {
        int r = -errno;
        fd_close(&copy);
        return r;
    }
    while ((d = readdir(list)) != NULL) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        add(ret, ret_n, d->d_name);
    }
    (void)closedir(list);
    if (*ret_n > 0)
        qsort(*ret, *ret_n, sizeof **ret, compare);
    return 0;
}

void names_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

bool xattr_is_kept(const char *name)
{
    if (strcmp(name, "security.capability") == 0)
        return true;
    return strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0;
}

int xattrs_read(int fd, char ***ret, size_t *ret_n)
{
    auto_free char *list = mem_alloc(XATTR_NAMES_MAX);
    ssize_t n = flistxattr(fd, list, XATTR_NAMES_MAX);

    *ret = NULL;
    *ret_n = 0;
    if (n < 0)
        return errno == ENOTSUP ? 0 : -errno;
    for (const char *name = list; name < list + n; name += strlen(name) + 1)
        if (xattr_is_kept(name))
            add(ret, ret_n, name);
    if (*ret_n > 0)
        qsort(*ret, *ret_n, sizeof **ret, compare);
    return 0;
}
