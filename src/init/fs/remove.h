/*
 * remove.h - remove a directory with all that is in it
 */
#ifndef QS_INIT_FS_REMOVE_H
#define QS_INIT_FS_REMOVE_H

#include "init/fs/error.h"

/* Never follows links, never crosses a mount point. On failure part of the tree may be gone. */
int remove_tree(int dirfd, const char *name, struct fs_error *e);

#endif
