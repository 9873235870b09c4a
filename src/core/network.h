/*
 * network.h - the network policy of a running sandbox
 *
 * The node has the policy that is in force, because Modal's clients change it there; core asks it.
 */
#ifndef QS_CORE_NETWORK_H
#define QS_CORE_NETWORK_H

#include "core/core.h"
#include "core/policies.h"
#include "json/json.h"
#include "node.pb-c.h"

/* The node's form of a policy, with its secrets looked up; *ret_bytes is what *ret points into, the caller frees it;
 * `origin` (NULL = none) is borrowed. */
int network_request(struct core *c, const json_t *policy, const struct policy_origin *origin, Quicksand__Node__Network *ret,
                    uint8_t **ret_bytes, struct err *e);

/* For RUN of builds: "block", "open" or a policy; core's. */
const json_t *core_build_network(const struct core *c);

typedef void (*network_fn)(void *ctx, const Quicksand__Node__NetworkStatus *s, const struct err *e);
/* What is in force, counters and denials. */
void network_get(struct core *c, const char *id, network_fn fn, void *ctx);
/*
 * Replaces it by a policy or by that of a name; with `keep`, open connections stay open whatever it says. Of the status only the
 * revision is set.
 */
void network_set(struct core *c, const char *id, const json_t *policy, bool keep, network_fn fn, void *ctx);
/* The same for a sandbox that follows origin->name; ERR_PRECONDITION if it does not any more. */
void network_follow(struct core *c, const char *id, const json_t *policy, const struct policy_origin *origin, bool keep,
                    network_fn fn, void *ctx);
/* It does not follow a name, as was found out. */
void network_forget_origin(struct core *c, const char *id);
/*
 * Lines of the log of decisions after number `after`; with wait_ms, once there is one. The reply is a NetworkLogResponse.
 * NULL: answered already.
 */
struct node_call *network_log(struct core *c, const char *id, uint64_t after, uint32_t limit, uint64_t wait_ms, node_reply_fn fn,
                              void *ctx);

#endif
