/*
 * utf8.c - cutting a stream of bytes into texts
 */
#include "api/modal/utf8.h"

#include <string.h>

/* Length of the character at p: > 0; 0 = cut off by the end; -1 = not UTF-8. */
static int char_at(const unsigned char *p, size_t n)
{
    int more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : (*p & 0xf0) == 0xe0 ? 2 : *p >= 0xf0 && *p < 0xf5 ? 3 : -1;
    unsigned low = *p == 0xe0 ? 0xa0 : *p == 0xf0 ? 0x90 : 0x80, high = *p == 0xed ? 0x9f : *p == 0xf4 ? 0x8f : 0xbf;

    for (int i = 1; i <= more; i++, low = 0x80, high = 0xbf) {
        if ((size_t)i >= n)
            return 0;
        if (p[i] < low || p[i] > high)
            return -1;
    }
    return more < 0 ? -1 : more + 1;
}

size_t utf8_take(const void *bytes, size_t n, bool is_last, struct buf *out)
{
    const unsigned char *p = bytes;
    size_t at = 0, from = 0;

    while (at < n) {
        int len = char_at(p + at, n - at);
        if (len == 0 && !is_last)
            break;
        if (len > 0) {
            at += (size_t)len;
            continue;
        }
        (void)buf_add(out, p + from, at - from);
        (void)buf_adds(out, "\xef\xbf\xbd");
        from = ++at;
    }
    (void)buf_add(out, p + from, at - from);
    return at;
}

bool utf8_is_valid(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = strlen(text);

    for (size_t at = 0; at < n;) {
        int len = char_at(p + at, n - at);
        if (len <= 0)
            return false;
        at += (size_t)len;
    }
    return true;
}
