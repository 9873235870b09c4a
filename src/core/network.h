/*
 * network.h - the network policy of a running sandbox
 *
 * The node has the policy that is in force, because Modal's clients change it there; core asks it.
 */
#ifndef QS_CORE_NETWORK_H
#define QS_CORE_NETWORK_H

#include "core/core.h"
#include "json/json.h"
#include "node.pb-c.h"

/* The node's form of a policy; *ret_bytes is what *ret points into, the caller frees it. */
int network_request(const json_t *policy, Quicksand__Node__Network *ret, uint8_t **ret_bytes, struct err *e);

/* For RUN of builds: "block", "open" or a policy; core's. */
const json_t *core_build_network(const struct core *c);

typedef void (*network_fn)(void *ctx, const Quicksand__Node__NetworkStatus *s, const struct err *e);
/* What is in force, counters and denials. */
void network_get(struct core *c, const char *id, network_fn fn, void *ctx);
/* Replaces it; with `keep`, open connections stay open whatever it says. Of the status only the revision is set. */
void network_set(struct core *c, const char *id, const json_t *policy, bool keep, network_fn fn, void *ctx);
/*
 * Lines of the log of decisions after number `after`; with wait_ms, once there is one. The reply is a NetworkLogResponse.
 * NULL: answered already.
 */
struct node_call *network_log(struct core *c, const char *id, uint64_t after, uint32_t limit, uint64_t wait_ms, node_reply_fn fn,
                              void *ctx);

#endif
