/*
 * image_fold.h - an image that comes with a long list of layers: they are copied into one
 *
 * A name that is not there costs a look into every layer, and a sandbox mounts LIMIT_LAYERS at most. Used by imports and
 * pulls; builds do the same between their steps (api/shared/build).
 */
#ifndef QS_CORE_IMAGE_FOLD_H
#define QS_CORE_IMAGE_FOLD_H

#include "core/core.h"
#include "node.pb-c.h"
#include "store/store.h"

#define IMAGE_LAYERS_FOLD 40            /* more are folded */

/* The node makes one layer of `layers`, top first; `fn` gets a Layer. */
struct node_call *image_fold(struct core *c, Quicksand__Node__Layer **layers, size_t n, node_reply_fn fn, void *ctx);

/*
 * The rows of an image's layers and its list of them, inside the caller's transaction: those it came with, or `folded` (NULL
 * = none) in their place; then the others are given up unless somebody else has them.
 */
int image_layers_put(struct store *s, Quicksand__Node__Layer **layers, size_t n,
                     const Quicksand__Node__Layer *folded, struct image_row *row, struct err *e);

#endif
