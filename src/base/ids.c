/*
 * ids.c - ids and names
 */
#include "base/ids.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/limits.h"

void random_bytes(void *out, size_t n)
{
    unsigned char *p = out;

    while (n > 0) {
        ssize_t r = getrandom(p, n, 0);
        if (r < 0)
            abort();
        p += r;
        n -= (size_t)r;
    }
}

/* 128 random bits in base 62: modal_ids.c writes the same number in another form. */
void id_make(char out[ID_SIZE], const char *prefix)
{
    static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    size_t n = strlen(prefix);
    unsigned __int128 v;

    random_bytes(&v, sizeof v);
    memcpy(out, prefix, n);
    for (size_t i = ID_SUFFIX; i > 0; i--, v /= 62)
        out[n + i - 1] = alphabet[v % 62];
    out[n + ID_SUFFIX] = '\0';
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool id_is(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);

    if (strncmp(text, prefix, n) != 0 || strlen(text) != n + ID_SUFFIX)
        return false;
    for (const char *p = text + n; *p != '\0'; p++)
        if (!is_alnum(*p))
            return false;
    return true;
}

static bool is_name_char(char c)
{
    return is_alnum(c) || c == '.' || c == '_' || c == '-';
}

bool name_is_valid(const char *text, size_t len)
{
    if (len == 0 || len > LIMIT_NAME)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_name_char(text[i]))
            return false;
    if (text[0] == '.' && (len == 1 || (len == 2 && text[1] == '.')))
        return false;
    if (len == 3 + ID_SUFFIX && memcmp(text, "ap-", 3) == 0) {
        for (size_t i = 3; i < len; i++)
            if (!is_alnum(text[i]))
                return true;
        return false;
    }
    return true;
}

bool exec_id_is_valid(const char *text)
{
    size_t len = strlen(text);

    if (len == 0 || len >= LIMIT_ID || !is_alnum(text[0]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_name_char(text[i]))
            return false;
    return true;
}
