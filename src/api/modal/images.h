/*
 * images.h - what the files about images share
 */
#ifndef QS_API_MODAL_IMAGES_H
#define QS_API_MODAL_IMAGES_H

#include "api/modal/mcall.h"

/* The image of a reference: by one of the names it may have here, else base if that can stand for it. */
int images_find_ref(struct mcall *c, const char *ref, struct image_row *row, struct err *e);
int images_find_id(struct mcall *c, const char *id, struct image_row *row);
void images_fill_metadata(const struct image_row *row, M(ImageMetadata) *meta);

/* mounts.c: the files of a mount ("" = none) and those of a definition as a build context. `fn` gets its layer or the error. */
typedef void (*context_fn)(void *ctx, const char *layer, const struct err *e);
void mounts_make_context(struct modal *m, const char *mount_id, M(ImageContextFile) *const *files, size_t n, context_fn fn, void *ctx);

#endif
