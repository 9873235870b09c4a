/*
 * glob.c - patterns of COPY and of ignore files
 */
#include "base/glob.h"

#include <string.h>

#include "base/limits.h"

#define WORK_MAX 200000         /* steps of one match: '*' and "**" try again and again */

bool glob_is_pattern(const char *text)
{
    return strpbrk(text, "*?[\\") != NULL;
}

/* The set at `p`, which is behind its '['; *ret_next is behind its ']'. False for a set that does not end. */
static bool in_set(const char *p, char c, bool *ret_in, const char **ret_next)
{
    bool negated = *p == '^' || *p == '!', found = false;

    if (negated)
        p++;
    for (const char *first = p; *p != '\0' && (*p != ']' || p == first); p++) {
        char low = *p == '\\' && p[1] != '\0' ? *++p : *p;
        char high = low;
        if (p[1] == '-' && p[2] != '\0' && p[2] != ']') {
            p += 2;
            high = *p == '\\' && p[1] != '\0' ? *++p : *p;
        }
        found = found || ((unsigned char)c >= (unsigned char)low && (unsigned char)c <= (unsigned char)high);
    }
    if (*p != ']')
        return false;
    *ret_in = found != negated;
    *ret_next = p + 1;
    return true;
}

static bool match(const char *p, const char *s, int *work)
{
    bool hit;

    for (;;) {
        if (--*work < 0)
            return false;
        switch (*p) {
        case '\0':
            return *s == '\0';
        case '*':
            if (p[1] == '*') {
                /* A whole part: any number of parts. */
                const char *rest = p + 2 + (p[2] == '/');
                if (p[2] == '\0')
                    return true;
                for (const char *at = s;; at++) {
                    if ((at == s || at[-1] == '/') && match(rest, at, work))
                        return true;
                    if (*at == '\0')
                        return false;
                }
            }
            for (const char *at = s;; at++) {
                if (match(p + 1, at, work))
                    return true;
                if (*at == '\0' || *at == '/')
                    return false;
            }
        case '?':
            if (*s == '\0' || *s == '/')
                return false;
            p++;
            s++;
            break;
        case '[':
            if (*s == '\0' || *s == '/' || !in_set(p + 1, *s, &hit, &p) || !hit)
                return false;
            s++;
            break;
        case '\\':
            if (p[1] != '\0')
                p++;
            if (*p++ != *s++)
                return false;
            break;
        default:
            if (*p++ != *s++)
                return false;
        }
    }
}

bool glob_match(const char *pattern, const char *path)
{
    int work = WORK_MAX;

    return match(pattern, path, &work);
}

/* The pattern matches the path or a directory that it is in. */
static bool covers(const char *pattern, const char *path)
{
    char part[LIMIT_PATH];
    size_t n = strlen(path);

    if (n >= sizeof part)
        return false;
    memcpy(part, path, n + 1);
    for (;;) {
        if (glob_match(pattern, part))
            return true;
        char *slash = strrchr(part, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
}

/* Without empty, "." and ".." parts, by the text alone; the length. */
static size_t clean(char *pattern, size_t len)
{
    size_t n = 0;

    for (size_t at = 0; at < len;) {
        const char *part = pattern + at;
        size_t k = 0;
        while (at + k < len && part[k] != '/')
            k++;
        at += k + 1;
        if (k == 0 || (k == 1 && part[0] == '.'))
            continue;
        if (k == 2 && part[0] == '.' && part[1] == '.') {
            while (n > 0 && pattern[n - 1] != '/')
                n--;
            n -= n > 0;
            continue;
        }
        if (n > 0)
            pattern[n++] = '/';
        memmove(pattern + n, part, k);
        n += k;
    }
    pattern[n] = '\0';
    return n;
}

static void trim(const char **line, size_t *len)
{
    while (*len > 0 && ((*line)[*len - 1] == ' ' || (*line)[*len - 1] == '\t' || (*line)[*len - 1] == '\r'))
        --*len;
    while (*len > 0 && (**line == ' ' || **line == '\t')) {
        ++*line;
        --*len;
    }
}

/* The next pattern of the lines; false at their end. */
static bool next_line(const char *lines, size_t n, size_t *at, char pattern[LIMIT_PATH], bool *ret_negated)
{
    while (*at < n) {
        const char *line = lines + *at;
        const char *nl = memchr(line, '\n', n - *at);
        size_t len = nl != NULL ? (size_t)(nl - line) : n - *at;
        *at += len + 1;
        if (len > 0 && *line == '#')
            continue;
        trim(&line, &len);
        *ret_negated = len > 0 && *line == '!';
        if (*ret_negated) {
            line++;
            len--;
            trim(&line, &len);
        }
        if (len == 0 || len >= LIMIT_PATH || memchr(line, '\0', len) != NULL)
            continue;
        memcpy(pattern, line, len);
        pattern[len] = '\0';
        if (clean(pattern, len) > 0)
            return true;
    }
    return false;
}

bool glob_is_ignored(const char *lines, size_t n, const char *path)
{
    char pattern[LIMIT_PATH];
    bool ignored = false, negated = false;

    for (size_t at = 0; next_line(lines, n, &at, pattern, &negated);)
        if (ignored == negated && covers(pattern, path))
            ignored = !negated;
    return ignored;
}

bool glob_has_exceptions(const char *lines, size_t n)
{
    char pattern[LIMIT_PATH];
    bool negated = false;

    for (size_t at = 0; next_line(lines, n, &at, pattern, &negated);)
        if (negated)
            return true;
    return false;
}
