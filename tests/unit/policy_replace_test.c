/*
 * policy_replace_test.c - header replacements of Modal's clients: as rules, and together with what is allowed
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/policy_replace.h"

#define SECRET "st-0000000000000000000001"

/* "st-...1" has TOKEN and USER. */
static enum replace_key has(void *ctx, const char *id, const char *key, size_t n)
{
    if (strcmp(id, SECRET) != 0)
        return REPLACE_NO_SECRET;
    return (n == 5 && memcmp(key, "TOKEN", n) == 0) || (n == 4 && memcmp(key, "USER", n) == 0) ? REPLACE_KEY_KNOWN
                                                                                               : REPLACE_KEY_MISSING;
}

/* A rule a line: name action protocol domains cidrs ports header=value@secret */
static const char *text_of(const struct policy *p)
{
    static char out[8192];
    size_t n = 0;
    char text[64];

    out[0] = '\0';
    for (uint32_t i = 0; i < p->nrules; i++) {
        const struct policy_rule *r = &p->rules[i];
        n += (size_t)snprintf(out + n, sizeof out - n, "%s %s %s", r->name, policy_action_name((enum policy_action)r->action),
                              policy_protocol_name((enum policy_protocol)r->protocol));
        for (uint32_t k = 0; k < r->ndomains; k++)
            n += (size_t)snprintf(out + n, sizeof out - n, " %s", r->domains[k]);
        for (uint32_t k = 0; k < r->ncidrs; k++) {
            text[cidr_text(&r->cidrs[k], text, sizeof text)] = '\0';
            n += (size_t)snprintf(out + n, sizeof out - n, " %s", text);
        }
        for (uint32_t k = 0; k < r->nports; k++)
            n += (size_t)snprintf(out + n, sizeof out - n, " %u", r->ports[k].first);
        for (uint32_t k = 0; k < r->ninjects; k++)
            n += (size_t)snprintf(out + n, sizeof out - n, " %s=%s%s", r->injects[k].name, r->injects[k].value,
                                  r->injects[k].secret[0] != '\0' ? "@1" : "");
        n += (size_t)snprintf(out + n, sizeof out - n, "\n");
    }
    return out;
}

static void add(struct replace_list *l, const char *domain, const char *secret, const char *header, const char *value)
{
    struct err e;

    assert_int_equal(replace_add(l, domain, secret, header, value, &e), 0);
}

static struct policy rules_of(const struct replace_list *l)
{
    struct policy p;
    struct err e;

    policy_init(&p);
    assert_int_equal(replace_rules(l, has, NULL, &p, &e), 0);
    return p;
}

static void more_exact_names_go_first(void **state)
{
    struct replace_list l = {.n = 0};

    add(&l, "*", "", "X-All", "a$$b");
    add(&l, "*.Example.com", SECRET, "Authorization", "Bearer $TOKEN");
    add(&l, "api.example.com", SECRET, "authorization", "Basic $USER:$TOKEN");
    add(&l, "*.deep.example.com", "", "X-Deep", "1");
    add(&l, "example.com", "", "X-All", "own");
    struct policy p = rules_of(&l);
    assert_string_equal(text_of(&p),
                        "header_replacement inject tls api.example.com 443 X-All=a$$b authorization=Basic $USER:$TOKEN@1\n"
                        "header_replacement inject tls example.com 443 Authorization=Bearer $TOKEN@1 X-All=own\n"
                        "header_replacement inject tls *.deep.example.com deep.example.com 443 X-All=a$$b "
                        "Authorization=Bearer $TOKEN@1 X-Deep=1\n"
                        "header_replacement inject tls *.example.com example.com 443 X-All=a$$b Authorization=Bearer $TOKEN@1\n"
                        "header_replacement inject tls * 443 X-All=a$$b\n");
    for (uint32_t i = 0; i < p.nrules; i++)
        assert_null(policy_rule_wrong(&p.rules[i]));
    assert_string_equal(p.rules[3].injects[1].secret_id, SECRET);
    policy_done(&p);
}

