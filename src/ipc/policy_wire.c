/*
 * policy_wire.c - a network policy as bytes
 *
 * The decoder checks values too: egress takes what it reads as it is.
 */
#include "ipc/policy_wire.h"

#include <errno.h>
#include <string.h>

#include "ipc/wire.h"

/* 1: without what is about requests, 2: without bandwidth; policies of sandboxes that live on may be such. */
#define VERSION 3

static void put_texts(struct wire_writer *w, char *const *texts, uint32_t n)
{
    wire_put_u32(w, n);
    for (uint32_t i = 0; i < n; i++)
        wire_put_str(w, texts[i]);
}

static void put_requests(struct wire_writer *w, const struct policy_rule *r)
{
    put_texts(w, r->methods, r->nmethods);
    put_texts(w, r->paths, r->npaths);
    wire_put_bool(w, r->redact);
    wire_put_u32(w, r->ninjects);
    for (uint32_t i = 0; i < r->ninjects; i++) {
        const struct policy_inject *j = &r->injects[i];
        wire_put_u8(w, j->kind);
        wire_put_bool(w, j->replace);
        wire_put_str(w, j->secret);
        wire_put_str(w, j->secret_id);
        wire_put_str(w, j->name);
        wire_put_str(w, j->value);
        wire_put_str(w, j->with);
    }
}

static void put_rule(struct wire_writer *w, const struct policy_rule *r)
{
    wire_put_u8(w, r->action);
    wire_put_u8(w, r->protocol);
    wire_put_str(w, r->name);
    wire_put_u32(w, r->ndomains);
    for (uint32_t i = 0; i < r->ndomains; i++)
        wire_put_str(w, r->domains[i]);
    wire_put_u32(w, r->ncidrs);
    for (uint32_t i = 0; i < r->ncidrs; i++) {
        wire_put_bytes(w, r->cidrs[i].net.b, sizeof r->cidrs[i].net.b);
        wire_put_u8(w, r->cidrs[i].bits);
    }
    wire_put_u32(w, r->nports);
    for (uint32_t i = 0; i < r->nports; i++) {
        wire_put_u16(w, r->ports[i].first);
        wire_put_u16(w, r->ports[i].last);
    }
    wire_put_bool(w, policy_is_of_requests(r));
    if (policy_is_of_requests(r))
        put_requests(w, r);
}

size_t policy_encode(const struct policy *p, void *out, size_t size)
{
    struct wire_writer w;

    wire_init(&w, out, size);
    wire_put_u8(&w, VERSION);
    wire_put_u32(&w, p->flags);
    wire_put_u64(&w, p->bandwidth.up_bits_s);
    wire_put_u64(&w, p->bandwidth.down_bits_s);
    wire_put_u32(&w, p->nrules);
    for (uint32_t i = 0; i < p->nrules; i++)
        put_rule(&w, &p->rules[i]);
    return w.failed ? 0 : w.len;
}

/* A count of things that take at least `each` bytes. */
static uint32_t get_count(struct wire_reader *r, size_t each)
{
    uint32_t n = wire_get_u32(r);

    if (!r->failed && n > (r->len - r->at) / each)
        wire_fail(r);
    return r->failed ? 0 : n;
}

static void get_domains(struct wire_reader *rd, struct policy_rule *r)
{
    uint32_t n = get_count(rd, 4);
    char text[POLICY_DOMAIN_MAX + 1], normal[POLICY_DOMAIN_MAX + 1];

    for (uint32_t i = 0; i < n && !rd->failed; i++) {
        wire_get_str(rd, text, sizeof text);
        if (rd->failed || policy_domain(text, true, normal) != NULL || strcmp(text, normal) != 0)
            wire_fail(rd);
        else
            policy_rule_domain(r, text);
    }
}

static void get_cidrs(struct wire_reader *rd, struct policy_rule *r)
{
    uint32_t n = get_count(rd, 21);

    for (uint32_t i = 0; i < n && !rd->failed; i++) {
        struct cidr c = {0};
        size_t len;
        const void *p = wire_get_bytes(rd, sizeof c.net.b, &len);
        c.bits = wire_get_u8(rd);
        if (rd->failed || len != sizeof c.net.b || c.bits > 128) {
            wire_fail(rd);
            return;
        }
        memcpy(c.net.b, p, sizeof c.net.b);
        struct address m = address_mask(&c.net, c.bits);
        if (memcmp(m.b, c.net.b, sizeof m.b) != 0)
            wire_fail(rd);
        else
            policy_rule_cidr(r, &c);
    }
}

