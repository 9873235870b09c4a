/*
 * check.c - requests against the fields of their row
 *
 * Called by rest.c before a handler runs, and by the fuzz target. Each error names field, value and
 * limit.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/rest/rest.h"
#include "base/mem.h"
#include "json/json.h"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int percent_decode(const char *p, size_t n, bool plus_is_space, char *out)
{
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (c == '%') {
            if (i + 2 >= n || hex(p[i + 1]) < 0 || hex(p[i + 2]) < 0)
                return -1;
            c = (char)(hex(p[i + 1]) << 4 | hex(p[i + 2]));
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (c == '\0')
            return -1;
        out[len++] = c;
    }
    out[len] = '\0';
    return (int)len;
}

int query_split(char *text, struct query_param **ret, size_t *ret_n, struct err *e)
{
    size_t n = 0, count = 0;

    for (const char *p = text; *p != '\0'; p++)
        n += *p == '&';
    if (n >= QUERY_PARAMS_MAX)
        return err_set(e, ERR_TOO_LARGE, "the query has %zu parameters, at most %d are accepted",
                       n + 1, QUERY_PARAMS_MAX);
    auto_free struct query_param *q = mem_array(n + 1, sizeof *q);
    for (char *p = text; *p != '\0';) {
        size_t len = strcspn(p, "&");
        char *next = p[len] == '&' ? p + len + 1 : p + len;
        if (len > 0) {
            size_t name_len = strcspn(p, "=&");
            char *value = p + name_len;
            size_t value_len = 0;
            if (name_len < len) {
                value++;
                value_len = len - name_len - 1;
            }
            /* In place: decoding never grows a text. The value first, since the name's NUL may
             * fall on its '='. */
            p[len] = '\0';
            if (percent_decode(value, value_len, true, value) < 0 ||
                percent_decode(p, name_len, true, p) < 0)
                return err_set(e, ERR_MALFORMED,
                               "parameter %zu of the query has a bad %%-escape or a NUL",
                               count + 1);
            q[count].name = p;
            q[count].value = name_len < len ? value : p + strlen(p);
            count++;
        }
        p = next;
    }
    *ret = take_ptr(&q);
    *ret_n = count;
    return 0;
}

/* A peer's text for a message: cut, and only printable ASCII. */
static const char *shown(const char *text, char out[64])
{
    size_t i = 0;

    for (; text[i] != '\0' && i < 60; i++)
        out[i] = text[i] >= ' ' && text[i] < 127 && text[i] != '\'' ? text[i] : '?';
    out[i] = '\0';
    if (text[i] != '\0')
        memcpy(out + i, "...", 4);
    return out;
}

static int wrong_type(const struct field *f, const char *want, struct err *e)
{
    return err_param(e, ERR_INVALID, f->name, "%s must be %s", f->name, want);
}

static int check_range(const struct field *f, double v, struct err *e)
{
    if (!isfinite(v))
        return err_param(e, ERR_INVALID, f->name, "%s must be a finite number", f->name);
    if (f->min == 0 && f->max == 0)
        return 0;
    bool is_open = (f->flags & FIELD_OPEN_MIN) != 0;
    if (v > f->max || v < f->min || (is_open && v <= f->min))
        return err_param(e, ERR_INVALID, f->name,
                         "%s is %.15g, but must be %s %.15g and at most %.15g", f->name, v,
                         is_open ? "more than" : "at least", f->min, f->max);
    return 0;
}

static int check_count(const struct field *f, size_t n, const char *what, struct err *e)
{
    if ((f->min != 0 || f->max != 0) && ((double)n < f->min || (double)n > f->max))
        return err_param(e, n > f->max ? ERR_TOO_LARGE : ERR_INVALID, f->name,
                         "%s has %zu %s, but must have %.15g to %.15g", f->name, n, what, f->min,
                         f->max);
    return 0;
}

