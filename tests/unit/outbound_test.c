/*
 * outbound_test.c - Modal's outbound policies as rules
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/modal/outbound.h"
#include "base/mem.h"
#include "core/policy_json.h"

#define SECRET "st-0000000000000000000001"
#define MAX 8

typedef M(OutboundPolicy__Route) Route;
typedef M(OutboundPolicy__PortRange) Ports;
typedef M(OutboundPolicy__Redirect) Redirect;

static enum replace_key has(void *ctx, const char *id, const char *key, size_t n)
{
    return strcmp(id, SECRET) == 0 && n == 5 && memcmp(key, "TOKEN", n) == 0 ? REPLACE_KEY_KNOWN : REPLACE_KEY_MISSING;
}

/* --- messages -------------------------------------------------------------------------------------- */

static char *names[MAX + 1];

/* Words by spaces; valid until the next call. */
static size_t words(const char *text, char **room, char ***ret)
{
    size_t n = 0;
    char *at = NULL;

    free(*room);
    *room = mem_strdup(text);
    for (char *w = strtok_r(*room, " ", &at); w != NULL && n < MAX; w = strtok_r(NULL, " ", &at))
        names[n++] = w;
    *ret = names;
    return n;
}

struct made {
    Route route;
    M(OutboundPolicy__IPRoute) ip;
    M(OutboundPolicy__TLSRoute) tls;
    M(OutboundPolicy__HTTPSRoute) https;
    M(OutboundPolicy__AnyRoute) any;
    Ports ranges[MAX], *ports[MAX];
    size_t nports;
    Redirect redirect;
    M(OutboundPolicy__Redirect__Block) block;
    M(OutboundPolicy__HeaderReplacement) headers, *header_list[1];
    M(OutboundPolicy__HeaderReplacement__HeadersEntry) entry, *entries[1];
    char *texts[MAX];
    char *room;
};

static void make(struct made *m)
{
    char *room = m->room;

    *m = (struct made){
        .route = MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__INIT,
        .ip = MODAL__CLIENT__OUTBOUND_POLICY__IPROUTE__INIT,
        .tls = MODAL__CLIENT__OUTBOUND_POLICY__TLSROUTE__INIT,
        .https = MODAL__CLIENT__OUTBOUND_POLICY__HTTPSROUTE__INIT,
        .any = MODAL__CLIENT__OUTBOUND_POLICY__ANY_ROUTE__INIT,
        .redirect = MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__INIT,
        .block = MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__BLOCK__INIT,
        .headers = MODAL__CLIENT__OUTBOUND_POLICY__HEADER_REPLACEMENT__INIT,
        .entry = MODAL__CLIENT__OUTBOUND_POLICY__HEADER_REPLACEMENT__HEADERS_ENTRY__INIT,
        .room = room,
    };
}

static void add_port(struct made *m, uint32_t start, uint32_t end)
{
    m->ranges[m->nports] = (Ports)MODAL__CLIENT__OUTBOUND_POLICY__PORT_RANGE__INIT;
    m->ranges[m->nports].start = start;
    m->ranges[m->nports].end = end;
    m->ports[m->nports] = &m->ranges[m->nports];
    m->nports++;
}

static void take_texts(struct made *m, const char *text)
{
    char **list;
    size_t n = words(text, &m->room, &list);

    memcpy(m->texts, list, n * sizeof *list);
    m->ip.cidrs = m->tls.domains = m->https.domains = m->texts;
    m->ip.n_cidrs = m->tls.n_domains = m->https.n_domains = n;
}

/* What of the fields the kind has is set for all of them. */
static Route *route(struct made *m, const char *kind, const char *texts, const char *redirect, int transport)
{
    make(m);
    take_texts(m, texts);
    m->ip.transport = m->tls.transport = m->https.transport = (M(OutboundPolicy__Transport))transport;
    if (redirect[0] != '\0') {
        m->ip.redirect = m->tls.redirect = m->https.redirect = m->any.redirect = &m->redirect;
        m->redirect.redirect_case = redirect[0] == 'b' ? MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__REDIRECT_BLOCK
                                    : redirect[0] == 'p' ? MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__REDIRECT_VIA_PROXY
                                    : redirect[0] == 's' ? MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__REDIRECT_VIA_SIDECAR
                                                         : MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__REDIRECT__NOT_SET;
        m->redirect.block = &m->block;
    }
    m->route.route_case = kind[0] == 'i' ? MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_IP
                          : kind[0] == 't' ? MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_TLS
                          : kind[0] == 'h' ? MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_HTTPS
                          : kind[0] == 'a' ? MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_ANY
                                           : MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE__NOT_SET;
    if (kind[0] == 'i')
        m->route.ip = &m->ip;
    else if (kind[0] == 't')
        m->route.tls = &m->tls;
    else if (kind[0] == 'h')
        m->route.https = &m->https;
    else
        m->route.any = &m->any;
    return &m->route;
}

