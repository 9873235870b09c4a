/*
 * jwt.c - taking a router token apart
 */
#include "node/modal/jwt.h"

#include <string.h>

#include "base/modal_ids.h"
#include "json/json.h"

#define PART_MAX 2048           /* decoded bytes of header and claims */

static int fail(struct err *e, const char *why)
{
    return err_set(e, ERR_UNAUTHENTICATED, "the token is malformed: %s", why);
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* Strict base64url: no padding, and no bits that no byte is made of. Returns the count or -1. */
static long decode(const char *p, size_t n, unsigned char *out, size_t size)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t len = 0;

    if (n % 4 == 1)
        return -1;
    for (size_t i = 0; i < n; i++) {
        int v = value_of(p[i]);
        if (v < 0)
            return -1;
        bits = bits << 6 | (uint32_t)v;
        have += 6;
        if (have < 8)
            continue;
        have -= 8;
        if (len == size)
            return -1;
        out[len++] = (unsigned char)(bits >> have);
        bits &= (1U << have) - 1;
    }
    return bits == 0 ? (long)len : -1;
}

static json_t *decode_object(const char *p, size_t n)
{
    unsigned char space[PART_MAX];
    long len = decode(p, n, space, sizeof space);
    json_t *j = len > 0 ? js_parse(space, (size_t)len, sizeof space, NULL) : NULL;

    if (j != NULL && !json_is_object(j)) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

/* A text member of fewer than `size` bytes without NUL; "" if it is not there. */
static int take_text(const json_t *j, const char *name, char *out, size_t size)
{
    const json_t *v = json_object_get(j, name);

    out[0] = '\0';
    if (v == NULL)
        return 0;
    size_t n = json_is_string(v) ? json_string_length(v) : size;
    if (n >= size || memchr(json_string_value(v), '\0', n) != NULL)
        return -1;
    memcpy(out, json_string_value(v), n);
    out[n] = '\0';
    return 0;
}

static int take_seconds(const json_t *j, const char *name, int64_t *ret)
{
    const json_t *v = json_object_get(j, name);

    if (v == NULL)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return -1;
    *ret = json_integer_value(v);
    return 0;
}

static int take_header(const json_t *j, struct jwt *t, struct err *e)
{
    char typ[8];

    if (take_text(j, "alg", t->alg, sizeof t->alg) < 0 ||
        take_text(j, "kid", t->kid, sizeof t->kid) < 0 || t->alg[0] == '\0' || t->kid[0] == '\0')
        return fail(e, "its header lacks alg or kid");
    if (take_text(j, "typ", typ, sizeof typ) < 0 || (typ[0] != '\0' && strcmp(typ, "JWT") != 0))
        return fail(e, "its type is not JWT");
    if (json_object_get(j, "crit") != NULL)
        return fail(e, "it has critical extensions");
    return 0;
}

static int take_claims(const json_t *j, struct jwt *t, struct err *e)
{
    char task[ID_SIZE], sandbox[ID_SIZE], id[ID_SIZE];

    if (take_seconds(j, "exp", &t->exp_s) < 0 || take_seconds(j, "nbf", &t->nbf_s) < 0 ||
        t->exp_s == 0)
        return fail(e, "exp and nbf are whole seconds, and exp is needed");
    if (take_text(j, "task_id", task, sizeof task) < 0 ||
        take_text(j, "sandbox_id", sandbox, sizeof sandbox) < 0)
        return fail(e, "task_id or sandbox_id is no id");
    if (task[0] == '\0' && sandbox[0] == '\0')
        return fail(e, "it names no task");
    if (task[0] != '\0' && !modal_task_parse(task, t->sandbox, NULL))
        return fail(e, "task_id is no id");
    if (sandbox[0] == '\0')
        return 0;
    if (!modal_sandbox_parse(sandbox, id, NULL))
        return fail(e, "sandbox_id is no id");
    if (task[0] != '\0' && strcmp(id, t->sandbox) != 0)
        return fail(e, "task_id and sandbox_id are not of the same sandbox");
    memcpy(t->sandbox, id, sizeof t->sandbox);
    return 0;
}

int jwt_decode(const char *text, size_t len, struct jwt *ret, struct err *e)
{
    struct jwt t = {0};

    if (len > JWT_MAX)
        return fail(e, "it is too long");
    const char *dot = memchr(text, '.', len);
    const char *claims = dot != NULL ? dot + 1 : NULL;
    const char *dot2 = claims != NULL ? memchr(claims, '.', len - (size_t)(claims - text)) : NULL;
    if (dot2 == NULL)
        return fail(e, "it has not three parts");
    const char *signature = dot2 + 1;
    auto_json *header = decode_object(text, (size_t)(dot - text));
    if (header == NULL)
        return fail(e, "its header is no JSON object");
    auto_json *body = decode_object(claims, (size_t)(dot2 - claims));
    if (body == NULL)
        return fail(e, "its claims are no JSON object");
    if (take_header(header, &t, e) < 0 || take_claims(body, &t, e) < 0)
        return -1;
    if (decode(signature, len - (size_t)(signature - text), t.signature, sizeof t.signature) !=
        (long)sizeof t.signature)
        return fail(e, "its signature has not 64 bytes");
    t.signed_len = (size_t)(dot2 - text);
    *ret = t;
    return 0;
}
