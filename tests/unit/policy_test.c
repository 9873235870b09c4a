/*
 * policy_test.c - prefixes, names and the rules over them
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/policy.h"
#include "base/policy_index.h"
#include "ipc/egress_proto.h"
#include "ipc/policy_wire.h"

static struct address at(const char *text)
{
    struct address a;

    assert_true(address_parse(text, &a));
    return a;
}

static bool has(const char *cidr, const char *address)
{
    struct address a = at(address);
    struct cidr c;

    assert_null(cidr_parse(cidr, &c));
    return cidr_has(&c, &a);
}

static void prefixes_are_exact_at_both_edges(void **state)
{
    static const char *const bad[] = {"10.0.0.0/33", "::/129", "10.1.2.3/8", "10.0.0.0/", "10.0.0.0/08", "10.0.0", "x", "", "/8",
                                      "10.0.0.0/-1", "10.0.0.0/8 ", "fe80::1%lo"};
    struct cidr c;

    assert_true(has("240.0.0.0/4", "240.0.0.0") && has("240.0.0.0/4", "255.255.255.255"));
    assert_false(has("240.0.0.0/4", "239.255.255.255"));
    assert_true(has("255.255.255.255/32", "255.255.255.255"));
    assert_true(has("128.0.0.0/1", "128.0.0.0") && !has("128.0.0.0/1", "127.255.255.255"));
    assert_true(has("0.0.0.0/0", "255.255.255.255") && !has("0.0.0.0/0", "::1"));
    assert_true(has("::/0", "ffff::1") && !has("::/0", "1.2.3.4"));
    assert_true(has("2001:db8::/127", "2001:db8::1") && !has("2001:db8::/127", "2001:db8::2"));
    assert_true(has("1.2.3.4", "1.2.3.4") && has("1.2.3.4", "::ffff:1.2.3.4") && !has("1.2.3.4", "1.2.3.5"));
    for (size_t i = 0; i < array_len(bad); i++)
        assert_non_null(cidr_parse(bad[i], &c));
    assert_null(cidr_parse_masked("10.1.2.3/8", &c));
    struct address ten = at("10.0.0.0");
    assert_memory_equal(&c.net, &ten, sizeof ten);
}

static void kinds_of_addresses(void **state)
{
    static const struct {
        const char *address;
        enum address_class class;
    } rows[] = {
        {"8.8.8.8", ADDRESS_PUBLIC}, {"10.1.1.1", ADDRESS_PRIVATE}, {"172.31.255.255", ADDRESS_PRIVATE},
        {"172.32.0.0", ADDRESS_PUBLIC}, {"192.168.0.1", ADDRESS_PRIVATE}, {"127.8.8.8", ADDRESS_LOOPBACK},
        {"169.254.169.254", ADDRESS_METADATA}, {"169.254.1.1", ADDRESS_LINK_LOCAL}, {"100.64.0.1", ADDRESS_SHARED},
        {"100.128.0.0", ADDRESS_PUBLIC}, {"224.0.0.1", ADDRESS_MULTICAST}, {"255.255.255.255", ADDRESS_RESERVED},
        {"0.0.0.0", ADDRESS_THIS_HOST}, {"::", ADDRESS_THIS_HOST}, {"::1", ADDRESS_LOOPBACK}, {"fe80::1", ADDRESS_LINK_LOCAL},
        {"fd12::1", ADDRESS_PRIVATE}, {"ff02::1", ADDRESS_MULTICAST}, {"64:ff9b::a00:1", ADDRESS_TRANSLATED},
        {"2002:a00:1::", ADDRESS_TRANSLATED}, {"::ffff:10.1.1.1", ADDRESS_PRIVATE}, {"2606:4700::1111", ADDRESS_PUBLIC},
        {"::10.0.0.1", ADDRESS_TRANSLATED}, {"fd00:ec2::254", ADDRESS_METADATA},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        struct address a = at(rows[i].address);
        assert_int_equal(address_class(&a), rows[i].class);
    }
}

static bool names(const char *cidr, const char *address)
{
    struct address a = at(address);
    struct cidr c;

    assert_null(cidr_parse(cidr, &c));
    return cidr_names(&c, &a);
}

static void what_is_written_for_an_address(void **state)
{
    assert_true(names("10.0.0.0/8", "10.1.1.1") && names("10.1.1.1", "10.1.1.1") && names("192.168.0.0/16", "192.168.1.1"));
    assert_false(names("0.0.0.0/0", "10.1.1.1") || names("0.0.0.0/4", "10.1.1.1") || names("8.0.0.0/6", "10.1.1.1"));
    assert_false(names("169.254.0.0/16", "169.254.169.254") || names("0.0.0.0/0", "240.0.0.1") || names("::/0", "::1"));
    assert_true(names("169.254.169.254", "169.254.169.254") && names("fc00::/7", "fd12::1"));
    assert_true(names("8.8.8.8", "8.8.8.8") && !names("8.8.8.0/24", "8.8.8.8"));
}

static void names_are_brought_to_one_form(void **state)
{
    static const char *const bad[] = {"", ".", "a..b", "-a.test", "a-.test", "a b", "1.2.3.4", "a.*", "*a.test", "a.*.b",
                                      ("b\xc3\xbc" "cher.test"), "a.test\n", "[::1]", "a/b", "a:80"};
    char out[POLICY_DOMAIN_MAX + 1];

    assert_null(policy_domain("EXAMPLE.Test.", false, out));
    assert_string_equal(out, "example.test");
    assert_null(policy_domain("*.Example.test", true, out));
    assert_string_equal(out, "*.example.test");
    assert_non_null(policy_domain("*.example.test", false, out));
    assert_null(policy_domain("*", true, out));
    for (size_t i = 0; i < array_len(bad); i++)
        assert_non_null(policy_domain(bad[i], true, out));
}

static int rule_of(const struct policy *p, const char *name, const char *address, uint16_t port, enum policy_protocol protocol)
{
    struct address a = address != NULL ? at(address) : (struct address){{0}};
    const struct policy_flow f = {address != NULL ? &a : NULL, name, port, protocol};
    struct policy_verdict v;

    policy_ask(p, &f, &v);
    return v.rule;
}

static void the_first_rule_that_matches_decides(void **state)
{
    struct policy p;
    struct cidr c;

    policy_init(&p);
    policy_rule_domain(policy_add(&p, POLICY_DENY, POLICY_ANY), "bad.wild.test");
    policy_rule_domain(policy_add(&p, POLICY_LOG, POLICY_ANY), "*.wild.test");
    struct policy_rule *r = policy_add(&p, POLICY_ALLOW, POLICY_TLS);
    policy_rule_domain(r, "*.wild.test");
    policy_rule_ports(r, 443, 443);
    policy_rule_domain(policy_add(&p, POLICY_ALLOW, POLICY_TCP), "git.test");
    assert_null(cidr_parse("1.2.3.0/24", &c));
    policy_rule_cidr(policy_add(&p, POLICY_ALLOW, POLICY_ANY), &c);
    for (int indexed = 0; indexed < 2; indexed++) {
        if (indexed == 1)
            for (int i = 0; i < 100; i++)
                policy_rule_domain(policy_add(&p, POLICY_ALLOW, POLICY_ANY), "filler.test");
        policy_compile(&p);
        assert_int_equal(p.index != NULL, indexed);
        assert_int_equal(rule_of(&p, "bad.wild.test", NULL, 443, POLICY_TLS), 0);
        assert_int_equal(rule_of(&p, "ok.wild.test", NULL, 443, POLICY_TLS), 2);
        assert_int_equal(rule_of(&p, "wild.test", NULL, 443, POLICY_TLS), -1);
        assert_int_equal(rule_of(&p, "ok.wild.test", NULL, 80, POLICY_HTTP), -1);
        assert_int_equal(rule_of(&p, "git.test", NULL, 22, POLICY_TCP), 3);
        assert_int_equal(rule_of(&p, NULL, "1.2.3.4", 22, POLICY_TCP), 4);
        assert_int_equal(rule_of(&p, "bad.wild.test", "1.2.3.4", 443, POLICY_TLS), 0);
        assert_int_equal(rule_of(&p, "other.test", "1.2.3.4", 443, POLICY_TLS), 4);
        assert_int_equal(rule_of(&p, NULL, "1.2.4.0", 22, POLICY_TCP), -1);
        assert_int_equal(rule_of(&p, NULL, "1.2.3.4", 25, POLICY_TCP), -1);    /* mail is not meant by "all ports" */
        assert_int_equal(rule_of(&p, NULL, "1.2.3.4", 22, POLICY_UDP), -1);
        assert_true(policy_resolves(&p, "x.wild.test") && policy_resolves(&p, "git.test"));
        assert_false(policy_resolves(&p, "bad.wild.test") || policy_resolves(&p, "other.test"));
        struct address in = at("1.2.3.4"), out = at("1.2.4.4");
        assert_int_equal(policy_needs(&p, &in, 443), POLICY_NEEDS_NAME);
        assert_int_equal(policy_needs(&p, &out, 443), POLICY_NEEDS_NAME);
    }
    policy_done(&p);
}

