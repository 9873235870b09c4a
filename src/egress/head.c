/*
 * head.c - the head of an HTTP/1 request
 */
#include "egress/head.h"

#include <string.h>
#include <strings.h>

#include "base/address.h"

#define METHOD_MAX 20
#define HOST_MAX 300

static bool is_token(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

int head_sniff(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == ' ')
            return i > 0 ? 1 : -1;
        if (!(p[i] >= 'A' && p[i] <= 'Z') && p[i] != '-' && p[i] != '_')
            return -1;
        if (i >= METHOD_MAX)
            return -1;
    }
    return 0;
}

/* A host with an optional port: into ret->name, or is_literal. False: neither. */
static bool parse_host(const uint8_t *p, size_t n, bool *ret_literal, char out[POLICY_DOMAIN_MAX + 1])
{
    char text[HOST_MAX];
    struct address a;

    if (n == 0 || n >= sizeof text || memchr(p, '\0', n) != NULL)
        return false;
    memcpy(text, p, n);
    text[n] = '\0';
    if (text[0] == '[') {
        char *end = strchr(text, ']');
        if (end == NULL || (end[1] != '\0' && (end[1] != ':' || strspn(end + 2, "0123456789") != strlen(end + 2))))
            return false;
        *end = '\0';
        *ret_literal = true;
        return address_parse(text + 1, &a) && strchr(text + 1, ':') != NULL;
    }
    char *colon = strchr(text, ':');
    if (colon != NULL) {
        if (strlen(colon + 1) > 5 || strspn(colon + 1, "0123456789") != strlen(colon + 1))
            return false;
        *colon = '\0';
    }
    *ret_literal = address_parse(text, &a);
    return *ret_literal || policy_domain(text, false, out) == NULL;
}

/* "http://host/..." and "https://host/..." have a host of their own. */
static bool parse_target(const uint8_t *p, size_t n, bool *ret_has, bool *ret_literal, char out[POLICY_DOMAIN_MAX + 1])
{
    static const char plain[] = "http://", tls[] = "https://";

    *ret_has = false;
    if (n == 0)
        return false;
    if (p[0] == '/' || (n == 1 && p[0] == '*'))
        return true;
    size_t m = n > sizeof plain - 1 && strncasecmp((const char *)p, plain, sizeof plain - 1) == 0 ? sizeof plain - 1
               : n > sizeof tls - 1 && strncasecmp((const char *)p, tls, sizeof tls - 1) == 0     ? sizeof tls - 1
                                                                                                 : 0;
    if (m == 0)
        return false;
    size_t host = 0;
    while (m + host < n && p[m + host] != '/' && p[m + host] != '?' && p[m + host] != '#')
        host++;
    if (memchr(p + m, '@', host) != NULL)
        return false;
    *ret_has = true;
    return parse_host(p + m, host, ret_literal, out);
}

static bool equals(const uint8_t *p, size_t n, const char *text)
{
    return n == strlen(text) && strncasecmp((const char *)p, text, n) == 0;
}

struct seen {
    unsigned hosts, lengths, encodings, upgrades;
};

static bool field(struct head *h, struct seen *seen, const uint8_t *all, const uint8_t *name, size_t nname,
                  const uint8_t *v, size_t nv)
{
    if (equals(name, nname, "host")) {
        h->has_name = parse_host(v, nv, &h->is_literal, h->name);
        if (!h->has_name)
            return false;
        h->is_mismatch = h->is_mismatch || ++seen->hosts > 1;
    } else if (equals(name, nname, "content-length")) {
        if (++seen->lengths > 1 || nv == 0 || nv > 18)
            return false;
        h->body = HEAD_LENGTH;
        for (size_t i = 0; i < nv; i++) {
            if (v[i] < '0' || v[i] > '9')
                return false;
            h->length = h->length * 10 + (uint64_t)(v[i] - '0');
        }
    } else if (equals(name, nname, "transfer-encoding")) {
        if (++seen->encodings > 1 || !equals(v, nv, "chunked"))
            return false;
        h->body = HEAD_CHUNKED;
    } else if (equals(name, nname, "upgrade")) {
        if (++seen->upgrades > 1)
            return false;
        h->is_websocket = equals(v, nv, "websocket");
        h->upgrade_at = h->is_websocket ? 0 : (size_t)(name - all);
    } else if (equals(name, nname, "http2-settings")) {
        return seen->upgrades <= 1;     /* nothing without the upgrade */
    }
    return true;
}

