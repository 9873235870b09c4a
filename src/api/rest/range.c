/*
 * range.c - parsing "bytes=first-last"
 */
#include "api/rest/range.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Digits at *p; 0 digits or more than 18 are none. */
static bool take_number(const char **p, uint64_t *ret)
{
    size_t n = strspn(*p, "0123456789");
    uint64_t v = 0;

    if (n == 0 || n > 18)
        return false;
    for (size_t i = 0; i < n; i++)
        v = v * 10 + (uint64_t)((*p)[i] - '0');
    *p += n;
    *ret = v;
    return true;
}

bool range_parse(const char *text, struct range *ret)
{
    struct range r = {.length = UINT64_MAX};
    uint64_t last;

    if (strncasecmp(text, "bytes=", 6) != 0)
        return false;
    text += 6;
    text += strspn(text, " \t");
    r.suffix = *text == '-';
    if (r.suffix) {
        text++;
        if (!take_number(&text, &r.length))
            return false;
    } else {
        if (!take_number(&text, &r.offset) || *text++ != '-')
            return false;
        if (take_number(&text, &last)) {
            if (last < r.offset)
                return false;
            r.length = last - r.offset + 1;
        }
    }
    text += strspn(text, " \t");
    if (*text != '\0')
        return false;
    *ret = r;
    return true;
}
