/*
 * policy_json.h - network policies as JSON (docs/guides/network.md)
 */
#ifndef QS_CORE_POLICY_JSON_H
#define QS_CORE_POLICY_JSON_H

#include "base/err.h"
#include "base/policy.h"
#include "json/json.h"

/*
 * "open", {"rules": [...], "dns": "rules"|"open", "refuse_ech": bool, "bandwidth": {...}}, or the short form
 * {"allow_domains": [...], "allow_cidrs": [...]}. Errors name the place. *ret is compiled; the caller calls policy_done.
 */
int policy_from_json(const json_t *j, struct policy *ret, struct err *e);
/* The full form; the caller owns it. */
json_t *policy_to_json(const struct policy *p);
/* What create is told: null, absent and "block" are a blocked network, which is no policy. */
bool network_is_blocked(const json_t *j);

/*
 * What the policy says about "https://host/", "http://host:8080/", "tcp://host:22" or "host:port" (policy_explain.c): which rule
 * decides, and how. With `address` (NULL = none) as where the name leads, and a request of `method` (NULL = GET). The caller
 * owns the result.
 */
json_t *policy_explain(const struct policy *p, const char *url, const char *address, const char *method, struct err *e);

#endif
