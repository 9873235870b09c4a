/*
 * policy_ask.c - questions to a policy
 */
#include <string.h>

#include "base/mem.h"
#include "base/policy.h"
#include "base/policy_index.h"

#define SMALL 24            /* up to this many items looking at each rule is as quick */

void policy_compile(struct policy *p)
{
    size_t items = p->nrules;

    for (uint32_t i = 0; i < p->nrules; i++)
        items += p->rules[i].ndomains + p->rules[i].ncidrs;
    policy_index_free(p->index);
    p->index = items > SMALL ? policy_index_new(p) : NULL;
}

/* --- does one rule match? -------------------------------------------------------------------- */

static bool domain_matches(const char *pattern, const char *name)
{
    size_t n = strlen(name), m;

    if (pattern[0] != '*')
        return strcmp(pattern, name) == 0;
    if (pattern[1] == '\0')
        return true;
    m = strlen(pattern + 1);
    return n > m && strcmp(name + n - m, pattern + 1) == 0;
}

static bool any_domain(const struct policy_rule *r, const char *name)
{
    for (uint32_t i = 0; i < r->ndomains; i++)
        if (domain_matches(r->domains[i], name))
            return true;
    return false;
}

static bool any_cidr(const struct policy_rule *r, const struct address *to)
{
    for (uint32_t i = 0; i < r->ncidrs; i++)
        if (cidr_has(&r->cidrs[i], to))
            return true;
    return false;
}

static bool any_port(const struct policy_rule *r, uint16_t port)
{
    for (uint32_t i = 0; i < r->nports; i++)
        if (port >= r->ports[i].first && port <= r->ports[i].last)
            return true;
    /* Mail, and questions to other resolvers than ours, leave only by a rule that says so. */
    return r->nports == 0 && (port != policy_kept_port(r) || !policy_allows(r));
}

static bool protocol_matches(const struct policy_rule *r, enum policy_protocol p)
{
    switch ((enum policy_protocol)r->protocol) {
    case POLICY_ANY:
        return p != POLICY_UDP && (r->ndomains == 0 || p != POLICY_TCP);
    case POLICY_TCP:
        return p != POLICY_UDP;
    case POLICY_TLS:
    case POLICY_HTTP:
    case POLICY_UDP:
        return (enum policy_protocol)r->protocol == p;
    case POLICY_PROTOCOLS_:
        break;
    }
    return false;
}

/* `found`: by the index, which has looked at the names already, or at the prefixes where there are no names. */
static bool matches(const struct policy_rule *r, const struct policy_flow *f, bool found)
{
    if (!protocol_matches(r, f->protocol) || !any_port(r, f->port))
        return false;
    if (r->ndomains > 0 && (f->name == NULL || (!found && !any_domain(r, f->name))))
        return false;
    return r->ncidrs == 0 || (f->to != NULL && ((found && r->ndomains == 0) || any_cidr(r, f->to)));
}

static bool any_path(const struct policy_rule *r, const char *path)
{
    for (uint32_t i = 0; i < r->npaths; i++)
        if (policy_path_matches(r->paths[i], path))
            return true;
    return false;
}

/* Who is not to have a path does not get it by a slash that only some servers see. */
static bool any_reading(const struct policy_rule *r, const char *path)
{
    char other[POLICY_PATH_MAX + 1];

    if (any_path(r, path))
        return true;
    if (policy_allows(r) || strstr(path, "%2F") == NULL)
        return false;
    policy_path_slashes(path, other);
    return any_path(r, other);
}

/* What is not known of a connection yet is no reason against it. */
static bool request_matches(const struct policy_rule *r, const struct policy_flow *f)
{
    bool method = r->nmethods == 0 || f->method == NULL, path = r->npaths == 0 || f->path == NULL;

    for (uint32_t i = 0; !method && i < r->nmethods; i++)
        method = strcmp(r->methods[i], f->method) == 0;
    return method && (path || any_reading(r, f->path));
}

/* --- rules in their order -------------------------------------------------------------------- */

/* Walks the rules that can match, in ascending order. */
struct walk {
    const struct policy *p;
    uint32_t next;              /* without an index */
    size_t nlists;
    const struct rule_list *lists[POLICY_LISTS_MAX];
    uint32_t at[POLICY_LISTS_MAX];
};

static void walk_start(struct walk *w, const struct policy *p, const char *name, const struct address *to, int port)
{
    w->p = p;
    w->next = 0;
    w->nlists = p->index != NULL ? policy_index_find(p->index, name, to, port, w->lists) : 0;
    memset(w->at, 0, w->nlists * sizeof w->at[0]);
}

static int walk_next(struct walk *w)
{
    uint32_t best = UINT32_MAX;

    if (w->p->index == NULL)
        return w->next < w->p->nrules ? (int)w->next++ : -1;
    for (size_t i = 0; i < w->nlists; i++)
        if (w->at[i] < w->lists[i]->n && w->lists[i]->rules[w->at[i]] < best)
            best = w->lists[i]->rules[w->at[i]];
    if (best == UINT32_MAX)
        return -1;
    for (size_t i = 0; i < w->nlists; i++)
        if (w->at[i] < w->lists[i]->n && w->lists[i]->rules[w->at[i]] == best)
            w->at[i]++;
    return (int)best;
}

