/*
 * h2_guard.c - see h2_guard.h
 */
#include "http/h2_guard.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"

#define FRAME_HEAD 9
#define FRAME_MAX 16384 /* that every peer takes */
#define TABLE_MAX \
    (64 * \
     1024) /* more than a client may use; a larger table of ours knows all that its smaller one does */
#define REFUSED_MAX 1000 /* streams; a client that goes on is cut */
#define AUTHORITY_MAX 512

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_LEN (sizeof preface - 1)

/* Of one direction: where in a frame it is. */
struct cursor {
    uint8_t head[FRAME_HEAD];
    size_t nhead;
    uint32_t left; /* of the payload */
};

struct frame {
    uint8_t type, flags;
    uint32_t len, stream;
};

struct h2_guard {
    const struct h2_guard_ops *ops;
    void *ctx;
    bool is_other; /* not HTTP/2 at all: passed on as it is */
    size_t npreface;
    struct cursor client, server;
    struct frame frame; /* of the client's under way */
    bool in_block;      /* its header block goes on */
    uint32_t block_stream;
    uint8_t block_flags;
    struct buf block;     /* its fragments so far */
    struct buf payload;   /* of a HEADERS or CONTINUATION frame so far */
    uint32_t last_stream; /* that the client opened */
    uint32_t *refused;    /* owned, ascending */
    size_t nrefused;
    bool server_has_spoken; /* its SETTINGS have passed: nothing may come before them */
    bool server_in_block;
    struct buf late; /* frames of ours for the client */
    nghttp2_hd_inflater *inflater;
    nghttp2_hd_deflater *deflater;
};

struct h2_guard *h2_guard_new(const struct h2_guard_ops *ops, void *ctx)
{
    struct h2_guard *g = mem_zalloc(sizeof *g);

    g->ops = ops;
    g->ctx = ctx;
    buf_init(&g->block, LIMIT_HTTP_HEAD);
    buf_init(&g->payload, LIMIT_HTTP_HEAD + 512);
    buf_init(&g->late, 64 * 1024);
    if (nghttp2_hd_inflate_new(&g->inflater) != 0 ||
        nghttp2_hd_deflate_new(&g->deflater, 4096) != 0)
        abort(); /* memory is gone */
    (void)nghttp2_hd_inflate_change_table_size(g->inflater, TABLE_MAX);
    return g;
}

void h2_guard_free(struct h2_guard *g)
{
    if (g == NULL)
        return;
    nghttp2_hd_inflate_del(g->inflater);
    nghttp2_hd_deflate_del(g->deflater);
    buf_done(&g->block);
    buf_done(&g->payload);
    buf_done(&g->late);
    free(g->refused);
    free(g);
}

/* --- frames --------------------------------------------------------------------------------------------------------- */

static struct frame frame_of(const uint8_t h[FRAME_HEAD])
{
    return (struct frame){
        .len = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2],
        .type = h[3],
        .flags = h[4],
        .stream = ((uint32_t)h[5] << 24 | (uint32_t)h[6] << 16 | (uint32_t)h[7] << 8 | h[8]) &
                  0x7fffffff};
}

static void frame_put(uint8_t out[FRAME_HEAD], size_t len, uint8_t type, uint8_t flags,
                      uint32_t stream)
{
    const uint8_t h[FRAME_HEAD] = {(uint8_t)(len >> 16),
                                   (uint8_t)(len >> 8),
                                   (uint8_t)len,
                                   type,
                                   flags,
                                   (uint8_t)(stream >> 24),
                                   (uint8_t)(stream >> 16),
                                   (uint8_t)(stream >> 8),
                                   (uint8_t)stream};

    memcpy(out, h, FRAME_HEAD);
}

/* Takes bytes of a frame's head. True: it is whole. */
static bool take_head(struct cursor *c, const uint8_t **p, size_t *n)
{
    size_t take = FRAME_HEAD - c->nhead < *n ? FRAME_HEAD - c->nhead : *n;

    memcpy(c->head + c->nhead, *p, take);
    c->nhead += take;
    *p += take;
    *n -= take;
    return c->nhead == FRAME_HEAD;
}

static bool is_refused(const struct h2_guard *g, uint32_t stream)
{
    for (size_t i = g->nrefused; i > 0 && g->refused[i - 1] >= stream; i--)
        if (g->refused[i - 1] == stream)
            return true;
    return false;
}

/* --- our own frames for the client ---------------------------------------------------------------------------------- */

static bool server_is_between(const struct h2_guard *g)
{
    return g->server_has_spoken && g->server.nhead == 0 && !g->server_in_block;
}

static int say(struct h2_guard *g, uint8_t type, uint8_t flags, uint32_t stream, const void *p,
               size_t n)
{
    uint8_t head[FRAME_HEAD];

    frame_put(head, n, type, flags, stream);
    if (buf_add(&g->late, head, sizeof head) < 0 || buf_add(&g->late, p, n) < 0)
        return -EPROTO; /* a server that says nothing, and a client that goes on */
    if (server_is_between(g)) {
        g->ops->to_client(g->ctx, g->late.data, g->late.len);
        buf_clear(&g->late);
    }
    return 0;
}

