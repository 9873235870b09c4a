/*
 * rmtree.c - removing a directory and everything below it, following nothing
 *
 * Trees come from images and tenants, so they may be deeper than the stack or the table of
 * descriptors allows: directories are moved up to the top as they are found, and depth never grows.
 */
#include "sys/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sys/fd.h"

#define RECURSE_MAX 64

static int empty(int top, int fd, int depth, uint64_t *counter);

static int remove_entry(int top, int parent, const char *name, int depth, uint64_t *counter)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -errno;
    if (depth >= RECURSE_MAX) {
        /* The name may be taken: whoever made the tree has read this too. */
        char up[40];
        int r;
        do {
            snprintf(up, sizeof up, ".rmtree-%llu", (unsigned long long)++*counter);
            r = renameat2(parent, name, top, up, RENAME_NOREPLACE) < 0 ? -errno : 0;
        } while (r == -EEXIST);
        return r;
    }
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = empty(top, fd, depth + 1, counter);
    if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && r == 0)
        r = -errno;
    return r;
}

/* Takes the descriptor. */
static int empty(int top, int fd, int depth, uint64_t *counter)
{
    DIR *dir = fdopendir(fd);
    const struct dirent *de;
    int first = 0;

    if (dir == NULL) {
        int r = -errno;
        fd_close(&fd);
        return r;
    }
    while ((de = readdir(dir)) != NULL) {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        int r = remove_entry(top, fd, de->d_name, depth, counter);
        if (r < 0 && first == 0)
            first = r;
    }
    (void)closedir(dir);
    return first;
}

int rmtree_inside(int dirfd, const char *name)
{
    auto_close int top = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t counter = 0, before;

    if (top < 0)
        return errno == ENOENT ? 0 : -errno;
    do {
        before = counter;
        int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        int r = empty(top, fd, 0, &counter);
        if (r < 0)
            return r;
    } while (counter != before);
    return 0;
}

int rmtree(int dirfd, const char *name)
{
    int r = rmtree_inside(dirfd, name);

    if (r < 0 && r != -ENOTDIR && r != -ELOOP)
        return r;
    if (unlinkat(dirfd, name, r < 0 ? 0 : AT_REMOVEDIR) < 0 && errno != ENOENT)
        return -errno;
    return 0;
}