static void other_dollar_signs_are_themselves(void **state)
{
    static const char *const rows[][2] = {
        {"$TOKEN", "$TOKEN"}, {"$$TOKEN", "$$TOKEN"}, {"${TOKEN}", "$${TOKEN}"}, {"$5", "$$5"}, {"a$", "a$$"}, {"$$", "$$"},
        {"$$$USER", "$$$USER"}, {"$ $", "$$ $$"}, {"", ""},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        struct replace_list l = {.n = 0};
        add(&l, "a.test", SECRET, "X", rows[i][0]);
        struct policy p = rules_of(&l);
        assert_string_equal(p.rules[0].injects[0].value, rows[i][1]);
        policy_done(&p);
    }
}

static void what_is_wrong_is_told(void **state)
{
    static const struct {
        const char *domain, *secret, *header, *value, *text;
        enum err_code code;
    } rows[] = {
        {"a b", "", "X", "1", "Invalid domain: 'a b'", ERR_INVALID},
        {"1.2.3.4", "", "X", "1", "Invalid domain: '1.2.3.4': it is an address", ERR_INVALID},
        {"a.test", "", "X Y", "1", "Invalid header 'X Y'", ERR_INVALID},
        {"a.test", "", "", "1", "Invalid header ''", ERR_INVALID},
        {"a.test", "", "Host", "b.test", "Invalid header 'Host': the header says how the request is framed", ERR_INVALID},
        {"a.test", "", "X", "1\r\nY: 2", "Invalid header 'X'", ERR_INVALID},
        {"a.test", "", "X", "$TOKEN", "Header value for 'X' references a secret key, but no secret was passed", ERR_INVALID},
        {"a.test", SECRET, "X", "$NO", "the secret " SECRET " has no key 'NO'", ERR_INVALID},
        {"a.test", SECRET, "X", "$TOKENS", "has no key 'TOKENS'", ERR_INVALID},
        {"a.test", "st-0000000000000000000002", "X", "$TOKEN", "there is no secret st-0000000000000000000002", ERR_NOT_FOUND},
        {"a.test", "st-00000000000000000000011111111111111111111111111111111111111111111", "X", "1", "is no id of a secret",
         ERR_INVALID},
    };

    for (size_t i = 0; i < array_len(rows); i++) {
        struct replace_list l = {.n = 0};
        struct policy p;
        struct err e = {0};
        policy_init(&p);
        assert_true(replace_add(&l, rows[i].domain, rows[i].secret, rows[i].header, rows[i].value, &e) < 0 ||
                    replace_rules(&l, has, NULL, &p, &e) < 0);
        assert_non_null(strstr(e.message, rows[i].text));
        assert_int_equal(e.code, rows[i].code);
        policy_done(&p);
    }
}

static void there_are_25_at_most(void **state)
{
    struct replace_list l = {.n = 0};
    char names[REPLACE_HEADERS_MAX][8];
    struct err e;

    for (size_t i = 0; i < REPLACE_HEADERS_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i], "x%zu", i);
        add(&l, "*", "", names[i], "1");
    }
    assert_int_equal(replace_add(&l, "*", "", "y", "1", &e), -1);
    assert_non_null(strstr(e.message, "more than 25 header replacements"));
    struct policy p = rules_of(&l);
    assert_int_equal(p.nrules, 1);
    assert_int_equal(p.rules[0].ninjects, 25);
    policy_done(&p);
}

/* --- together with what is allowed --------------------------------------------------------------- */

static struct policy lists(const char *cidr, const char *domain)
{
    char *cidrs[] = {(char *)(uintptr_t)cidr}, *domains[] = {(char *)(uintptr_t)domain};
    struct policy p;
    struct err e;

    policy_init(&p);
    assert_int_equal(policy_allow_lists(&p, cidrs, cidr != NULL, domains, domain != NULL, &e), 0);
    return p;
}

