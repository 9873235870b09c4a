/*
 * pack.h - a layer becomes a tar archive again, compressed into a file
 *
 * The same tree gives the same bytes: entries are sorted by name, times are those of the files, nothing says who packed.
 * Whiteouts and opaque directories take the form that layers of registries have.
 */
#ifndef QS_IMAGE_PACK_H
#define QS_IMAGE_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/image_ref.h"
#include "ipc/image_proto.h"

struct packed {
    char diff_id[IMAGE_DIGEST_SIZE];    /* of the tar */
    char digest[IMAGE_DIGEST_SIZE];     /* of the file */
    uint64_t size;                      /* of the file */
};

/* `is_cancelled` is asked now and then. The file `out` is written from its position on. */
int pack_layer(int layer, enum image_compression how, int out, bool (*is_cancelled)(void *arg), void *arg, struct packed *ret,
               struct err *e);
/* The SHA-256 of the tar that pack_layer would make; of an imported root file system too, whose names may be whiteouts' in a
 * layer. */
int pack_sum(int layer, bool (*is_cancelled)(void *arg), void *arg, char ret_digest[IMAGE_DIGEST_SIZE], struct err *e);

#endif
