/*
 * out.c - what the file helper prints
 */
#include "init/fs/out.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base64.h"
#include "init/fs/json.h"
#include "init/fs/signs.h"
#include "sys/fd.h"

#define BUFFER_SIZE (64 * 1024)

static char buffer[BUFFER_SIZE];        /* of the one that goes to a descriptor */

void out_init(struct out *o, int fd)
{
    *o = (struct out){.fd = fd};
    if (fd >= 0) {
        o->data = buffer;
        o->size = sizeof buffer;
    }
}

static int write_out(struct out *o, const char *p, size_t n)
{
    if (o->signs == NULL || o->signs->window == 0)
        return fd_write_all(o->fd, p, n);
    while (n > 0) {
        int r = signs_wait(o->signs);
        if (r < 0)
            return r;
        size_t part = (int64_t)n < o->signs->credit ? n : (size_t)o->signs->credit;
        r = fd_write_all(o->fd, p, part);
        if (r < 0)
            return r;
        o->signs->credit -= (int64_t)part;
        p += part;
        n -= part;
    }
    return 0;
}

void out_free(struct out *o)
{
    if (o->fd < 0 && o->data != NULL)
        (void)munmap(o->data, o->size);
    *o = (struct out){.fd = -1};
}

int out_flush(struct out *o)
{
    if (o->error == 0 && o->fd >= 0 && o->len > 0) {
        int r = write_out(o, o->data, o->len);
        if (r < 0)
            o->error = -r;
        o->len = 0;
    }
    return -o->error;
}

static void grow(struct out *o, size_t n)
{
    size_t size = o->size == 0 ? BUFFER_SIZE : o->size;

    while (size - o->len < n)
        size *= 2;
    if (size > OUT_MEMORY_MAX) {
        o->error = EFBIG;
        return;
    }
    void *p = o->data == NULL ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                              : mremap(o->data, o->size, size, MREMAP_MAYMOVE);
    if (p == MAP_FAILED) {
        o->error = errno;
        return;
    }
    o->data = p;
    o->size = size;
}

void out_bytes(struct out *o, const void *p, size_t n)
{
    if (o->error != 0)
        return;
    if (o->size - o->len < n) {
        if (o->fd < 0)
            grow(o, n);
        else if (out_flush(o) == 0 && n > o->size) {
            int r = write_out(o, p, n);
            if (r < 0)
                o->error = -r;
            return;
        }
        if (o->error != 0)
            return;
    }
    memcpy(o->data + o->len, p, n);
    o->len += n;
}

void out_text(struct out *o, const char *s)
{
    out_bytes(o, s, strlen(s));
}

void out_u64(struct out *o, uint64_t v)
{
    char text[24];

    out_bytes(o, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)v));
}

void out_i64(struct out *o, int64_t v)
{
    char text[24];

    out_bytes(o, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v));
}

bool out_string(struct out *o, const char *p, size_t n)
{
    bool valid = true;
    char code[8];

    out_text(o, "\"");
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)p[i];
        size_t len = utf8_length((const unsigned char *)p + i, n - i);
        if (len == 0) {
            valid = false;
            out_text(o, "\xef\xbf\xbd");
            len = 1;
        } else if (c == '"' || c == '\\') {
            char two[2] = {'\\', (char)c};
            out_bytes(o, two, 2);
        } else if (c < 0x20 || c == 0x7f) {
            snprintf(code, sizeof code, "\\u%04x", c);
            out_text(o, code);
        } else {
            out_bytes(o, p + i, len);
        }
        i += len;
    }
    out_text(o, "\"");
    return valid;
}

void out_base64(struct out *o, const void *p, size_t n)
{
    char text[4096];
    const char *s = p;

    out_text(o, "\"");
    while (n > 0) {
        size_t part = n < 3072 ? n : 3072;
        base64_encode(s, part, text);
        out_bytes(o, text, 4 * ((part + 2) / 3));
        s += part;
        n -= part;
    }
    out_text(o, "\"");
}

void out_named(struct out *o, const char *name, const char *p, size_t n)
{
    out_text(o, "\"");
    out_text(o, name);
    out_text(o, "\":");
    if (out_string(o, p, n))
        return;
    out_text(o, ",\"");
    out_text(o, name);
    out_text(o, "_b64\":");
    out_base64(o, p, n);
}
