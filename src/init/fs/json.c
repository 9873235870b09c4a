/*
 * json.c - a small strict JSON parser
 *
 * Pure: compiled for the host too, for unit tests and fuzzing.
 */
#include "init/fs/json.h"

#include <errno.h>
#include <string.h>

struct parser {
    char *text;
    size_t at, len;
    struct json *nodes;
    size_t n, max;
};

size_t utf8_length(const unsigned char *p, size_t n)
{
    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t want = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
    if (want == 0 || n < want)
        return 0;
    for (size_t i = 1; i < want; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, and what lies past the last code point. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return want;
}

static void skip_space(struct parser *p)
{
    while (p->at < p->len && (p->text[p->at] == ' ' || p->text[p->at] == '\t' ||
                              p->text[p->at] == '\n' || p->text[p->at] == '\r'))
        p->at++;
}

static bool take(struct parser *p, char c)
{
    if (p->at >= p->len || p->text[p->at] != c)
        return false;
    p->at++;
    return true;
}

static bool take_word(struct parser *p, const char *word)
{
    size_t n = strlen(word);

    if (p->len - p->at < n || memcmp(p->text + p->at, word, n) != 0)
        return false;
    p->at += n;
    return true;
}

static struct json *node_new(struct parser *p, enum json_type type)
{
    if (p->n == p->max)
        return NULL;
    struct json *v = &p->nodes[p->n++];
    *v = (struct json){.type = type, .extent = 1};
    return v;
}

static bool hex4(struct parser *p, uint32_t *ret)
{
    uint32_t v = 0;

    if (p->len - p->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = p->text[p->at++];
        uint32_t d;
        if (c >= '0' && c <= '9')
            d = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            d = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            d = (uint32_t)(c - 'A') + 10;
        else
            return false;
        v = v << 4 | d;
    }
    *ret = v;
    return true;
}

static size_t utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* After the backslash. Decoded text is never longer than its escape, so it fits in place. */
static bool escape(struct parser *p, char *out, size_t *len)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint32_t c, low;

    if (p->at >= p->len)
        return false;
    char e = p->text[p->at++];
    if (e != 'u') {
        const char *hit = e != '\0' ? strchr(from, e) : NULL;
        if (hit == NULL)
            return false;
        out[(*len)++] = to[hit - from];
        return true;
    }
    if (!hex4(p, &c))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (!take(p, '\\') || !take(p, 'u') || !hex4(p, &low) || low < 0xdc00 || low > 0xdfff)
            return false;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c < 0xe000) {
        return false;
    }
    *len += utf8_put(out + *len, c);
    return true;
}

/* At the opening quote. */
static int parse_string(struct parser *p)
{
    struct json *v = node_new(p, JSON_STRING);
    size_t len = 0;

    if (v == NULL)
        return -E2BIG;
    if (!take(p, '"'))
        return -EBADMSG;
    char *out = p->text + p->at;
    for (;;) {
        if (p->at >= p->len)
            return -EBADMSG;
        unsigned char c = (unsigned char)p->text[p->at];
        if (c == '"')
            break;
        if (c < 0x20)
            return -EBADMSG;
        if (c == '\\') {
            p->at++;
            if (!escape(p, out, &len))
                return -EBADMSG;
            continue;
        }
        size_t n = utf8_length((unsigned char *)p->text + p->at, p->len - p->at);
        if (n == 0)
            return -EBADMSG;
        memmove(out + len, p->text + p->at, n);
        len += n;
        p->at += n;
    }
    p->at++;
    out[len] = '\0';                    /* at the closing quote at the latest */
    v->text = out;
    v->len = (uint32_t)len;
    return 0;
}

static size_t digits(struct parser *p)
{
    size_t n = 0;

    while (p->at < p->len && p->text[p->at] >= '0' && p->text[p->at] <= '9') {
        p->at++;
        n++;
    }
    return n;
}