static void lists_of_modal(void **state)
{
    char *const cidrs[] = {(char[]){"10.1.2.3/8"}}, *const all[] = {(char[]){"0.0.0.0/0"}};
    char *const domains[] = {(char[]){"*.Wild.test"}}, *const bad[] = {(char[]){"a b"}};
    struct err e;
    struct policy p;

    policy_init(&p);
    assert_int_equal(policy_allow_lists(&p, cidrs, 1, domains, 1, &e), 0);
    policy_compile(&p);
    assert_int_equal(rule_of(&p, "x.wild.test", "1.1.1.1", 443, POLICY_TLS), 0);
    assert_int_equal(rule_of(&p, "x.wild.test", "1.1.1.1", 8443, POLICY_TLS), -1);
    assert_int_equal(rule_of(&p, "x.wild.test", "1.1.1.1", 80, POLICY_HTTP), -1);
    assert_int_equal(rule_of(&p, NULL, "10.255.0.0", 22, POLICY_TCP), 1);
    policy_done(&p);
    assert_int_equal(policy_allow_lists(&p, NULL, 0, NULL, 0, &e), 0);
    assert_int_equal(rule_of(&p, "x.test", "1.1.1.1", 443, POLICY_TLS), -1);
    policy_done(&p);
    assert_int_equal(policy_allow_lists(&p, all, 1, NULL, 0, &e), 0);
    assert_true(policy_resolves(&p, "any.test"));
    assert_int_equal(rule_of(&p, NULL, "1.1.1.1", 25, POLICY_TCP), 0);
    assert_int_equal(p.rules[0].action, POLICY_DENY);
    policy_done(&p);
    assert_int_equal(policy_allow_lists(&p, NULL, 0, bad, 1, &e), -1);
    assert_non_null(strstr(e.message, "Invalid domain: 'a b': "));
    policy_done(&p);
    assert_int_equal(policy_allow_lists(&p, bad, 1, NULL, 0, &e), -1);
    assert_non_null(strstr(e.message, "Invalid CIDR: 'a b': "));
    policy_done(&p);
}