static int refuse(struct h2_guard *g, uint32_t stream, bool has_ended)
{
    /* ":status: 421" and "content-length: 0", neither indexed */
    static const uint8_t answer[] = {0x08, 3, '4', '2', '1', 0x0f, 0x0d, 1, '0'};
    static const uint8_t no_error[4];

    if (g->nrefused == REFUSED_MAX)
        return -EPROTO;
    g->refused = mem_realloc(g->refused, (g->nrefused + 1) * sizeof *g->refused);
    g->refused[g->nrefused++] = stream;
    if (say(g, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, stream, answer,
            sizeof answer) < 0)
        return -EPROTO;
    return has_ended ? 0 : say(g, NGHTTP2_RST_STREAM, 0, stream, no_error, sizeof no_error);
}

/* What is thrown away does not count against what the client may send. */
static int give_window(struct h2_guard *g, uint32_t n)
{
    const uint8_t more[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};

    return n == 0 ? 0 : say(g, NGHTTP2_WINDOW_UPDATE, 0, 0, more, sizeof more);
}

/* --- header blocks of the client ------------------------------------------------------------------------------------ */

static bool has_name(const nghttp2_nv *nv, const char *name)
{
    return nv->namelen == strlen(name) && memcmp(nv->name, name, nv->namelen) == 0;
}

/* Writes one field anew. What it says of the host is checked: *ret_named, *ret_ours. */
static int take_field(struct h2_guard *g, nghttp2_nv *nv, struct buf *out, bool *ret_named,
                      bool *ret_ours)
{
    char authority[AUTHORITY_MAX];

    if (has_name(nv, ":authority") || has_name(nv, "host")) {
        bool fits =
            nv->valuelen < sizeof authority && memchr(nv->value, '\0', nv->valuelen) == NULL;
        memcpy(authority, nv->value, fits ? nv->valuelen : 0);
        authority[fits ? nv->valuelen : 0] = '\0';
        *ret_ours = *ret_ours && g->ops->is_for_us(g->ctx, authority);
        *ret_named = true;
    }
    nv->flags |= NGHTTP2_NV_FLAG_NO_INDEX;
    size_t bound = nghttp2_hd_deflate_bound(g->deflater, nv, 1);
    uint8_t *space = buf_reserve(out, bound);
    if (space == NULL)
        return -EPROTO;
    ssize_t n = nghttp2_hd_deflate_hd(g->deflater, space, bound, nv, 1);
    if (n < 0)
        return -EPROTO;
    buf_grew(out, (size_t)n);
    return 0;
}

static void send_block(struct h2_guard *g, const struct buf *block)
{
    uint8_t head[FRAME_HEAD], flags = g->block_flags & NGHTTP2_FLAG_END_STREAM,
                              type = NGHTTP2_HEADERS;
    size_t at = 0;

    do {
        size_t n = block->len - at < FRAME_MAX ? block->len - at : FRAME_MAX;
        bool is_last = at + n == block->len;
        frame_put(head, n, type, flags | (is_last ? NGHTTP2_FLAG_END_HEADERS : 0), g->block_stream);
        g->ops->to_server(g->ctx, head, sizeof head);
        g->ops->to_server(g->ctx, block->data + at, n);
        type = NGHTTP2_CONTINUATION;
        flags = 0;
        at += n;
    } while (at < block->len);
}

static int block_done(struct h2_guard *g)
{
    const uint8_t *p = (const uint8_t *)g->block.data, *end = p + g->block.len;
    bool is_named = false, is_ours = true;
    auto_buf out = {0};

    buf_init(&out, 2 * LIMIT_HTTP_HEAD);
    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t n = nghttp2_hd_inflate_hd2(g->inflater, &nv, &flags, p, (size_t)(end - p), 1);
        if (n < 0)
            return -EPROTO;
        p += n;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0 &&
            take_field(g, &nv, &out, &is_named, &is_ours) < 0)
            return -EPROTO;
        if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0)
            break;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) == 0 && p == end)
            return -EPROTO;
    }
    (void)nghttp2_hd_inflate_end_headers(g->inflater);
    buf_clear(&g->block);
    bool has_ended = (g->block_flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (g->block_stream > g->last_stream) {
        g->last_stream = g->block_stream;
        if (!is_named || !is_ours)
            return refuse(g, g->block_stream, has_ended);
    } else if (is_refused(g, g->block_stream)) {
        return 0; /* trailers */
    }
    send_block(g, &out);
    return 0;
}

/* A whole HEADERS or CONTINUATION frame is in g->payload. */
static int block_frame(struct h2_guard *g)
{
    const struct frame *f = &g->frame;
    const char *p = g->payload.data;
    size_t n = g->payload.len, pad = 0, skip = 0;

    if (f->type == NGHTTP2_HEADERS) {
        if ((f->flags & NGHTTP2_FLAG_PADDED) != 0) {
            if (n < 1)
                return -EPROTO;
            pad = (uint8_t)p[0];
            skip = 1;
        }
        skip += (f->flags & NGHTTP2_FLAG_PRIORITY) != 0
                    ? 5
                    : 0; /* of an order of streams that nobody keeps any more */
        if (skip + pad > n)
            return -EPROTO;
        g->block_stream = f->stream;
        g->block_flags = f->flags;
        g->in_block = true;
    }
    if (buf_add(&g->block, p + skip, n - skip - pad) < 0)
        return -EPROTO;
    buf_clear(&g->payload);
    if ((f->flags & NGHTTP2_FLAG_END_HEADERS) == 0)
        return 0;
    g->in_block = false;
    return block_done(g);
}

