/*
 * policy_index.c - which rules can match a name or an address, without looking at each
 */
#include "base/policy_index.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"

#define KEY_MAX 48
#define BITS 129            /* possible lengths of a prefix */

struct policy_index {
    struct map names;       /* "example.com", "*.example.com", "*" -> rule_list, owned */
    struct map nets;        /* length and net -> rule_list, owned */
    uint8_t lengths[BITS];  /* that occur */
    size_t nlengths;
    struct port_index *rest;        /* rules with neither; owned */
    struct rule_list any_name;      /* the one of them that answers for every name, if there is one */
    uint8_t ports[65536 / 8];
};

static void list_add(struct rule_list *l, uint32_t rule)
{
    if (l->n > 0 && l->rules[l->n - 1] == rule)
        return;
    if (l->n == 0 || (l->n & (l->n - 1)) == 0)
        l->rules = mem_realloc(l->rules, (l->n == 0 ? 1 : (size_t)l->n * 2) * sizeof *l->rules);
    l->rules[l->n++] = rule;
}

static void add(struct map *m, const char *key, uint32_t rule)
{
    struct rule_list *l = map_get(m, key);

    if (l == NULL) {
        l = mem_zalloc(sizeof *l);
        (void)map_put(m, key, l);
    }
    list_add(l, rule);
}

static void net_key(const struct address *net, unsigned bits, char out[KEY_MAX])
{
    static const char digits[] = "0123456789abcdef";
    char *at = out;

    *at++ = (char)('A' + bits / 16);
    *at++ = (char)('A' + bits % 16);
    for (size_t i = 0; i < (bits + 7) / 8; i++) {
        *at++ = digits[net->b[i] >> 4];
        *at++ = digits[net->b[i] & 15];
    }
    *at = '\0';
}

static void add_net(struct policy_index *x, const struct cidr *c, uint32_t rule)
{
    char key[KEY_MAX];

    if (memchr(x->lengths, c->bits, x->nlengths) == NULL)
        x->lengths[x->nlengths++] = c->bits;
    net_key(&c->net, c->bits, key);
    add(&x->nets, key, rule);
}

static void add_ports(struct policy_index *x, const struct policy_rule *r)
{
    if (r->nports == 0)
        memset(x->ports, 0xff, sizeof x->ports);
    for (uint32_t i = 0; i < r->nports; i++)
        for (uint32_t port = r->ports[i].first; port <= r->ports[i].last; port++)
            x->ports[port / 8] |= (uint8_t)(1u << (port % 8));
}

struct policy_index *policy_index_new(const struct policy *p)
{
    struct policy_index *x = mem_zalloc(sizeof *x);

    map_init(&x->names);
    map_init(&x->nets);
    x->rest = port_index_new(p);
    for (uint32_t i = 0; i < p->nrules; i++) {
        const struct policy_rule *r = &p->rules[i];
        /* Of a rule with both, the name is the rarer. */
        for (uint32_t j = 0; j < r->ndomains; j++)
            add(&x->names, r->domains[j], i);
        for (uint32_t j = 0; r->ndomains == 0 && j < r->ncidrs; j++)
            add_net(x, &r->cidrs[j], i);
        /* What is denied on some ports or for one protocol only may be asked for. */
        bool answers = policy_allows(r) || (r->action == POLICY_DENY && r->nports == 0 && r->protocol == POLICY_ANY);
        if (r->ndomains == 0 && r->ncidrs == 0 && answers && x->any_name.n == 0)
            list_add(&x->any_name, i);
        if ((r->ndomains > 0 && r->protocol == POLICY_ANY) || r->protocol == POLICY_TLS || r->protocol == POLICY_HTTP)
            add_ports(x, r);
    }
    return x;
}

static void free_lists(struct map *m)
{
    struct map_iter it = MAP_ITER;
    const char *key;
    void *value;

    while (map_next(m, &it, &key, &value)) {
        free(((struct rule_list *)value)->rules);
        free(value);
    }
    map_done(m);
}

void policy_index_free(struct policy_index *x)
{
    if (x == NULL)
        return;
    free_lists(&x->names);
    free_lists(&x->nets);
    port_index_free(x->rest);
    free(x->any_name.rules);
    free(x);
}

static size_t find_names(const struct policy_index *x, const char *name, const struct rule_list **ret)
{
    char wild[POLICY_DOMAIN_MAX + 3] = "*";
    const char *end = name + strlen(name);
    size_t n = 0;

    if ((ret[n] = map_get(&x->names, name)) != NULL)
        n++;
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        memcpy(wild + 1, dot, (size_t)(end - dot) + 1);
        if ((ret[n] = map_get(&x->names, wild)) != NULL)
            n++;
    }
    if ((ret[n] = map_get(&x->names, "*")) != NULL)
        n++;
    return n;
}

size_t policy_index_find(const struct policy_index *x, const char *name, const struct address *to, int port,
                         const struct rule_list *ret[POLICY_LISTS_MAX])
{
    size_t n = name != NULL ? find_names(x, name, ret) : 0;
    char key[KEY_MAX];

    for (size_t i = 0; to != NULL && i < x->nlengths; i++) {
        struct address net = address_mask(to, x->lengths[i]);
        net_key(&net, x->lengths[i], key);
        if ((ret[n] = map_get(&x->nets, key)) != NULL)
            n++;
    }
    ret[n] = port == POLICY_NO_PORT ? &x->any_name : port_index_find(x->rest, (uint16_t)port);
    return n + (ret[n]->n > 0);
}

bool policy_index_names_port(const struct policy_index *x, uint16_t port)
{
    return (x->ports[port / 8] & 1u << (port % 8)) != 0;
}
