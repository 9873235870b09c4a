/*
 * policy_wire.h - a network policy as bytes: from control to the node, on the node's disk, and on to egress
 */
#ifndef QS_IPC_POLICY_WIRE_H
#define QS_IPC_POLICY_WIRE_H

#include "base/policy.h"

/* The length; 0 if it does not fit. LIMIT_POLICY_BYTES is room enough for every policy that core accepts. */
size_t policy_encode(const struct policy *p, void *out, size_t size);
/* 0, or -EBADMSG: wrong form, or names, numbers or values that no policy has. *ret is compiled; policy_done it. */
int policy_decode(struct policy *ret, const void *p, size_t n);

#endif