static int check_string(const struct field *f, const char *s, struct err *e)
{
    char text[64];

    if (check_count(f, strlen(s), "bytes", e) < 0)
        return -1;
    if ((f->flags & FIELD_NAME) != 0 && !name_is_valid(s, strlen(s)))
        return err_param(e, ERR_INVALID, f->name,
                         "%s is '%s', but names are 1 to %d of the characters A-Z a-z 0-9 . _ - "
                         "and neither '.' nor '..' nor shaped like an app id",
                         f->name, shown(s, text), LIMIT_NAME);
    if ((f->flags & FIELD_ABS_PATH) != 0 && s[0] != '/')
        return err_param(e, ERR_INVALID, f->name, "%s is '%s', but must be an absolute path",
                         f->name, shown(s, text));
    return 0;
}

static int check_enum(const struct field *f, const char *s, struct err *e)
{
    char text[64];
    size_t n = strlen(s);

    for (const char *p = f->choices; n > 0 && *p != '\0';) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, s, n) == 0)
            return 0;
        p += len + (p[len] == '|');
    }
    return err_param(e, ERR_INVALID, f->name, "%s is '%s', but must be one of %s", f->name,
                     shown(s, text), f->choices);
}

static int check_strings(const struct field *f, const json_t *v, struct err *e)
{
    size_t i;
    const json_t *item;

    if (!json_is_array(v))
        return wrong_type(f, "an array of strings", e);
    json_array_foreach(v, i, item) if (!json_is_string(item)) return err_param(
        e, ERR_INVALID, f->name, "%s must be an array of strings, but item %zu is none", f->name,
        i);
    return check_count(f, json_array_size(v), "items", e);
}

static int check_string_map(const struct field *f, json_t *v, struct err *e)
{
    char text[64];
    const char *key;
    json_t *item;

    if (!json_is_object(v))
        return wrong_type(f, "an object of strings", e);
    json_object_foreach(v, key, item)
    {
        bool is_null = json_is_null(item) && (f->flags & FIELD_NULLABLE) != 0;
        if (!json_is_string(item) && !is_null)
            return err_param(e, ERR_INVALID, f->name,
                             "%s must be an object of strings, but '%s' is none", f->name,
                             shown(key, text));
    }
    return check_count(f, json_object_size(v), "entries", e);
}

static int check_tty(const struct field *f, json_t *v, struct err *e)
{
    const char *key;
    json_t *item;

    if (json_is_boolean(v))
        return 0;
    if (!json_is_object(v))
        return wrong_type(f, "true, false or {\"rows\", \"cols\"}", e);
    json_object_foreach(v, key, item)
    {
        if (strcmp(key, "rows") != 0 && strcmp(key, "cols") != 0) {
            err_param(e, ERR_UNKNOWN_FIELD, f->name, "%s has a field that is neither rows nor cols",
                      f->name);
            return -1;
        }
        if (!json_is_integer(item) || json_integer_value(item) < 1 ||
            json_integer_value(item) > 65535)
            return err_param(e, ERR_INVALID, f->name,
                             "%s.%s must be a whole number from 1 to 65535", f->name, key);
    }
    if (json_object_size(v) != 2)
        return err_param(e, ERR_INVALID, f->name, "%s must have both rows and cols", f->name);
    return 0;
}

