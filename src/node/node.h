/*
 * node.h - the state of the node role, and one call in progress
 *
 * The node is the data plane of one machine. It holds nothing that may not be lost: sandboxes live
 * in their monitors, their records and output in data_dir/run/<id>, what execs inherit in
 * data_dir/node/<id>.
 */
#ifndef QS_NODE_NODE_H
#define QS_NODE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/conf.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/map.h"
#include "http/grpc.h"
#include "loop/loop.h"
#include "node.pb-c.h"

struct defaults_store;
struct network;
struct keeper_link;
struct monitor_pool;
struct query;
struct pass;
struct router;
struct tunnels;
struct visit;

struct node {
    struct conf conf;
    struct loop *loop;
    struct http_server *server;
    struct keeper_link *keeper;
    struct monitor_pool *monitors;
    struct defaults_store *defaults;
    struct network *network;    /* policies of sandboxes, and the link to egress (network.h) */
    struct router *router;      /* the Modal dialect, for calls from anywhere (modal/router.h) */
    struct http_server *router_server;      /* NULL: no listener */
    struct tunnels *tunnels;    /* ways in from outside (tunnel/tunnel.h) */
    struct pass *passes;        /* connect tokens (tunnel/pass.h) */
    struct visit *visits;       /* connections of the proxy that takes them (tunnel/proxy.h) */
    struct map probes;          /* sandbox -> its probe under way (ready.c) */
    struct map creating; /* sandbox ids of Create calls under way; values are the node itself */
    int run_fd;                 /* data_dir/run */
    int state_fd;               /* data_dir/node */
};

#define OP_QUERIES 4

/*
 * One call. It belongs to itself: op_reply, op_fail and op_finish answer and free it. `call` is
 * NULL once the client has left; on_gone then decides: NULL lets the operation go on (its effects
 * are wanted all the same), op_drop is for reads.
 */
struct op {
    struct node *node;
    struct grpc_call *call;
    const struct method *method;
    char granted[ID_SIZE];      /* the one sandbox that the caller may touch; "" = all (node.sock) */
    ProtobufCMessage *rq;       /* the request (of a stream: unused) */
    void (*on_gone)(struct op *op);
    void (*on_writable)(struct op *op);
    void (*on_free)(struct op *op);         /* releases what `state` points to */
    struct query *q[OP_QUERIES];            /* pending; cancelled with the op */
    void *state;                /* of the operation, freed with the op */
};

#define REQUEST_MAX (4 * 1024 * 1024)   /* argv, environment and layers are far below */

/* How one method is served. */
struct method {
    const char *path;
    const ProtobufCMessageDescriptor *request;
    size_t request_max;                     /* bytes of a message; 0 = REQUEST_MAX */
    void (*start)(struct op *op);           /* unary and server streams: rq is there */
    /* client streams: every message (freed by the caller) and the end; `start` is NULL */
    void (*message)(struct op *op, const ProtobufCMessage *m, size_t size);
    void (*end)(struct op *op);
};

void *op_state(struct op *op, size_t size);     /* zeroed, becomes op->state */
void op_send(struct op *op, const ProtobufCMessage *m);
bool op_is_full(const struct op *op);           /* stop producing until on_writable */
void op_reply(struct op *op, const ProtobufCMessage *m);
void op_reply_empty(struct op *op);
void op_finish(struct op *op);                  /* a stream is complete */
void op_fail(struct op *op, const struct err *e);
void op_drop(struct op *op);                    /* frees without an answer */

int node_open(struct node *n, struct err *e);   /* directories, links; conf and loop are set */

#endif
