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

struct policy_index *policy_index_new(const struct policy *p);
void policy_index_free(struct policy_index *x);
/* The lists that can hold a match; returns how many. Either may be NULL. */
size_t policy_index_find(const struct policy_index *x, const char *name, const struct address *to,
                         const struct rule_list *ret[POLICY_LISTS_MAX]);
/* Whether some rule looks at names or protocols on this port. */
bool policy_index_names_port(const struct policy_index *x, uint16_t port);

#endif
