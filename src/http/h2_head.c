/*
 * h2_head.c - collects header blocks, see h2_head.h
 *
 * nghttp2 has checked names, values and the order of pseudo headers; here only the limits count.
 */
#include "http/h2_head.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Memory of an unusually large block is not kept. */
#define HEAD_KEEP 8192

void head_clear(struct h2_head *hd)
{
    if (hd->size > HEAD_KEEP)
        head_done(hd);
    hd->len = 1;                /* offset 0 means absent */
    hd->total = 0;
    hd->n = 0;
    hd->ncookies = 0;
    hd->is_over = false;
    hd->status = 0;
    hd->method = hd->path = hd->authority = 0;
}

void head_done(struct h2_head *hd)
{
    free(hd->mem);
    hd->mem = NULL;
    hd->size = 0;
}

static uint32_t keep(struct h2_head *hd, const uint8_t *p, size_t n)
{
    if (hd->size - hd->len < n + 1 || hd->mem == NULL) {
        size_t size = hd->size > 0 ? hd->size : 1024;
        while (size - hd->len < n + 1)
            size *= 2;
        hd->mem = mem_realloc(hd->mem, size);
        hd->size = size;
    }
    uint32_t at = (uint32_t)hd->len;
    memcpy(hd->mem + at, p, n);
    hd->mem[at + n] = '\0';
    hd->len += n + 1;
    return at;
}

static bool is(const uint8_t *name, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(name, text, len) == 0;
}

void head_add(struct h2_head *hd, const uint8_t *name, size_t name_len, const uint8_t *value,
              size_t value_len)
{
    hd->total += name_len + value_len + 32;     /* as SETTINGS_MAX_HEADER_LIST_SIZE counts */
    if (hd->is_over || hd->total > LIMIT_HTTP_HEAD) {
        hd->is_over = true;
        return;
    }
    if (name_len > 0 && name[0] == ':') {
        if (is(name, name_len, ":method"))
            hd->method = keep(hd, value, value_len);
        else if (is(name, name_len, ":path"))
            hd->path = keep(hd, value, value_len);
        else if (is(name, name_len, ":authority"))
            hd->authority = keep(hd, value, value_len);
        else if (is(name, name_len, ":status") && value_len == 3)
            hd->status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + (value[2] - '0');
        return;
    }
    if (hd->n == LIMIT_HTTP_HEADERS) {
        hd->is_over = true;
        return;
    }
    hd->ncookies += is(name, name_len, "cookie");
    hd->at[hd->n].name = keep(hd, name, name_len);
    hd->at[hd->n].value = keep(hd, value, value_len);
    hd->n++;
}

/* HTTP/2 may send a cookie field in pieces; handlers see one (RFC 9113, 8.2.3). */
static void join_cookies(struct h2_head *hd)
{
    size_t size = 0, first = hd->n, kept = 0;

    for (size_t i = 0; i < hd->n; i++) {
        if (strcmp(hd->mem + hd->at[i].name, "cookie") != 0)
            continue;
        if (first == hd->n)
            first = i;
        size += strlen(hd->mem + hd->at[i].value) + 2;
    }
    auto_free char *joined = mem_alloc(size + 1);
    size_t len = 0;
    for (size_t i = 0; i < hd->n; i++) {
        const char *value = hd->mem + hd->at[i].value;
        if (strcmp(hd->mem + hd->at[i].name, "cookie") != 0) {
            hd->at[kept++] = hd->at[i];
            continue;
        }
        if (i == first)
            kept++;             /* stays in its place, with the joined value */
        len += (size_t)snprintf(joined + len, size + 1 - len, "%s%s", len > 0 ? "; " : "", value);
    }
    hd->n = kept;
    hd->at[first].value = keep(hd, (const uint8_t *)joined, len);
}

void head_finish(struct h2_head *hd)
{
    if (hd->ncookies > 1)
        join_cookies(hd);
    for (size_t i = 0; i < hd->n; i++) {
        hd->fields[i].name = hd->mem + hd->at[i].name;
        hd->fields[i].value = hd->mem + hd->at[i].value;
    }
}
