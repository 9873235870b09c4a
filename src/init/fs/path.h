/*
 * path.h - paths and file contents, for several operations
 */
#ifndef QS_INIT_FS_PATH_H
#define QS_INIT_FS_PATH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "init/fs/arena.h"
#include "init/fs/error.h"

/* `path` without trailing slashes ("/" stays), in *a. */
char *path_trim(struct arena *a, const char *path);
/* Splits a trimmed path at its last slash. "/x" is "/" and "x"; "/" has the name "". */
void path_split(struct arena *a, const char *path, char **ret_dir, const char **ret_name);
/* Makes `path` and its parents; existing directories are fine. 0 or -errno. */
int path_make(struct arena *a, const char *path, mode_t mode);
/*
 * Refuses what must not be removed or moved as a whole: "/", ".", "..", and the root of a mount.
 * 0, or -1 with *e.
 */
int path_guard(const char *trimmed, struct fs_error *e);
bool is_mount_root(int dirfd, const char *name);

/* All bytes of `from` (at its current offset) to `to`, holes kept where both can. 0 or -errno. */
int copy_content(int from, int to, int64_t size);
/* Attributes that are content rather than policy: user.*, capabilities and access lists. Best effort. */
void copy_xattrs(int from, int to);
bool xattr_is_content(const char *name);

/* An unlinked file to spool into, where there is room: /tmp, /var/tmp, /dev/shm, else memory. -1: errno */
int spool_open(void);

#endif
