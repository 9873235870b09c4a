/*
 * policy_json.c - network policies as JSON
 */
#include "core/policy_json.h"

#include <stdio.h>
#include <string.h>

#include "base/ids.h"
#include "base/mem.h"
#include "core/policy_json_http.h"
#include "ipc/policy_wire.h"

#define PARAM "network"

/* --- reading --------------------------------------------------------------------------------- */

static int add_domain(struct policy_rule *r, const json_t *v, size_t rule, struct err *e)
{
    char normal[POLICY_DOMAIN_MAX + 1];
    const char *text = json_string_value(v);

    if (text == NULL)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: domains must be an array of strings", rule + 1);
    const char *wrong = policy_domain(text, true, normal);
    if (wrong != NULL)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: '%.100s' is not a domain: %s", rule + 1, text, wrong);
    policy_rule_domain(r, normal);
    return 0;
}

static int add_cidr(struct policy_rule *r, const json_t *v, size_t rule, struct err *e)
{
    const char *text = json_string_value(v);
    struct cidr c;

    if (text == NULL)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: cidrs must be an array of strings", rule + 1);
    const char *wrong = cidr_parse(text, &c);
    if (wrong != NULL)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: '%.60s' is not a CIDR: %s", rule + 1, text, wrong);
    policy_rule_cidr(r, &c);
    return 0;
}

/* 443, "443" or "8000-8100". */
static int add_ports(struct policy_rule *r, const json_t *v, size_t rule, struct err *e)
{
    const char *text = json_string_value(v);
    unsigned long first = 0, last = 0;
    char *end = NULL;

    if (json_is_integer(v)) {
        first = last = json_integer_value(v) > 0 && json_integer_value(v) < 65536 ? (unsigned long)json_integer_value(v) : 0;
    } else if (text != NULL && text[0] >= '0' && text[0] <= '9') {
        first = last = strtoul(text, &end, 10);
        if (*end == '-' && end[1] >= '0' && end[1] <= '9')
            last = strtoul(end + 1, &end, 10);
        if (*end != '\0')
            first = 0;
    }
    if (first < 1 || last > 65535 || first > last)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: a port is a number from 1 to 65535 or a range such as \"8000-8100\"",
                         rule + 1);
    policy_rule_ports(r, (uint16_t)first, (uint16_t)last);
    return 0;
}

static int each(const json_t *list, const char *key, struct policy_rule *r, size_t rule,
                int (*add)(struct policy_rule *, const json_t *, size_t, struct err *), struct err *e)
{
    size_t i;
    const json_t *v;

    if (list == NULL)
        return 0;
    if (!json_is_array(list))
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: %s must be an array", rule + 1, key);
    /* Present and empty would match everything, which nobody means by it. */
    if (json_array_size(list) == 0)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: %s is empty; leave it out to match everything", rule + 1, key);
    json_array_foreach(list, i, v)
        if (add(r, v, rule, e) < 0)
            return -1;
    return 0;
}

static int choice(const json_t *v, const char *const *names, int n, int absent)
{
    const char *text = json_string_value(v);

    if (v == NULL)
        return absent;
    for (int i = 0; text != NULL && i < n; i++)
        if (names[i] != NULL && strcmp(names[i], text) == 0)
            return i;
    return -1;
}

int policy_json_keys(const json_t *o, const char *const *known, size_t n, const char *what, struct err *e)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        size_t i = 0;
        while (i < n && strcmp(known[i], key) != 0)
            i++;
        if (i < n)
            continue;
        const char *near = js_nearest(key, known, n);
        return err_param(e, ERR_UNKNOWN_FIELD, PARAM, "%s has no field '%.60s'%s%s%s", what, key,
                         near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
    }
    return 0;
}

static int read_rule(const json_t *j, size_t i, struct policy *p, struct err *e)
{
    static const char *const keys[] = {"name", "action", "protocol", "domains", "cidrs", "ports",
                                       "methods", "paths", "inject", "redact"};
    static const char *const actions[] = {NULL, "allow", "deny", "log", "inject"};
    static const char *const protocols[] = {"any", "tcp", "tls", "http", "udp"};
    const json_t *name = json_object_get(j, "name");

    if (!json_is_object(j))
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: a rule is an object", i + 1);
    if (policy_json_keys(j, keys, array_len(keys), "a rule of a network policy", e) < 0)
        return -1;
    int action = choice(json_object_get(j, "action"), actions, array_len(actions),
                        json_object_get(j, "inject") != NULL ? POLICY_INJECT : POLICY_ALLOW);
    if (action < 0)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: action must be allow, deny, log or inject", i + 1);
    /* Nobody's credentials go out in the clear unless they are told to. */
    int protocol = choice(json_object_get(j, "protocol"), protocols, array_len(protocols),
                          action == POLICY_INJECT ? POLICY_TLS : POLICY_ANY);
    if (protocol < 0)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: protocol must be any, tcp, tls, http or udp", i + 1);
    struct policy_rule *r = policy_add(p, (enum policy_action)action, (enum policy_protocol)protocol);
    if (name != NULL) {
        const char *text = json_string_value(name);
        if (text == NULL || !name_is_valid(text, strlen(text)))
            return err_param(e, ERR_INVALID, PARAM, "rule %zu: name must be 1 to %d of the characters A-Z a-z 0-9 . _ -",
                             i + 1, LIMIT_NAME);
        (void)snprintf(r->name, sizeof r->name, "%s", text);
    }
    if (each(json_object_get(j, "domains"), "domains", r, i, add_domain, e) < 0 ||
        each(json_object_get(j, "cidrs"), "cidrs", r, i, add_cidr, e) < 0 ||
        each(json_object_get(j, "ports"), "ports", r, i, add_ports, e) < 0 || policy_json_requests(j, i, r, e) < 0)
        return -1;
    const char *wrong = policy_rule_wrong(r);
    if (wrong != NULL)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: %s", i + 1, wrong);
    return 0;
}

