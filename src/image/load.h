/*
 * load.h - archives that hold an image with its layers: OCI layouts and what `docker save` writes
 */
#ifndef QS_IMAGE_LOAD_H
#define QS_IMAGE_LOAD_H

#include <stdbool.h>

#include "image/job.h"
#include "image/unpack.h"
#include "ipc/image_proto.h"

/* Is the unpacked archive one of these, and not a root file system? */
bool load_is_image(int root);
/* Its layers become layers here; tells the connection PIECES and LAYERS. The caller discards `root`. */
int load_image(const struct job *job, int root, const struct unpack_limits *limits, struct image_done *ret, struct err *e);

#endif
