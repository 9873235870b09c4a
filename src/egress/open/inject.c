/*
 * inject.c - what a rule puts into a request
 */
#include "egress/open/inject.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/mem.h"
#include "egress/open/sigv4.h"

#define VALUE_MAX (64 * 1024)
#define KEY_MAX 256

static const char no_secret[] = "a secret that the rule names is not known, or has no such key";
static const char bad_value[] = "the value of a secret has characters that no request may have there";
static const char too_many[] = "more values would have to be blackened than can be";
static const char too_large[] = "the request would be too large";

void secrets_add(struct secrets *s, const char *id, const char *key, const char *value, size_t len)
{
    s->values = mem_realloc(s->values, (s->n + 1) * sizeof *s->values);
    struct secret_value *v = &s->values[s->n++];
    (void)snprintf(v->id, sizeof v->id, "%s", id);
    v->key = mem_strdup(key);
    v->value = mem_strndup(value, len);
    v->is_binary = memchr(value, '\0', len) != NULL;
    /* Many a secret was read from a file with an end of line. */
    for (size_t n = strlen(v->value); n > 0 && (v->value[n - 1] == '\n' || v->value[n - 1] == '\r'); n--)
        v->value[n - 1] = '\0';
}

void secrets_done(struct secrets *s)
{
    for (size_t i = 0; i < s->n; i++) {
        explicit_bzero(s->values[i].value, strlen(s->values[i].value));
        free(s->values[i].key);
        free(s->values[i].value);
    }
    free(s->values);
    *s = (struct secrets){0};
}

static const struct secret_value *find(const struct secrets *s, const char *id, const char *key, size_t nkey)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->values[i].id, id) == 0 && strlen(s->values[i].key) == nkey && memcmp(s->values[i].key, key, nkey) == 0)
            return &s->values[i];
    return NULL;
}

/* Where there is none, or one that cannot be used, it is not signed with another. */
static const char *find_key(const struct secrets *s, const char *id, const char *key, bool *bad)
{
    const struct secret_value *v = find(s, id, key, strlen(key));

    *bad = *bad || (v != NULL && v->is_binary);
    return v != NULL ? v->value : NULL;
}

/* A buffer for a value, wiped when its block ends. */
static void wiped_done(struct buf *b)
{
    if (b->data != NULL)
        explicit_bzero(b->data, b->size);
    buf_done(b);
}
#define auto_wiped __attribute__((cleanup(wiped_done))) struct buf

static const char *fill(const struct policy_inject *j, const char *template, const struct injection *in, struct buf *out,
                        struct redact *words)
{
    const char *key;
    size_t n;

    buf_init(out, VALUE_MAX);
    for (const char *c = template; *c != '\0';) {
        size_t used = *c == '$' ? policy_template_next(c, &key, &n) : 0;
        if (used == 0 || n == 0) {
            (void)buf_addc(out, *c);
            c += used == 0 ? 1 : used;
            continue;
        }
        const struct secret_value *found = find(in->secrets, j->secret_id, key, n);
        if (found == NULL)
            return no_secret;
        if (found->is_binary)
            return bad_value;
        const char *value = found->value;
        for (const char *v = value; *v != '\0'; v++)
            if (((unsigned char)*v < ' ' && *v != '\t') || *v == 127)
                return bad_value;
        (void)buf_adds(out, value);
        redact_word(words, value);
        c += used;
    }
    return out->failed ? too_large : NULL;
}

/* Proxies in front of the server take away what "Connection" names: the client is not to name what is put in. */
static void unname(struct request *r, const char *name)
{
    for (size_t i = 0; i < r->nfields; i++) {
        if (strcasecmp(r->fields[i].name, "connection") != 0)
            continue;
        auto_buf kept = {0};
        buf_init(&kept, SIZE_MAX / 2);
        for (const char *at = r->fields[i].value; *at != '\0';) {
            at += strspn(at, ", \t");
            size_t all = strcspn(at, ","), n = all;
            while (n > 0 && (at[n - 1] == ' ' || at[n - 1] == '\t'))
                n--;
            if (n > 0 && (n != strlen(name) || strncasecmp(at, name, n) != 0))
                (void)buf_addf(&kept, "%s%.*s", kept.len > 0 ? ", " : "", (int)n, at);
            at += all;
        }
        free(r->fields[i].value);
        r->fields[i].value = mem_strdup(buf_str(&kept));
    }
}