static void travels_and_is_checked(void **state)
{
    auto_free uint8_t *out = mem_alloc(LIMIT_POLICY_BYTES), *again = mem_alloc(LIMIT_POLICY_BYTES);
    struct policy p, q;

    policy_init(&p);
    policy_open(&p);
    policy_rule_domain(policy_add(&p, POLICY_ALLOW, POLICY_HTTP), "a.test");
    struct policy_rule *r = policy_add(&p, POLICY_INJECT, POLICY_TLS);
    policy_rule_domain(r, "b.test");
    policy_rule_method(r, "GET");
    policy_rule_path(r, "/v1/*");
    (void)policy_rule_inject(r, POLICY_QUERY, "key", "$KEY", "");
    r->redact = true;
    p.bandwidth = (struct policy_bandwidth){.up_bits_s = LIMIT_BANDWIDTH_MIN, .down_bits_s = LIMIT_BANDWIDTH_MAX};
    size_t n = policy_encode(&p, out, LIMIT_POLICY_BYTES);
    assert_true(n > 0);
    assert_int_equal(policy_decode(&q, out, n), 0);
    assert_int_equal(policy_encode(&q, again, LIMIT_POLICY_BYTES), n);
    assert_memory_equal(out, again, n);
    assert_true(q.bandwidth.up_bits_s == LIMIT_BANDWIDTH_MIN && q.bandwidth.down_bits_s == LIMIT_BANDWIDTH_MAX);
    policy_done(&q);
    for (uint64_t bad = 1; bad <= LIMIT_BANDWIDTH_MAX + 1; bad += bad == 1 ? LIMIT_BANDWIDTH_MIN - 2 : LIMIT_BANDWIDTH_MAX) {
        p.bandwidth.down_bits_s = bad;
        assert_true(policy_encode(&p, again, LIMIT_POLICY_BYTES) == n);
        assert_int_not_equal(policy_decode(&q, again, n), 0);
    }
    for (size_t i = 0; i < n; i++)
        assert_int_not_equal(policy_decode(&q, out, i), 0);
    policy_done(&p);
}