static struct policy replacements(void)
{
    struct replace_list l = {.n = 0};

    add(&l, "*.a.test", "", "X", "1");
    add(&l, "*", "", "Y", "2");
    return rules_of(&l);
}

#define WILD "header_replacement inject tls *.a.test a.test 443 Y=2 X=1\n"
#define ALL "header_replacement inject tls * 443 Y=2\n"
#define END "outbound_allowlist deny any\n"

static void check_put(struct policy access, const char *want)
{
    struct policy rules = replacements(), both, again_rules, again_access;
    char before[1024];

    policy_init(&both);
    policy_init(&again_rules);
    policy_init(&again_access);
    access.bandwidth.up_bits_s = 12345678;
    replace_put(&rules, &access, &both);
    assert_int_equal(both.bandwidth.up_bits_s, 12345678);
    assert_string_equal(text_of(&both), want);
    for (uint32_t i = 0; i < both.nrules; i++)
        assert_null(policy_rule_wrong(&both.rules[i]));
    replace_split(&both, &again_rules, &again_access);
    assert_string_equal(text_of(&again_rules), WILD ALL);
    (void)snprintf(before, sizeof before, "%s", text_of(&access));
    assert_string_equal(text_of(&again_access), before);
    assert_int_equal(again_access.flags, access.flags);
    assert_int_equal(again_access.bandwidth.up_bits_s, 12345678);
    policy_done(&rules);
    policy_done(&both);
    policy_done(&again_rules);
    policy_done(&again_access);
    policy_done(&access);
}

static void an_open_network_gets_them_as_they_are(void **state)
{
    struct policy open;

    policy_init(&open);
    policy_open(&open);
    check_put(open, "no-smtp deny any 25\n" WILD ALL " allow any\n");
}

static void they_allow_nothing(void **state)
{
    check_put(lists(NULL, NULL), END WILD ALL);
    check_put(lists(NULL, "www.a.test"),
              "header_replacement inject tls www.a.test 443 Y=2 X=1\nheader_replacement inject tls www.a.test 443 Y=2\n"
              "outbound_domain_allowlist allow tls www.a.test 443\n" END WILD ALL);
    check_put(lists(NULL, "*.b.test"),
              "header_replacement inject tls *.b.test 443 Y=2\noutbound_domain_allowlist allow tls *.b.test 443\n" END WILD ALL);
    /* *.a.test of an allow-list is not a.test */
    check_put(lists(NULL, "*.a.test"),
              "header_replacement inject tls *.a.test 443 Y=2 X=1\nheader_replacement inject tls *.a.test 443 Y=2\n"
              "outbound_domain_allowlist allow tls *.a.test 443\n" END WILD ALL);
    /* by address alone: not every name is looked up for it */
    check_put(
        lists("1.2.3.0/24", NULL),
        "header_replacement inject tls *.a.test a.test 1.2.3.0/24 443 Y=2 X=1\noutbound_cidr_allowlist allow any 1.2.3.0/24\n" END
            WILD ALL);
    check_put(lists("0.0.0.0/0", NULL),
              "no-smtp deny any 25\nheader_replacement inject tls *.a.test a.test 0.0.0.0/0 443 Y=2 X=1\n"
              "header_replacement inject tls * 0.0.0.0/0 443 Y=2\noutbound_cidr_allowlist allow any 0.0.0.0/0\n" END WILD ALL);
    check_put(
        lists("1.2.3.4", "b.test"),
        "header_replacement inject tls b.test 443 Y=2\noutbound_domain_allowlist allow tls b.test 443\n"
        "header_replacement inject tls *.a.test a.test 1.2.3.4/32 443 Y=2 X=1\noutbound_cidr_allowlist allow any 1.2.3.4/32\n" END
            WILD ALL);
}

