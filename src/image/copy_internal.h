/*
 * copy_internal.h - a copy under way, for the files it is made of: copy.c, copy_parents.c
 */
#ifndef QS_IMAGE_COPY_INTERNAL_H
#define QS_IMAGE_COPY_INTERNAL_H

#include "base/map.h"
#include "image/chain.h"
#include "image/job.h"
#include "image/scribe.h"
#include "ipc/image_proto.h"

struct copy {
    const struct job *job;
    const struct image_copy *rq;
    struct chain_dir source, base;
    struct scribe scribe;
    int root;                           /* of the new layer */
    char *ignore;                       /* lines; owned, NULL = none */
    size_t ignore_len;
    uid_t uid;
    gid_t gid;
    struct map made;                    /* directories that the layer has already -> not NULL; owned */
    uint64_t changes;
    char start[LIMIT_PATH];             /* of --parents: the directory in the source where a copy begins */
    size_t at;                          /* of a path in the source: where the part begins that --exclude speaks of */
    /* owner and mode of the request were for the directory of a mount, not for what is in it */
    bool is_plain;
};

struct tree_attr copy_attr(const struct copy *c, const struct stat *st);       /* that a file of the source gets */
bool copy_is_ignored(const struct copy *c, const char *path);
/* By --exclude, whose patterns are of paths in what is copied. */
bool copy_is_excluded(const struct copy *c, const char *path);
/* Below a directory that is left out something may not be. */
bool copy_has_exceptions(const struct copy *c);
/* Whether the layer has the directory already; from now on it has. */
bool copy_was_made(struct copy *c, const char *path);
/* The directory and those it is in, as the image has them. */
int copy_make_dirs(struct copy *c, const char *path, struct err *e);
int copy_join(const char *dir, const char *name, char out[LIMIT_PATH], struct err *e);
/* The entry `name` of `dir`, which is `from` in the source, as `to`, with all that is below. */
int copy_entry(struct copy *c, const struct chain_dir *dir, const char *name, const char *from,
               const char *to, int depth, struct err *e);

/* copy_parents.c: what the item matches, below dest with the directories that it is in. */
int copy_with_parents(struct copy *c, const char *item, const char *dest, struct err *e);

#endif
