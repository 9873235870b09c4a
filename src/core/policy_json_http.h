/*
 * policy_json_http.h - for policy_json.c: what a rule says about requests
 */
#ifndef QS_CORE_POLICY_JSON_HTTP_H
#define QS_CORE_POLICY_JSON_HTTP_H

#include "base/err.h"
#include "base/policy.h"
#include "json/json.h"

/* Fields that an object does not know are an error that names one it may have meant (policy_json.c). */
int policy_json_keys(const json_t *o, const char *const *known, size_t n, const char *what, struct err *e);
/* methods, paths, inject and redact of rule number i (from 0). */
int policy_json_requests(const json_t *j, size_t i, struct policy_rule *r, struct err *e);
void policy_json_put_requests(const struct policy_rule *r, json_t *o);

#endif
