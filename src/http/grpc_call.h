/*
 * grpc_call.h - a gRPC call, shared by the files of grpc
 *
 * A call lives as long as its stream. Once it is over (on_end was called, or the server finished it) its ops are gone and
 * what still comes is dropped.
 */
#ifndef QS_HTTP_GRPC_CALL_H
#define QS_HTTP_GRPC_CALL_H

#include "http/grpc.h"
#include "http/grpc_frame.h"
#include "http/stream.h"

#define GRPC_TRAILERS_MAX 16

struct grpc_call {
    struct http_stream *st;
    const struct grpc_ops *ops;     /* NULL once the call is over */
    void *ctx;
    struct grpc_frames frames;
    size_t held;                    /* received payload that waits for grpc_call_consumed */
    struct loop_timer *timer;       /* the deadline */
    struct http_header *metadata;   /* server: owned copy of the request's headers, one block */
    size_t nmetadata;
    char *authority;                /* server: owned */
    struct http_header trailers[GRPC_TRAILERS_MAX]; /* server: owned texts, name and value in one block each */
    size_t ntrailers;
    bool is_over;
    bool has_head;                  /* server: the response head is sent */
    bool is_cancelled;              /* client: by grpc_cancel */
    int http_status;                /* client */
    int status;                     /* client: grpc-status, -1 = not seen */
    struct err *err;                /* client: owned; what the trailers said */
};

void grpc_call_free(struct grpc_call *c);
/* Feeds received bytes; GRPC_OK or why the call cannot go on. */
enum grpc_status grpc_call_feed(struct grpc_call *c, const void *p, size_t n, const char **ret_why);

#endif