static void get_ports(struct wire_reader *rd, struct policy_rule *r)
{
    uint32_t n = get_count(rd, 4);

    for (uint32_t i = 0; i < n && !rd->failed; i++) {
        uint16_t first = wire_get_u16(rd);
        uint16_t last = wire_get_u16(rd);
        if (rd->failed || first == 0 || first > last)
            wire_fail(rd);
        else
            policy_rule_ports(r, first, last);
    }
}

static void get_texts(struct wire_reader *rd, struct policy_rule *r, void (*add)(struct policy_rule *, const char *))
{
    uint32_t n = get_count(rd, 4);
    char text[LIMIT_INJECT_TEXT + 1];

    if (n > LIMIT_RULE_INJECTS)
        wire_fail(rd);
    for (uint32_t i = 0; i < n && !rd->failed; i++) {
        wire_get_str(rd, text, sizeof text);
        if (!rd->failed)
            add(r, text);
    }
}

static void get_requests(struct wire_reader *rd, struct policy_rule *r)
{
    char secret[LIMIT_NAME + 1], id[ID_SIZE], name[LIMIT_INJECT_TEXT + 1],
        value[LIMIT_INJECT_TEXT + 1], with[LIMIT_INJECT_TEXT + 1];

    get_texts(rd, r, policy_rule_method);
    get_texts(rd, r, policy_rule_path);
    r->redact = wire_get_bool(rd);
    uint32_t n = get_count(rd, 22);
    if (n > LIMIT_RULE_INJECTS)
        wire_fail(rd);
    for (uint32_t i = 0; i < n && !rd->failed; i++) {
        uint8_t kind = wire_get_u8(rd);
        bool replace = wire_get_bool(rd);
        wire_get_str(rd, secret, sizeof secret);
        wire_get_str(rd, id, sizeof id);
        wire_get_str(rd, name, sizeof name);
        wire_get_str(rd, value, sizeof value);
        wire_get_str(rd, with, sizeof with);
        if (rd->failed)
            return;
        struct policy_inject *j = policy_rule_inject(r, (enum policy_inject_kind)kind, name, value, with);
        j->replace = replace;
        memcpy(j->secret, secret, sizeof secret);
        memcpy(j->secret_id, id, sizeof id);
        if (id[0] != '\0' && !id_is(id, "st-"))
            wire_fail(rd);
    }
}

static void get_rule(struct wire_reader *rd, struct policy *p, uint8_t version)
{
    uint8_t action = wire_get_u8(rd);
    uint8_t protocol = wire_get_u8(rd);

    if (rd->failed || action < POLICY_ALLOW || action > POLICY_INJECT || protocol >= POLICY_PROTOCOLS_) {
        wire_fail(rd);
        return;
    }
    struct policy_rule *r = policy_add(p, (enum policy_action)action, (enum policy_protocol)protocol);
    wire_get_str(rd, r->name, sizeof r->name);
    get_domains(rd, r);
    get_cidrs(rd, r);
    get_ports(rd, r);
    if (version > 1 && wire_get_bool(rd))
        get_requests(rd, r);
    if (!rd->failed && policy_rule_wrong(r) != NULL)
        wire_fail(rd);
}

int policy_decode(struct policy *ret, const void *p, size_t n)
{
    struct wire_reader r;
    struct policy policy;

    policy_init(&policy);
    wire_read(&r, p, n);
    uint8_t version = wire_get_u8(&r);
    if (version < 1 || version > VERSION)
        wire_fail(&r);
    policy.flags = wire_get_u32(&r);
    if ((policy.flags & ~(uint32_t)POLICY_FLAGS_) != 0)
        wire_fail(&r);
    if (version > 2) {
        policy.bandwidth.up_bits_s = wire_get_u64(&r);
        policy.bandwidth.down_bits_s = wire_get_u64(&r);
    }
    if (!policy_bits_s_is_valid(policy.bandwidth.up_bits_s) || !policy_bits_s_is_valid(policy.bandwidth.down_bits_s))
        wire_fail(&r);
    uint32_t rules = get_count(&r, 18);
    if (rules > LIMIT_POLICY_RULES)
        wire_fail(&r);
    for (uint32_t i = 0; i < rules && !r.failed; i++)
        get_rule(&r, &policy, version);
    if (!wire_end(&r)) {
        policy_done(&policy);
        return -EBADMSG;
    }
    policy_compile(&policy);
    *ret = policy;
    return 0;
}
