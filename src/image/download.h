/*
 * download.h - blobs of a registry into files, several at once, each checked against its digest while it comes
 */
#ifndef QS_IMAGE_DOWNLOAD_H
#define QS_IMAGE_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "image/manifest.h"
#include "image/registry.h"

#define DOWNLOAD_PARALLEL 4

struct download_ops {
    void (*got)(void *arg, uint32_t index);                 /* the file is complete */
    void (*progress)(void *arg, uint64_t bytes);            /* of all, with what was there already; called often */
    int wake_fd;                                            /* is_cancelled is asked again when it can be read */
};

/*
 * Blob `i` is wanted if want[i]; it becomes the file <64 digits> below `dir`. A piece that an earlier try left there (with
 * ".part") is continued. Two processes that want one blob: the second waits for the first.
 */
int download_blobs(struct registry *r, int dir, const struct manifest_blob *blobs, uint32_t n, const bool *want,
                   const struct download_ops *ops, void *arg, struct err *e);

#endif
