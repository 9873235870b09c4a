/*
 * write.h - the whole new content of a file, or the whole old one
 */
#ifndef QS_INIT_FS_WRITE_H
#define QS_INIT_FS_WRITE_H

#include "init/fs/op.h"

/* A new file gets mode 0644 and missing directories are made; an old one keeps its mode and owner, and links are followed. */
int write_content(struct op *o, const char *path, const void *p, size_t n, struct fs_error *e);

#endif
