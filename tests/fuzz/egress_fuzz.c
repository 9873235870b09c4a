/*
 * egress_fuzz.c - what egress reads of strangers: ClientHello, HTTP heads, responses, DNS queries, policies
 *
 * The first byte chooses. A name that comes out is one that a host can have, and no function looks past the end.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "egress/dns/wire.h"
#include "egress/head.h"
#include "egress/hello.h"
#include "egress/open/response.h"
#include "ipc/egress_proto.h"
#include "ipc/policy_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const char *name)
{
    char out[POLICY_DOMAIN_MAX + 1];

    if (policy_domain(name, false, out) != NULL || strcmp(out, name) != 0)
        abort();
}

static void hello(const uint8_t *p, size_t n)
{
    struct hello h;

    if (hello_parse(p, n, &h) == HELLO_OK && h.has_name && !h.name_is_bad)
        check_name(h.name);
}

static void head(const uint8_t *p, size_t n)
{
    struct head h;

    (void)head_sniff(p, n);
    if (head_parse(p, n, &h) != HEAD_OK)
        return;
    if (h.len > n || (h.upgrade_at != 0 && h.upgrade_at >= h.len))
        abort();
    if (h.has_name)
        check_name(h.name);
}

/* Cut in pieces or not, the same bytes go out. */
static size_t scan(const uint8_t *p, size_t n, size_t piece, uint8_t *out)
{
    struct scan s;
    enum scan_why why;
    size_t len = 0, at = 0;

    scan_init(&s, "a.test");
    while (at < n) {
        size_t part = n - at < piece ? n - at : piece, used, got;
        const uint8_t *from;
        if (!scan_feed(&s, p + at, part, &used, &from, &got, &why))
            break;
        if (used > part)
            abort();
        memcpy(out + len, from, got);
        len += got;
        at += used;
        if (used == 0 && got == 0)
            break;
    }
    scan_done(&s);
    return len;
}

static void scans(const uint8_t *p, size_t n)
{
    auto_free uint8_t *whole = mem_alloc(2 * n + 1), *cut = mem_alloc(2 * n + 1);
    size_t a = scan(p, n, n, whole), b = scan(p, n, 1, cut);

    if (a > n || b > n || memcmp(whole, cut, a < b ? a : b) != 0)
        abort();
}

static bool respond(const uint8_t *p, size_t n, size_t piece, const char *word, struct buf *out)
{
    struct response r;
    struct redact words;
    ssize_t used = 0;

    redact_init(&words);
    if (word != NULL)
        redact_word(&words, word);
    response_init(&r);
    response_begin(&r, false, n % 2 != 0, word != NULL ? &words : NULL);
    for (size_t at = 0; at < n && used >= 0 && r.state != RESPONSE_DONE; at += (size_t)used) {
        size_t part = n - at < piece ? n - at : piece;
        used = response_feed(&r, p + at, part, out);
        if (used > (ssize_t)part || (used >= 0 && (size_t)used < part && r.state != RESPONSE_DONE))
            abort();
    }
    bool ok = used >= 0 && (r.state == RESPONSE_DONE || response_eof(&r, out));
    response_done(&r);
    redact_done(&words);
    return ok;
}

/* Cut in pieces or not, the same comes out; of a word never all. */
static void responses(const uint8_t *p, size_t n)
{
    static const char word[] = "word-word-words-w";
    struct buf out[4];
    bool ok[4];

    for (int i = 0; i < 4; i++) {
        buf_init(&out[i], SIZE_MAX / 2);
        ok[i] = respond(p, n, i % 2 == 0 ? n : 1, i < 2 ? NULL : word, &out[i]);
    }
    if (ok[0] != ok[1] || (ok[0] && (out[0].len != out[1].len || memcmp(out[0].data, out[1].data, out[0].len) != 0)))
        abort();
    if (ok[2] != ok[3] || (ok[2] && !ok[0]))
        abort();
    for (int i = 2; i < 4; i++)
        if (out[i].len > 0 && memmem(out[i].data, out[i].len, word, strlen(word)) != NULL)
            abort();
    buf_done(&out[0]);
    buf_done(&out[1]);
    buf_done(&out[2]);
    buf_done(&out[3]);
}

static void dns(const uint8_t *p, size_t n)
{
    struct dns_query q;
    struct address a[3] = {{{[10] = 0xff, [11] = 0xff, [15] = 1}}, {{[15] = 1}}};
    uint8_t out[DNS_ANSWER_MAX];
    int code = dns_parse(p, n, &q);

    if (code < 0)
        return;
    if (code == DNS_NOERROR)
        check_name(q.name);
    const struct dns_reply r = {.code = code, .is_blocked = n % 2 != 0, .addresses = a, .n = 3, .ttl = 60};
    if (q.room < DNS_DATAGRAM_MAX || q.room > DNS_ANSWER_MAX || dns_answer(&q, &r, q.room, out) > q.room)
        abort();
}

static void path(const uint8_t *p, size_t n)
{
    auto_free char *out = mem_alloc(POLICY_PATH_MAX + 1), *again = mem_alloc(POLICY_PATH_MAX + 1);

    if (!policy_path((const char *)p, n, out))
        return;
    /* What rules see is the same when it is read again, and has no way up. */
    if (!policy_path(out, strlen(out), again) || strcmp(out, again) != 0 || strstr(out, "/../") != NULL)
        abort();
    (void)policy_path_matches("/a*b*", out);
}

static void policy(const uint8_t *p, size_t n)
{
    struct policy policy;
    struct policy_verdict v;
    struct address to = {{[10] = 0xff, [11] = 0xff, [12] = 8}};
    const struct policy_flow f = {.to = &to, .name = "a.test", .port = 443, .protocol = POLICY_TLS};

    if (policy_decode(&policy, p, n) < 0)
        return;
    policy_ask(&policy, &f, &v);
    if (v.rule >= (int)policy.nrules || (v.action == POLICY_ALLOW) != (v.rule >= 0 && policy_allows(&policy.rules[v.rule])))
        abort();
    (void)policy_needs(&policy, &to, 443);
    (void)policy_resolves(&policy, "a.test");
    auto_free uint8_t *again = mem_alloc(n + 1);
    if (p[0] == 3 && (policy_encode(&policy, again, n) != n || memcmp(again, p, n) != 0))
        abort();
    policy_done(&policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const targets[])(const uint8_t *, size_t) = {hello, head, scans, dns, policy, path, responses};

    if (size < 1)
        return 0;
    /* A copy of the exact size, so that a read past the end is seen. */
    auto_free uint8_t *copy = mem_alloc(size);
    memcpy(copy, data + 1, size - 1);
    targets[data[0] % array_len(targets)](copy, size - 1);
    return 0;
}