static void ask(const struct policy *p, const char *method, const char *path, struct policy_verdict *ret)
{
    const struct policy_flow f = {.name = "api.test", .port = 443, .protocol = POLICY_TLS, .method = method, .path = path};

    policy_ask(p, &f, ret);
}

static void requests_decide_once_they_are_known(void **state)
{
    struct policy_verdict v;
    struct policy p;

    policy_init(&p);
    struct policy_rule *r = policy_add(&p, POLICY_DENY, POLICY_ANY);
    policy_rule_domain(r, "api.test");
    policy_rule_path(r, "/admin/*");
    r = policy_add(&p, POLICY_INJECT, POLICY_TLS);
    policy_rule_domain(r, "api.test");
    policy_rule_method(r, "GET");
    policy_rule_method(r, "HEAD");
    (void)policy_rule_inject(r, POLICY_HEADER, "X-Key", "$KEY", "");
    assert_null(policy_rule_wrong(r));
    struct address to = at("93.184.216.34");
    assert_int_equal(policy_needs(&p, &to, 443), POLICY_NEEDS_NAME);
    ask(&p, NULL, NULL, &v);
    assert_true(v.opens && v.action == POLICY_ALLOW && v.rule == 1 && v.by_name);
    ask(&p, "GET", "/x", &v);
    assert_true(!v.opens && v.action == POLICY_ALLOW && v.rule == 1);
    ask(&p, "GET", "/admin/x", &v);
    assert_true(v.action == POLICY_DENY && v.rule == 0);
    ask(&p, "POST", "/x", &v);
    assert_true(v.action == POLICY_DENY && v.rule == -1);
    (void)policy_add(&p, POLICY_ALLOW, POLICY_ANY);
    assert_int_equal(policy_needs(&p, &to, 443), POLICY_NEEDS_NAME);
    ask(&p, "POST", "/x", &v);
    assert_true(v.action == POLICY_ALLOW && v.rule == 2);
    assert_true(policy_opens_tls(&p) && policy_resolves(&p, "api.test"));
    policy_done(&p);
}

static void paths_are_read_in_one_way(void **state)
{
    static const struct {
        const char *target, *path;      /* NULL: refused */
    } rows[] = {
        {"/a/b?c=../d", "/a/b"},
        {"/%61dmin", "/admin"},
        {"//a///b", "/a/b"},
        {"/g%2fp", "/g%2Fp"},
        {"/", "/"},
        {"/a.b/..c", "/a.b/..c"},
        {"/a/../b", NULL},
        {"/a/.", NULL},
        {"/a/%2e%2E/b", NULL},
        {"/..", NULL},
        {"/a\\b", NULL},
        {"/a%5cb", NULL},
        {"/%zz", NULL},
        {"/%4", NULL},
        {"/a%00", NULL},
        {"", NULL},
        {"/a b", NULL},
        {"/./a", NULL},
        /* Ways up for servers that decode slashes first, or leave parameters out. */
        {"/a/..%2fb", NULL},
        {"/a%2F%2e%2e", NULL},
        {"/%2F../b", NULL},
        {"/a/..;/b", NULL},
        {"/a/.;x", NULL},
        {"/a/..%3bx/b", NULL},
        {"/a/...;/b", "/a/...;/b"},
        {"/a..%2Fb", "/a..%2Fb"},
        {"/a;../b", "/a;../b"},
    };
    auto_free char *out = mem_alloc(POLICY_PATH_MAX + 1);

    for (size_t i = 0; i < array_len(rows); i++) {
        bool ok = policy_path(rows[i].target, strlen(rows[i].target), out);
        assert_int_equal(ok, rows[i].path != NULL);
        if (ok)
            assert_string_equal(out, rows[i].path);
    }
    policy_path_slashes("/%2Fadmin%2F/x%2", out);
    assert_string_equal(out, "/admin/x%2");
    assert_true(policy_path_matches("/v1/*", "/v1/a/b") && policy_path_matches("*.json", "/x.json"));
    assert_true(policy_path_matches("/a*b*c", "/aXbXbc") && policy_path_matches("/a", "/a") && policy_path_matches("*", "/"));
    assert_false(policy_path_matches("/v1/*", "/v1") || policy_path_matches("/a", "/ab") || policy_path_matches("/a*b", "/acd"));
}

