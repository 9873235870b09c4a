/*
 * args.c - arguments of operations
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "init/fs/input.h"
#include "init/fs/op.h"
#include "init/fs/signs.h"

static int bad(struct fs_error *e, const char *name, const char *what)
{
    char text[128];

    snprintf(text, sizeof text, "%s %s", name, what);
    return fs_fail_kind(e, "Invalid", text);
}

static const struct json *get(struct op *o, const char *name)
{
    const struct json *v = json_get(o->args, name);

    return v != NULL && v->type == JSON_NULL ? NULL : v;
}

int arg_text(struct op *o, const char *name, const char **ret, size_t *ret_len, struct fs_error *e)
{
    char b64[64];
    const struct json *v = get(o, name);

    snprintf(b64, sizeof b64, "%s_b64", name);
    const struct json *bytes = get(o, b64);
    *ret = NULL;
    *ret_len = 0;
    if (bytes != NULL) {
        if (bytes->type != JSON_STRING)
            return bad(e, b64, "must be base64");
        char *p = arena_alloc(o->arena, bytes->len + 1);
        if (!base64_decode(bytes->text, bytes->len, p, ret_len))
            return bad(e, b64, "must be base64");
        p[*ret_len] = '\0';
        *ret = p;
        return 0;
    }
    if (v == NULL)
        return 0;
    if (v->type != JSON_STRING)
        return bad(e, name, "must be a string");
    *ret = v->text;
    *ret_len = v->len;
    return 0;
}

int arg_path(struct op *o, const char *name, const char **ret, struct fs_error *e)
{
    const char *p;
    size_t n;

    if (arg_text(o, name, &p, &n, e) < 0)
        return -1;
    if (p == NULL)
        return bad(e, name, "is missing");
    if (p[0] != '/')
        return bad(e, name, "must be absolute");
    if (memchr(p, '\0', n) != NULL)
        return bad(e, name, "must not contain a NUL byte");
    *ret = p;
    return 0;
}

int arg_bool(struct op *o, const char *name, bool otherwise, bool *ret, struct fs_error *e)
{
    const struct json *v = get(o, name);

    if (v != NULL && v->type != JSON_BOOL)
        return bad(e, name, "must be true or false");
    *ret = v != NULL ? v->truth : otherwise;
    return 0;
}

int arg_int(struct op *o, const char *name, int64_t otherwise, int64_t min, int64_t max, int64_t *ret,
            struct fs_error *e)
{
    const struct json *v = get(o, name);
    int64_t n = otherwise;

    if (v != NULL && (!json_int(v, &n) || n < min || n > max))
        return bad(e, name, "must be a whole number in range");
    *ret = n;
    return 0;
}

int arg_seconds(struct op *o, const char *name, int64_t *ret_ms, struct fs_error *e)
{
    const struct json *v = get(o, name);
    int64_t ms = 0, scale = 1000;
    uint32_t i = 0;

    *ret_ms = -1;
    if (v == NULL)
        return 0;
    if (v->type != JSON_NUMBER || v->text[0] == '-')
        return bad(e, name, "must be a number of seconds");
    for (; i < v->len && v->text[i] >= '0' && v->text[i] <= '9'; i++)
        if (ms < INT32_MAX)
            ms = ms * 10 + (v->text[i] - '0');
    ms *= 1000;
    if (i < v->len && v->text[i] == '.')
        for (i++; i < v->len && v->text[i] >= '0' && v->text[i] <= '9'; i++) {
            scale /= 10;
            ms += (v->text[i] - '0') * scale;
        }
    if (i < v->len)                     /* an exponent: no time that anybody means */
        return bad(e, name, "must be a number of seconds");
    *ret_ms = ms;
    return 0;
}

int op_signs(struct op *o, struct signs *signs, struct fs_error *e)
{
    int64_t window;
    int silence_ms;

    if (arg_int(o, "window", 0, 2, INT64_MAX / 4, &window, e) < 0 || arg_silence(o, &silence_ms, e) < 0)
        return -1;
    signs_init(signs, o->batch ? 0 : window, silence_ms);
    if (!o->batch)
        o->out->signs = signs;
    return 0;
}

int arg_mode(struct op *o, const char *name, mode_t *ret, bool *ret_given, struct fs_error *e)
{
    const struct json *v = get(o, name);
    mode_t mode = 0;

    *ret_given = v != NULL;
    if (v == NULL)
        return 0;
    if (v->type != JSON_STRING || v->len == 0 || v->len > 5)
        return bad(e, name, "must be octal digits");
    for (uint32_t i = 0; i < v->len; i++) {
        if (v->text[i] < '0' || v->text[i] > '7')
            return bad(e, name, "must be octal digits");
        mode = mode << 3 | (mode_t)(v->text[i] - '0');
    }
    if (mode > 07777)
        return bad(e, name, "must be at most 7777");
    *ret = mode;
    return 0;
}
