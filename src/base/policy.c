/*
 * policy.c - making policies: rules, names, defaults
 */
#include "base/policy.h"

#include <string.h>

#include "base/mem.h"
#include "base/policy_http.h"
#include "base/policy_index.h"

#define LABEL_MAX 63
#define PORT_SMTP 25
#define PORT_TLS 443

void policy_init(struct policy *p)
{
    *p = (struct policy){0};
}

void policy_done(struct policy *p)
{
    for (uint32_t i = 0; i < p->nrules; i++) {
        struct policy_rule *r = &p->rules[i];
        for (uint32_t j = 0; j < r->ndomains; j++)
            free(r->domains[j]);
        free(r->domains);
        free(r->cidrs);
        free(r->ports);
        policy_http_done(r);
    }
    free(p->rules);
    policy_index_free(p->index);
    *p = (struct policy){0};
}

/* Room for one more: the arrays double. */
static void *grow(void *items, uint32_t count, size_t size)
{
    bool is_full = count == 0 || (count & (count - 1)) == 0;

    return is_full ? mem_realloc(items, (count == 0 ? 1 : (size_t)count * 2) * size) : items;
}

struct policy_rule *policy_add(struct policy *p, enum policy_action action, enum policy_protocol protocol)
{
    p->rules = grow(p->rules, p->nrules, sizeof *p->rules);
    struct policy_rule *r = &p->rules[p->nrules++];
    *r = (struct policy_rule){.action = (uint8_t)action, .protocol = (uint8_t)protocol};
    return r;
}

void policy_rule_domain(struct policy_rule *r, const char *domain)
{
    r->domains = grow(r->domains, r->ndomains, sizeof *r->domains);
    r->domains[r->ndomains++] = mem_strdup(domain);
}

void policy_rule_cidr(struct policy_rule *r, const struct cidr *c)
{
    r->cidrs = grow(r->cidrs, r->ncidrs, sizeof *r->cidrs);
    r->cidrs[r->ncidrs++] = *c;
}

void policy_rule_ports(struct policy_rule *r, uint16_t first, uint16_t last)
{
    r->ports = grow(r->ports, r->nports, sizeof *r->ports);
    r->ports[r->nports++] = (struct policy_ports){first, last};
}

static void deny_mail(struct policy *p)
{
    struct policy_rule *mail = policy_add(p, POLICY_DENY, POLICY_ANY);

    memcpy(mail->name, "no-smtp", sizeof "no-smtp");
    policy_rule_ports(mail, PORT_SMTP, PORT_SMTP);
}

void policy_open(struct policy *p)
{
    deny_mail(p);
    (void)policy_add(p, POLICY_ALLOW, POLICY_ANY);
}

bool policy_cidr_is_everything(const struct cidr *c)
{
    static const struct address none = {{0}};

    return c->bits == 0 || (c->bits == 96 && memcmp(c->net.b + 12, none.b, 4) == 0 && address_is4(&c->net));
}

static void allow_prefixes(struct policy *p, const struct cidr *cidrs, size_t n)
{
    bool everything = false;

    for (size_t i = 0; i < n; i++)
        everything = everything || policy_cidr_is_everything(&cidrs[i]);
    if (everything) {
        p->flags |= POLICY_DNS_OPEN;
        deny_mail(p);
    }
    struct policy_rule *r = policy_add(p, POLICY_ALLOW, POLICY_ANY);
    memcpy(r->name, "outbound_cidr_allowlist", sizeof "outbound_cidr_allowlist");
    for (size_t i = 0; i < n; i++)
        policy_rule_cidr(r, &cidrs[i]);
}

int policy_allow_lists(struct policy *p, char *const *cidrs, size_t ncidrs, char *const *domains, size_t ndomains, struct err *e)
{
    auto_free struct cidr *parsed = mem_array(ncidrs + 1, sizeof *parsed);
    char normal[POLICY_DOMAIN_MAX + 1];
    const char *wrong;

    for (size_t i = 0; i < ncidrs; i++)
        if ((wrong = cidr_parse_masked(cidrs[i], &parsed[i])) != NULL)
            return err_param(e, ERR_INVALID, "network_access", "Invalid CIDR: '%.80s': %s", cidrs[i], wrong);
    if (ndomains > 0) {
        struct policy_rule *r = policy_add(p, POLICY_ALLOW, POLICY_TLS);
        memcpy(r->name, "outbound_domain_allowlist", sizeof "outbound_domain_allowlist");
        policy_rule_ports(r, PORT_TLS, PORT_TLS);
        for (size_t i = 0; i < ndomains; i++) {
            if ((wrong = policy_domain(domains[i], true, normal)) != NULL)
                return err_param(e, ERR_INVALID, "network_access", "Invalid domain: '%.80s': %s", domains[i], wrong);
            policy_rule_domain(r, normal);
        }
    }
    if (ncidrs > 0)
        allow_prefixes(p, parsed, ncidrs);
    return 0;
}

static const char *check_label(const char *label, size_t n)
{
    if (n == 0)
        return "a part between its dots is empty";
    if (n > LABEL_MAX)
        return "a part between its dots is longer than 63 characters";
    if (label[0] == '-' || label[n - 1] == '-')
        return "a part of it begins or ends with a hyphen";
    if (strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") < n)
        return "it has a character that no host name has (other scripts are written in punycode, xn--...)";
    return NULL;
}

const char *policy_domain(const char *text, bool wildcard, char out[POLICY_DOMAIN_MAX + 1])
{
    size_t n = strlen(text);

    if (n > 0 && text[n - 1] == '.')
        n--;
    if (n == 0)
        return "it is empty";
    if (n > POLICY_DOMAIN_MAX)
        return "it is longer than 253 characters";
    for (size_t i = 0; i < n; i++)
        out[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 32) : text[i];
    out[n] = '\0';
    if (wildcard && strcmp(out, "*") == 0)
        return NULL;
    const char *at = out;
    if (wildcard && strncmp(out, "*.", 2) == 0)
        at += 2;
    const char *label;
    do {
        label = at;
        size_t len = strcspn(at, ".");
        const char *wrong = check_label(at, len);
        if (wrong != NULL)
            return strchr(out, '*') != NULL ? "a '*' may only be all of it or its first part, as in *.example.com" : wrong;
        at += len;
    } while (*at++ == '.');
    /* No top-level domain is a number, so this would be an address. */
    if (strspn(label, "0123456789") == strlen(label))
        return "it is an address, not a name";
    return NULL;
}

const char *policy_action_name(enum policy_action a)
{
    static const char *const names[] = {
        [POLICY_ALLOW] = "allow", [POLICY_DENY] = "deny", [POLICY_LOG] = "log", [POLICY_INJECT] = "inject"};

    return names[a];
}

const char *policy_protocol_name(enum policy_protocol p)
{
    static const char *const names[POLICY_PROTOCOLS_] = {"any", "tcp", "tls", "http", "udp"};

    return names[p];
}
