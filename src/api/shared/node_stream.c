/*
 * node_stream.c - beginning and feeding a streaming call
 */
#include "api/shared/node_stream.h"

#include <stdio.h>

#include "base/mem.h"

struct grpc_call *node_stream_new(struct core *c, const char *method, const ProtobufCMessage *first,
                                  const struct grpc_ops *ops, void *ctx)
{
    char path[96];

    (void)snprintf(path, sizeof path, "/quicksand.node.Node/%s", method);
    struct grpc_call *call = grpc_client_call(core_node(c), path, NULL, 0, 0, ops, ctx);
    node_stream_send(call, first);
    return call;
}

void node_stream_send(struct grpc_call *call, const ProtobufCMessage *m)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    auto_free uint8_t *packed = mem_alloc(n + 1);

    grpc_send(call, packed, protobuf_c_message_pack(m, packed));
}
