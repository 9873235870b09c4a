/*
 * inject.h - what a rule puts into a request, with the values of secrets
 */
#ifndef QS_EGRESS_OPEN_INJECT_H
#define QS_EGRESS_OPEN_INJECT_H

#include "base/ids.h"
#include "base/policy.h"
#include "egress/open/redact.h"
#include "egress/open/request.h"

struct secret_value {
    char id[ID_SIZE];
    char *key, *value;          /* owned */
    bool is_binary;             /* has a NUL: no request can carry it, and value is not all of it */
};

/* Values that the policy of one sandbox names. */
struct secrets {
    size_t n;
    struct secret_value *values;    /* owned */
};

void secrets_add(struct secrets *s, const char *id, const char *key, const char *value, size_t n);
void secrets_done(struct secrets *s);   /* wipes them */

struct injection {
    const struct secrets *secrets;
    const char *host;
    const char *body;           /* hash of the body, or NULL */
    int64_t now_s;
    bool is_http2;              /* names of fields are lower case */
};

/*
 * Changes *r as the rule says. NULL, or why it cannot be done: then the request must not go on. A bit of *ret_used for each of
 * the rule's injects that had an effect; what of it has to be blackened is added to *words.
 */
const char *inject_apply(struct request *r, const struct policy_rule *rule, const struct injection *in, uint32_t *ret_used,
                         struct redact *words);
/* Whether inject_apply wants the hash of the body. */
bool inject_needs_body(const struct request *r, const struct policy_rule *rule);

#endif
