/*
 * image_proto.c - codec of the messages between node and image
 */
#include "ipc/image_proto.h"

#include <errno.h>
#include <string.h>

#include "ipc/wire.h"

static size_t done(const struct wire_writer *w)
{
    return w->failed ? 0 : w->len;
}

size_t image_unpack_encode(const struct image_unpack *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u64(&w, m->max_bytes);
    wire_put_u64(&w, m->max_files);
    return done(&w);
}

int image_unpack_decode(struct image_unpack *ret, const void *p, size_t n)
{
    struct image_unpack m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.max_bytes = wire_get_u64(&r);
    m.max_files = wire_get_u64(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t image_progress_encode(const struct image_progress *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u64(&w, m->bytes);
    wire_put_u64(&w, m->files);
    return done(&w);
}

int image_progress_decode(struct image_progress *ret, const void *p, size_t n)
{
    struct image_progress m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.bytes = wire_get_u64(&r);
    m.files = wire_get_u64(&r);
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t image_done_encode(const struct image_done *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u16(&w, m->code);
    wire_put_str(&w, m->message);
    wire_put_str(&w, m->layer);
    wire_put_u64(&w, m->bytes);
    wire_put_u64(&w, m->files);
    wire_put_str(&w, m->path);
    wire_put_u32(&w, m->existing);
    return done(&w);
}

int image_done_decode(struct image_done *ret, const void *p, size_t n)
{
    struct image_done m = {0};
    struct wire_reader r;

    wire_read(&r, p, n);
    m.code = wire_get_u16(&r);
    wire_get_str(&r, m.message, sizeof m.message);
    wire_get_str(&r, m.layer, sizeof m.layer);
    m.bytes = wire_get_u64(&r);
    m.files = wire_get_u64(&r);
    wire_get_str(&r, m.path, sizeof m.path);
    m.existing = wire_get_u32(&r);
    if (!wire_end(&r) || m.existing > strlen(m.path))
        return -EBADMSG;
    *ret = m;
    return 0;
}

size_t image_pull_encode(const struct image_pull *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->ref);
    wire_put_str(&w, m->arch);
    wire_put_u16(&w, m->auth);
    wire_put_str(&w, m->user);
    wire_put_str(&w, m->password);
    wire_put_str(&w, m->session);
    wire_put_str(&w, m->region);
    wire_put_u64(&w, m->max_bytes);
    wire_put_u64(&w, m->max_files);
    return done(&w);
}

int image_pull_decode(struct image_pull *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    wire_get_str(&r, ret->ref, sizeof ret->ref);
    wire_get_str(&r, ret->arch, sizeof ret->arch);
    ret->auth = wire_get_u16(&r);
    wire_get_str(&r, ret->user, sizeof ret->user);
    wire_get_str(&r, ret->password, sizeof ret->password);
    wire_get_str(&r, ret->session, sizeof ret->session);
    wire_get_str(&r, ret->region, sizeof ret->region);
    ret->max_bytes = wire_get_u64(&r);
    ret->max_files = wire_get_u64(&r);
    return wire_end(&r) && ret->auth < IMAGE_AUTH_MAX_ ? 0 : -EBADMSG;
}

size_t image_list_encode(const struct image_list *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->after);
    wire_put_u64(&w, m->age_s);
    return done(&w);
}

int image_list_decode(struct image_list *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    wire_get_str(&r, ret->after, sizeof ret->after);
    ret->age_s = wire_get_u64(&r);
    return wire_end(&r) ? 0 : -EBADMSG;
}

size_t image_layers_encode(const struct image_layers *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->digest);
    wire_put_str(&w, m->source);
    wire_put_u32(&w, m->nlayers);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        wire_put_str(&w, m->layers[i].layer);
        wire_put_u64(&w, m->layers[i].bytes);
        wire_put_u64(&w, m->layers[i].files);
    }
    return done(&w);
}

int image_layers_decode(struct image_layers *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    wire_get_str(&r, ret->digest, sizeof ret->digest);
    wire_get_str(&r, ret->source, sizeof ret->source);
    ret->nlayers = wire_get_u32(&r);
    if (ret->nlayers > IMAGE_LAYERS_MAX)
        return -EBADMSG;
    for (uint32_t i = 0; i < ret->nlayers; i++) {
        wire_get_str(&r, ret->layers[i].layer, sizeof ret->layers[i].layer);
        ret->layers[i].bytes = wire_get_u64(&r);
        ret->layers[i].files = wire_get_u64(&r);
    }
    return wire_end(&r) ? 0 : -EBADMSG;
}

