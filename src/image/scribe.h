/*
 * scribe.h - writing a layer out of entries of other trees, and naming it by what was written
 *
 * The name is a SHA-256 over paths, kinds, owners, modes, attributes and contents, in the order written; times are not in
 * it, so what is built twice of the same files is one layer. Used by fold.c and copy.c.
 */
#ifndef QS_IMAGE_SCRIBE_H
#define QS_IMAGE_SCRIBE_H

#include <sys/stat.h>

#include "base/map.h"
#include "base/sha256.h"
#include "image/job.h"
#include "image/tree.h"
#include "image/unpack.h"

struct scribe_link;

struct scribe {
    const struct job *job;
    struct tree tree;
    struct sha256 hash;
    struct unpack_counts counts;
    struct unpack_limits limits;
    struct map links;                   /* "dev:inode" of files that may come again as hard links -> first path; owned */
    void *buffer;                       /* owned */
    bool drops_secrets;                 /* files with SECRET_MARK are passed over, and all their names */
};

void scribe_begin(struct scribe *s, const struct job *job, int root, const struct unpack_limits *limits);
void scribe_done(struct scribe *s);
/* Names that come from now on are no hard links to earlier ones. */
void scribe_forget_links(struct scribe *s);
/* What the caller writes itself and the name of the layer is to say: of a kind of its own, with all there is to know of its
 * content. */
void scribe_note(struct scribe *s, char kind, const char *path, const struct tree_attr *a, const void *content, size_t n);
/* Times of directories, and the name: 64 digits. */
int scribe_end(struct scribe *s, char ret_layer[72], struct err *e);

/* Owner, mode and time that an entry is to have; from its state. */
struct tree_attr scribe_attr(const struct stat *st);
/* The entry `name` in `dir`, whose state is `st`, as `path`. Directories are made without what is in them. Sockets and
 * devices that are no whiteouts are left out. */
int scribe_entry(struct scribe *s, const char *path, int dir, const char *name, const struct stat *st, const struct tree_attr *a,
                 struct err *e);
int scribe_dir(struct scribe *s, const char *path, const struct tree_attr *a, struct err *e);
int scribe_opaque(struct scribe *s, const char *path, struct err *e);

#endif
