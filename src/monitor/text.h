/*
 * text.h - short texts without stdio, which would double the size of a monitor
 *
 * The writer makes sure that there is room.
 */
#ifndef QS_MONITOR_TEXT_H
#define QS_MONITOR_TEXT_H

#include <stdint.h>
#include <string.h>

static inline void text_put(char **at, const char *text)
{
    size_t n = strlen(text);

    memcpy(*at, text, n);
    *at += n;
}

/* At least `width` characters, padded with `pad` on the left. */
static inline void text_padded(char **at, uint64_t v, int width, char pad)
{
    char digits[20];
    int n = 0;

    do
        digits[n++] = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    for (; width > n; width--)
        *(*at)++ = pad;
    while (n > 0)
        *(*at)++ = digits[--n];
}

static inline void text_number(char **at, uint64_t v)
{
    text_padded(at, v, 0, ' ');
}

#endif
