/*
 * unpack.h - a tar archive becomes a directory tree
 */
#ifndef QS_IMAGE_UNPACK_H
#define QS_IMAGE_UNPACK_H

#include <stdint.h>

#include "base/err.h"
#include "image/source.h"

struct unpack_limits {
    uint64_t max_bytes;             /* of file contents; 0 = none */
    uint64_t max_files;             /* entries; 0 = none */
};

/* Of a whole root file system a name such as ".wh.x" is a file's; in a layer it says that x is gone. */
enum unpack_kind { UNPACK_ROOT, UNPACK_LAYER };

struct unpack_counts {
    uint64_t bytes, files;          /* contents; entries of every kind that were made */
    uint64_t devices, sockets;      /* left out */
    uint64_t whiteouts;             /* names that mean one in a layer */
};

typedef void (*unpack_progress_cb)(const struct unpack_counts *counts, void *arg);

/*
 * Unpacks everything of `s` below the empty directory `root`. Reads `s` to its end. On failure the tree is in any
 * state: the caller removes it. `progress` is called often; it decides what is worth telling.
 */
int unpack_tar(struct source *s, int root, enum unpack_kind kind, const struct unpack_limits *limits,
               unpack_progress_cb progress, void *arg, struct unpack_counts *ret, struct err *e);

#endif