static int check_value(const struct field *f, json_t *v, struct err *e)
{
    if (json_is_null(v) && f->type != FIELD_JSON) {
        if ((f->flags & FIELD_NULLABLE) != 0)
            return 0;
        return err_param(e, ERR_INVALID, f->name, "%s must not be null", f->name);
    }
    switch (f->type) {
    case FIELD_STRING:
        return json_is_string(v) ? check_string(f, json_string_value(v), e)
                                 : wrong_type(f, "a string", e);
    case FIELD_ENUM:
        return json_is_string(v) ? check_enum(f, json_string_value(v), e)
                                 : wrong_type(f, "a string", e);
    case FIELD_INT:
        /* A whole real here is a number beyond every range (see js_parse_reals), or was written
         * with a point. */
        if (json_is_real(v) && fabs(json_real_value(v)) >= 0x1p53)
            return check_range(f, json_real_value(v), e) < 0
                       ? -1
                       : wrong_type(f, "a whole number that fits in 64 bits", e);
        return json_is_integer(v) ? check_range(f, (double)json_integer_value(v), e)
                                  : wrong_type(f, "a whole number", e);
    case FIELD_NUMBER:
        return json_is_number(v) ? check_range(f, json_number_value(v), e)
                                 : wrong_type(f, "a number", e);
    case FIELD_BOOL:
        return json_is_boolean(v) ? 0 : wrong_type(f, "true or false", e);
    case FIELD_STRINGS:
        return check_strings(f, v, e);
    case FIELD_STRING_MAP:
        return check_string_map(f, v, e);
    case FIELD_TTY:
        return check_tty(f, v, e);
    case FIELD_JSON:
        return 0;
    }
    return 0;
}

static const struct field *field_of(const struct field *fields, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

static int unknown(const struct field *fields, size_t n, const char *name, const char *where,
                   struct err *e)
{
    char text[64];
    const char *names[64];
    size_t count = n < array_len(names) ? n : array_len(names);

    for (size_t i = 0; i < count; i++)
        names[i] = fields[i].name;
    (void)shown(name, text);
    err_param(e, ERR_UNKNOWN_FIELD, text, "this operation has no %s '%s'", where, text);
    const char *near = js_nearest(name, names, count);
    if (near != NULL)
        err_hint(e, "did you mean '%s'?", near);
    else
        err_hint(e, "see /openapi.json for what it accepts");
    return -1;
}

/* Number that no integer holds: only the field it is in is of interest, so members of other
 * types are left alone. */
int check_overflow(const struct op *op, const json_t *body, struct err *e)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)body, key, value)
    {
        const struct field *f = field_of(op->body, op->nbody, key);
        if (f != NULL && json_is_real(value) && fabs(json_real_value(value)) >= 0x1p63)
            return check_value(f, value, e);
    }
    return 0;
}

int check_body(const struct op *op, const json_t *body, struct err *e)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)body, key, value)
    {
        const struct field *f = field_of(op->body, op->nbody, key);
        if (f == NULL)
            return unknown(op->body, op->nbody, key, "field", e);
        if (js_has_nul(value))
            return err_param(e, ERR_INVALID, f->name, "%s has a NUL", f->name);
        if (check_value(f, value, e) < 0)
            return -1;
    }
    for (size_t i = 0; i < op->nbody; i++) {
        const struct field *f = &op->body[i];
        if ((f->flags & FIELD_REQUIRED) != 0 && json_object_get(body, f->name) == NULL)
            return err_param(e, ERR_INVALID, f->name, "%s is required", f->name);
    }
    return 0;
}

json_t *check_json(const struct op *op, const void *p, size_t n, struct err *e)
{
    struct err parse_error;

    if (n == 0 && op->nbody == 0)
        return json_object();
    auto_json *body = n == 0 ? json_object() : js_parse(p, n, LIMIT_JSON_BODY, &parse_error);
    if (body == NULL) {
        auto_json *reals =
            n <= LIMIT_JSON_BODY && parse_error.code == ERR_MALFORMED ? js_parse_reals(p, n) : NULL;
        if (!json_is_object(reals) || check_overflow(op, reals, e) == 0)
            *e = parse_error;
        return NULL;
    }
    if (!json_is_object(body)) {
        err_set(e, ERR_MALFORMED, "the body must be a JSON object");
        return NULL;
    }
    if ((op->flags & OP_OPEN_BODY) != 0 && js_has_nul(body)) {
        err_set(e, ERR_INVALID, "a value of the body has a NUL");
        return NULL;
    }
    if ((op->flags & OP_OPEN_BODY) == 0 && check_body(op, body, e) < 0)
        return NULL;
    return take_ptr(&body);
}