static Route *with_ports(Route *r, struct made *m, uint32_t start, uint32_t end)
{
    add_port(m, start, end);
    m->ip.ports = m->tls.ports = m->https.ports = m->ports;
    m->ip.n_ports = m->tls.n_ports = m->https.n_ports = m->nports;
    return r;
}

static Route *with_header(Route *r, struct made *m, const char *secret, const char *name, const char *value)
{
    m->entry.key = (char *)(uintptr_t)name;
    m->entry.value = (char *)(uintptr_t)value;
    m->entries[0] = &m->entry;
    m->headers.secret_id = (char *)(uintptr_t)secret;
    m->headers.headers = m->entries;
    m->headers.n_headers = 1;
    m->header_list[0] = &m->headers;
    m->https.header_replacements = m->header_list;
    m->https.n_header_replacements = 1;
    return r;
}

static int read(Route **routes, size_t n, bool decrypt, struct policy *ret, struct err *e)
{
    M(OutboundPolicy) m = MODAL__CLIENT__OUTBOUND_POLICY__INIT;
    M(OutboundPolicy__TLSDecryption) d = MODAL__CLIENT__OUTBOUND_POLICY__TLSDECRYPTION__INIT;

    d.has_allowed = d.allowed = decrypt;
    m.tls_decryption = &d;
    m.routes = routes;
    m.n_routes = n;
    policy_init(ret);
    return outbound_routes(&m, has, NULL, ret, e);
}

/* --- what they become ------------------------------------------------------------------------------ */

static void check(Route **routes, size_t n, const char *want)
{
    struct policy p;
    struct err e = {0};

    if (read(routes, n, true, &p, &e) != 0)
        fail_msg("%s", e.message);
    for (uint32_t i = 0; i < p.nrules; i++)
        assert_null(policy_rule_wrong(&p.rules[i]));
    auto_json *j = policy_to_json(&p);
    auto_free char *text = js_text(json_object_get(j, "rules"), false);
    assert_string_equal(text, want);
    policy_done(&p);
}

static void kinds_of_routes(void **state)
{
    struct made m[6] = {{.room = NULL}};
    Route *list[6];

    list[0] = route(&m[0], "ip", "10.1.2.3/8 1.2.3.4", "", 0);
    list[1] = with_ports(with_ports(route(&m[1], "ip", "::/0", "block", 2), &m[1], 22, 22), &m[1], 8000, 8100);
    list[2] = route(&m[2], "tls", "Example.com *.wild.test", "", 0);
    list[3] = with_ports(route(&m[3], "tls", "*", "block", 1), &m[3], 853, 853);
    list[4] = with_header(route(&m[4], "https", "api.test", "", 0), &m[4], SECRET, "Authorization", "Bearer $TOKEN");
    list[5] = route(&m[5], "any", "", "block", 0);
    check(
        list, 6,
        "[{\"name\":\"outbound_policy.routes.0\",\"action\":\"allow\",\"protocol\":\"any\","
        "\"cidrs\":[\"10.0.0.0/8\",\"1.2.3.4/32\"]},"
        "{\"name\":\"outbound_policy.routes.0\",\"action\":\"allow\",\"protocol\":\"udp\","
        "\"cidrs\":[\"10.0.0.0/8\",\"1.2.3.4/32\"]},"
        "{\"name\":\"outbound_policy.routes.1\",\"action\":\"deny\",\"protocol\":\"any\",\"cidrs\":[\"::/0\"],"
        "\"ports\":[22,\"8000-8100\"]},"
        "{\"name\":\"outbound_policy.routes.2\",\"action\":\"allow\",\"protocol\":\"tls\","
        "\"domains\":[\"example.com\",\"*.wild.test\",\"wild.test\"],\"ports\":[443]},"
        "{\"name\":\"outbound_policy.routes.3\",\"action\":\"deny\",\"protocol\":\"tls\",\"domains\":[\"*\"],\"ports\":[853]},"
        "{\"name\":\"outbound_policy.routes.3\",\"action\":\"deny\",\"protocol\":\"udp\",\"domains\":[\"*\"],\"ports\":[853]},"
        "{\"name\":\"outbound_policy.routes.4\",\"action\":\"inject\",\"protocol\":\"tls\","
        "\"domains\":[\"api.test\"],\"ports\":[443],"
        "\"inject\":[{\"header\":\"Authorization\",\"value\":\"Bearer $TOKEN\",\"mode\":\"set\",\"secret\":\"" SECRET
        "\"}],"
        "\"redact\":false}]");
    for (size_t i = 0; i < array_len(m); i++)
        free(m[i].room);
}

