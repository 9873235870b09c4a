/*
 * call.h - gRPC calls to operations: decode, dispatch, answer
 */
#ifndef QS_NODE_CALL_H
#define QS_NODE_CALL_H

#include "node/node.h"

/* Takes over a new call of `m`. The operation belongs to the call; the caller may set `granted`. */
struct op *call_begin(struct grpc_call *c, struct node *n, const struct method *m);

/*
 * The sandbox id of a request; ERR_NOT_FOUND for what cannot be an id, so that nothing else becomes
 * a path. NULL is "not given".
 */
int call_sandbox(const char *id, struct err *e);

struct mon_ref;
/* Sandbox and exec of a request, into *ret. `empty_ok`: the exec may be "". */
int call_ref(const Quicksand__Node__ExecRef *ref, bool empty_ok, struct mon_ref *ret,
             struct err *e);

#endif
