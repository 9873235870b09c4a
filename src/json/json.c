/*
 * json.c - strict JSON on jansson
 */
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"

void js_init(void)
{
    json_set_alloc_funcs(mem_alloc, free);
    json_object_seed(0); /* from the kernel: keys of a peer must not collide on purpose */
}

/* jansson's own cap on nesting is 2048 and it recurses; this looks at brackets outside strings
 * only. */
static bool is_too_deep(const char *p, size_t n)
{
    size_t depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > LIMIT_JSON_DEPTH)
                return true;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

/* The member of the outermost object that byte `at` of the text is in: its name, cut and only
 * what is printable. */
static void member_at(const char *p, size_t at, char *out, size_t size)
{
    size_t depth = 0, len = 0;
    bool is_key = false; /* the next string at depth 1 is a name */

    for (size_t i = 0; i < at; i++) {
        if (p[i] == '"') {
            bool is_taken = depth == 1 && is_key;
            is_key = false;
            len = is_taken ? 0 : len;
            for (i++; i < at && p[i] != '"'; i++) {
                if (is_taken && len + 1 < size && p[i] >= ' ' && p[i] < 127)
                    out[len++] = p[i];
                if (p[i] == '\\')
                    i++;
            }
        } else if (p[i] == '{' || p[i] == '[') {
            is_key = ++depth == 1 && p[i] == '{';
        } else if (p[i] == '}' || p[i] == ']') {
            depth -= depth > 0;
        } else if (p[i] == ',' && depth == 1) {
            is_key = true;
        }
    }
    out[len] = '\0';
}

json_t *js_parse(const void *p, size_t n, size_t max_bytes, struct err *e)
{
    char member[64];

    json_error_t je;

    if (n > max_bytes) {
        err_set(e, ERR_TOO_LARGE, "the JSON text has %zu bytes, at most %zu are accepted", n,
                max_bytes);
        return NULL;
    }
    if (is_too_deep(p, n)) {
        err_set(e, ERR_MALFORMED, "the JSON text is nested deeper than %d levels",
                LIMIT_JSON_DEPTH);
        return NULL;
    }
    json_t *j = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (j == NULL && json_error_code(&je) == json_error_null_byte_in_key) {
        member_at(p, (size_t)je.position < n ? (size_t)je.position : n, member, sizeof member);
        err_param(e, ERR_INVALID, member, "a key in %s has a NUL", member);
        return NULL;
    }
    if (j == NULL)
        err_set(e, ERR_MALFORMED, "not valid JSON: line %d column %d: %s", je.line, je.column,
                je.text);
    return j;
}

bool js_has_nul(const json_t *j)
{
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_string(j))
        return strlen(json_string_value(j)) != json_string_length(j);
    json_object_foreach((json_t *)(uintptr_t)j, key, value) if (js_has_nul(value)) return true;
    json_array_foreach(j, i, value) if (js_has_nul(value)) return true;
    return false;
}

json_t *js_parse_reals(const void *p, size_t n)
{
    return is_too_deep(p, n)
               ? NULL
               : json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                            NULL);
}

char *js_text(const json_t *j, bool sorted)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(16) |
                                   (sorted ? JSON_SORT_KEYS : 0));

    return text != NULL ? text : mem_strdup("null");
}

/* Length of the well-formed UTF-8 sequence at s (RFC 3629: no overlong forms, no surrogates), 0
 * if there is none. */
static size_t utf8_len(const unsigned char *s)
{
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : (s[0] & 0xf0) == 0xe0       ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;

    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

json_t *js_string_lossy(const char *text)
{
    json_t *whole = json_string(text);
    if (whole != NULL)
        return whole;

    char *out = mem_alloc(strlen(text) * 3 + 1);
    size_t len = 0;
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0';) {
        size_t n = utf8_len(s);
        if (n == 0) {
            memcpy(out + len, "\xef\xbf\xbd", 3);
            len += 3;
            s++;
            continue;
        }
        memcpy(out + len, s, n);
        len += n;
        s += n;
    }
    whole = json_stringn(out, len);
    free(out);
    return whole;
}

json_t *js_string_or_null(const char *text)
{
    return text != NULL ? js_string_lossy(text) : json_null();
}

json_t *js_time_ms(int64_t ms)
{
    return ms != 0 ? json_real((double)ms / 1000.0) : json_null();
}

json_t *js_time_us(int64_t us)
{
    return us != 0 ? json_real((double)us / 1000000.0) : json_null();
}

#define NEAREST_MAX 64

/* Levenshtein distance with neighbouring transpositions, one row of the table at a time. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t before[NEAREST_MAX + 1], last[NEAREST_MAX + 1], row[NEAREST_MAX + 1];

    for (size_t j = 0; j <= nb; j++)
        last[j] = j;
    memcpy(before, last, sizeof before);
    for (size_t i = 1; i <= na; i++) {
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t d = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < d)
                d = last[j] + 1;
            if (row[j - 1] + 1 < d)
                d = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < d)
                d = before[j - 2] + 1;
            row[j] = d;
        }
        memcpy(before, last, sizeof before);
        memcpy(last, row, sizeof last);
    }
    return last[nb];
}

const char *js_nearest(const char *name, const char *const *names, size_t n)
{
    size_t len = strlen(name);
    const char *best = NULL;
    size_t best_distance = 0;

    if (len == 0 || len > NEAREST_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t other = strlen(names[i]);
        if (other > NEAREST_MAX)
            continue;
        size_t d = distance(name, len, names[i], other);
        if (best == NULL || d < best_distance) {
            best = names[i];
            best_distance = d;
        }
    }
    /* "timeout" for "timeout_s" is meant, "foo" for "cpu" is not. */
    return best != NULL && best_distance <= (len < 4 ? 1 : len / 3 + 1) ? best : NULL;
}