static void what_requests_cannot_have(void **state)
{
    static const struct {
        enum policy_inject_kind kind;
        const char *name, *value, *with;
        bool ok;
    } rows[] = {
        {POLICY_HEADER, "Authorization", "Bearer $K and ${L} $$5", "", true},
        {POLICY_HEADER, "Host", "x", "", false},
        {POLICY_HEADER, "Transfer-Encoding", "x", "", false},
        {POLICY_HEADER, "a b", "x", "", false},
        {POLICY_HEADER, "X", "$", "", false},
        {POLICY_HEADER, "X", "${A", "", false},
        {POLICY_HEADER, "X", "a\r\nb", "", false},
        {POLICY_HEADER, "X", "$1", "", false},
        {POLICY_QUERY, "key", "$K", "", true},
        {POLICY_QUERY, "a&b", "$K", "", false},
        {POLICY_BASIC, "me", "$PW", "", true},
        {POLICY_BASIC, "m:e", "$PW", "", false},
        {POLICY_SIGV4, "s3", "eu-west-1", "", true},
        {POLICY_SIGV4, "s 3", "", "", false},
        {POLICY_PLACEHOLDER, "KEY", "sk-0123456789abcdef", "$KEY", true},
        {POLICY_PLACEHOLDER, "KEY", "short", "$KEY", false},
        {POLICY_PLACEHOLDER, "1K", "sk-0123456789abcdef", "$KEY", false},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        struct policy p;
        policy_init(&p);
        struct policy_rule *r = policy_add(&p, POLICY_INJECT, POLICY_TLS);
        policy_rule_domain(r, "api.test");
        struct policy_inject *j = policy_rule_inject(r, rows[i].kind, rows[i].name, rows[i].value, rows[i].with);
        (void)snprintf(j->secret, sizeof j->secret, "mine");
        assert_int_equal(policy_rule_wrong(r) == NULL, rows[i].ok);
        policy_done(&p);
    }
    struct policy p;
    policy_init(&p);
    struct policy_rule *r = policy_add(&p, POLICY_ALLOW, POLICY_ANY);
    policy_rule_method(r, "GET");
    assert_non_null(policy_rule_wrong(r));      /* without domains */
    policy_rule_domain(r, "api.test");
    assert_null(policy_rule_wrong(r));
    r->protocol = POLICY_TCP;
    assert_non_null(policy_rule_wrong(r));
    r->protocol = POLICY_ANY;
    r->redact = true;
    assert_non_null(policy_rule_wrong(r));
    policy_done(&p);
}

static uint32_t dice_state = 12345;

static uint32_t dice(uint32_t sides)
{
    dice_state = dice_state * 1664525 + 1013904223;
    return (dice_state >> 8) % sides;
}

static const char *const dice_names[] = {"a.test", "b.a.test", "c.b.a.test", "d.test", "e.other"};
static const char *const dice_addresses[] = {"1.2.3.4", "1.2.9.9", "10.0.0.1", "2606::1", "9.9.9.9"};

static void random_rule(struct policy *p)
{
    static const char *const domains[] = {"a.test", "*.a.test", "*.test", "d.test", "*", "b.a.test"};
    static const char *const cidrs[] = {"1.2.3.0/24", "1.2.0.0/16", "10.0.0.0/8", "2606::/16", "0.0.0.0/0", "9.9.9.9"};
    static const uint8_t actions[] = {POLICY_ALLOW, POLICY_DENY, POLICY_LOG};
    struct policy_rule *r = policy_add(p, actions[dice(3)], (enum policy_protocol)dice(POLICY_PROTOCOLS_));
    struct cidr c;

    for (uint32_t i = dice(4); i > 2; i--)
        policy_rule_domain(r, domains[dice(6)]);
    for (uint32_t i = dice(4); i > 2; i--) {
        assert_null(cidr_parse(cidrs[dice(6)], &c));
        policy_rule_cidr(r, &c);
    }
    for (uint32_t i = dice(3); i > 0; i--) {
        uint16_t first = (uint16_t)(20 + dice(8));
        policy_rule_ports(r, first, (uint16_t)(first + dice(4)));
    }
}

