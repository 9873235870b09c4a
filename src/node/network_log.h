/*
 * network_log.h - what egress told of a sandbox: its decisions, line by line, and what it has used
 *
 * Kept beside the policy, in node/.network, so that it outlives egress, the node and the sandbox's end; removed with the sandbox.
 */
#ifndef QS_NODE_NETWORK_LOG_H
#define QS_NODE_NETWORK_LOG_H

#include "ipc/egress_proto.h"
#include "node/node.h"

struct network_log;

struct network_log *network_log_new(int dir_fd);     /* of node/.network; stays the caller's */
void network_log_free(struct network_log *l);
/* Gives it the next number, keeps it, and answers who waits for it. */
void network_log_add(struct network_log *l, const char *sandbox, struct egress_decision *d);
void network_log_totals(struct network_log *l, const char *sandbox, const struct egress_totals *t);
/* Zeros, if nothing is known. */
void network_log_get_totals(struct network_log *l, const char *sandbox, struct egress_totals *ret);
void network_log_remove(struct network_log *l, const char *sandbox);
/* Answers a NetworkLogRequest, whose sandbox has a network. */
void network_log_answer(struct network_log *l, struct op *op);

#endif