size_t image_fold_encode(const struct image_fold *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u64(&w, m->max_bytes);
    wire_put_u64(&w, m->max_files);
    wire_put_u32(&w, m->nexclude);
    for (uint32_t i = 0; i < m->nexclude; i++)
        wire_put_str(&w, m->exclude[i]);
    wire_put_str(&w, m->only);
    wire_put_u32(&w, m->nstubs);
    for (uint32_t i = 0; i < m->nstubs; i++)
        wire_put_str(&w, m->stubs[i]);
    return done(&w);
}

int image_fold_decode(struct image_fold *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    ret->max_bytes = wire_get_u64(&r);
    ret->max_files = wire_get_u64(&r);
    ret->nexclude = wire_get_u32(&r);
    if (ret->nexclude > IMAGE_EXCLUDE_MAX)
        return -EBADMSG;
    for (uint32_t i = 0; i < ret->nexclude; i++)
        wire_get_str(&r, ret->exclude[i], sizeof ret->exclude[i]);
    wire_get_str(&r, ret->only, sizeof ret->only);
    ret->nstubs = wire_get_u32(&r);
    if (ret->nstubs > IMAGE_EXCLUDE_MAX)
        return -EBADMSG;
    for (uint32_t i = 0; i < ret->nstubs; i++)
        wire_get_str(&r, ret->stubs[i], sizeof ret->stubs[i]);
    return wire_end(&r) ? 0 : -EBADMSG;
}

static void put_layers(struct wire_writer *w, uint32_t n, const char layers[][72])
{
    wire_put_u32(w, n);
    for (uint32_t i = 0; i < n; i++)
        wire_put_str(w, layers[i]);
}

static bool get_layers(struct wire_reader *r, uint32_t max, uint32_t *n, char (*layers)[72])
{
    *n = wire_get_u32(r);
    if (*n > max)
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        wire_get_str(r, layers[i], sizeof layers[i]);
        if (strspn(layers[i], "0123456789abcdef") != 64 || layers[i][64] != '\0')
            return false;
    }
    return true;
}

size_t image_copy_encode(const struct image_copy *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_bool(&w, m->keep_owner);
    wire_put_bool(&w, m->is_context);
    wire_put_bool(&w, m->keep_ignored);
    wire_put_bool(&w, m->extract);
    wire_put_bool(&w, m->dest_is_dir);
    wire_put_bool(&w, m->replace);
    wire_put_bool(&w, m->parents);
    wire_put_str(&w, m->exclude);
    wire_put_i32(&w, m->mode);
    wire_put_str(&w, m->owner);
    wire_put_str(&w, m->dest);
    put_layers(&w, m->nsource, m->source);
    put_layers(&w, m->nbase, m->base);
    wire_put_u32(&w, m->nitems);
    for (uint32_t i = 0; i < m->nitems; i++)
        wire_put_str(&w, m->items[i]);
    wire_put_u32(&w, m->ntexts);
    for (uint32_t i = 0; i < m->ntexts; i++) {
        wire_put_str(&w, m->texts[i].name);
        wire_put_bytes(&w, m->texts[i].text, m->texts[i].len);
    }
    wire_put_u64(&w, m->max_bytes);
    wire_put_u64(&w, m->max_files);
    return done(&w);
}

int image_copy_decode(struct image_copy *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    ret->keep_owner = wire_get_bool(&r);
    ret->is_context = wire_get_bool(&r);
    ret->keep_ignored = wire_get_bool(&r);
    ret->extract = wire_get_bool(&r);
    ret->dest_is_dir = wire_get_bool(&r);
    ret->replace = wire_get_bool(&r);
    ret->parents = wire_get_bool(&r);
    wire_get_str(&r, ret->exclude, sizeof ret->exclude);
    ret->mode = wire_get_i32(&r);
    wire_get_str(&r, ret->owner, sizeof ret->owner);
    wire_get_str(&r, ret->dest, sizeof ret->dest);
    if (!get_layers(&r, IMAGE_LAYERS_MAX, &ret->nsource, ret->source) ||
        !get_layers(&r, IMAGE_LAYERS_MAX, &ret->nbase, ret->base))
        return -EBADMSG;
    ret->nitems = wire_get_u32(&r);
    if (ret->nitems > IMAGE_COPY_ITEMS)
        return -EBADMSG;
    for (uint32_t i = 0; i < ret->nitems; i++)
        wire_get_str(&r, ret->items[i], sizeof ret->items[i]);
    ret->ntexts = wire_get_u32(&r);
    if (ret->ntexts > IMAGE_COPY_TEXTS)
        return -EBADMSG;
    for (uint32_t i = 0; i < ret->ntexts; i++) {
        wire_get_str(&r, ret->texts[i].name, sizeof ret->texts[i].name);
        ret->texts[i].text = wire_get_bytes(&r, LIMIT_CHANNEL_MESSAGE, &ret->texts[i].len);
    }
    ret->max_bytes = wire_get_u64(&r);
    ret->max_files = wire_get_u64(&r);
    return wire_end(&r) && ret->mode >= -1 && ret->mode <= 07777 ? 0 : -EBADMSG;
}

