/*
 * image_pull.h - pulling images from registries
 *
 * Called by the dialects and the builder.
 */
#ifndef QS_CORE_IMAGE_PULL_H
#define QS_CORE_IMAGE_PULL_H

#include "core/operation.h"
#include "core/registry_auth.h"

/* Borrowed during image_pull. */
struct image_pull_spec {
    const char *ref;                    /* as in base/image_ref.h */
    const char *name;                   /* by which it is known here; NULL = by the reference */
    const char *arch;                   /* NULL = the machine's */
    const struct registry_auth *auth;   /* NULL or empty = what the file of registry credentials says */
    bool refresh;                       /* resolve a tag again; else an image that has the name is the answer */
};

/* The id of the operation: a new one, or the one that pulls the same already. */
int image_pull(struct core *c, const struct image_pull_spec *spec, char ret_operation[ID_SIZE], struct err *e);

/* The same for who goes on with the image: `done` is called once, with the image or the error. */
typedef void (*image_pulled_fn)(void *ctx, const char *image, const struct err *e);
typedef void (*image_line_fn)(void *ctx, const char *text);
struct image_pull;
struct image_pull *image_pull_begin(struct core *c, const struct image_pull_spec *spec, image_line_fn line, image_pulled_fn done,
                                    void *ctx, struct err *e);
void image_pull_cancel(struct image_pull *p);   /* `done` is still called, with an error */

#endif
