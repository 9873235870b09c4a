/*
 * watch_tree.h - the directories that a Watch has under observation
 *
 * Each knows its parent and its own name, so that a renamed tree costs one change, and memory is
 * bounded by the number of directories that exist, not by how many came and went.
 */
#ifndef QS_INIT_FS_WATCH_TREE_H
#define QS_INIT_FS_WATCH_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WATCH_DIRS_MAX 131072
#define WATCH_PATH_SIZE (64 * 1024)

struct watch_dir {
    int wd;                             /* -1 = free */
    int32_t parent;                     /* index, -1 = the root of the watch */
    int32_t next;                       /* of the same hash, or of the free list */
    bool doomed;                        /* used by the one who removes a whole tree */
    char name[256];                     /* "" for the root */
};

struct watch_tree {
    const char *root;                   /* borrowed */
    struct watch_dir *dirs;
    int32_t used, free, count;          /* used: high-water mark */
    int32_t *heads;
};

/* 0 or -errno. */
int watch_tree_init(struct watch_tree *t, const char *root);
/* Index of the directory with this descriptor, -1 if there is none. */
int32_t watch_tree_find(const struct watch_tree *t, int wd);
/* Adds one, or moves the one that has this descriptor already. -ENOSPC beyond WATCH_DIRS_MAX. */
int32_t watch_tree_add(struct watch_tree *t, int wd, int32_t parent, const char *name);
int32_t watch_tree_child(const struct watch_tree *t, int32_t parent, const char *name);
void watch_tree_remove(struct watch_tree *t, int32_t i);
bool watch_tree_below(const struct watch_tree *t, int32_t i, int32_t top);
/* Path of `name` ("" = the directory itself) in directory i. Length, or -ENAMETOOLONG. */
int watch_tree_path(const struct watch_tree *t, int32_t i, const char *name, char *out, size_t size);

#endif