size_t image_fetch_encode(const struct image_fetch *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->url);
    wire_put_str(&w, m->name);
    wire_put_str(&w, m->checksum);
    wire_put_str(&w, m->known);
    wire_put_u64(&w, m->max_bytes);
    wire_put_u32(&w, m->timeout_s);
    wire_put_bytes(&w, m->policy, m->policy_len);
    return done(&w);
}

static bool is_hex(const char *text)
{
    return *text == '\0' || (strspn(text, "0123456789abcdef") == 64 && text[64] == '\0');
}

int image_fetch_decode(struct image_fetch *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    wire_get_str(&r, ret->url, sizeof ret->url);
    wire_get_str(&r, ret->name, sizeof ret->name);
    wire_get_str(&r, ret->checksum, sizeof ret->checksum);
    wire_get_str(&r, ret->known, sizeof ret->known);
    ret->max_bytes = wire_get_u64(&r);
    ret->timeout_s = wire_get_u32(&r);
    ret->policy = wire_get_bytes(&r, LIMIT_POLICY_BYTES, &ret->policy_len);
    if (!wire_end(&r) || !is_hex(ret->checksum) || !is_hex(ret->known) || ret->max_bytes == 0 || ret->timeout_s == 0)
        return -EBADMSG;
    return ret->name[0] != '\0' && strchr(ret->name, '/') == NULL && strcmp(ret->name, ".") != 0 &&
                   strcmp(ret->name, "..") != 0
               ? 0
               : -EBADMSG;
}

size_t image_export_encode(const struct image_export *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u32(&w, m->compression);
    wire_put_str(&w, m->name);
    put_layers(&w, m->nlayers, m->layers);
    wire_put_bytes(&w, m->config, m->config_len);
    return done(&w);
}

int image_export_decode(struct image_export *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    uint32_t compression = wire_get_u32(&r);
    if (compression >= IMAGE_COMPRESSIONS_)
        return -EBADMSG;
    ret->compression = (enum image_compression)compression;
    wire_get_str(&r, ret->name, sizeof ret->name);
    if (!get_layers(&r, LIMIT_LAYERS, &ret->nlayers, ret->layers))
        return -EBADMSG;
    ret->config = (const char *)wire_get_bytes(&r, LIMIT_CHANNEL_MESSAGE, &ret->config_len);
    return wire_end(&r) && ret->nlayers > 0 ? 0 : -EBADMSG;
}

size_t image_verify_encode(const struct image_verify *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    put_layers(&w, m->nlayers, m->layers);
    return done(&w);
}

int image_verify_decode(struct image_verify *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    return get_layers(&r, LIMIT_LAYERS, &ret->nlayers, ret->layers) && wire_end(&r) && ret->nlayers > 0 ? 0 : -EBADMSG;
}

size_t image_verdict_encode(const struct image_verdict *m, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_str(&w, m->layer);
    wire_put_u16(&w, m->state);
    wire_put_str(&w, m->message);
    return done(&w);
}

int image_verdict_decode(struct image_verdict *ret, const void *p, size_t n)
{
    struct wire_reader r;

    memset(ret, 0, sizeof *ret);
    wire_read(&r, p, n);
    wire_get_str(&r, ret->layer, sizeof ret->layer);
    ret->state = wire_get_u16(&r);
    wire_get_str(&r, ret->message, sizeof ret->message);
    return wire_end(&r) && ret->state < IMAGE_VERDICTS_ ? 0 : -EBADMSG;
}
