/*
 * buf.c - capped byte buffers
 */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_done(struct buf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = b->size = 0;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data != NULL)
        b->data[0] = '\0';
}

void *buf_reserve(struct buf *b, size_t n)
{
    if (n > b->max || b->len > b->max - n) {
        b->failed = true;
        return NULL;
    }
    size_t need = b->len + n + 1;
    if (need > b->size) {
        size_t size = b->size ? b->size : 64;
        while (size < need)
            size += size / 2 + 1;
        if (size > b->max + 1)
            size = b->max + 1;
        b->data = mem_realloc(b->data, size);
        b->size = size;
    }
    return b->data + b->len;
}

void buf_grew(struct buf *b, size_t n)
{
    b->len += n;
    b->data[b->len] = '\0';
}

int buf_add(struct buf *b, const void *p, size_t n)
{
    void *to = buf_reserve(b, n);

    if (to == NULL)
        return -ENOBUFS;
    if (n > 0)
        memcpy(to, p, n);
    buf_grew(b, n);
    return 0;
}

int buf_adds(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_addc(struct buf *b, char c)
{
    return buf_add(b, &c, 1);
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -EINVAL;
    char *to = buf_reserve(b, (size_t)n);
    if (to == NULL)
        return -ENOBUFS;
    va_start(ap, fmt);
    (void)vsnprintf(to, (size_t)n + 1, fmt, ap);
    va_end(ap);
    buf_grew(b, (size_t)n);
    return 0;
}

void buf_drop(struct buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
    } else {
        memmove(b->data, b->data + n, b->len - n);
        b->len -= n;
    }
    if (b->data != NULL)
        b->data[b->len] = '\0';
}

const char *buf_str(struct buf *b)
{
    return b->data != NULL ? b->data : "";
}

char *buf_take(struct buf *b, size_t *ret_len)
{
    char *p = b->data != NULL ? b->data : mem_strdup("");

    if (ret_len != NULL)
        *ret_len = b->len;
    b->data = NULL;
    b->len = b->size = 0;
    return p;
}
