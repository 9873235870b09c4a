/*
 * stale.c - what nobody needs any more beside the layers
 *
 * Parts of blobs, sums and marks of layers that are gone, damaged trees that were replaced.
 */
#include "image/stale.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "image/job.h"
#include "image/names.h"
#include "sys/fd.h"
#include "sys/rmtree.h"

#define BLOB_LIFE_S (24 * 3600)         /* of a part that nobody continued */

typedef bool (*stale_fn)(int layers, const char *name, const struct stat *st);

static bool is_old_blob(int layers, const char *name, const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_mtime < time(NULL) - BLOB_LIFE_S;
}

static bool is_of_no_layer(int layers, const char *name, const struct stat *st)
{
    return faccessat(layers, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

/* The change of the inode is the move that put it there. */
static bool is_past_every_life(int layers, const char *name, const struct stat *st)
{
    return st->st_ctime < time(NULL) - LIMIT_LIFETIME_MAX;
}

static void drop_in(int layers, const char *directory, stale_fn is_stale)
{
    auto_close int dir = openat(layers, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    char **names;
    size_t n;

    if (dir < 0 || names_read(dir, &names, &n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (fstatat(dir, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || !is_stale(layers, names[i], &st))
            continue;
        int r = rmtree(dir, names[i]);
        if (r < 0)
            log_warn("image.stale", "directory=%s error=%d", directory, -r);
    }
    names_free(names, n);
}

void stale_blobs_drop(int layers)
{
    drop_in(layers, BLOBS, is_old_blob);
}

void stale_drop(int layers)
{
    stale_blobs_drop(layers);
    drop_in(layers, SUMS, is_of_no_layer);
    drop_in(layers, DAMAGED, is_of_no_layer);
    drop_in(layers, REPLACED, is_past_every_life);
}
