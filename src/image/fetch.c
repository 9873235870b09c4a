/*
 * fetch.c - the process that talks to a registry for a job
 */
#include "image/fetch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "image/download.h"
#include "image/registry.h"
#include "ipc/channel.h"
#include "ipc/wire.h"

#define CONFIG_PIECE (32 * 1024)
#define PROGRESS_EVERY_MS 100
#define WANT_WAIT_MS 600000
#define ACCEPT                                                                                                \
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "                   \
    "application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json"

struct fetch {
    const struct image_pull *request;
    int blobs, channel;
    const char *arch;
    struct image_ref ref;
    struct registry registry;
    struct manifest manifest;
    struct manifest_config config;
    struct fetch_plan plan;
    unsigned place;                     /* which of mirrors and registry is asked */
    bool want[MANIFEST_LAYERS_MAX];     /* layers that are still to come */
    uint64_t got_bytes, earlier_bytes;  /* of those that came; of those that came from earlier places */
    int64_t told_ms;
    uint8_t space[LIMIT_CHANNEL_INLINE];
};

/* --- the channel -------------------------------------------------------------------------------------------------------- */

/* The job reads all the time. When it is gone there is nobody to work for. */
static void tell(struct fetch *f, uint16_t type, const void *p, size_t n)
{
    struct pollfd out = {.fd = f->channel, .events = POLLOUT};

    for (;;) {
        int r = chan_send(f->channel, type, 0, p, n, NULL, 0);
        if (r == 0)
            return;
        if (r != -EAGAIN)
            _exit(1);
        (void)poll(&out, 1, -1);
    }
}

static bool is_cancelled(void *arg)
{
    struct fetch *f = arg;
    struct pollfd p = {.fd = f->channel, .events = POLLRDHUP};

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

static void tell_failed(struct fetch *f, const struct err *e)
{
    struct wire_writer w;

    wire_init(&w, f->space, sizeof f->space);
    wire_put_u16(&w, (uint16_t)e->code);
    wire_put_str(&w, e->message);
    tell(f, FETCH_FAILED, f->space, w.len);
}

size_t fetch_plan_encode(const struct fetch_plan *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->digest);
    wire_put_str(&w, m->source);
    wire_put_u32(&w, m->nlayers);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        wire_put_str(&w, m->layers[i].blob.digest);
        wire_put_u64(&w, m->layers[i].blob.size);
        wire_put_str(&w, m->layers[i].diff_id);
    }
    return w.failed ? 0 : w.len;
}

int fetch_plan_decode(struct fetch_plan *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    wire_get_str(&r, ret->digest, sizeof ret->digest);
    wire_get_str(&r, ret->source, sizeof ret->source);
    ret->nlayers = wire_get_u32(&r);
    if (ret->nlayers > MANIFEST_LAYERS_MAX)
        return -EBADMSG;
    for (uint32_t i = 0; i < ret->nlayers; i++) {
        wire_get_str(&r, ret->layers[i].blob.digest, sizeof ret->layers[i].blob.digest);
        ret->layers[i].blob.size = wire_get_u64(&r);
        wire_get_str(&r, ret->layers[i].diff_id, sizeof ret->layers[i].diff_id);
        if (!image_digest_is_valid(ret->layers[i].blob.digest) || !image_digest_is_valid(ret->layers[i].diff_id))
            return -EBADMSG;
    }
    return wire_end(&r) && image_digest_is_valid(ret->digest) && image_digest_is_valid(ret->source) ? 0 : -EBADMSG;
}

/* --- what there is to fetch ---------------------------------------------------------------------------------------------- */

static void digest_of(const struct buf *b, char out[IMAGE_DIGEST_SIZE])
{
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, b->data, b->len);
    sha256_end(&s, sum);
    memcpy(out, "sha256:", 7);
    sha256_hex(sum, out + 7);
}

/* A document of the registry, which must be what `digest` says ("" = whatever is there). */
static int get_document(struct fetch *f, const char *kind, const char *name, const char *digest, struct buf *body,
                        char ret_digest[IMAGE_DIGEST_SIZE], struct err *e)
{
    auto_free char *what = mem_printf("%s/%s", kind, name);
    auto_free char *url = registry_url(&f->registry, what);
    struct registry_reply reply;

    if (registry_get(&f->registry, url, strcmp(kind, "manifests") == 0 ? ACCEPT : NULL, MANIFEST_BYTES_MAX, body, &reply, e) < 0)
        return err_wrap(e, "%s '%.100s'", strcmp(kind, "manifests") == 0 ? "manifest" : "configuration", name);
    digest_of(body, ret_digest);
    if (*digest != '\0' && strcmp(digest, ret_digest) != 0)
        return err_set(e, ERR_INVALID, "what the registry %s gave for %.19s... has the digest %.19s... instead", f->registry.host,
                       digest, ret_digest);
    return 0;
}

static int get_manifest(struct fetch *f, struct err *e)
{
    const char *name = f->ref.digest[0] != '\0' ? f->ref.digest : f->ref.tag;
    auto_buf body = {0};

    buf_init(&body, MANIFEST_BYTES_MAX + 1);
    if (get_document(f, "manifests", name, f->ref.digest, &body, f->plan.source, e) < 0 ||
        manifest_read(body.data, body.len, f->arch, &f->manifest, e) < 0)
        return -1;
    memcpy(f->plan.digest, f->plan.source, sizeof f->plan.digest);
    for (int depth = 0; f->manifest.is_index; depth++) {
        char chosen[IMAGE_DIGEST_SIZE];
        if (depth == MANIFEST_DEPTH_MAX)
            return err_set(
                e, ERR_INVALID,
                "the image's index leads to an index, and that to others, more than %d deep",
                MANIFEST_DEPTH_MAX);
        memcpy(chosen, f->manifest.chosen.digest, sizeof chosen);
        if (get_document(f, "manifests", chosen, chosen, &body, f->plan.digest, e) < 0 ||
            manifest_read(body.data, body.len, f->arch, &f->manifest, e) < 0)
            return -1;
    }
    return 0;
}


