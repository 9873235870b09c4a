/*
 * policy_replace.c - header replacements of Modal's clients as rules of a policy
 */
#include "base/policy_replace.h"

#include <string.h>

#include "base/mem.h"

#define PARAM "outbound_policy"
#define PORT_TLS 443

/* --- fields -------------------------------------------------------------------------------------- */

static bool begins_key(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* `${` means nothing to clients, and neither does a dollar sign before a digit. */
static char *own_template(const char *text)
{
    char *out = mem_alloc(2 * strlen(text) + 1);
    size_t n = 0;

    for (const char *c = text; *c != '\0'; c++) {
        out[n++] = *c;
        if (*c != '$')
            continue;
        if (c[1] == '$' || !begins_key(c[1]))
            out[n++] = '$';
        if (c[1] == '$')
            c++;
    }
    out[n] = '\0';
    return out;
}

struct keys {
    const char *secret_id, *header;
    replace_key_fn has;
    void *ctx;
    struct err *e;
    bool is_wrong;
};

static void check_key(void *ctx, const char *key, size_t n)
{
    struct keys *k = ctx;
    enum replace_key known = k->secret_id[0] != '\0' ? k->has(k->ctx, k->secret_id, key, n) : REPLACE_KEY_KNOWN;

    if (k->is_wrong)
        return;
    k->is_wrong = k->secret_id[0] == '\0' || known != REPLACE_KEY_KNOWN;
    if (k->secret_id[0] == '\0')
        err_param(k->e, ERR_INVALID, PARAM,
                  "Header value for '%.80s' references a secret key, but no secret was passed",
                  k->header);
    else if (known == REPLACE_NO_SECRET)
        err_param(k->e, ERR_NOT_FOUND, PARAM, "Header value for '%.80s': there is no secret %.40s", k->header, k->secret_id);
    else if (known == REPLACE_KEY_MISSING)
        err_param(k->e, ERR_INVALID, PARAM,
                  "Header value for '%.80s': the secret %.40s has no key '%.*s'", k->header,
                  k->secret_id, (int)(n < 60 ? n : 60), key);
}

static void remove_inject(struct policy_rule *r, const char *header)
{
    for (uint32_t i = 0; i < r->ninjects; i++) {
        struct policy_inject *j = &r->injects[i];
        if (strcasecmp(j->name, header) != 0)
            continue;
        free(j->name);
        free(j->value);
        free(j->with);
        memmove(j, j + 1, (r->ninjects - i - 1) * sizeof *j);
        r->ninjects--;
        return;
    }
}

static void set_secret(struct policy_inject *j, const char *id)
{
    size_t n = strnlen(id, ID_SIZE - 1);

    memcpy(j->secret, id, n);
    memcpy(j->secret_id, id, n);
    j->secret[n] = j->secret_id[n] = '\0';
}

int replace_inject(struct policy_rule *r, const char *secret_id, const char *header, const char *value, replace_key_fn has,
                   void *ctx, struct err *e)
{
    auto_free char *template = own_template(value);

    if (strlen(secret_id) >= ID_SIZE)
        return err_param(e, ERR_INVALID, PARAM, "'%.40s' is no id of a secret", secret_id);
    remove_inject(r, header);
    if (r->ninjects >= LIMIT_RULE_INJECTS)
        return err_param(e, ERR_TOO_LARGE, PARAM, "more than %d headers are replaced for one domain", LIMIT_RULE_INJECTS);
    struct policy_inject *j = policy_rule_inject(r, POLICY_HEADER, header, template, "");
    set_secret(j, secret_id);
    const char *wrong = policy_rule_wrong(r);
    if (wrong != NULL)
        return err_param(e, ERR_INVALID, PARAM, "Invalid header '%.80s': %s", header, wrong);
    struct keys k = {.secret_id = secret_id, .header = header, .has = has, .ctx = ctx, .e = e};
    policy_inject_keys(j, check_key, &k);
    return k.is_wrong ? -1 : 0;
}

/* --- what the client asks for -------------------------------------------------------------------- */

int replace_add(struct replace_list *l, const char *domain, const char *secret_id, const char *header, const char *value,
                struct err *e)
{
    char normal[POLICY_DOMAIN_MAX + 1];
    const char *wrong = policy_domain(domain, true, normal);

    if (wrong != NULL)
        return err_param(e, ERR_INVALID, PARAM, "Invalid domain: '%.80s': %s", domain, wrong);
    if (l->n == REPLACE_HEADERS_MAX)
        return err_param(e, ERR_TOO_LARGE, PARAM, "Outbound policy cannot have more than %d header replacements",
                         REPLACE_HEADERS_MAX);
    l->items[l->n++] = (struct replace_item){domain, secret_id, header, value};
    return 0;
}

/* Everything that `narrow` names is named by `wide`; clients mean the name itself by *.name too. */
static bool covers(const char *wide, const char *narrow)
{
    if (strcmp(wide, "*") == 0 || strcmp(wide, narrow) == 0)
        return true;
    if (wide[0] != '*' || strcmp(narrow, "*") == 0)
        return false;
    const char *name = narrow[0] == '*' ? narrow + 2 : narrow;
    size_t n = strlen(name), m = strlen(wide + 2);
    return n >= m && strcmp(name + n - m, wide + 2) == 0 && (n == m || name[n - m - 1] == '.');
}

/* More exact is greater. */
static size_t exactness(const char *domain)
{
    return strcmp(domain, "*") == 0 ? 0 : domain[0] == '*' ? strlen(domain) : POLICY_DOMAIN_MAX + 1;
}

struct pattern {
    char domain[POLICY_DOMAIN_MAX + 1];
};

/* The different domains of the list, the most exact ones first. */
static size_t patterns(const struct replace_list *l, struct pattern *out)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        struct pattern p;
        (void)policy_domain(l->items[i].domain, true, p.domain);
        size_t at = 0;
        while (at < n && strcmp(out[at].domain, p.domain) != 0)
            at++;
        if (at < n)
            continue;
        for (at = n++; at > 0 && exactness(out[at - 1].domain) < exactness(p.domain); at--)
            out[at] = out[at - 1];
        out[at] = p;
    }
    return n;
}

