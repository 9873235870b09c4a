/*
 * outbound.c - Modal's outbound policies as rules
 *
 * The first route that matches decides, as the first of our rules does. A route without a redirect lets its traffic go where
 * it wants to, one that blocks denies it; the last one, of kind `any`, is for what no other matches.
 */
#include "api/modal/outbound.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define PARAM "outbound_policy"
#define PORT_TLS 443

/* What the kinds of routes have in common. */
struct route {
    const char *kind;
    size_t number;                          /* in the list, from 0 */
    M(OutboundPolicy__Transport) transport; /* a kind's own meaning of "unspecified" has been put in */
    M(OutboundPolicy__PortRange) *const *ports;
    size_t nports;
    const M(OutboundPolicy__Redirect) *redirect;
    bool blocks;
};

#define TRANSPORT(name) MODAL__CLIENT__OUTBOUND_POLICY__TRANSPORT__TRANSPORT_##name

static int wrong(const struct route *r, const char *field, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static int wrong(const struct route *r, const char *field, struct err *e, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_param(e, ERR_INVALID, PARAM, "outbound_policy.routes[%zu].%s%s%s: %s", r->number,
                     r->kind, field[0] != '\0' ? "." : "", field, text);
}

static int read_redirect(struct route *r, struct err *e)
{
    M(OutboundPolicy__Redirect__RedirectCase) to;

    if (r->redirect == NULL)
        return 0;
    to = r->redirect->redirect_case;
    if (to == MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__REDIRECT_VIA_PROXY)
        return wrong(r, "redirect.via_proxy", e, "this server has no proxies");
    if (to == MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__REDIRECT_VIA_SIDECAR)
        return wrong(r, "redirect.via_sidecar", e, "sidecar containers are not supported by this server");
    if (to != MODAL__CLIENT__OUTBOUND_POLICY__REDIRECT__REDIRECT_BLOCK)
        return wrong(r, "redirect", e, "this server knows block alone");
    r->blocks = true;
    return 0;
}

static int check_transport(const struct route *r, struct err *e)
{
    if (r->transport != TRANSPORT(ANY) && r->transport != TRANSPORT(TCP) && r->transport != TRANSPORT(UDP))
        return wrong(r, "transport", e, "transport %d is not known", (int)r->transport);
    return 0;
}

static int add_ports(const struct route *r, struct policy_rule *rule, uint16_t otherwise, struct err *e)
{
    for (size_t i = 0; i < r->nports; i++) {
        const M(OutboundPolicy__PortRange) *p = r->ports[i];
        if (p->start < 1 || p->end > 65535 || p->start > p->end)
            return wrong(r, "ports", e, "%u to %u is no range of ports: they are numbers from 1 to 65535", p->start, p->end);
        policy_rule_ports(rule, (uint16_t)p->start, (uint16_t)p->end);
    }
    if (r->nports == 0 && otherwise != 0)
        policy_rule_ports(rule, otherwise, otherwise);
    return 0;
}

static struct policy_rule *add_rule(const struct route *r, struct policy *p, enum policy_protocol protocol)
{
    struct policy_rule *rule = policy_add(p, r->blocks ? POLICY_DENY : POLICY_ALLOW, protocol);

    (void)snprintf(rule->name, sizeof rule->name, ROUTE_RULE "%zu", r->number);
    return rule;
}

/* *.example.com is example.com too, as in header replacements. */
static int add_domains(const struct route *r, char *const *domains, size_t n, struct policy_rule *rule, struct err *e)
{
    char normal[POLICY_DOMAIN_MAX + 1];

    if (n == 0)
        return wrong(r, "domains", e, "it names no domain; \"*\" is every one");
    for (size_t i = 0; i < n; i++) {
        const char *why = policy_domain(m_text(domains[i]), true, normal);
        if (why != NULL)
            return wrong(r, "domains", e, "Invalid domain: '%.80s': %s", m_text(domains[i]), why);
        policy_rule_domain(rule, normal);
        if (strncmp(normal, "*.", 2) == 0)
            policy_rule_domain(rule, normal + 2);
    }
    return 0;
}

/* --- kinds ------------------------------------------------------------------------------------------------------------- */

/* Every connection, or every datagram, to the prefixes. */
static int add_prefixes(const struct route *r, const M(OutboundPolicy__IPRoute) *m, struct policy *p,
                        enum policy_protocol protocol, struct err *e)
{
    struct policy_rule *rule = add_rule(r, p, protocol);

    for (size_t i = 0; i < m->n_cidrs; i++) {
        struct cidr c;
        const char *why = cidr_parse_masked(m_text(m->cidrs[i]), &c);
        if (why != NULL)
            return wrong(r, "cidrs", e, "Invalid CIDR: '%.60s': %s", m_text(m->cidrs[i]), why);
        policy_rule_cidr(rule, &c);
        /* Who lets everything go needs names. */
        if (!r->blocks && policy_cidr_is_everything(&c))
            p->flags |= POLICY_DNS_OPEN;
    }
    return add_ports(r, rule, 0, e);
}

static int add_ip(struct route *r, const M(OutboundPolicy__IPRoute) *m, struct policy *p, struct err *e)
{
    r->kind = "ip";
    r->transport = m->transport != TRANSPORT(UNSPECIFIED) ? m->transport : TRANSPORT(ANY);
    r->ports = m->ports;
    r->nports = m->n_ports;
    r->redirect = m->redirect;
    if (read_redirect(r, e) < 0 || check_transport(r, e) < 0)
        return -1;
    if (m->n_cidrs == 0)
        return wrong(r, "cidrs", e, "it names no prefix; 0.0.0.0/0 and ::/0 are every address");
    if (r->transport != TRANSPORT(UDP) && add_prefixes(r, m, p, POLICY_ANY, e) < 0)
        return -1;
    return r->transport != TRANSPORT(TCP) ? add_prefixes(r, m, p, POLICY_UDP, e) : 0;
}

static int add_named(const struct route *r, char *const *domains, size_t n, struct policy *p, enum policy_protocol protocol,
                     struct err *e)
{
    struct policy_rule *rule = add_rule(r, p, protocol);

    return add_domains(r, domains, n, rule, e) < 0 ? -1 : add_ports(r, rule, PORT_TLS, e);
}

static int add_tls(struct route *r, const M(OutboundPolicy__TLSRoute) *m, struct policy *p, struct err *e)
{
    r->kind = "tls";
    r->transport = m->transport != TRANSPORT(UNSPECIFIED) ? m->transport : TRANSPORT(TCP);
    r->ports = m->ports;
    r->nports = m->n_ports;
    r->redirect = m->redirect;
    if (read_redirect(r, e) < 0 || check_transport(r, e) < 0)
        return -1;
    if (r->transport != TRANSPORT(UDP) && add_named(r, m->domains, m->n_domains, p, POLICY_TLS, e) < 0)
        return -1;
    return r->transport != TRANSPORT(TCP) ? add_named(r, m->domains, m->n_domains, p, POLICY_UDP, e) : 0;
}

static int add_headers(const struct route *r, const M(OutboundPolicy__HTTPSRoute) *m, struct policy_rule *rule,
                       replace_key_fn has, void *ctx, struct err *e)
{
    struct err why;

    for (size_t i = 0; i < m->n_header_replacements; i++) {
        const M(OutboundPolicy__HeaderReplacement) *h = m->header_replacements[i];
        if (h->n_headers == 0)
            return wrong(r, "header_replacements", e, "headers must contain at least one header");
        for (size_t k = 0; k < h->n_headers; k++)
            if (replace_inject(rule, m_text(h->secret_id), m_text(h->headers[k]->key), m_text(h->headers[k]->value), has, ctx,
                               &why) < 0) {
                (void)wrong(r, "header_replacements", e, "%s", why.message);
                e->code = why.code;
                return -1;
            }
    }
    return 0;
}

/* Without headers to replace it is opened all the same: what is no HTTPS does not pass. */
static int add_https(struct route *r, const M(OutboundPolicy__HTTPSRoute) *m, bool may_open, struct policy *p, replace_key_fn has,
                     void *ctx, struct err *e)
{
    r->kind = "https";
    r->transport = m->transport != TRANSPORT(UNSPECIFIED) ? m->transport : TRANSPORT(TCP);
    r->ports = m->ports;
    r->nports = m->n_ports;
    r->redirect = m->redirect;
    if (read_redirect(r, e) < 0 || check_transport(r, e) < 0)
        return -1;
    if (!may_open)
        return wrong(r, "", e, "connections are decrypted only where tls_decryption is allowed");
    if (r->transport != TRANSPORT(TCP))
        return wrong(r, "transport", e, "only connections by TCP can be decrypted");
    if (r->blocks && m->n_header_replacements > 0)
        return wrong(r, "header_replacements", e, "nothing is replaced in what is blocked");
    struct policy_rule *rule = add_rule(r, p, POLICY_TLS);
    if (add_domains(r, m->domains, m->n_domains, rule, e) < 0 || add_ports(r, rule, PORT_TLS, e) < 0)
        return -1;
    if (m->n_header_replacements == 0) {
        if (!r->blocks)
            policy_rule_path(rule, "*");
        return 0;
    }
    rule->action = POLICY_INJECT;
    return add_headers(r, m, rule, has, ctx, e);
}

/* Everything, as where the network is open: not mail, and no datagrams. */
static int add_any(struct route *r, const M(OutboundPolicy__AnyRoute) *m, struct policy *p, struct err *e)
{
    r->redirect = m->redirect;
    if (read_redirect(r, e) < 0)
        return -1;
    if (!r->blocks)
        policy_open(p);
    return 0;
}

int outbound_routes(const M(OutboundPolicy) *m, replace_key_fn has, void *ctx, struct policy *ret, struct err *e)
{
    bool may_open = m->tls_decryption != NULL && m->tls_decryption->allowed;
    int done = 0;

    for (size_t i = 0; i < m->n_routes && done == 0; i++) {
        const M(OutboundPolicy__Route) *one = m->routes[i];
        bool is_last = i + 1 == m->n_routes;
        struct route r = {.kind = "any", .number = i};
        if (one->route_case == MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_IP)
            done = add_ip(&r, one->ip, ret, e);
        else if (one->route_case == MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_TLS)
            done = add_tls(&r, one->tls, ret, e);
        else if (one->route_case == MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_HTTPS)
            done = add_https(&r, one->https, may_open, ret, has, ctx, e);
        else if (one->route_case == MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_ANY)
            done = is_last ? add_any(&r, one->any, ret, e) : wrong(&r, "", e, "it must be the last one");
        else
            done = err_param(e, ERR_INVALID, PARAM,
                             "outbound_policy.routes[%zu]: it is of no kind that this server knows: ip, tls, https, any", i);
    }
    if (done < 0)
        return -1;
    if (m->n_routes == 0 || m->routes[m->n_routes - 1]->route_case != MODAL__CLIENT__OUTBOUND_POLICY__ROUTE__ROUTE_ANY)
        return err_param(e, ERR_INVALID, PARAM,
                         "outbound_policy.routes: the last one must be of kind any, for what no other route matches");
    return 0;
}

/* --- header replacements -------------------------------------------------------------------------------------------- */

int outbound_replacements(const M(ExperimentalOutboundPolicy) *m, replace_key_fn has, void *ctx, struct policy *ret,
                          struct err *e)
{
    struct replace_list list = {.n = 0};

    for (size_t i = 0; i < m->n_header_replacements; i++) {
        const M(ExperimentalOutboundPolicy__HeaderReplacement) *h = m->header_replacements[i];
        if (h->n_headers == 0)
            return err_param(e, ERR_INVALID, PARAM, "headers must contain at least one header");
        for (size_t k = 0; k < h->n_headers; k++)
            if (replace_add(&list, m_text(h->domain), m_text(h->secret_id), m_text(h->headers[k]->key),
                            m_text(h->headers[k]->value), e) < 0)
                return -1;
    }
    return replace_rules(&list, has, ctx, ret, e);
}