static int get_config(struct fetch *f, struct err *e)
{
    const struct manifest_blob *b = &f->manifest.config;
    char digest[IMAGE_DIGEST_SIZE];
    auto_buf body = {0};

    buf_init(&body, MANIFEST_BYTES_MAX + 1);
    return get_document(f, "blobs", b->digest, b->digest, &body, digest, e) < 0
               ? -1
               : manifest_config_read(body.data, body.len, f->arch, f->manifest.nlayers, &f->config, e);
}

/* Whatever is wrong with a mirror, the next one or the registry itself may do better: its place is taken. False: it was the
 * registry. */
static bool go_on(struct fetch *f)
{
    return f->registry.is_mirror && !is_cancelled(f) && registry_select(&f->registry, ++f->place);
}

static int find_image(struct fetch *f, struct err *e)
{
    if (!registry_select(&f->registry, f->place))
        return err_set(e, ERR_INTERNAL, "there is no registry to ask");
    for (;;) {
        if (get_manifest(f, e) == 0 && get_config(f, e) == 0)
            return 0;
        if (!go_on(f))
            return -1;
    }
}

static void tell_plan(struct fetch *f)
{
    struct fetch_plan *plan = &f->plan;
    const char *text = f->config.text;

    plan->nlayers = f->manifest.nlayers;
    for (uint32_t i = 0; i < plan->nlayers; i++) {
        plan->layers[i].blob = f->manifest.layers[i];
        memcpy(plan->layers[i].diff_id, f->config.diff_ids[i], IMAGE_DIGEST_SIZE);
    }
    tell(f, FETCH_PLAN, f->space, fetch_plan_encode(plan, f->space, sizeof f->space));
    for (size_t left = strlen(text); left > 0;) {
        size_t n = left < CONFIG_PIECE ? left : CONFIG_PIECE;
        tell(f, FETCH_CONFIG, text, n);
        text += n;
        left -= n;
    }
    tell(f, FETCH_CONFIG, "", 0);
}

static int get_want(struct fetch *f, struct err *e)
{
    struct pollfd p = {.fd = f->channel, .events = POLLIN};
    struct chan_msg m;

    if (poll(&p, 1, WANT_WAIT_MS) <= 0 || chan_recv(f->channel, f->space, sizeof f->space, CHAN_NO_FDS, &m) <= 0 ||
        m.type != FETCH_WANT || m.len != f->plan.nlayers)
        return err_set(e, ERR_INTERNAL, "the job did not say what it wants");
    for (uint32_t i = 0; i < f->plan.nlayers; i++)
        f->want[i] = m.data[i] == 1;
    return 0;
}

static void on_got(void *arg, uint32_t index)
{
    struct fetch *f = arg;
    struct wire_writer w;
    uint8_t out[8];

    f->want[index] = false;
    f->got_bytes += f->manifest.layers[index].size;

    wire_init(&w, out, sizeof out);
    wire_put_u32(&w, index);
    tell(f, FETCH_GOT, out, w.len);
}

static void on_progress(void *arg, uint64_t bytes)
{
    struct fetch *f = arg;
    struct wire_writer w;
    uint8_t out[8];
    int64_t now = clock_boot_ms();

    if (now - f->told_ms < PROGRESS_EVERY_MS)
        return;
    f->told_ms = now;
    wire_init(&w, out, sizeof out);
    wire_put_u64(&w, f->earlier_bytes + bytes);
    tell(f, FETCH_PROGRESS, out, w.len);
}

/* What a mirror does not give, or not as its digest says, comes from the next place. Nothing helps against a full disk. */
static int download(struct fetch *f, struct err *e)
{
    const struct download_ops ops = {.got = on_got, .progress = on_progress, .wake_fd = f->channel};

    while (download_blobs(&f->registry, f->blobs, f->manifest.layers, f->manifest.nlayers, f->want, &ops, f, e) < 0) {
        if (e->code == ERR_CAPACITY || !go_on(f))
            return -1;
        f->earlier_bytes = f->got_bytes;
    }
    return 0;
}

static int fetch(struct fetch *f, struct err *e)
{
    if (image_ref_parse(f->request->ref, &f->ref, e) < 0 || find_image(f, e) < 0)
        return -1;
    tell_plan(f);
    if (get_want(f, e) < 0 || download(f, e) < 0)
        return -1;
    tell(f, FETCH_DONE, NULL, 0);
    return 0;
}

int fetch_run(struct image_pull *request, const struct conf *conf, int blobs, int channel)
{
    struct fetch *f = mem_zalloc(sizeof *f);
    struct err e = {0};

    f->request = request;
    f->blobs = blobs;
    f->channel = channel;
    f->arch = request->arch[0] != '\0' ? request->arch : manifest_machine();
    registry_init(&f->registry, conf, &f->ref);
    f->registry.user = request->user;
    f->registry.password = request->password;
    f->registry.aws = request->auth == IMAGE_AUTH_AWS ? request : NULL;
    f->registry.is_cancelled = is_cancelled;
    f->registry.arg = f;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        (void)err_set(&e, ERR_INTERNAL, "libcurl cannot be set up");
    else if (fetch(f, &e) == 0)
        e = (struct err){0};            /* of a mirror */
    if (e.code != ERR_OK)
        tell_failed(f, &e);
    registry_done(&f->registry);
    manifest_config_done(&f->config);
    free(f);
    return 0;
}