static struct policy_rule *add_rule(struct policy *p)
{
    struct policy_rule *r = policy_add(p, POLICY_INJECT, POLICY_TLS);

    memcpy(r->name, REPLACE_RULE, sizeof REPLACE_RULE);
    policy_rule_ports(r, PORT_TLS, PORT_TLS);
    return r;
}

/* Fields of wider domains first, so that those of the domain itself take their place. */
static int add_fields(struct policy_rule *r, const struct replace_list *l, const struct pattern *all, size_t from, size_t n,
                      replace_key_fn has, void *ctx, struct err *e)
{
    for (size_t k = n; k-- > from;) {
        if (!covers(all[k].domain, all[from].domain))
            continue;
        for (size_t i = 0; i < l->n; i++) {
            char domain[POLICY_DOMAIN_MAX + 1];
            (void)policy_domain(l->items[i].domain, true, domain);
            if (strcmp(domain, all[k].domain) == 0 &&
                replace_inject(r, l->items[i].secret_id, l->items[i].header, l->items[i].value, has, ctx, e) < 0)
                return -1;
        }
    }
    return 0;
}

int replace_rules(const struct replace_list *l, replace_key_fn has, void *ctx, struct policy *ret, struct err *e)
{
    auto_free struct pattern *all = mem_array(REPLACE_HEADERS_MAX, sizeof *all);
    size_t n = patterns(l, all);

    for (size_t i = 0; i < n; i++) {
        struct policy_rule *r = add_rule(ret);
        policy_rule_domain(r, all[i].domain);
        if (strncmp(all[i].domain, "*.", 2) == 0)
            policy_rule_domain(r, all[i].domain + 2);
        if (add_fields(r, l, all, i, n, has, ctx, e) < 0)
            return -1;
    }
    return 0;
}

/* --- together with what is allowed --------------------------------------------------------------- */

static void copy_injects(struct policy_rule *to, const struct policy_rule *r)
{
    for (uint32_t i = 0; i < r->ninjects; i++) {
        const struct policy_inject *from = &r->injects[i];
        struct policy_inject *j = policy_rule_inject(to, (enum policy_inject_kind)from->kind,
                                                     from->name, from->value, from->with);
        j->replace = from->replace;
        memcpy(j->secret, from->secret, sizeof j->secret);
        memcpy(j->secret_id, from->secret_id, sizeof j->secret_id);
    }
}

static void copy_rule(struct policy *p, const struct policy_rule *r)
{
    struct policy_rule *to = policy_add(p, (enum policy_action)r->action, (enum policy_protocol)r->protocol);

    memcpy(to->name, r->name, sizeof to->name);
    to->redact = r->redact;
    for (uint32_t i = 0; i < r->ndomains; i++)
        policy_rule_domain(to, r->domains[i]);
    for (uint32_t i = 0; i < r->ncidrs; i++)
        policy_rule_cidr(to, &r->cidrs[i]);
    for (uint32_t i = 0; i < r->nports; i++)
        policy_rule_ports(to, r->ports[i].first, r->ports[i].last);
    for (uint32_t i = 0; i < r->nmethods; i++)
        policy_rule_method(to, r->methods[i]);
    for (uint32_t i = 0; i < r->npaths; i++)
        policy_rule_path(to, r->paths[i]);
    copy_injects(to, r);
}

static bool is_replacement(const struct policy_rule *r)
{
    return strcmp(r->name, REPLACE_RULE) == 0 && r->action == POLICY_INJECT;
}