static void the_last_route_is_for_all_else(void **state)
{
    struct made m[2] = {{.room = NULL}};
    Route *list[2];

    list[0] = route(&m[0], "tls", "a.test", "", 3);
    list[1] = route(&m[1], "any", "", "", 0);
    check(
        list, 2,
        "[{\"name\":\"outbound_policy.routes.0\",\"action\":\"allow\",\"protocol\":\"udp\","
        "\"domains\":[\"a.test\"],\"ports\":[443]},"
        "{\"name\":\"no-smtp\",\"action\":\"deny\",\"protocol\":\"any\","
        "\"ports\":[25]},{\"action\":\"allow\",\"protocol\":\"any\"}]");
    /* https without anything to replace is opened all the same */
    list[0] = route(&m[0], "https", "a.test", "", 2);
    list[1] = route(&m[1], "any", "", "block", 0);
    check(
        list, 2,
        "[{\"name\":\"outbound_policy.routes.0\",\"action\":\"allow\",\"protocol\":\"tls\","
        "\"domains\":[\"a.test\"],\"ports\":[443],"
        "\"paths\":[\"*\"]}]");
    list[0] = route(&m[0], "https", "a.test", "block", 0);
    check(
        list, 2,
        "[{\"name\":\"outbound_policy.routes.0\",\"action\":\"deny\",\"protocol\":\"tls\","
        "\"domains\":[\"a.test\"],\"ports\":[443]}]");
    for (size_t i = 0; i < array_len(m); i++)
        free(m[i].room);
}

static void names_are_told_where_everything_is_allowed(void **state)
{
    struct made m[2] = {{.room = NULL}};
    Route *list[2];
    struct policy p;
    struct err e;

    list[1] = route(&m[1], "any", "", "block", 0);
    list[0] = route(&m[0], "ip", "0.0.0.0/0", "", 0);
    assert_int_equal(read(list, 2, false, &p, &e), 0);
    assert_true(policy_resolves(&p, "any.test"));
    policy_done(&p);
    list[0] = route(&m[0], "ip", "0.0.0.0/0", "block", 0);
    assert_int_equal(read(list, 2, false, &p, &e), 0);
    assert_false(policy_resolves(&p, "any.test"));
    policy_done(&p);
    for (size_t i = 0; i < array_len(m); i++)
        free(m[i].room);
}

/* --- what is refused ------------------------------------------------------------------------------- */

