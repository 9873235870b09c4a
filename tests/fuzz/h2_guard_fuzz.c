/*
 * h2_guard_fuzz.c - a connection of HTTP/2 that is watched
 *
 * The first byte is the size of the pieces: what goes on must be the same as in one piece. What reaches the server has no
 * request for another host than "us", to a decoder that saw nothing else.
 */
#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "http/h2_guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PREFACE 24
#define OUT_MAX (16 * 1024 * 1024)

struct sides {
    struct buf server, client;
};

static void to_server(void *ctx, const void *p, size_t n)
{
    (void)buf_add(&((struct sides *)ctx)->server, p, n);
}

static void to_client(void *ctx, const void *p, size_t n)
{
    (void)buf_add(&((struct sides *)ctx)->client, p, n);
}

static bool is_for_us(void *ctx, const char *authority)
{
    return strcmp(authority, "us") == 0;
}

static int feed(const uint8_t *p, size_t n, size_t piece, struct sides *ret)
{
    static const struct h2_guard_ops ops = {to_client, to_server, is_for_us};
    static const uint8_t settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    struct h2_guard *g = h2_guard_new(&ops, ret);
    int r = 0;

    buf_init(&ret->server, OUT_MAX);
    buf_init(&ret->client, OUT_MAX);
    (void)h2_guard_from_server(g, settings, sizeof settings);
    for (size_t at = 0; at < n && r == 0; at += piece)
        r = h2_guard_from_client(g, p + at, n - at < piece ? n - at : piece);
    h2_guard_free(g);
    return r;
}

/* One field that the server reads: of which host it speaks must be us. */
static void check_field(const nghttp2_nv *nv)
{
    bool is_host = (nv->namelen == 10 && memcmp(nv->name, ":authority", 10) == 0) ||
                   (nv->namelen == 4 && memcmp(nv->name, "host", 4) == 0);

    if (is_host && (nv->valuelen != 2 || memcmp(nv->value, "us", 2) != 0))
        abort();
}

/* First blocks of streams are requests; later ones trailers, in which a host would have no meaning. */
static void check(const struct buf *b)
{
    const uint8_t *p = (const uint8_t *)b->data, *end = p + b->len;
    nghttp2_hd_inflater *inflater;
    uint32_t last = 0;

    if (b->len < PREFACE || memcmp(p, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", PREFACE) != 0 ||
        nghttp2_hd_inflate_new(&inflater) != 0)
        return;
    for (p += PREFACE; end - p >= 9;) {
        size_t len = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        uint8_t type = p[3], flags = p[4];
        uint32_t stream =
            ((uint32_t)p[5] << 24 | (uint32_t)p[6] << 16 | (uint32_t)p[7] << 8 | p[8]) & 0x7fffffff;
        p += 9;
        if ((size_t)(end - p) < len)
            break;
        bool is_block = type == 1 || type == 9;
        bool is_request = is_block && (stream > last || type == 9);
        for (const uint8_t *at = p, *to = p + len; is_block;) {
            nghttp2_nv nv;
            int f = 0;
            ssize_t n =
                nghttp2_hd_inflate_hd2(inflater, &nv, &f, at, (size_t)(to - at), (flags & 4) != 0);
            if (n < 0)
                abort(); /* the guard wrote it */
            at += n;
            if ((f & NGHTTP2_HD_INFLATE_EMIT) != 0 && is_request && stream >= last)
                check_field(&nv);
            if ((f & NGHTTP2_HD_INFLATE_FINAL) != 0) {
                (void)nghttp2_hd_inflate_end_headers(inflater);
                break;
            }
            if ((f & NGHTTP2_HD_INFLATE_EMIT) == 0 && at == to)
                break;
        }
        if (is_block && (flags & 4) != 0 && stream > last)
            last = stream;
        p += len;
    }
    nghttp2_hd_inflate_del(inflater);
}

static void expect_same(const struct buf *a, const struct buf *b)
{
    if (a->len != b->len || (a->len > 0 && memcmp(a->data, b->data, a->len) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sides whole = {0}, parts = {0};

    if (size < 2)
        return 0;
    size_t piece = data[0] == 0 ? 1 : data[0];
    int r = feed(data + 1, size - 1, size - 1, &whole);
    if (feed(data + 1, size - 1, piece, &parts) != r)
        abort();
    if (r == 0) {
        expect_same(&whole.server, &parts.server);
        expect_same(&whole.client, &parts.client);
    }
    check(&whole.server);
    buf_done(&whole.server);
    buf_done(&whole.client);
    buf_done(&parts.server);
    buf_done(&parts.client);
    return 0;
}