static int check_query_value(const struct field *f, const char *s, struct err *e)
{
    char text[64];
    char *end;

    switch (f->type) {
    case FIELD_STRING:
        return check_string(f, s, e);
    case FIELD_ENUM:
        return check_enum(f, s, e);
    case FIELD_INT: {
        errno = 0;
        long long v = strtoll(s, &end, 10);
        if (*s == '\0' || strchr("-0123456789", *s) == NULL || *end != '\0' || errno != 0)
            return err_param(e, ERR_INVALID, f->name, "%s is '%s', but must be a whole number",
                             f->name, shown(s, text));
        return check_range(f, (double)v, e);
    }
    case FIELD_NUMBER: {
        errno = 0;
        double v = strtod(s, &end);
        /* strtod takes "inf", "nan" and hexadecimal too */
        if (*s == '\0' || strspn(s, "-+.0123456789eE") != strlen(s) || *end != '\0')
            return err_param(e, ERR_INVALID, f->name, "%s is '%s', but must be a number", f->name,
                             shown(s, text));
        return check_range(f, v, e);
    }
    case FIELD_BOOL:
        if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0 || strcmp(s, "1") == 0 ||
            strcmp(s, "0") == 0)
            return 0;
        return err_param(e, ERR_INVALID, f->name, "%s is '%s', but must be true or false", f->name,
                         shown(s, text));
    case FIELD_STRINGS:
    case FIELD_STRING_MAP:
    case FIELD_TTY:
    case FIELD_JSON:
        break;
    }
    return err_param(e, ERR_INTERNAL, f->name, "%s has no form in a query", f->name);
}

int check_query(const struct op *op, const struct query_param *q, size_t n, struct err *e)
{
    uint64_t seen = 0;

    for (size_t i = 0; i < n; i++) {
        const struct field *f = field_of(op->query, op->nquery, q[i].name);
        if (f == NULL)
            return unknown(op->query, op->nquery, q[i].name, "query parameter", e);
        uint64_t bit = 1ULL << ((size_t)(f - op->query) & 63);
        if ((seen & bit) != 0 && (f->flags & FIELD_REPEATED) == 0)
            return err_param(e, ERR_INVALID, f->name, "%s came more than once", f->name);
        seen |= bit;
        if (check_query_value(f, q[i].value, e) < 0)
            return -1;
    }
    for (size_t i = 0; i < op->nquery; i++)
        if ((op->query[i].flags & FIELD_REQUIRED) != 0 && (seen & 1ULL << (i & 63)) == 0)
            return err_param(e, ERR_INVALID, op->query[i].name,
                             "the query parameter %s is required", op->query[i].name);
    return 0;
}

int check_param(const struct op *op, const char *name, size_t name_len, const char *value,
                struct err *e)
{
    char text[64];
    bool is_id = name_len == 2 && memcmp(name, "id", 2) == 0;

    if (is_id && strncmp(op->path, "/v1/sandboxes/", 14) == 0 && !id_is(value, "sb-"))
        return err_set(e, ERR_NOT_FOUND, "no sandbox '%s'", shown(value, text));
    if (is_id && strncmp(op->path, "/v1/tokens/", 11) == 0 && !id_is(value, "tk-"))
        return err_set(e, ERR_NOT_FOUND, "no token '%s'", shown(value, text));
    if (name_len == 7 && memcmp(name, "exec_id", 7) == 0 && !exec_id_is_valid(value))
        return err_param(e, ERR_INVALID, "exec_id",
                         "the exec id is '%s', but exec ids are 1 to 63 of the characters "
                         "A-Z a-z 0-9 . _ - and begin with a letter or digit",
                         shown(value, text));
    return 0;
}
