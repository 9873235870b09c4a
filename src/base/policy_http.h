/*
 * policy_http.h - for policy.c alone: what a rule has for requests
 */
#ifndef QS_BASE_POLICY_HTTP_H
#define QS_BASE_POLICY_HTTP_H

#include "base/policy.h"

void policy_http_done(struct policy_rule *r);

#endif