static bool set_field(struct request *r, const struct injection *in, const char *name, const char *value)
{
    auto_free char *copy = mem_strdup(name);

    for (char *c = copy; in->is_http2 && *c != '\0'; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    request_remove_alike(r, copy);
    unname(r, copy);
    return request_set(r, copy, value);
}

static const char *put_header(struct request *r, const struct policy_inject *j, const struct injection *in, bool *ret_used,
                              struct redact *words)
{
    auto_wiped value = {0};

    if (j->replace && request_get(r, j->name) == NULL)
        return NULL;
    const char *wrong = fill(j, j->value, in, &value, words);
    if (wrong != NULL)
        return wrong;
    *ret_used = true;
    return set_field(r, in, j->name, buf_str(&value)) ? NULL : too_large;
}

/* --- query ----------------------------------------------------------------------------------- */

static void escape(struct buf *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

    for (; *text != '\0'; text++) {
        if (strchr(plain, *text) != NULL)
            (void)buf_addc(out, *text);
        else
            (void)buf_addf(out, "%%%02X", (unsigned char)*text);
    }
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Whether p is the name, escaped or not: a second one in another spelling would be the client's own. */
static bool is_parameter(const char *p, size_t n, const char *name)
{
    size_t i = 0;

    while (i < n && *name != '\0') {
        char c = p[i++];
        if (c == '%' && i + 1 < n && hex(p[i]) >= 0 && hex(p[i + 1]) >= 0) {
            c = (char)(hex(p[i]) * 16 + hex(p[i + 1]));
            i += 2;
        }
        if (c != *name++)
            return false;
    }
    return i == n && *name == '\0';
}

static const char *put_query(struct request *r, const struct policy_inject *j, const struct injection *in, bool *ret_used,
                             struct redact *words)
{
    auto_wiped value = {0}, target = {0}, word = {0};
    size_t head = strcspn(r->target, "?");
    bool had = false;
    char mark = '?';

    buf_init(&target, 2 * VALUE_MAX);
    buf_init(&word, VALUE_MAX);
    (void)buf_add(&target, r->target, head);
    for (const char *at = r->target + head; *at != '\0';) {
        at++;
        size_t len = strcspn(at, "&"), name = 0;
        while (name < len && at[name] != '=')
            name++;
        if (is_parameter(at, name, j->name)) {
            had = true;
        } else if (len > 0) {
            (void)buf_addc(&target, mark);
            (void)buf_add(&target, at, len);
            mark = '&';
        }
        at += len;
    }
    if (j->replace && !had)
        return NULL;
    const char *wrong = fill(j, j->value, in, &value, words);
    if (wrong != NULL)
        return wrong;
    escape(&word, buf_str(&value));
    redact_word(words, buf_str(&word));
    (void)buf_addf(&target, "%c%s=%s", mark, j->name, buf_str(&word));
    if (target.failed || word.failed)
        return too_large;
    request_set_target(r, buf_str(&target));
    *ret_used = true;
    return NULL;
}

/* --- basic authentication and signatures ----------------------------------------------------- */

/* The value of a field; false: too large. */
static bool basic_value(const char *pair, struct buf *out, struct redact *words)
{
    size_t n = strlen(pair);

    buf_init(out, 2 * VALUE_MAX);
    (void)buf_adds(out, "Basic ");
    char *at = buf_reserve(out, 4 * ((n + 2) / 3));
    if (at == NULL)
        return false;
    base64_encode(pair, n, at);
    buf_grew(out, 4 * ((n + 2) / 3));
    redact_word(words, buf_str(out) + strlen("Basic "));
    return true;
}

static const char *put_basic(struct request *r, const struct policy_inject *j, const struct injection *in, bool *ret_used,
                             struct redact *words)
{
    auto_wiped user = {0}, password = {0}, pair = {0}, out = {0};
    const char *wrong = fill(j, j->name, in, &user, words);

    if (wrong == NULL)
        wrong = fill(j, j->value, in, &password, words);
    if (wrong != NULL)
        return wrong;
    if (strchr(buf_str(&user), ':') != NULL)
        return bad_value;
    buf_init(&pair, 2 * VALUE_MAX);
    (void)buf_addf(&pair, "%s:%s", buf_str(&user), buf_str(&password));
    *ret_used = true;
    return basic_value(buf_str(&pair), &out, words) && set_field(r, in, "Authorization", buf_str(&out)) ? NULL : too_large;
}

static const char *put_signature(struct request *r, const struct policy_inject *j, const struct injection *in, bool *ret_used,
                                 struct redact *words)
{
    bool bad = false;
    const struct sigv4 s = {
        .key_id = find_key(in->secrets, j->secret_id, "AWS_ACCESS_KEY_ID", &bad),
        .secret_key = find_key(in->secrets, j->secret_id, "AWS_SECRET_ACCESS_KEY", &bad),
        .token = find_key(in->secrets, j->secret_id, "AWS_SESSION_TOKEN", &bad),
        .service = j->name,
        .region = j->value,
        .host = in->host,
        .payload = in->body,
        .now_s = in->now_s,
    };

    if (s.key_id == NULL || s.secret_key == NULL)
        return no_secret;
    if (bad)
        return bad_value;
    for (const char *v = s.token != NULL ? s.token : ""; *v != '\0'; v++)
        if ((unsigned char)*v <= ' ' || *v == 127)
            return bad_value;
    for (const char *v = s.key_id; *v != '\0'; v++)
        if ((unsigned char)*v <= ' ' || *v == 127)
            return bad_value;
    redact_word(words, s.secret_key);
    if (s.token != NULL)
        redact_word(words, s.token);
    *ret_used = true;
    return sigv4_sign(r, &s);
}

bool inject_needs_body(const struct request *r, const struct policy_rule *rule)
{
    for (uint32_t i = 0; i < rule->ninjects; i++)
        if (rule->injects[i].kind == POLICY_SIGV4 && sigv4_needs_body(r, rule->injects[i].name))
            return true;
    return false;
}

/* --- placeholders ---------------------------------------------------------------------------- */

/* The text with `to` in place of each `from`; NULL if there is none, or it would be *ret_too_large. */
static char *replaced(const char *text, const char *from, const char *to, bool *ret_too_large)
{
    const char *at = strstr(text, from);
    auto_wiped out = {0};

    *ret_too_large = false;
    if (at == NULL)
        return NULL;
    buf_init(&out, VALUE_MAX);
    for (; at != NULL; text = at + strlen(from), at = strstr(text, from)) {
        (void)buf_add(&out, text, (size_t)(at - text));
        (void)buf_adds(&out, to);
    }
    (void)buf_adds(&out, text);
    *ret_too_large = out.failed;
    return out.failed ? NULL : mem_strdup(buf_str(&out));
}

static void wipe_free(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

/* User and password are not written in the clear. The other fields stay where they are: the caller goes through them. */
static const char *in_basic(struct request_field *f, const char *from, const char *to, bool *ret_used, struct redact *words)
{
    size_t n = strlen(f->value), len;
    auto_wiped out = {0};
    bool large;

    if (strcasecmp(f->name, "authorization") != 0 || strncasecmp(f->value, "Basic ", 6) != 0)
        return NULL;
    auto_free char *plain = mem_zalloc(n + 1);
    if (!base64_decode(f->value + 6, n - 6, plain, &len))
        return NULL;
    plain[len] = '\0';
    char *pair = replaced(plain, from, to, &large);
    if (pair == NULL)
        return large ? too_large : NULL;
    bool ok = basic_value(pair, &out, words);
    wipe_free(pair);
    if (!ok)
        return too_large;
    wipe_free(f->value);
    f->value = mem_strdup(buf_str(&out));
    *ret_used = true;
    return NULL;
}

static const char *put_placeholder(struct request *r, const struct policy_inject *j, const struct injection *in, bool *ret_used,
                                   struct redact *words)
{
    auto_wiped value = {0}, word = {0};
    const char *wrong = fill(j, j->with, in, &value, words);
    bool large;

    if (wrong != NULL)
        return wrong;
    buf_init(&word, 3 * VALUE_MAX);
    escape(&word, buf_str(&value));
    char *target = replaced(r->target, j->value, buf_str(&word), &large);
    if (large)
        return too_large;
    if (target != NULL) {
        request_set_target(r, target);
        redact_word(words, buf_str(&word));
        wipe_free(target);
        *ret_used = true;
    }
    for (size_t i = 0; i < r->nfields; i++) {
        if (strcasecmp(r->fields[i].name, "host") == 0)
            continue;           /* it was judged */
        wrong = in_basic(&r->fields[i], j->value, buf_str(&value), ret_used, words);
        if (wrong != NULL)
            return wrong;
        char *text = replaced(r->fields[i].value, j->value, buf_str(&value), &large);
        if (large)
            return too_large;
        if (text == NULL)
            continue;
        wipe_free(r->fields[i].value);
        r->fields[i].value = text;
        *ret_used = true;
    }
    return NULL;
}

const char *inject_apply(struct request *r, const struct policy_rule *rule, const struct injection *in, uint32_t *ret_used,
                         struct redact *words)
{
    const char *wrong = NULL;

    *ret_used = 0;
    /* Servers answer it with the request. */
    if (strcasecmp(r->method, "TRACE") == 0 || strcasecmp(r->method, "TRACK") == 0)
        return "a request of this method is sent back with what was put in";
    /* What is packed, or comes in parts that the client chooses, cannot be read. */
    if (rule->redact) {
        request_remove(r, "Range");
        request_remove(r, "If-Range");
        request_remove(r, "Sec-WebSocket-Extensions");
        request_remove(r, "grpc-accept-encoding");
        if (!set_field(r, in, "Accept-Encoding", "identity"))
            return too_large;
    }
    /* The signature covers the rest, so it comes last. */
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < rule->ninjects && wrong == NULL; i++) {
            const struct policy_inject *j = &rule->injects[i];
            bool used = false;
            if ((j->kind == POLICY_SIGV4) != (pass == 1))
                continue;
            switch ((enum policy_inject_kind)j->kind) {
            case POLICY_HEADER:
                wrong = put_header(r, j, in, &used, words);
                break;
            case POLICY_QUERY:
                wrong = put_query(r, j, in, &used, words);
                break;
            case POLICY_BASIC:
                wrong = put_basic(r, j, in, &used, words);
                break;
            case POLICY_SIGV4:
                wrong = put_signature(r, j, in, &used, words);
                break;
            case POLICY_PLACEHOLDER:
                wrong = put_placeholder(r, j, in, &used, words);
                break;
            case POLICY_INJECT_KINDS_:
                break;
            }
            *ret_used |= used ? 1u << i : 0;
        }
    }
    if (wrong == NULL && rule->redact && words->is_full)
        wrong = too_many;
    return wrong;
}
