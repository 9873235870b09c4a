/*
 * verify.c - is a layer still what was unpacked?
 */
#include "image/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "image/confine.h"
#include "image/layer.h"
#include "image/pack.h"
#include "sys/fd.h"

static bool is_cancelled(void *arg)
{
    return job_is_cancelled(arg);
}

/* A tree that cannot be read is as damaged as one that reads otherwise. */
static int look_at(const struct job *job, struct image_verdict *v, struct err *e)
{
    auto_close int layer = openat(job->layers, v->layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    char was[IMAGE_DIGEST_SIZE], is[IMAGE_DIGEST_SIZE];
    struct err local = {0};

    if (layer < 0) {
        v->state = IMAGE_MISSING;
        (void)snprintf(v->message, sizeof v->message, "the layer is not on this node");
        return 0;
    }
    if (!layer_sum_read(job, v->layer, was)) {
        v->state = IMAGE_UNKNOWN;
        (void)snprintf(v->message, sizeof v->message, "nothing is known of what it was");
        return 0;
    }
    if (pack_sum(layer, is_cancelled, (void *)(uintptr_t)job, is, &local) < 0) {
        if (is_cancelled((void *)(uintptr_t)job))
            return err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
        v->state = IMAGE_DAMAGED;
        (void)snprintf(v->message, sizeof v->message, "%.150s", local.message);
    } else if (strcmp(was, is) != 0) {
        v->state = IMAGE_DAMAGED;
        (void)snprintf(v->message, sizeof v->message, "its files are not those that were unpacked");
    }
    return v->state == IMAGE_DAMAGED ? layer_mark_damaged(job, v->layer, e) : 0;
}

int verify_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e)
{
    auto_free struct image_verify *request = mem_zalloc(sizeof *request);
    uint8_t out[512];

    if (m->nfds != 0 || image_verify_decode(request, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "not a request of this version");
    if (confine_unpacker(e) < 0)
        return -1;
    for (uint32_t i = 0; i < request->nlayers; i++) {
        struct image_verdict v = {.state = IMAGE_WHOLE};
        memcpy(v.layer, request->layers[i], sizeof v.layer);
        if (look_at(job, &v, e) < 0)
            return -1;
        if (v.state == IMAGE_DAMAGED)
            log_warn("image.damaged", "layer=%s", v.layer);
        job_send(job->conn, IMAGE_VERDICT, out, image_verdict_encode(&v, out, sizeof out));
    }
    ret->files = request->nlayers;
    return 0;
}
