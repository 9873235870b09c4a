/*
 * images.h - what the files about images share
 */
#ifndef QS_API_MODAL_IMAGES_H
#define QS_API_MODAL_IMAGES_H

#include "api/modal/mcall.h"

/* What clients are told to be the app of builds; their tasks are operations. */
#define IMAGES_APP "ap-0000000000000000000000"

/* The image that has the reference as its name, else base if that can stand for it. */
int images_find_ref(struct mcall *c, const char *ref, struct image_row *row, bool *ret_stands_in, struct err *e);
int images_find_id(struct mcall *c, const char *id, struct image_row *row);
/* ENTRYPOINT and CMD of an image, NULL if it has neither; the caller owns it. */
json_t *images_command(struct mcall *c, const char *id);
void images_fill_metadata(const struct image_row *row, M(ImageMetadata) *meta);

/* --- mounts.c ----------------------------------------------------------------------------------------- */

/* Array of [path, hash, mode]; notes that it is used. NULL with the error; the caller owns it. */
json_t *mount_files(struct modal *m, const char *id, struct err *e);
/* Forgets what nobody used for a while. */
void mounts_sweep(struct modal *m);

/* mount_context.c: the files of mounts and those of a definition as a build context. `fn` gets its layer (NULL = no files
 * were asked for) or the error. */
typedef void (*context_fn)(void *ctx, const char *layer, const struct err *e);
void mounts_make_context(struct modal *m, char *const *ids, size_t nids,
                         M(ImageContextFile) *const *files, size_t n, context_fn fn, void *ctx);

/* mounted.c: an image with mounts laid over it, as an image of its own; the same one for the same files. */
typedef void (*mounted_fn)(void *ctx, const char *image, const struct err *e);
void mounted_image(struct modal *m, const char *image, char *const *mounts, size_t n, mounted_fn fn, void *ctx);
/* Forgets what was made for mounts and not used for a while. */
void mounted_sweep(struct modal *m);

#endif
