/*
 * h2_fields.c - blocks of fields of HTTP/2 as they come in, and as nghttp2 wants them
 */
#include <string.h>

#include "base/mem.h"
#include "egress/open/h2.h"

nghttp2_nv h2_nv(const char *name, const char *value, uint8_t flags)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name, .value = (uint8_t *)(uintptr_t)value, .namelen = strlen(name),
                        .valuelen = strlen(value), .flags = flags};
}

size_t h2_nv_fields(const struct request *r, nghttp2_nv *nv, uint8_t flags)
{
    for (size_t i = 0; i < r->nfields; i++)
        nv[i] = h2_nv(r->fields[i].name, r->fields[i].value, flags);
    return r->nfields;
}

void h2_head_clear(struct h2_head *d)
{
    request_done(&d->r);
    free(d->scheme);
    free(d->authority);
    d->scheme = d->authority = NULL;
    d->status = 0;
    d->total = 0;
    d->is_over = false;
}

static bool is(const uint8_t *name, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(name, text, n) == 0;
}

static void keep(char **to, const uint8_t *value, size_t n)
{
    free(*to);
    *to = mem_strndup((const char *)value, n);
}

void h2_head_add(struct h2_head *d, const uint8_t *name, size_t nname, const uint8_t *value, size_t nvalue, size_t most)
{
    d->total += nname + nvalue + 32;
    if (d->is_over || d->total > most) {
        d->is_over = true;
    } else if (nname == 0 || name[0] != ':') {
        auto_free char *n = mem_strndup((const char *)name, nname);
        auto_free char *v = mem_strndup((const char *)value, nvalue);
        d->is_over = !request_add(&d->r, n, v);
    } else if (is(name, nname, ":method")) {
        keep(&d->r.method, value, nvalue);
    } else if (is(name, nname, ":path")) {
        keep(&d->r.target, value, nvalue);
    } else if (is(name, nname, ":scheme")) {
        keep(&d->scheme, value, nvalue);
    } else if (is(name, nname, ":authority")) {
        keep(&d->authority, value, nvalue);
    } else if (is(name, nname, ":status") && nvalue == 3) {
        d->status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + value[2] - '0';
    }
}

struct request *h2_head_take(struct h2_head *d)
{
    if (d->r.nfields == 0)
        return NULL;
    struct request *r = mem_dup(&d->r, sizeof d->r);
    d->r = (struct request){0};
    return r;
}