/* The end of the line that begins at p (index of CR), SIZE_MAX: not here, n + 1: not a line. */
static size_t line_end(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n' || p[i] == '\0')
            return n + 1;
        if (p[i] == '\r')
            return i + 1 == n ? SIZE_MAX : p[i + 1] == '\n' ? i : n + 1;
    }
    return SIZE_MAX;
}

static bool request_line(const uint8_t *p, size_t n, struct head *h, bool *ret_has, bool *ret_literal,
                         char target[POLICY_DOMAIN_MAX + 1])
{
    const uint8_t *sp = memchr(p, ' ', n);

    if (sp == NULL || sp == p)
        return false;
    for (const uint8_t *c = p; c < sp; c++)
        if (!is_token(*c))
            return false;
    const uint8_t *t = sp + 1;
    size_t rest = n - (size_t)(t - p);
    const uint8_t *sp2 = memchr(t, ' ', rest);
    if (sp2 == NULL)
        return false;
    size_t nt = (size_t)(sp2 - t), nv = rest - nt - 1;
    h->is_http10 = equals(sp2 + 1, nv, "HTTP/1.0");
    if (!h->is_http10 && !equals(sp2 + 1, nv, "HTTP/1.1"))
        return false;
    for (size_t i = 0; i < nt; i++)
        if (t[i] <= ' ' || t[i] == 127)
            return false;
    h->is_connect = equals(p, (size_t)(sp - p), "CONNECT");
    if (h->is_connect) {
        *ret_has = true;
        return parse_host(t, nt, ret_literal, target);
    }
    return parse_target(t, nt, ret_has, ret_literal, target);
}

enum head_result head_parse(const uint8_t *p, size_t n, struct head *ret)
{
    char target[POLICY_DOMAIN_MAX + 1] = "";
    bool has_target = false, target_literal = false;
    struct seen seen = {0};
    size_t at = 0;

    *ret = (struct head){0};
    if (n > HEAD_MAX)
        n = HEAD_MAX;
    for (bool first = true;; first = false) {
        size_t len = line_end(p + at, n - at);
        if (len == SIZE_MAX)
            return n == HEAD_MAX ? HEAD_BAD : HEAD_MORE;
        if (len > n - at)
            return HEAD_BAD;
        const uint8_t *line = p + at;
        at += len + 2;
        if (first) {
            if (!request_line(line, len, ret, &has_target, &target_literal, target))
                return HEAD_BAD;
            continue;
        }
        if (len == 0)
            break;
        const uint8_t *colon = memchr(line, ':', len);
        if (colon == NULL || colon == line)
            return HEAD_BAD;
        for (const uint8_t *c = line; c < colon; c++)
            if (!is_token(*c))
                return HEAD_BAD;    /* also a line that goes on with the one before */
        const uint8_t *v = colon + 1;
        size_t nv = len - (size_t)(v - line);
        for (; nv > 0 && (*v == ' ' || *v == '\t'); v++)
            nv--;
        while (nv > 0 && (v[nv - 1] == ' ' || v[nv - 1] == '\t'))
            nv--;
        if (!field(ret, &seen, p, line, (size_t)(colon - line), v, nv))
            return HEAD_BAD;
    }
    if (seen.encodings > 0 && (seen.lengths > 0 || ret->is_http10))
        return HEAD_BAD;
    if (has_target && ret->has_name &&
        (target_literal != ret->is_literal || (!target_literal && strcmp(target, ret->name) != 0)))
        ret->is_mismatch = true;
    if (has_target && !ret->has_name) {
        ret->has_name = true;
        ret->is_literal = target_literal;
        memcpy(ret->name, target, sizeof target);
    }
    if (ret->is_literal) {
        ret->has_name = false;
        ret->name[0] = '\0';
    }
    ret->len = at;
    return HEAD_OK;
}
