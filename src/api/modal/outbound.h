/*
 * outbound.h - what a definition says about traffic on its way out, as rules
 *
 * For network_def.c. Which secrets there are, the caller tells.
 */
#ifndef QS_API_MODAL_OUTBOUND_H
#define QS_API_MODAL_OUTBOUND_H

#include "api/modal/mcall.h"
#include "base/policy_replace.h"

/* Routes, each as one or two rules in their order; *ret is a policy that the caller made and calls policy_done for. */
int outbound_routes(const M(OutboundPolicy) *m, replace_key_fn has, void *ctx, struct policy *ret, struct err *e);
/* What replace_put takes. */
int outbound_replacements(const M(ExperimentalOutboundPolicy) *m, replace_key_fn has, void *ctx, struct policy *ret,
                          struct err *e);

#endif
