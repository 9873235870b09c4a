/*
 * layer.h - a layer: made in the staging directory, seen under its name when it is complete and on disk
 */
#ifndef QS_IMAGE_LAYER_H
#define QS_IMAGE_LAYER_H

#include <stdbool.h>

#include "base/image_ref.h"
#include "image/job.h"
#include "image/unpack.h"

/* An empty directory of the job in the staging directory; both descriptors are the caller's. */
int layer_stage(const struct job *job, int *ret_staging, int *ret_root, struct err *e);
/*
 * Moves the complete tree to its name; one that is there already has the same contents, unless it is marked as damaged: then
 * it is replaced. `counts` is its size, for whoever finds it there later.
 */
int layer_publish(const struct job *job, int staging, int root, const char *layer,
                  const struct unpack_counts *counts, struct err *e);
/* Removes what was staged and is not to be. */
void layer_discard(const struct job *job, int staging);
/* The layer with nothing in it, for images that have none: the SHA-256 of an empty tar. */
#define LAYER_EMPTY "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
int layer_make_empty(const struct job *job, struct err *e);
/* False for one that is marked as damaged too: it is to come again. */
bool layer_is_there(const struct job *job, const char *layer);
/* Whether the root of the layer hides all that is below it. Overlay does not look there, so an image has no layers below
 * such a one. */
bool layer_hides_all(const struct job *job, const char *layer);
/* The sum that was taken when the layer was made; false if there is none. */
bool layer_sum_read(const struct job *job, const char *layer, char ret[IMAGE_DIGEST_SIZE]);
/* What it was made with; 0 where that is not known. */
void layer_size_read(const struct job *job, const char *layer, uint64_t *ret_bytes, uint64_t *ret_files);
int layer_mark_damaged(const struct job *job, const char *layer, struct err *e);

/* As layer_unpack, up to the tree being complete: it is the caller's to publish or to discard. On failure it is gone. */
int layer_unpack_staged(const struct job *job, int fd, enum unpack_kind kind,
                        const struct unpack_limits *limits, const char *expected,
                        unpack_progress_cb progress, void *arg, struct unpack_counts *ret_counts,
                        char ret_layer[72], int *ret_staging, int *ret_root, struct err *e);
/*
 * Unpacks what can be read from `fd`. The layer's name is the SHA-256 of the uncompressed archive; if `expected` is given
 * and it is another, that is an error. `ret_layer` may be NULL.
 */
int layer_unpack(const struct job *job, int fd, enum unpack_kind kind, const struct unpack_limits *limits, const char *expected,
                 unpack_progress_cb progress, void *arg, struct unpack_counts *ret_counts, char ret_layer[72], struct err *e);

#endif
