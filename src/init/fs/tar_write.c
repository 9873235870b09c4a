/*
 * tar_write.c - headers and pax records of archives that we make
 */
#include <stdio.h>
#include <string.h>

#include "init/fs/tar_format.h"

/* Octal digits and a NUL; a value that does not fit becomes zero, and stands in a pax record. */
static void octal(unsigned char *out, size_t size, uint64_t v)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%0*llo", (int)size - 1, (unsigned long long)v);

    if ((size_t)n > size - 1)
        memset(out, '0', size - 1);
    else
        memcpy(out, text, size - 1);
}

static void name_put(unsigned char *out, size_t size, const char *s)
{
    size_t n = strlen(s);

    memcpy(out, s, n < size ? n : size);
}

void tar_header(unsigned char out[TAR_BLOCK], char type, const char *path, const char *link,
                const struct tar_entry *e, int64_t stored)
{
    unsigned sum = 0;

    memset(out, 0, TAR_BLOCK);
    name_put(out, 100, path);
    octal(out + 100, 8, e->mode);
    octal(out + 108, 8, e->uid);
    octal(out + 116, 8, e->gid);
    octal(out + 124, 12, (uint64_t)stored);
    octal(out + 136, 12, e->mtime.tv_sec < 0 ? 0 : (uint64_t)e->mtime.tv_sec);
    memset(out + 148, ' ', 8);
    out[156] = (unsigned char)type;
    name_put(out + 157, 100, link);
    memcpy(out + 257, "ustar\0" "00", 8);
    octal(out + 329, 8, e->major);
    octal(out + 337, 8, e->minor);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += out[i];
    octal(out + 148, 7, sum);
}

size_t tar_pax_record(char *out, const char *name, const void *value, size_t len)
{
    size_t name_len = strlen(name);
    size_t rest = 1 + name_len + 1 + len + 1;
    size_t total = rest + 1;
    char digits[24];

    /* The length counts its own digits. */
    for (;;) {
        size_t with = rest + (size_t)snprintf(digits, sizeof digits, "%zu", total);
        if (with == total)
            break;
        total = with;
    }
    if (out != NULL) {
        size_t n = strlen(digits);
        memcpy(out, digits, n);
        out[n++] = ' ';
        memcpy(out + n, name, name_len);
        n += name_len;
        out[n++] = '=';
        if (len > 0)
            memcpy(out + n, value, len);
        out[n + len] = '\n';
    }
    return total;
}
