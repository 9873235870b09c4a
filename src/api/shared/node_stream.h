/*
 * node_stream.h - streaming calls to the node: begin, send, read a message
 *
 * Used by exec_reader.c, exec_runner.c and stdin_pump.c. Unary calls are node_unary() of core.h.
 */
#ifndef QS_API_SHARED_NODE_STREAM_H
#define QS_API_SHARED_NODE_STREAM_H

#include <protobuf-c/protobuf-c.h>

#include "core/core.h"

/* `method` is the name alone, "ExecRead". Sends `first`; the caller half-closes. */
struct grpc_call *node_stream_new(struct core *c, const char *method, const ProtobufCMessage *first,
                                  const struct grpc_ops *ops, void *ctx);
void node_stream_send(struct grpc_call *call, const ProtobufCMessage *m);

#endif