/* The index is a short cut: whatever is asked, the answer is that of looking at each rule. */
static void with_an_index_or_without(void **state)
{
    for (int round = 0; round < 400; round++) {
        struct policy p;
        policy_init(&p);
        for (uint32_t n = 1 + dice(12); n > 0; n--)
            random_rule(&p);
        struct policy_index *index = policy_index_new(&p);
        for (int q = 0; q < 60; q++) {
            struct address to = at(dice_addresses[dice(5)]);
            const struct policy_flow f = {.to = dice(3) > 0 ? &to : NULL,
                                          .name = dice(3) > 0 ? dice_names[dice(5)] : NULL,
                                          .port = (uint16_t)(19 + dice(14)),
                                          .protocol =
                                              (enum policy_protocol)dice(POLICY_PROTOCOLS_)};
            const char *name = dice_names[dice(5)];
            struct policy_verdict a, b;
            p.index = NULL;
            policy_ask(&p, &f, &a);
            bool resolves = policy_resolves(&p, name), leads = policy_may_lead(&p, name, f.port, f.protocol);
            enum policy_need need = policy_needs(&p, &to, f.port);
            p.index = index;
            policy_ask(&p, &f, &b);
            assert_true(a.action == b.action && a.rule == b.rule && a.by_name == b.by_name);
            assert_int_equal(a.logged, b.logged);
            assert_int_equal(policy_resolves(&p, name), resolves);
            assert_int_equal(policy_may_lead(&p, name, f.port, f.protocol), leads);
            /* It may ask for a name too many, never for one too few. */
            assert_true(policy_needs(&p, &to, f.port) == POLICY_NEEDS_NAME || need == POLICY_NEEDS_NOTHING);
        }
        policy_done(&p);
    }
}

static void what_egress_tells(void **state)
{
    const struct egress_decision d = {
        .about = {.seq = 7, .when_ms = 1700000000123, .reason = EGRESS_BY_RULE, .protocol = POLICY_TLS, .port = 443,
                  .to = at("198.97.190.53"), .rule = "no-evil", .name = "evil.test"},
        .verdict = POLICY_DENY, .revision = 3, .count = 12, .missed = 5, .method = "GET", .path = "/a", .secrets = "one,two",
    };
    const struct egress_totals t = {1, 2, 3, 4, 5, 6, 7, 8};
    const char *id = "sb-5EJ9F5jNp2WyUgNxhIo0Xy";
    char whose[ID_SIZE];
    struct egress_decision got;
    struct egress_totals sums;
    uint8_t out[1024], again[1024];

    size_t n = egress_decision_encode(id, &d, out, sizeof out);
    assert_true(n > 0);
    assert_int_equal(egress_decision_decode(whose, &got, out, n), 0);
    assert_string_equal(whose, id);
    assert_string_equal(got.about.name, "evil.test");
    assert_true(got.about.seq == 7 && got.about.port == 443 && got.verdict == POLICY_DENY && got.count == 12 && got.missed == 5);
    /* Not compared as memory: it has padding. */
    assert_int_equal(egress_decision_encode(id, &got, again, sizeof again), n);
    assert_memory_equal(again, out, n);
    for (size_t i = 0; i < n; i++)
        assert_int_not_equal(egress_decision_decode(whose, &got, out, i), 0);
    assert_int_not_equal(egress_decision_decode(whose, &got, out, n + 1), 0);
    assert_string_equal(got.path, "/a");
    struct egress_decision bad = d;
    bad.path[1] = '\x1b';
    assert_int_not_equal(egress_decision_decode(whose, &got, out, egress_decision_encode(id, &bad, out, sizeof out)), 0);
    bad = d;
    bad.verdict = POLICY_LOG;
    assert_int_not_equal(egress_decision_decode(whose, &got, out, egress_decision_encode(id, &bad, out, sizeof out)), 0);
    bad = d;
    bad.about.reason = 0;
    assert_int_not_equal(egress_decision_decode(whose, &got, out, egress_decision_encode(id, &bad, out, sizeof out)), 0);

    n = egress_totals_encode(id, &t, out, sizeof out);
    assert_int_equal(egress_totals_decode(whose, &sums, out, n), 0);
    assert_memory_equal(&sums, &t, sizeof t);
    assert_int_not_equal(egress_totals_decode(whose, &sums, out, n - 1), 0);
    assert_int_not_equal(egress_totals_decode(whose, &sums, out,
                                              egress_totals_encode("im-5EJ9F5jNp2WyUgNxhIo0Xy", &t,
                                                                   out, sizeof out)),
                         0);
}

