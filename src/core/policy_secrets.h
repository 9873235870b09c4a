/*
 * policy_secrets.h - which secrets the rules of a policy name
 */
#ifndef QS_CORE_POLICY_SECRETS_H
#define QS_CORE_POLICY_SECRETS_H

#include "base/policy.h"
#include "core/core.h"

/* Sets secret_id wherever a secret is named. ERR_INVALID names the rule whose secret is not there, or lacks a key. */
int policy_find_secrets(struct core *c, struct policy *p, struct err *e);

#endif
