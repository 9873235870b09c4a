/*
 * manifest.h - reading what registries and archives say of an image: index, manifest, configuration
 *
 * Pure: bytes of strangers in, checked values out. Called by the fetching child alone; fuzzed.
 */
#ifndef QS_IMAGE_MANIFEST_H
#define QS_IMAGE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/image_ref.h"

#define MANIFEST_BYTES_MAX (4U << 20)
#define MANIFEST_LAYERS_MAX 256
#define MANIFEST_INDEX_MAX 1000
#define MANIFEST_DEPTH_MAX 4            /* of indexes that an index leads to */

struct manifest_blob {
    char digest[IMAGE_DIGEST_SIZE];
    uint64_t size;
};

struct manifest {
    bool is_index;                      /* then `chosen` is the manifest to read next, which may be an index again */
    struct manifest_blob chosen;
    struct manifest_blob config;
    uint32_t nlayers;                   /* bottom first */
    struct manifest_blob layers[MANIFEST_LAYERS_MAX];
};

struct manifest_config {
    uint32_t nlayers;
    char diff_ids[MANIFEST_LAYERS_MAX][IMAGE_DIGEST_SIZE];
    char *text;                         /* owned: JSON of architecture, os, created, config and history */
};

/* The architecture of this machine in the words of images: "amd64", "arm64", ... */
const char *manifest_machine(void);
/* `arch` is what is looked for in an index. */
int manifest_read(const void *p, size_t n, const char *arch, struct manifest *ret, struct err *e);
int manifest_config_read(const void *p, size_t n, const char *arch, uint32_t nlayers, struct manifest_config *ret, struct err *e);
/* The one entry of the manifest.json of `docker save`: paths in the archive, bottom first. */
struct manifest_archive {
    char config[256];
    uint32_t nlayers;
    char layers[MANIFEST_LAYERS_MAX][256];
};
/* Whether a manifest.json is that of `docker save`, and not a file that only has this name. */
bool manifest_is_archive(const void *p, size_t n);
int manifest_archive_read(const void *p, size_t n, struct manifest_archive *ret, struct err *e);
/* An index.json of a layout with more than one image in it, for whatever machine, is refused: nobody said which. */
int manifest_layout_check(const void *p, size_t n, struct err *e);
void manifest_config_done(struct manifest_config *c);

#endif