/* --- the client's frames -------------------------------------------------------------------------------------------- */

static bool has_block(const struct frame *f)
{
    return f->type == NGHTTP2_HEADERS || f->type == NGHTTP2_CONTINUATION;
}

static int frame_begins(struct h2_guard *g)
{
    struct frame *f = &g->frame;

    *f = frame_of(g->client.head);
    g->client.left = f->len;
    if (g->in_block != (f->type == NGHTTP2_CONTINUATION) ||
        (g->in_block && f->stream != g->block_stream) || f->type == NGHTTP2_PUSH_PROMISE ||
        (f->type == NGHTTP2_HEADERS && f->stream % 2 == 0) ||
        (has_block(f) && f->len > g->payload.max))
        return -EPROTO;
    if (has_block(f))
        return 0;
    if (f->stream == 0 || !is_refused(g, f->stream))
        g->ops->to_server(g->ctx, g->client.head, FRAME_HEAD);
    return 0;
}

static int frame_bytes(struct h2_guard *g, const uint8_t *p, size_t n)
{
    const struct frame *f = &g->frame;

    if (has_block(f))
        return buf_add(&g->payload, p, n) < 0 ? -EPROTO : 0;
    if (f->stream == 0 || !is_refused(g, f->stream))
        g->ops->to_server(g->ctx, p, n);
    return 0;
}

static int frame_ends(struct h2_guard *g)
{
    const struct frame *f = &g->frame;

    g->client.nhead = 0;
    if (has_block(f))
        return block_frame(g);
    return f->type == NGHTTP2_DATA && is_refused(g, f->stream) ? give_window(g, f->len) : 0;
}

/* False: what came is something else than HTTP/2, and was passed on. */
static bool take_preface(struct h2_guard *g, const uint8_t **p, size_t *n)
{
    size_t take = PREFACE_LEN - g->npreface < *n ? PREFACE_LEN - g->npreface : *n;

    g->is_other = memcmp(*p, preface + g->npreface, take) != 0;
    if (g->is_other)
        take = *n;
    g->ops->to_server(g->ctx, *p, take);
    g->npreface += take;
    *p += take;
    *n -= take;
    return !g->is_other;
}

int h2_guard_from_client(struct h2_guard *g, const uint8_t *p, size_t n)
{
    if (g->is_other) {
        g->ops->to_server(g->ctx, p, n);
        return 0;
    }
    if (g->npreface < PREFACE_LEN && !take_preface(g, &p, &n))
        return 0;
    while (n > 0) {
        if (g->client.nhead < FRAME_HEAD) {
            if (!take_head(&g->client, &p, &n))
                break;
            if (frame_begins(g) < 0)
                return -EPROTO;
        }
        size_t take = g->client.left < n ? g->client.left : n;
        if (take > 0 && frame_bytes(g, p, take) < 0)
            return -EPROTO;
        p += take;
        n -= take;
        g->client.left -= (uint32_t)take;
        if (g->client.left == 0 && frame_ends(g) < 0)
            return -EPROTO;
    }
    return 0;
}

/* --- the server's frames -------------------------------------------------------------------------------------------- */

static void server_frame_ends(struct h2_guard *g)
{
    struct frame f = frame_of(g->server.head);

    g->server.nhead = 0;
    if (f.type == NGHTTP2_HEADERS || f.type == NGHTTP2_PUSH_PROMISE ||
        f.type == NGHTTP2_CONTINUATION)
        g->server_in_block = (f.flags & NGHTTP2_FLAG_END_HEADERS) == 0;
    if (f.type == NGHTTP2_SETTINGS)
        g->server_has_spoken = true;
}

int h2_guard_from_server(struct h2_guard *g, const uint8_t *p, size_t n)
{
    const uint8_t *from = p;

    while (n > 0 && !g->is_other) {
        if (g->server.nhead < FRAME_HEAD) {
            if (!take_head(&g->server, &p, &n))
                break;
            g->server.left = frame_of(g->server.head).len;
        }
        size_t take = g->server.left < n ? g->server.left : n;
        p += take;
        n -= take;
        g->server.left -= (uint32_t)take;
        if (g->server.left > 0)
            break;
        server_frame_ends(g);
        if (g->late.len == 0 || !server_is_between(g))
            continue;
        g->ops->to_client(g->ctx, from, (size_t)(p - from));
        g->ops->to_client(g->ctx, g->late.data, g->late.len);
        buf_clear(&g->late);
        from = p;
    }
    p += n;
    if (p > from)
        g->ops->to_client(g->ctx, from, (size_t)(p - from));
    return 0;
}
