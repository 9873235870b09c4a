/*
 * wire.c - little-endian codec with sticky errors
 *
 * Called by every *_proto.c and record.c. Nothing here allocates; a reader never looks past its end.
 */
#include "ipc/wire.h"

#include <string.h>

void wire_init(struct wire_writer *w, void *memory, size_t size)
{
    *w = (struct wire_writer){.data = memory, .size = size};
}

/* Room for n bytes, or NULL with `failed` set. */
static uint8_t *put(struct wire_writer *w, size_t n)
{
    if (w->failed || n > w->size - w->len) {
        w->failed = true;
        return NULL;
    }
    uint8_t *at = w->data + w->len;
    w->len += n;
    return at;
}

static void put_le(struct wire_writer *w, uint64_t v, size_t n)
{
    uint8_t *at = put(w, n);

    if (at == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

void wire_put_u8(struct wire_writer *w, uint8_t v)
{
    put_le(w, v, 1);
}

void wire_put_u16(struct wire_writer *w, uint16_t v)
{
    put_le(w, v, 2);
}

void wire_put_u32(struct wire_writer *w, uint32_t v)
{
    put_le(w, v, 4);
}

void wire_put_u64(struct wire_writer *w, uint64_t v)
{
    put_le(w, v, 8);
}

void wire_put_i32(struct wire_writer *w, int32_t v)
{
    put_le(w, (uint32_t)v, 4);
}

void wire_put_i64(struct wire_writer *w, int64_t v)
{
    put_le(w, (uint64_t)v, 8);
}

void wire_put_bool(struct wire_writer *w, bool v)
{
    put_le(w, v ? 1 : 0, 1);
}

void wire_put_bytes(struct wire_writer *w, const void *p, size_t n)
{
    if (n > UINT32_MAX) {
        w->failed = true;
        return;
    }
    put_le(w, n, 4);
    uint8_t *at = put(w, n);
    if (at != NULL && n > 0)
        memcpy(at, p, n);
}

void wire_put_str(struct wire_writer *w, const char *s)
{
    wire_put_bytes(w, s, strlen(s));
}

void wire_read(struct wire_reader *r, const void *p, size_t n)
{
    *r = (struct wire_reader){.data = p, .len = n};
}

static const uint8_t *get(struct wire_reader *r, size_t n)
{
    if (r->failed || n > r->len - r->at) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *at = r->data + r->at;
    r->at += n;
    return at;
}

static uint64_t get_le(struct wire_reader *r, size_t n)
{
    const uint8_t *at = get(r, n);
    uint64_t v = 0;

    if (at == NULL)
        return 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
    return (uint8_t)get_le(r, 1);
}

uint16_t wire_get_u16(struct wire_reader *r)
{
    return (uint16_t)get_le(r, 2);
}

uint32_t wire_get_u32(struct wire_reader *r)
{
    return (uint32_t)get_le(r, 4);
}

uint64_t wire_get_u64(struct wire_reader *r)
{
    return get_le(r, 8);
}

int32_t wire_get_i32(struct wire_reader *r)
{
    return (int32_t)(uint32_t)get_le(r, 4);
}

int64_t wire_get_i64(struct wire_reader *r)
{
    return (int64_t)get_le(r, 8);
}

bool wire_get_bool(struct wire_reader *r)
{
    uint64_t v = get_le(r, 1);

    if (v > 1)
        r->failed = true;
    return v == 1;
}

const void *wire_get_bytes(struct wire_reader *r, size_t max, size_t *ret_len)
{
    size_t n = (size_t)get_le(r, 4);

    *ret_len = 0;
    if (n > max)
        r->failed = true;
    const uint8_t *at = get(r, n);
    if (at != NULL)
        *ret_len = n;
    return at;
}

void wire_get_str(struct wire_reader *r, char *out, size_t size)
{
    size_t n;
    const void *at = wire_get_bytes(r, size - 1, &n);

    out[0] = '\0';
    if (at == NULL)
        return;
    if (memchr(at, '\0', n) != NULL) {
        r->failed = true;
        return;
    }
    memcpy(out, at, n);
    out[n] = '\0';
}

void wire_fail(struct wire_reader *r)
{
    r->failed = true;
}

bool wire_end(const struct wire_reader *r)
{
    return !r->failed && r->at == r->len;
}
