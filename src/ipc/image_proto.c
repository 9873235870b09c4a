/*
 * image_proto.c - codec of the messages between node and image
 */
#include "ipc/image_proto.h"

#include <errno.h>

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
    if (!wire_end(&r))
        return -EBADMSG;
    *ret = m;
    return 0;
}
