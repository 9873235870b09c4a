/*
 * fetch.h - the process that talks to a registry for a job, and what it says to the job
 *
 * Forked by pull.c. It gets nothing but an open directory for blobs and one end of a channel; what it reports is checked
 * there like anybody's. Order: PLAN and CONFIG pieces; WANT comes back; GOT for each blob; DONE. FAILED ends it at any time.
 */
#ifndef QS_IMAGE_FETCH_H
#define QS_IMAGE_FETCH_H

#include <stdint.h>

#include "base/conf.h"
#include "image/manifest.h"
#include "ipc/image_proto.h"

enum fetch_type {
    FETCH_PLAN = 1,     /* struct fetch_plan */
    FETCH_CONFIG,       /* bytes of the configuration's text, in order */
    FETCH_WANT,         /* to the fetcher: one byte a layer, 1 = download it */
    FETCH_GOT,          /* u32: index of a layer whose blob is complete */
    FETCH_PROGRESS,     /* u64 bytes */
    FETCH_LOG,          /* text */
    FETCH_FAILED,       /* u16 enum err_code, text */
    FETCH_DONE,         /* nothing: every wanted blob is there */
};

struct fetch_plan {
    char digest[IMAGE_DIGEST_SIZE];     /* of the manifest that was chosen */
    char source[IMAGE_DIGEST_SIZE];     /* what the reference itself resolved to: that, or an index */
    uint32_t nlayers;                   /* bottom first */
    struct {
        struct manifest_blob blob;
        char diff_id[IMAGE_DIGEST_SIZE];
    } layers[MANIFEST_LAYERS_MAX];
};

size_t fetch_plan_encode(const struct fetch_plan *m, void *out, size_t size);
int fetch_plan_decode(struct fetch_plan *ret, const void *p, size_t n);

/* Runs in the child, which is confined already. Its exit status. Overwrites the request's credentials as soon as they served. */
int fetch_run(struct image_pull *request, const struct conf *conf, int blobs, int channel);

#endif