void policy_ask(const struct policy *p, const struct policy_flow *f, struct policy_verdict *ret)
{
    struct walk w;
    int i;

    bool waits = false;
    int may = -1;

    *ret = (struct policy_verdict){.action = POLICY_DENY, .rule = -1, .logged = -1};
    walk_start(&w, p, f->name, f->to, f->port);
    while ((i = walk_next(&w)) >= 0) {
        const struct policy_rule *r = &p->rules[i];
        if (!matches(r, f, p->index != NULL))
            continue;
        if (f->method == NULL && policy_is_of_requests(r)) {
            waits = true;
            may = may < 0 && policy_allows(r) ? i : may;
            if (r->nmethods > 0 || r->npaths > 0)
                continue;
        }
        if (!request_matches(r, f))
            continue;
        if (r->action == POLICY_LOG) {
            ret->logged = ret->logged < 0 ? i : ret->logged;
            continue;
        }
        ret->action = policy_allows(r) ? POLICY_ALLOW : POLICY_DENY;
        ret->rule = i;
        ret->by_name = r->ndomains > 0;
        break;
    }
    if (may >= 0) {
        ret->action = POLICY_ALLOW;
        ret->rule = may;
        ret->by_name = true;
    }
    ret->opens = waits && ret->action == POLICY_ALLOW;
    /* Who reads its requests goes by its name. */
    ret->by_name = ret->by_name || ret->opens;
}

static bool looks_inside(const struct policy_rule *r)
{
    return r->protocol != POLICY_UDP &&
           ((r->ndomains > 0 && r->protocol != POLICY_TCP) || r->protocol == POLICY_TLS || r->protocol == POLICY_HTTP);
}

/* What is decided for any name at all, and whether a rule before that asks for one. */
enum policy_need policy_needs(const struct policy *p, const struct address *to, uint16_t port)
{
    bool before = p->index != NULL && policy_index_names_port(p->index, port);
    bool allow_before = before, deny_before = before;
    struct walk w;
    int i;

    walk_start(&w, p, NULL, to, port);
    while ((i = walk_next(&w)) >= 0) {
        const struct policy_rule *r = &p->rules[i];
        if (!any_port(r, port) || (r->action == POLICY_LOG && !policy_is_of_requests(r)))
            continue;
        if (looks_inside(r)) {
            allow_before = allow_before || policy_allows(r) || policy_is_of_requests(r);
            deny_before = deny_before || r->action == POLICY_DENY || policy_is_of_requests(r);
            continue;
        }
        if (r->ndomains > 0 || (r->protocol != POLICY_ANY && r->protocol != POLICY_TCP) ||
            (r->ncidrs > 0 && p->index == NULL && !any_cidr(r, to)))
            continue;
        return (policy_allows(r) ? deny_before : allow_before) ? POLICY_NEEDS_NAME : POLICY_NEEDS_NOTHING;
    }
    return allow_before ? POLICY_NEEDS_NAME : POLICY_NEEDS_NOTHING;
}

bool policy_permits_address(const struct policy *p, int rule, const struct address *to, bool local)
{
    const struct policy_rule *r = &p->rules[rule];

    if (!local && address_class(to) == ADDRESS_PUBLIC)
        return true;
    for (uint32_t i = 0; i < r->ncidrs; i++)
        if (cidr_names(&r->cidrs[i], to))
            return true;
    return false;
}

bool policy_resolves(const struct policy *p, const char *name)
{
    struct walk w;
    int i;

    if ((p->flags & POLICY_DNS_OPEN) != 0)
        return true;
    walk_start(&w, p, name, NULL, POLICY_NO_PORT);
    while ((i = walk_next(&w)) >= 0) {
        const struct policy_rule *r = &p->rules[i];
        if (r->action == POLICY_LOG || (r->ndomains > 0 && p->index == NULL && !any_domain(r, name)))
            continue;
        if (policy_allows(r) && r->ndomains == 0 && r->ncidrs > 0)
            continue;       /* an address needs no name; who wants both says so */
        /* What is denied on some ports or to some addresses only may be asked for. */
        if (r->action == POLICY_DENY && (r->nports > 0 || r->ncidrs > 0 || r->protocol != POLICY_ANY || policy_is_of_requests(r)))
            continue;
        return policy_allows(r);
    }
    return false;
}

bool policy_may_lead(const struct policy *p, const char *name, uint16_t port, enum policy_protocol protocol)
{
    struct walk w;
    int i;

    walk_start(&w, p, name, NULL, port);
    while ((i = walk_next(&w)) >= 0) {
        const struct policy_rule *r = &p->rules[i];
        if (r->ndomains > 0 && r->ncidrs > 0 && policy_allows(r) && any_port(r, port) && protocol_matches(r, protocol) &&
            (p->index != NULL || any_domain(r, name)))
            return true;
    }
    return false;
}