static bool is_end(const struct policy_rule *r)
{
    return strcmp(r->name, REPLACE_END) == 0 && r->action == POLICY_DENY;
}

/* A rule about connections, to which those by TLS to port 443 may belong. */
static bool is_of_tls(const struct policy_rule *r)
{
    bool port = r->nports == 0;

    for (uint32_t i = 0; i < r->nports; i++)
        port = port || (r->ports[i].first <= PORT_TLS && PORT_TLS <= r->ports[i].last);
    return port && r->action != POLICY_LOG && !policy_is_of_requests(r) &&
           (r->protocol == POLICY_ANY || r->protocol == POLICY_TLS || (r->protocol == POLICY_TCP && r->ndomains == 0));
}

/* As rules have it: *.name is not the name itself. */
static bool is_within(const char *narrow, const char *wide)
{
    size_t n = strlen(narrow), m;

    if (strcmp(wide, "*") == 0 || strcmp(wide, narrow) == 0)
        return true;
    if (wide[0] != '*' || strcmp(narrow, "*") == 0)
        return false;
    m = strlen(wide + 1);
    return n > m && strcmp(narrow + n - m, wide + 1) == 0;
}

static bool has_domain(const struct policy_rule *r, const char *domain)
{
    for (uint32_t i = 0; i < r->ndomains; i++)
        if (strcmp(r->domains[i], domain) == 0)
            return true;
    return false;
}

static void meet_domains(struct policy_rule *to, const struct policy_rule *r, const struct policy_rule *allows)
{
    for (uint32_t i = 0; i < r->ndomains; i++)
        for (uint32_t k = 0; k < allows->ndomains; k++) {
            const char *a = r->domains[i], *b = allows->domains[k];
            const char *both = is_within(a, b) ? a : is_within(b, a) ? b : NULL;
            if (both != NULL && !has_domain(to, both))
                policy_rule_domain(to, both);
        }
}

/* The part of replacement `r` that the rule allows, if there is one. */
static void add_part(struct policy *p, const struct policy_rule *r, const struct policy_rule *allows)
{
    struct policy_rule part = {0}, *to;
    bool by_address = allows->ndomains == 0 && allows->ncidrs > 0 && (p->flags & POLICY_DNS_OPEN) == 0;

    if (allows->ndomains > 0)
        meet_domains(&part, r, allows);
    for (uint32_t i = 0; allows->ndomains == 0 && i < r->ndomains; i++)
        /* Where addresses alone are allowed, every name would be looked up for it, and what is looked up is told outside. */
        if (!by_address || strcmp(r->domains[i], "*") != 0)
            policy_rule_domain(&part, r->domains[i]);
    if (part.ndomains == 0)
        return;
    to = add_rule(p);
    to->domains = part.domains;
    to->ndomains = part.ndomains;
    for (uint32_t i = 0; i < allows->ncidrs; i++)
        policy_rule_cidr(to, &allows->cidrs[i]);
    copy_injects(to, r);
}

void replace_put(const struct policy *rules, const struct policy *access, struct policy *ret)
{
    bool is_decided = false, is_whole = false, in_parts = false;

    ret->flags = access->flags;
    ret->bandwidth = access->bandwidth;
    for (uint32_t i = 0; i < access->nrules; i++) {
        const struct policy_rule *a = &access->rules[i];
        bool counts = !is_decided && is_of_tls(a), all = a->ndomains == 0 && a->ncidrs == 0;
        for (uint32_t k = 0; counts && policy_allows(a) && k < rules->nrules; k++)
            add_part(ret, &rules->rules[k], a);
        in_parts = in_parts || (counts && policy_allows(a) && !all);
        is_whole = is_whole || (counts && policy_allows(a) && all);
        is_decided = is_decided || (counts && all);
        copy_rule(ret, a);
    }
    if (rules->nrules == 0 || (is_whole && !in_parts))
        return;
    struct policy_rule *end = policy_add(ret, POLICY_DENY, POLICY_ANY);
    memcpy(end->name, REPLACE_END, sizeof REPLACE_END);
    for (uint32_t k = 0; k < rules->nrules; k++)
        copy_rule(ret, &rules->rules[k]);
}

void replace_split(const struct policy *p, struct policy *ret_rules, struct policy *ret_access)
{
    uint32_t end = p->nrules;

    for (uint32_t i = 0; i < p->nrules; i++)
        if (is_end(&p->rules[i]))
            end = i;
    ret_access->flags = p->flags;
    ret_access->bandwidth = p->bandwidth;
    for (uint32_t i = 0; i < p->nrules; i++) {
        bool is_kept = end < p->nrules ? i > end : is_replacement(&p->rules[i]);
        if (is_kept)
            copy_rule(ret_rules, &p->rules[i]);
        else if (i < end && !is_replacement(&p->rules[i]))
            copy_rule(ret_access, &p->rules[i]);
    }
}
