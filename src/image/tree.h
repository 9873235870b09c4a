/*
 * tree.h - writes the entries of an archive below one directory, and nowhere else
 *
 * Paths are normalized (path.h). Links among the parents of an entry are followed as a program inside that root
 * would see them: an absolute link or one with ".." stays below the root (RESOLVE_IN_ROOT). The last
 * part is never followed: what is there is replaced. One writer, no other process in the tree. Messages do not name the
 * entry; the caller does.
 */
#ifndef QS_IMAGE_TREE_H
#define QS_IMAGE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/limits.h"

struct tree {
    int root;                       /* borrowed */
    int parent;                     /* directory of the last entry, -1 = none */
    bool parent_is_stale;           /* something that a path may lead through was replaced */
    char parent_path[LIMIT_PATH];
    struct tree_dir *dirs;          /* directories whose times are set at the end */
    size_t ndirs, dirs_size;
};

struct tree_attr {
    uid_t uid;
    gid_t gid;
    mode_t mode;                    /* permission bits with setuid, setgid, sticky */
    struct timespec mtime;
};

void tree_init(struct tree *t, int root);
void tree_done(struct tree *t);

/* Creates the directory, or gives an existing one these attributes. "" is the root. *ret_fd (may be NULL) is it. */
int tree_dir(struct tree *t, const char *path, const struct tree_attr *a, int *ret_fd, struct err *e);
/* Creates an empty file; the caller writes to *ret_fd, then calls tree_file_end. */
int tree_file(struct tree *t, const char *path, int *ret_fd, struct err *e);
int tree_file_end(int fd, const struct tree_attr *a, struct err *e);
/* After tree_file_end's owner change, which would drop it: an extended attribute. */
int tree_xattr(int fd, const char *name, const void *value, size_t len, struct err *e);
int tree_times(int fd, const struct tree_attr *a, struct err *e);
int tree_symlink(struct tree *t, const char *path, const char *target, const struct tree_attr *a,
                 struct err *e);
/* `target` is a normalized path too: a hard link names an entry of the archive. */
int tree_link(struct tree *t, const char *path, const char *target, struct err *e);
int tree_fifo(struct tree *t, const char *path, const struct tree_attr *a, struct err *e);
/* What a layer says of the layers below it, in overlay's form: `path` is gone, unless this layer has it too; of the directory
 * `path` nothing below shows. */
int tree_whiteout(struct tree *t, const char *path, struct err *e);
int tree_opaque(struct tree *t, const char *path, struct err *e);
/* Sets the times of directories, which every entry in them had changed. */
int tree_finish(struct tree *t, struct err *e);

#endif