static int parse_number(struct parser *p)
{
    struct json *v = node_new(p, JSON_NUMBER);
    size_t start = p->at;

    if (v == NULL)
        return -E2BIG;
    (void)take(p, '-');
    size_t first = p->at;
    size_t n = digits(p);
    if (n == 0 || (n > 1 && p->text[first] == '0'))
        return -EBADMSG;
    if (take(p, '.') && digits(p) == 0)
        return -EBADMSG;
    if (take(p, 'e') || take(p, 'E')) {
        if (!take(p, '+'))
            (void)take(p, '-');
        if (digits(p) == 0)
            return -EBADMSG;
    }
    v->text = p->text + start;
    v->len = (uint32_t)(p->at - start);
    return 0;
}

static int parse_value(struct parser *p, int depth);

static int parse_container(struct parser *p, int depth, bool object)
{
    size_t self = p->n;
    struct json *v = node_new(p, object ? JSON_OBJECT : JSON_ARRAY);
    char end = object ? '}' : ']';
    uint32_t count = 0;
    int r;

    if (v == NULL || depth == JSON_DEPTH)
        return -E2BIG;
    p->at++;
    skip_space(p);
    if (!take(p, end)) {
        do {
            skip_space(p);
            if (object) {
                r = parse_string(p);
                if (r < 0)
                    return r;
                skip_space(p);
                if (!take(p, ':'))
                    return -EBADMSG;
            }
            r = parse_value(p, depth + 1);
            if (r < 0)
                return r;
            count++;
            skip_space(p);
        } while (take(p, ','));
        if (!take(p, end))
            return -EBADMSG;
    }
    p->nodes[self].count = count;
    p->nodes[self].extent = (uint32_t)(p->n - self);
    return 0;
}

static int parse_word(struct parser *p, const char *word, enum json_type type, bool truth)
{
    struct json *v = node_new(p, type);

    if (v == NULL)
        return -E2BIG;
    v->truth = truth;
    return take_word(p, word) ? 0 : -EBADMSG;
}

static int parse_value(struct parser *p, int depth)
{
    skip_space(p);
    if (p->at >= p->len)
        return -EBADMSG;
    switch (p->text[p->at]) {
    case '{':
        return parse_container(p, depth, true);
    case '[':
        return parse_container(p, depth, false);
    case '"':
        return parse_string(p);
    case 't':
        return parse_word(p, "true", JSON_BOOL, true);
    case 'f':
        return parse_word(p, "false", JSON_BOOL, false);
    case 'n':
        return parse_word(p, "null", JSON_NULL, false);
    default:
        return parse_number(p);
    }
}

int json_parse(char *text, size_t len, struct json *nodes, size_t nnodes)
{
    struct parser p = {.text = text, .len = len, .nodes = nodes, .max = nnodes};

    if (len > INT32_MAX)
        return -E2BIG;
    int r = parse_value(&p, 0);
    if (r < 0)
        return r;
    skip_space(&p);
    return p.at == p.len ? (int)p.n : -EBADMSG;
}

const struct json *json_first(const struct json *v)
{
    return (v->type == JSON_ARRAY || v->type == JSON_OBJECT) && v->count > 0 ? v + 1 : NULL;
}

const struct json *json_after(const struct json *v)
{
    return v + v->extent;
}

const struct json *json_get(const struct json *o, const char *name)
{
    if (o == NULL || o->type != JSON_OBJECT)
        return NULL;
    const struct json *key = o + 1;
    for (uint32_t i = 0; i < o->count; i++) {
        if (json_is(key, name))
            return key + 1;
        key = json_after(key + 1);
    }
    return NULL;
}

bool json_is(const struct json *v, const char *text)
{
    return v != NULL && v->type == JSON_STRING && v->len == strlen(text) &&
           memcmp(v->text, text, v->len) == 0;
}

bool json_int(const struct json *v, int64_t *ret)
{
    uint64_t n = 0;
    uint32_t i = 0;

    if (v == NULL || v->type != JSON_NUMBER)
        return false;
    bool negative = v->text[0] == '-';
    for (i = negative; i < v->len; i++) {
        if (v->text[i] < '0' || v->text[i] > '9' ||
            __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(v->text[i] - '0'), &n))
            return false;
    }
    if (n > INT64_MAX)
        return false;
    *ret = negative ? -(int64_t)n : (int64_t)n;
    return true;
}