static void refused(Route *one, const char *want)
{
    struct made last = {.room = NULL};
    Route *list[] = {one, route(&last, "any", "", "", 0)};
    struct policy p;
    struct err e = {0};

    assert_int_equal(read(list, 2, true, &p, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_string_equal(e.param, "outbound_policy");
    if (strncmp(e.message, want, strlen(want)) != 0)
        fail_msg("%s", e.message);
    policy_done(&p);
    free(last.room);
}

static void what_cannot_be_is_named(void **state)
{
    struct made m = {.room = NULL};

    refused(route(&m, "ip", "1.2.3.4", "proxy", 0),
            "outbound_policy.routes[0].ip.redirect.via_proxy: this server has no proxies");
    refused(route(&m, "tls", "a.test", "sidecar", 0), "outbound_policy.routes[0].tls.redirect.via_sidecar: sidecar containers");
    refused(route(&m, "https", "a.test", "?", 0), "outbound_policy.routes[0].https.redirect: this server knows block alone");
    refused(route(&m, "ip", "", "", 0), "outbound_policy.routes[0].ip.cidrs: it names no prefix");
    refused(route(&m, "ip", "1.2.3.4/33", "", 0), "outbound_policy.routes[0].ip.cidrs: Invalid CIDR: '1.2.3.4/33': ");
    refused(route(&m, "ip", "1.2.3.4", "", 4), "outbound_policy.routes[0].ip.transport: transport 4 is not known");
    refused(route(&m, "tls", "", "", 0), "outbound_policy.routes[0].tls.domains: it names no domain");
    refused(route(&m, "tls", "a_b..c", "", 0), "outbound_policy.routes[0].tls.domains: Invalid domain: 'a_b..c': ");
    refused(with_ports(route(&m, "tls", "a.test", "", 0), &m, 0, 1), "outbound_policy.routes[0].tls.ports: 0 to 1 is no range");
    refused(with_ports(route(&m, "ip", "1.2.3.4", "", 0), &m, 5, 4), "outbound_policy.routes[0].ip.ports: 5 to 4 is no range");
    refused(with_ports(route(&m, "ip", "1.2.3.4", "", 0), &m, 5, 65536), "outbound_policy.routes[0].ip.ports: 5 to 65536 is no");
    refused(route(&m, "https", "a.test", "", 3), "outbound_policy.routes[0].https.transport: only connections by TCP can be");
    refused(route(&m, "https", "a.test", "", 1), "outbound_policy.routes[0].https.transport: only connections by TCP can be");
    refused(with_header(route(&m, "https", "a.test", "block", 0), &m, "", "X", "1"),
            "outbound_policy.routes[0].https.header_replacements: nothing is replaced in what is blocked");
    refused(with_header(route(&m, "https", "a.test", "", 0), &m, "", "Host", "b.test"),
            "outbound_policy.routes[0].https.header_replacements: Invalid header 'Host': ");
    refused(with_header(route(&m, "https", "a.test", "", 0), &m, SECRET, "X", "$NO"),
            "outbound_policy.routes[0].https.header_replacements: Header value for 'X': the secret " SECRET " has no key 'NO'");
    refused(route(&m, "any", "", "", 0), "outbound_policy.routes[0].any: it must be the last one");
    refused(route(&m, "?", "", "", 0), "outbound_policy.routes[0]: it is of no kind that this server knows");
    free(m.room);
}

static void decryption_has_to_be_allowed_and_the_last_route_to_be_any(void **state)
{
    struct made m[2] = {{.room = NULL}};
    Route *list[2] = {route(&m[0], "https", "a.test", "", 0), route(&m[1], "any", "", "", 0)};
    struct policy p;
    struct err e = {0};

    assert_int_equal(read(list, 2, false, &p, &e), -1);
    assert_string_equal(
        e.message,
        "outbound_policy.routes[0].https: connections are decrypted only where tls_decryption is allowed");
    policy_done(&p);
    assert_int_equal(read(list, 1, true, &p, &e), -1);
    assert_non_null(strstr(e.message, "the last one must be of kind any"));
    policy_done(&p);
    assert_int_equal(read(list, 0, true, &p, &e), -1);
    assert_non_null(strstr(e.message, "the last one must be of kind any"));
    policy_done(&p);
    for (size_t i = 0; i < array_len(m); i++)
        free(m[i].room);
}

static void replacements_of_a_message(void **state)
{
    M(ExperimentalOutboundPolicy) m = MODAL__CLIENT__EXPERIMENTAL_OUTBOUND_POLICY__INIT;
    M(ExperimentalOutboundPolicy__HeaderReplacement) one = MODAL__CLIENT__EXPERIMENTAL_OUTBOUND_POLICY__HEADER_REPLACEMENT__INIT,
                                                     *list[] = {&one};
    M(ExperimentalOutboundPolicy__HeaderReplacement__HeadersEntry) entry =
        MODAL__CLIENT__EXPERIMENTAL_OUTBOUND_POLICY__HEADER_REPLACEMENT__HEADERS_ENTRY__INIT, *entries[] = {&entry};
    struct policy p;
    struct err e;

    policy_init(&p);
    assert_int_equal(outbound_replacements(&m, has, NULL, &p, &e), 0);
    assert_int_equal(p.nrules, 0);
    one.domain = (char *)(uintptr_t) "*.example.com";
    one.secret_id = (char *)(uintptr_t)SECRET;
    m.header_replacements = list;
    m.n_header_replacements = 1;
    assert_int_equal(outbound_replacements(&m, has, NULL, &p, &e), -1);
    assert_string_equal(e.message, "headers must contain at least one header");
    entry.key = (char *)(uintptr_t) "X-Api-Key";
    entry.value = (char *)(uintptr_t) "$TOKEN";
    one.headers = entries;
    one.n_headers = 1;
    assert_int_equal(outbound_replacements(&m, has, NULL, &p, &e), 0);
    assert_int_equal(p.nrules, 1);
    assert_string_equal(p.rules[0].name, "header_replacement");
    assert_string_equal(p.rules[0].domains[1], "example.com");
    assert_string_equal(p.rules[0].injects[0].name, "X-Api-Key");
    assert_string_equal(p.rules[0].injects[0].secret_id, SECRET);
    policy_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_routes),
        cmocka_unit_test(the_last_route_is_for_all_else),
        cmocka_unit_test(names_are_told_where_everything_is_allowed),
        cmocka_unit_test(what_cannot_be_is_named),
        cmocka_unit_test(decryption_has_to_be_allowed_and_the_last_route_to_be_any),
        cmocka_unit_test(replacements_of_a_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