/* Both lists present and empty, or absent: nothing is allowed. */
static int read_short(const json_t *j, struct policy *p, struct err *e)
{
    const json_t *domains = json_object_get(j, "allow_domains"), *cidrs = json_object_get(j, "allow_cidrs");

    if ((domains != NULL && !json_is_array(domains)) || (cidrs != NULL && !json_is_array(cidrs)))
        return err_param(e, ERR_INVALID, PARAM, "allow_domains and allow_cidrs must be arrays of strings");
    if (json_array_size(domains) > 0) {
        struct policy_rule *r = policy_add(p, POLICY_ALLOW, POLICY_ANY);
        memcpy(r->name, "allow_domains", sizeof "allow_domains");
        if (each(domains, "allow_domains", r, p->nrules - 1, add_domain, e) < 0)
            return -1;
    }
    if (json_array_size(cidrs) > 0) {
        struct policy_rule *r = policy_add(p, POLICY_ALLOW, POLICY_ANY);
        memcpy(r->name, "allow_cidrs", sizeof "allow_cidrs");
        if (each(cidrs, "allow_cidrs", r, p->nrules - 1, add_cidr, e) < 0)
            return -1;
    }
    return 0;
}

static int read_bits(const json_t *j, const char *key, uint64_t *ret, struct err *e)
{
    const json_t *v = json_object_get(j, key);
    json_int_t n = json_integer_value(v);

    if (v == NULL || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || n < LIMIT_BANDWIDTH_MIN || n > LIMIT_BANDWIDTH_MAX)
        return err_param(e, ERR_INVALID, PARAM,
                         "bandwidth: %s must be a number of bits a second from %d to %lld", key,
                         LIMIT_BANDWIDTH_MIN, LIMIT_BANDWIDTH_MAX);
    *ret = (uint64_t)n;
    return 0;
}

static int read_bandwidth(const json_t *j, struct policy_bandwidth *ret, struct err *e)
{
    static const char *const keys[] = {"up_bits_s", "down_bits_s"};

    if (j == NULL || json_is_null(j))
        return 0;
    if (!json_is_object(j))
        return err_param(e, ERR_INVALID, PARAM, "bandwidth must be an object with up_bits_s, down_bits_s or both");
    if (policy_json_keys(j, keys, array_len(keys), "the bandwidth of a network policy", e) < 0 ||
        read_bits(j, "up_bits_s", &ret->up_bits_s, e) < 0 || read_bits(j, "down_bits_s", &ret->down_bits_s, e) < 0)
        return -1;
    return 0;
}

static int read_object(const json_t *j, struct policy *p, struct err *e)
{
    static const char *const keys[] = {"rules", "dns", "refuse_ech", "bandwidth", "allow_domains", "allow_cidrs"};
    static const char *const dns[] = {"rules", "open"};
    const json_t *rules = json_object_get(j, "rules"), *v, *ech = json_object_get(j, "refuse_ech");
    bool is_short = json_object_get(j, "allow_domains") != NULL || json_object_get(j, "allow_cidrs") != NULL;
    size_t i, items = 0;

    if (policy_json_keys(j, keys, array_len(keys), "a network policy", e) < 0)
        return -1;
    if (rules == NULL && !is_short)
        return err_param(e, ERR_INVALID, PARAM, "a network policy has rules, or allow_domains and allow_cidrs");
    if (rules != NULL && is_short)
        return err_param(e, ERR_INVALID, PARAM, "rules exclude allow_domains and allow_cidrs");
    if (rules != NULL && !json_is_array(rules))
        return err_param(e, ERR_INVALID, PARAM, "rules must be an array");
    if (json_array_size(rules) > LIMIT_POLICY_RULES)
        return err_param(e, ERR_TOO_LARGE, PARAM, "the policy has %zu rules, at most %d are accepted", json_array_size(rules),
                         LIMIT_POLICY_RULES);
    int names = choice(json_object_get(j, "dns"), dns, array_len(dns), 0);
    if (names < 0)
        return err_param(e, ERR_INVALID, PARAM, "dns must be rules or open");
    if (ech != NULL && !json_is_boolean(ech))
        return err_param(e, ERR_INVALID, PARAM, "refuse_ech must be true or false");
    p->flags = (names == 1 ? (unsigned)POLICY_DNS_OPEN : 0) | (json_is_true(ech) ? (unsigned)POLICY_REFUSE_ECH : 0);
    if (read_bandwidth(json_object_get(j, "bandwidth"), &p->bandwidth, e) < 0)
        return -1;
    json_array_foreach(rules, i, v)
        if (read_rule(v, i, p, e) < 0)
            return -1;
    if (is_short && read_short(j, p, e) < 0)
        return -1;
    for (uint32_t k = 0; k < p->nrules; k++)
        items += p->rules[k].ndomains + p->rules[k].ncidrs + p->rules[k].nports + p->rules[k].nmethods + p->rules[k].npaths +
                 p->rules[k].ninjects;
    if (items > LIMIT_POLICY_ITEMS)
        return err_param(e, ERR_TOO_LARGE, PARAM, "the policy has %zu names, prefixes and ports, at most %d are accepted", items,
                         LIMIT_POLICY_ITEMS);
    return 0;
}

