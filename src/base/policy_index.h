/*
 * policy_index.h - which rules can match a name or an address, without looking at each
 *
 * For policy_ask.c alone. Lists hold rule numbers in ascending order.
 */
#ifndef QS_BASE_POLICY_INDEX_H
#define QS_BASE_POLICY_INDEX_H

#include "base/policy.h"

struct rule_list {
    uint32_t n;
    uint32_t *rules;        /* owned */
};

#define POLICY_LISTS_MAX 300        /* labels of a name, lengths of prefixes, and the rest */

/* Mail's port, and of datagrams the resolvers': what a rule that allows and names no ports does not mean. */
static inline uint16_t policy_kept_port(const struct policy_rule *r)
{
    return r->protocol == POLICY_UDP ? 53 : 25;
}

struct policy_index *policy_index_new(const struct policy *p);
void policy_index_free(struct policy_index *x);
#define POLICY_NO_PORT (-1)         /* names are asked about: of rules with neither names nor prefixes the one that answers */

/*
 * The lists that can hold a match; returns how many. Either may be NULL. A rule with names is in a list only if one of them
 * matches, one with prefixes alone only if one of these does.
 */
size_t policy_index_find(const struct policy_index *x, const char *name, const struct address *to, int port,
                         const struct rule_list *ret[POLICY_LISTS_MAX]);
/* Whether some rule looks at names or protocols on this port. */
bool policy_index_names_port(const struct policy_index *x, uint16_t port);

/* policy_ports.c */
struct port_index;
struct port_index *port_index_new(const struct policy *p);
void port_index_free(struct port_index *x);     /* accepts NULL */
const struct rule_list *port_index_find(const struct port_index *x, uint16_t port);

#endif
