/*
 * core.h - what exists and what may happen to it, for every dialect
 *
 * Dialects (api/) call these; results come by callback on the loop because a node is asked. State
 * is committed to the store before anything is done, so that a restart drives every half-done
 * operation to an end.
 */
#ifndef QS_CORE_CORE_H
#define QS_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/limits.h"
#include "http/grpc.h"
#include "loop/loop.h"

struct core;
struct store;
struct vault;

struct core *core_new(struct loop *l, struct store *store, const char *node_address, const char *data_dir);
/* Reads the rows that have not ended and starts to drive them to where they should be. */
int core_start(struct core *c, struct err *e);
/* Ends every call of the node with ERR_UNAVAILABLE and stops all timers: afterwards no dialect
 * waits for core. May be called again, for calls that came after it. */
void core_stop(struct core *c);
void core_free(struct core *c);             /* accepts NULL */
/* The file of registry credentials; "" = none. */
void core_set_registry_auth(struct core *c, const char *path);
/* What a RUN of a build may reach if its request does not say (network.c): "open", "block", or words of domains and
 * prefixes, of which one may be "open". */
int core_set_build_network(struct core *c, const char *words, struct err *e);
const char *core_data_dir(const struct core *c);
struct loop *core_loop(struct core *c);
struct store *core_store(struct core *c);
struct vault *core_vault(struct core *c);   /* NULL until vault_open */

/* --- the node -------------------------------------------------------------------------------- */

struct http_client *core_node(struct core *c);      /* for streaming calls: grpc_client_call(core_node(c), ...) */

/* A unary call of quicksand.node.Node. `reply` is NULL when e is not; freed after the callback
 * returns. Transport failures (node restarting) are retried for 5 s from the first one when
 * `retry` is set: only for idempotent methods. */
typedef void (*node_reply_fn)(void *ctx, const ProtobufCMessage *reply, const struct err *e);
struct node_call;
struct node_call *node_unary(struct core *c, const char *method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, uint64_t timeout_ms, bool retry,
                             node_reply_fn fn, void *ctx);
void node_call_cancel(struct node_call *nc);        /* fn is not called after it */

/* --- tokens (core/token.h has the rest) ------------------------------------------------------ */

struct token {
    char id[ID_SIZE];               /* tk-... */
    char name[LIMIT_NAME + 1];
    char scopes[512];               /* space separated */
    int64_t created_ms, expires_ms; /* 0 = never */
};

bool token_has_scope(const struct token *t, const char *scope);

#endif