int policy_from_json(const json_t *j, struct policy *ret, struct err *e)
{
    const char *text = json_string_value(j);
    struct policy p;
    int r = 0;

    policy_init(&p);
    if (text != NULL && strcmp(text, "open") == 0)
        policy_open(&p);
    else if (json_is_object(j))
        r = read_object(j, &p, e);
    else
        r = err_param(e, ERR_INVALID, PARAM, "network must be \"block\", \"open\" or a policy, which is an object");
    if (r == 0) {
        auto_free uint8_t *bytes = mem_alloc(LIMIT_POLICY_BYTES);
        if (policy_encode(&p, bytes, LIMIT_POLICY_BYTES) == 0)
            r = err_param(e, ERR_TOO_LARGE, PARAM, "the policy has more than %d bytes", LIMIT_POLICY_BYTES);
    }
    if (r < 0) {
        policy_done(&p);
        return -1;
    }
    policy_compile(&p);
    *ret = p;
    return 0;
}

bool network_is_blocked(const json_t *j)
{
    const char *text = json_string_value(j);

    return j == NULL || json_is_null(j) || (text != NULL && strcmp(text, "block") == 0);
}

/* --- writing --------------------------------------------------------------------------------- */

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

static json_t *rule_json(const struct policy_rule *r)
{
    json_t *o = json_object();
    char text[64];

    if (r->name[0] != '\0')
        set(o, "name", json_string(r->name));
    set(o, "action", json_string(policy_action_name((enum policy_action)r->action)));
    set(o, "protocol", json_string(policy_protocol_name((enum policy_protocol)r->protocol)));
    json_t *domains = json_array(), *cidrs = json_array(), *ports = json_array();
    for (uint32_t i = 0; i < r->ndomains; i++)
        (void)json_array_append_new(domains, json_string(r->domains[i]));
    for (uint32_t i = 0; i < r->ncidrs; i++)
        (void)json_array_append_new(cidrs, json_stringn(text, cidr_text(&r->cidrs[i], text, sizeof text)));
    for (uint32_t i = 0; i < r->nports; i++) {
        if (r->ports[i].first == r->ports[i].last) {
            (void)json_array_append_new(ports, json_integer(r->ports[i].first));
            continue;
        }
        (void)snprintf(text, sizeof text, "%u-%u", r->ports[i].first, r->ports[i].last);
        (void)json_array_append_new(ports, json_string(text));
    }
    /* What is not there matches everything: an empty list would be refused when it comes back. */
    struct {
        const char *key;
        json_t *list;
    } lists[] = {{"domains", domains}, {"cidrs", cidrs}, {"ports", ports}};
    for (size_t i = 0; i < array_len(lists); i++) {
        if (json_array_size(lists[i].list) > 0)
            set(o, lists[i].key, lists[i].list);
        else
            json_decref(lists[i].list);
    }
    policy_json_put_requests(r, o);
    return o;
}

static json_t *bits_json(uint64_t n)
{
    return n > 0 ? json_integer((json_int_t)n) : json_null();
}

static json_t *bandwidth_json(const struct policy_bandwidth *b)
{
    json_t *o = json_object();

    if (b->up_bits_s == 0 && b->down_bits_s == 0) {
        json_decref(o);
        return json_null();
    }
    set(o, "up_bits_s", bits_json(b->up_bits_s));
    set(o, "down_bits_s", bits_json(b->down_bits_s));
    return o;
}

json_t *policy_to_json(const struct policy *p)
{
    json_t *o = json_object(), *rules = json_array();

    for (uint32_t i = 0; i < p->nrules; i++)
        (void)json_array_append_new(rules, rule_json(&p->rules[i]));
    set(o, "rules", rules);
    set(o, "dns", json_string((p->flags & POLICY_DNS_OPEN) != 0 ? "open" : "rules"));
    set(o, "refuse_ech", json_boolean((p->flags & POLICY_REFUSE_ECH) != 0));
    set(o, "bandwidth", bandwidth_json(&p->bandwidth));
    return o;
}
