/*
 * hello.c - the first bytes of a TLS connection: which name is asked for
 *
 * The ClientHello may lie in several records, and a record in several packets.
 */
#include "egress/hello.h"

#include <string.h>

#include "base/mem.h"

#define RECORD_HEAD 5
#define RECORD_MAX 16384
#define HANDSHAKE_RECORD 22
#define HANDSHAKE_HEAD 4
#define CLIENT_HELLO 1
#define EXTENSION_NAME 0
#define EXTENSION_ECH 0xfe0d
#define NAME_HOST 0

struct reader {
    const uint8_t *p;
    size_t n, at;
    bool failed;
};

static uint32_t get(struct reader *r, size_t bytes)
{
    uint32_t v = 0;

    if (r->failed || r->n - r->at < bytes) {
        r->failed = true;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        v = v << 8 | r->p[r->at++];
    return v;
}

/* A vector with a length of `bytes` bytes before it. */
static struct reader get_vector(struct reader *r, size_t bytes)
{
    size_t n = get(r, bytes);
    struct reader v = {.failed = true};

    if (r->failed || r->n - r->at < n) {
        r->failed = true;
        return v;
    }
    v = (struct reader){.p = r->p + r->at, .n = n};
    r->at += n;
    return v;
}

static bool parse_name(struct reader x, struct hello *ret)
{
    char text[POLICY_DOMAIN_MAX + 2];
    struct reader list = get_vector(&x, 2);
    uint32_t type = get(&list, 1);
    struct reader name = get_vector(&list, 2);

    /* One name, as the standard has it; what else could be there nobody sends. */
    if (name.failed || list.at != list.n || x.at != x.n || type != NAME_HOST || name.n == 0)
        return false;
    ret->has_name = true;
    ret->name_is_bad = true;
    if (name.n >= sizeof text || memchr(name.p, '\0', name.n) != NULL)
        return true;
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    ret->name_is_bad = policy_domain(text, false, ret->name) != NULL;
    return true;
}

static bool parse_extensions(struct reader all, struct hello *ret)
{
    while (all.at < all.n) {
        uint32_t type = get(&all, 2);
        struct reader x = get_vector(&all, 2);
        if (all.failed)
            return false;
        if (type == EXTENSION_NAME && (ret->has_name || !parse_name(x, ret)))
            return false;
        ret->has_ech = ret->has_ech || type == EXTENSION_ECH;
    }
    return true;
}

static bool parse_body(const uint8_t *p, size_t n, struct hello *ret)
{
    struct reader r = {.p = p, .n = n};

    (void)get(&r, 2);               /* version */
    if (r.failed || r.n - r.at < 32)
        return false;
    r.at += 32;                     /* random */
    (void)get_vector(&r, 1);        /* session */
    (void)get_vector(&r, 2);        /* cipher suites */
    (void)get_vector(&r, 1);        /* compression */
    if (r.failed)
        return false;
    if (r.at == r.n)
        return true;                /* very old: no extensions */
    struct reader extensions = get_vector(&r, 2);
    return !r.failed && r.at == r.n && parse_extensions(extensions, ret);
}

enum hello_result hello_parse(const uint8_t *p, size_t n, struct hello *ret)
{
    size_t at = 0, have = 0, want = 0;

    *ret = (struct hello){0};
    auto_free uint8_t *message = mem_alloc(n + 1);
    /* Whole handshake bytes out of the records; the last may be cut short. */
    while (at < n) {
        if (p[at] != HANDSHAKE_RECORD || (n - at > 1 && p[at + 1] != 3))
            return HELLO_BAD;
        if (n - at < RECORD_HEAD)
            return HELLO_MORE;
        size_t len = (size_t)p[at + 3] << 8 | p[at + 4];
        if (len == 0 || len > RECORD_MAX)
            return HELLO_BAD;
        at += RECORD_HEAD;
        size_t part = len < n - at ? len : n - at;
        memcpy(message + have, p + at, part);
        have += part;
        at += part;
        if (have >= HANDSHAKE_HEAD) {
            if (message[0] != CLIENT_HELLO)
                return HELLO_BAD;
            want = HANDSHAKE_HEAD + ((size_t)message[1] << 16 | (size_t)message[2] << 8 | message[3]);
            if (want > HELLO_MAX)
                return HELLO_BAD;
            if (have >= want)
                return parse_body(message + HANDSHAKE_HEAD, want - HANDSHAKE_HEAD, ret) ? HELLO_OK : HELLO_BAD;
        }
    }
    return HELLO_MORE;
}