static void own_rules_are_kept_in_their_order(void **state)
{
    struct policy p;

    policy_init(&p);
    policy_rule_domain(policy_add(&p, POLICY_DENY, POLICY_ANY), "bad.a.test");
    policy_rule_domain(policy_add(&p, POLICY_LOG, POLICY_ANY), "a.test");
    policy_rule_ports(policy_add(&p, POLICY_ALLOW, POLICY_TCP), 22, 22);
    (void)policy_add(&p, POLICY_ALLOW, POLICY_UDP);
    struct policy_rule *r = policy_add(&p, POLICY_ALLOW, POLICY_TLS);
    policy_rule_domain(r, "b.test");
    policy_rule_path(r, "/x");
    (void)policy_add(&p, POLICY_ALLOW, POLICY_TCP);
    (void)policy_add(&p, POLICY_ALLOW, POLICY_ANY);
    check_put(p, " deny any bad.a.test\n log any a.test\n allow tcp 22\n allow udp\n allow tls b.test\n" WILD ALL
                 " allow tcp\n allow any\n");
}

static int rule_of(struct policy *p, const char *name, const char *address, uint16_t port)
{
    struct policy_flow f = {.name = name, .port = port, .protocol = POLICY_TLS};
    struct policy_verdict v;
    struct address a;

    if (address != NULL) {
        assert_true(address_parse(address, &a));
        f.to = &a;
    }
    policy_compile(p);
    policy_ask(p, &f, &v);
    assert_int_equal(v.action, v.rule >= 0 && policy_allows(&p->rules[v.rule]) ? POLICY_ALLOW : POLICY_DENY);
    return v.rule;
}

static void what_is_behind_the_end_is_not_reached(void **state)
{
    struct policy rules = replacements(), access = lists("1.2.3.0/24", NULL), both;

    policy_init(&both);
    replace_put(&rules, &access, &both);
    assert_int_equal(rule_of(&both, "a.test", "1.2.3.4", 443), 0);
    assert_int_equal(rule_of(&both, "b.test", "1.2.3.4", 443), 1);
    assert_int_equal(rule_of(&both, "a.test", "1.2.3.4", 8443), 1);
    assert_int_equal(rule_of(&both, "a.test", "9.9.9.9", 443), 2);
    assert_int_equal(rule_of(&both, "b.test", "9.9.9.9", 443), 2);
    assert_true(policy_resolves(&both, "a.test"));
    assert_false(policy_resolves(&both, "b.test"));
    policy_done(&both);
    policy_done(&access);
    access = lists(NULL, NULL);
    replace_put(&rules, &access, &both);
    assert_int_equal(rule_of(&both, "a.test", "1.2.3.4", 443), 0);
    assert_int_equal(both.rules[0].action, POLICY_DENY);
    assert_false(policy_resolves(&both, "a.test"));
    policy_done(&both);
    policy_done(&access);
    policy_done(&rules);
}

static void without_any_nothing_is_added(void **state)
{
    struct policy none, access = lists("1.2.3.0/24", "a.test"), both, rules, again;

    policy_init(&none);
    policy_init(&both);
    policy_init(&rules);
    policy_init(&again);
    replace_put(&none, &access, &both);
    assert_string_equal(text_of(&both),
                        "outbound_domain_allowlist allow tls a.test 443\noutbound_cidr_allowlist allow any 1.2.3.0/24\n");
    replace_split(&both, &rules, &again);
    assert_int_equal(rules.nrules, 0);
    assert_int_equal(again.nrules, 2);
    policy_done(&both);
    policy_done(&again);
    policy_done(&access);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_exact_names_go_first),
        cmocka_unit_test(other_dollar_signs_are_themselves),
        cmocka_unit_test(what_is_wrong_is_told),
        cmocka_unit_test(there_are_25_at_most),
        cmocka_unit_test(an_open_network_gets_them_as_they_are),
        cmocka_unit_test(they_allow_nothing),
        cmocka_unit_test(own_rules_are_kept_in_their_order),
        cmocka_unit_test(what_is_behind_the_end_is_not_reached),
        cmocka_unit_test(without_any_nothing_is_added),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
