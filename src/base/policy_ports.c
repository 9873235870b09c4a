/*
 * policy_ports.c - of rules with neither names nor prefixes: which ones can decide on a port
 *
 * On one port the first of those rules with a protocol decides for that protocol, and the first of action log notes; what comes
 * after it never counts. So a port has a handful of rules, however many the policy has, and neighbours with the same rules share
 * a list.
 */
#include <string.h>

#include "base/mem.h"
#include "base/policy_index.h"

#define PORTS 65536
#define KINDS (2 * POLICY_PROTOCOLS_)       /* protocols, each with and without action log */
#define NONE UINT32_MAX

struct stretch {
    uint16_t first;             /* port; the next stretch begins after its last one */
    struct rule_list list;
};

struct port_index {
    size_t n;
    struct stretch *stretches;  /* owned */
};

/* One kind while it is filled: the first rule of each port, and where the next port without one is. */
struct kind {
    uint32_t rule[PORTS];
    uint32_t next[PORTS + 1];
};

static struct kind *kind_new(void)
{
    struct kind *k = mem_alloc(sizeof *k);

    memset(k->rule, 0xff, sizeof k->rule);
    for (uint32_t i = 0; i <= PORTS; i++)
        k->next[i] = i;
    return k;
}

static uint32_t next_free(struct kind *k, uint32_t port)
{
    while (k->next[port] != port) {
        k->next[port] = k->next[k->next[port]];     /* a shorter way for whoever comes next */
        port = k->next[port];
    }
    return port;
}

static void fill(struct kind *k, uint32_t rule, uint32_t first, uint32_t last)
{
    for (uint32_t port = next_free(k, first); port <= last; port = next_free(k, port)) {
        k->rule[port] = rule;
        k->next[port] = port + 1;
    }
}

static void add_rule(struct kind **kinds, const struct policy_rule *r, uint32_t i)
{
    struct kind **k = &kinds[2 * r->protocol + (r->action == POLICY_LOG)];

    if (*k == NULL)
        *k = kind_new();
    for (uint32_t j = 0; j < r->nports; j++)
        fill(*k, i, r->ports[j].first, r->ports[j].last);
    /* On the port that it does not mean it would hide a later one. */
    if (r->nports == 0 && policy_allows(r)) {
        fill(*k, i, 0, policy_kept_port(r) - 1);
        fill(*k, i, policy_kept_port(r) + 1, PORTS - 1);
    } else if (r->nports == 0) {
        fill(*k, i, 0, PORTS - 1);
    }
}

static bool is_like_before(struct kind *const *kinds, uint32_t port)
{
    for (size_t k = 0; k < KINDS; k++)
        if (kinds[k] != NULL && kinds[k]->rule[port] != kinds[k]->rule[port - 1])
            return false;
    return true;
}

static void add_stretch(struct port_index *x, struct kind *const *kinds, uint32_t port)
{
    uint32_t rules[KINDS];
    size_t n = 0;

    for (size_t k = 0; k < KINDS; k++) {
        if (kinds[k] == NULL || kinds[k]->rule[port] == NONE)
            continue;
        size_t at = n++;
        for (; at > 0 && rules[at - 1] > kinds[k]->rule[port]; at--)
            rules[at] = rules[at - 1];
        rules[at] = kinds[k]->rule[port];
    }
    if ((x->n & (x->n - 1)) == 0)
        x->stretches = mem_realloc(x->stretches, (x->n == 0 ? 1 : 2 * x->n) * sizeof *x->stretches);
    struct stretch *s = &x->stretches[x->n++];
    *s = (struct stretch){.first = (uint16_t)port, .list = {.n = (uint32_t)n, .rules = mem_array(n + 1, sizeof *rules)}};
    memcpy(s->list.rules, rules, n * sizeof *rules);
}

struct port_index *port_index_new(const struct policy *p)
{
    struct port_index *x = mem_zalloc(sizeof *x);
    struct kind *kinds[KINDS] = {NULL};

    for (uint32_t i = 0; i < p->nrules; i++)
        if (p->rules[i].ndomains == 0 && p->rules[i].ncidrs == 0)
            add_rule(kinds, &p->rules[i], i);
    for (uint32_t port = 0; port < PORTS; port++)
        if (port == 0 || !is_like_before(kinds, port))
            add_stretch(x, kinds, port);
    for (size_t k = 0; k < KINDS; k++)
        free(kinds[k]);
    return x;
}

void port_index_free(struct port_index *x)
{
    if (x == NULL)
        return;
    for (size_t i = 0; i < x->n; i++)
        free(x->stretches[i].list.rules);
    free(x->stretches);
    free(x);
}

const struct rule_list *port_index_find(const struct port_index *x, uint16_t port)
{
    size_t low = 0, high = x->n;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (x->stretches[middle].first <= port)
            low = middle;
        else
            high = middle;
    }
    return &x->stretches[low].list;
}
