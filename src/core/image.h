/*
 * image.h - images: rows over layers that the nodes hold
 *
 * Called by the dialects. A layer that no image names any more is removed from the node, but never
 * while an import is under way: the import may be about to name it.
 */
#ifndef QS_CORE_IMAGE_H
#define QS_CORE_IMAGE_H

#include "core/core.h"
#include "json/json.h"
#include "store/store.h"

#define IMAGE_BYTES_MAX (16ULL << 30)       /* unpacked */
#define IMAGE_FILES_MAX 4000000

/* What an import needs besides its bytes; borrowed during image_import. */
struct image_config {
    const char *name;                       /* NULL = none */
    const json_t *env;                      /* object of strings, NULL = none */
    const char *workdir, *user;             /* NULL = none */
    bool is_context;                        /* files for a build: a layer without an image, named in the row's `layers` */
};

#define IMAGE_CACHE_KEY "cache:"            /* build steps of that key name the layers of caches of RUN --mount */
/* A build step of the key "context:<layer>:<id>" keeps an upload until a build takes it, or so long. */
#define IMAGE_CONTEXT_KEY "context:"
#define IMAGE_CONTEXT_KEEP_US (3600LL * 1000000)

struct image_import;
typedef void (*image_fn)(void *ctx, const struct image_row *image, const struct err *e);

struct image_import_ops {
    void (*on_writable)(void *ctx);         /* room again after image_import_is_full */
    image_fn done;                          /* exactly once, unless cancelled */
};

/* -1 when the configuration is wrong. */
int image_config_check(const struct image_config *cfg, struct err *e);
/* One upload of the context is the caller's, to whom ERR_NOT_FOUND says that there is none. Hold, or its layer may go. */
int image_context_take(struct core *c, const char *layer, struct err *e);
/* Give it the bytes of the archive, then the end. */
struct image_import *image_import(struct core *c, const struct image_config *cfg, const struct image_import_ops *ops,
                                  void *ctx);
void image_import_data(struct image_import *im, const void *p, size_t n);
bool image_import_is_full(const struct image_import *im);   /* give no more before on_writable */
void image_import_end(struct image_import *im);
void image_import_cancel(struct image_import *im);          /* the bytes broke off: nothing is kept */

int image_get(struct core *c, const char *id_or_name, struct image_row *ret, struct err *e);
int image_set_name(struct core *c, const char *name, const char *id_or_name, struct image_row *ret, struct err *e);
/* While somebody holds, no layer is removed from the node. */
void image_hold(struct core *c);
void image_release(struct core *c);
int image_unname(struct core *c, const char *name, struct err *e);     /* ERR_NOT_FOUND */
/* ERR_CONFLICT while a live sandbox uses it. The rows are gone when it returns, the layers soon
 * after. */
int image_remove(struct core *c, const char *id_or_name, struct err *e);

/* --- export: an image as a tar ----------------------------------------------------------------- */

struct image_export;

struct image_export_ops {
    void (*data)(void *ctx, const void *p, size_t n);   /* give credit with image_export_consumed */
    void (*done)(void *ctx, const struct err *e);       /* exactly once, unless cancelled; NULL: the archive is complete */
};

/* `compression` as in node.proto. NULL: *e says why. */
struct image_export *image_export_begin(struct core *c, const char *id_or_name, unsigned compression,
                                        const struct image_export_ops *ops, void *ctx, struct err *e);
void image_export_consumed(struct image_export *x, size_t n);
void image_export_cancel(struct image_export *x);

/* --- garbage: images that nobody uses ---------------------------------------------------------- */

#define IMAGE_GC_UNUSED_S (24 * 3600)

struct image_gc_spec {
    int64_t unused_ms;                      /* only what was made, and last used, so long ago */
    bool named_too;
    bool dry_run;
};

struct image_gc_result {
    int64_t freed_bytes;                    /* of layers that nothing names any more */
    int64_t steps;                          /* build steps forgotten */
};

typedef void (*image_gc_fn)(void *ctx, const char *image, int64_t bytes, const char *source);
int image_gc(struct core *c, const struct image_gc_spec *spec, image_gc_fn fn, void *ctx, struct image_gc_result *ret,
             struct err *e);

#endif
