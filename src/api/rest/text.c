/*
 * text.c - UTF-8 and base64
 */
#include "api/rest/text.h"

#include <stdio.h>

#include "base/base64.h"
#include "base/mem.h"

/* Length of the sequence that starts at p: 1 to 4; 0 if it is invalid; -1 if it is cut off but valid so far. */
static int sequence(const uint8_t *p, size_t n)
{
    uint8_t lo = 0x80, hi = 0xbf;
    int len;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        len = 2;
    } else if ((p[0] & 0xf0) == 0xe0) {
        len = 3;
        if (p[0] == 0xe0)
            lo = 0xa0;
        else if (p[0] == 0xed)
            hi = 0x9f;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        len = 4;
        if (p[0] == 0xf0)
            lo = 0x90;
        else if (p[0] == 0xf4)
            hi = 0x8f;
    } else {
        return 0;
    }
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if (p[i] < lo || p[i] > hi)
            return 0;
        lo = 0x80;
        hi = 0xbf;
    }
    return len;
}

bool text_is_utf8(const void *text, size_t n)
{
    const uint8_t *p = text;

    while (n > 0) {
        int len = sequence(p, n);
        if (len <= 0)
            return false;
        p += len;
        n -= (size_t)len;
    }
    return true;
}

size_t text_utf8_tail(const void *text, size_t n)
{
    const uint8_t *p = text;

    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = p[n - back];
        if ((c & 0xc0) == 0x80)
            continue;
        return sequence(p + n - back, back) == -1 ? back : 0;
    }
    return 0;
}

char *text_base64(const void *p, size_t n)
{
    size_t len = (n + 2) / 3 * 4;
    char *out = mem_alloc(len + 1);

    base64_encode(p, n, out);
    out[len] = '\0';
    return out;
}

uint8_t *text_unbase64(const char *text, size_t n, size_t *ret_len)
{
    auto_free uint8_t *out = mem_alloc(n / 4 * 3 + 1);

    if (!base64_decode(text, n, out, ret_len))
        return NULL;
    out[*ret_len] = '\0';
    return take_ptr(&out);
}

void text_set(json_t *object, const char *name, const void *p, size_t n)
{
    char b64_name[64];

    if (text_is_utf8(p, n)) {
        json_object_set_new(object, name, json_stringn_nocheck(p, n));
        return;
    }
    auto_free char *b64 = text_base64(p, n);
    json_object_set_new(object, name, json_null());
    (void)snprintf(b64_name, sizeof b64_name, "%s_b64", name);
    json_object_set_new(object, b64_name, json_string_nocheck(b64));
}