/* A policy with its name, and one as the node wrote it before there were names. */
static void policies_on_disk(void **state)
{
    const struct egress_policy m = {
        .sandbox = "sb-5EJ9F5jNp2WyUgNxhIo0Xy", .revision = 9, .keep = true, .name = "prod", .version = 4, .follows = true,
        .policy = (const uint8_t *)"rules", .policy_len = 5, .totals = {.sent = 100, .noted = 2, .injected = 3},
        .authority = (const uint8_t *)"pem", .authority_len = 3, .secrets = (const uint8_t *)"values", .secrets_len = 6};
    struct egress_policy got;
    uint8_t out[256];

    size_t n = egress_policy_encode(&m, out, sizeof out);
    assert_int_equal(egress_policy_decode(&got, out, n), 0);
    assert_string_equal(got.name, "prod");
    assert_true(got.version == 4 && got.follows && got.totals.sent == 100 && got.totals.noted == 2 && got.totals.injected == 3);
    assert_true(got.authority_len == 3 && memcmp(got.authority, "pem", 3) == 0 && got.secrets_len == 6);
    /* The first had no names, the next no secrets. */
    size_t old = 4 + strlen(m.sandbox) + 8 + 1 + 4 + 5, named = old + 4 + 4 + 4 + 1 + 7 * 8;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(egress_policy_decode(&got, out, i) == 0, i == old || i == named);
    assert_int_equal(egress_policy_decode(&got, out, old), 0);
    assert_true(got.revision == 9 && got.keep && got.policy_len == 5 && got.name[0] == '\0' &&
                !got.follows && got.totals.sent == 0);
}

static void secrets_on_their_way(void **state)
{
    struct egress_secret a = {.key = "TOKEN", .value = "s3cr3t", .value_len = 6},
                         b = {.key = "EMPTY", .value = "", .value_len = 0}, got;
    uint8_t out[512];

    id_make(a.id, "st-");
    id_make(b.id, "st-");
    size_t one = egress_secret_encode(&a, out, sizeof out);
    size_t all = one + egress_secret_encode(&b, out + one, sizeof out - one);
    const uint8_t *p = out;
    size_t n = all;
    assert_int_equal(egress_secret_next(&p, &n, &got), 1);
    assert_string_equal(got.id, a.id);
    assert_string_equal(got.key, "TOKEN");
    assert_true(got.value_len == 6 && memcmp(got.value, "s3cr3t", 6) == 0);
    assert_int_equal(egress_secret_next(&p, &n, &got), 1);
    assert_true(strcmp(got.id, b.id) == 0 && got.value_len == 0);
    assert_int_equal(egress_secret_next(&p, &n, &got), 0);
    for (size_t i = 1; i < one; i++) {
        p = out;
        n = i;
        assert_int_equal(egress_secret_next(&p, &n, &got), -EBADMSG);
    }
    a.value = "a\0b";
    a.value_len = 3;
    p = out;
    n = egress_secret_encode(&a, out, sizeof out);
    assert_int_equal(egress_secret_next(&p, &n, &got), -EBADMSG);
    (void)snprintf(a.id, sizeof a.id, "%s", "sb-5EJ9F5jNp2WyUgNxhIo0Xy");
    p = out;
    n = egress_secret_encode(&a, out, sizeof out);
    assert_int_equal(egress_secret_next(&p, &n, &got), -EBADMSG);
    assert_int_equal(egress_secret_encode(&b, out, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_are_exact_at_both_edges),
        cmocka_unit_test(kinds_of_addresses),
        cmocka_unit_test(what_is_written_for_an_address),
        cmocka_unit_test(names_are_brought_to_one_form),
        cmocka_unit_test(the_first_rule_that_matches_decides),
        cmocka_unit_test(lists_of_modal),
        cmocka_unit_test(travels_and_is_checked),
        cmocka_unit_test(requests_decide_once_they_are_known),
        cmocka_unit_test(paths_are_read_in_one_way),
        cmocka_unit_test(what_requests_cannot_have),
        cmocka_unit_test(with_an_index_or_without),
        cmocka_unit_test(what_egress_tells),
        cmocka_unit_test(policies_on_disk),
        cmocka_unit_test(secrets_on_their_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
