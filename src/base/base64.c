/*
 * base64.c - for bytes that JSON cannot carry
 */
#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *p, size_t n, void *out, size_t *ret_len)
{
    unsigned char *o = out;
    size_t len = 0;

    if (n % 4 != 0)
        return false;
    for (size_t i = 0; i < n; i += 4) {
        bool last = i + 4 == n;
        int pad = last ? (p[i + 3] == '=') + (p[i + 3] == '=' && p[i + 2] == '=') : 0;
        int a = value(p[i]), b = value(p[i + 1]);
        int c = pad == 2 ? 0 : value(p[i + 2]), d = pad >= 1 ? 0 : value(p[i + 3]);
        if (a < 0 || b < 0 || c < 0 || d < 0)
            return false;
        /* Bits that no byte takes must be zero, or one value would have many spellings. */
        if ((pad == 2 && (b & 15) != 0) || (pad == 1 && (c & 3) != 0))
            return false;
        o[len++] = (unsigned char)(a << 2 | b >> 4);
        if (pad < 2)
            o[len++] = (unsigned char)(b << 4 | c >> 2);
        if (pad < 1)
            o[len++] = (unsigned char)(c << 6 | d);
    }
    *ret_len = len;
    return true;
}

void base64_encode(const void *p, size_t n, char *out)
{
    const unsigned char *s = p;

    for (size_t i = 0; i < n; i += 3) {
        unsigned b = i + 1 < n ? s[i + 1] : 0, c = i + 2 < n ? s[i + 2] : 0;
        *out++ = alphabet[s[i] >> 2];
        *out++ = alphabet[(s[i] & 3) << 4 | b >> 4];
        *out++ = i + 1 < n ? alphabet[(b & 15) << 2 | c >> 6] : '=';
        *out++ = i + 2 < n ? alphabet[c & 63] : '=';
    }
}
