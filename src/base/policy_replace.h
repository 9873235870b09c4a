/*
 * policy_replace.h - header replacements of Modal's clients as rules of a policy
 *
 * A replacement sets fields of HTTPS requests to a domain and decides nothing about what may leave, while a rule that
 * injects allows too. So each is put before every rule that allows, for what that rule allows alone; what the client asked
 * for is kept behind a rule that denies everything, where nothing reaches it, and is found there again when either half
 * changes.
 *
 * api/modal and node/modal read the messages, each those of its own calls.
 */
#ifndef QS_BASE_POLICY_REPLACE_H
#define QS_BASE_POLICY_REPLACE_H

#include "base/err.h"
#include "base/policy.h"

#define REPLACE_HEADERS_MAX 25              /* of all replacements of a policy, as clients check it too */
#define REPLACE_RULE "header_replacement"   /* the name of such rules */
#define REPLACE_END "outbound_allowlist"    /* the name of the rule before those that are kept */
#define ROUTE_RULE "outbound_policy.routes."        /* how names of rules begin that are routes, which go with neither */

enum replace_key { REPLACE_KEY_KNOWN, REPLACE_KEY_MISSING, REPLACE_NO_SECRET };
/* Whether a secret has the key, of n characters. */
typedef enum replace_key (*replace_key_fn)(void *ctx, const char *secret_id, const char *key, size_t n);

/* One field of one replacement; texts are borrowed. */
struct replace_item {
    const char *domain, *secret_id, *header, *value;
};

struct replace_list {
    struct replace_item items[REPLACE_HEADERS_MAX];
    size_t n;
};

/* `secret_id` may be "". */
int replace_add(struct replace_list *l, const char *domain, const char *secret_id, const char *header, const char *value,
                struct err *e);
/* The rules, for names that are more exact first; *ret is a policy that the caller made and calls policy_done for. */
int replace_rules(const struct replace_list *l, replace_key_fn has, void *ctx, struct policy *ret, struct err *e);
/*
 * Adds the field to a rule that injects, in the place of one of the same name. The template is the client's: `$KEY` and `$$`
 * count, any other dollar sign is one.
 */
int replace_inject(struct policy_rule *r, const char *secret_id, const char *header, const char *value, replace_key_fn has,
                   void *ctx, struct err *e);

/* *ret = what `access` allows, with the rules of replace_rules. */
void replace_put(const struct policy *rules, const struct policy *access, struct policy *ret);
/* The two halves again; both are policies that the caller made. */
void replace_split(const struct policy *p, struct policy *ret_rules, struct policy *ret_access);

#endif
