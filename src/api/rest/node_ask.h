/*
 * node_ask.h - a unary question to the node on behalf of one call
 *
 * A client that leaves cancels the question and ends the call, so a handler is a chain of replies. While a question is
 * open it owns c->user and c->on_gone.
 */
#ifndef QS_API_REST_NODE_ASK_H
#define QS_API_REST_NODE_ASK_H

#include "api/rest/op.h"
#include "node.pb-c.h"

#define NODE_ASK_MS 30000       /* for everything that does not wait by itself */

/* `reply` is NULL when e is not. `state` is what node_ask was given: the handler's again, to pass on or to free. */
typedef void (*node_answer_fn)(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e);

/* `idempotent`: may be asked again when the node restarts. `state`: heap memory or NULL; freed if the client leaves. */
void node_ask(struct call *c, const char *method, const ProtobufCMessage *request,
              const ProtobufCMessageDescriptor *reply_type, uint64_t timeout_ms, bool idempotent, node_answer_fn fn,
              void *state);

/* ExecGet in the sandbox of the path ({id}), waiting for the end at most wait_ms. */
void node_ask_exec(struct call *c, const char *exec_id, uint32_t wait_ms, node_answer_fn fn, void *state);

/* A handler that only needs to know that it was done: 204. */
void node_answer_empty(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e);

#endif
