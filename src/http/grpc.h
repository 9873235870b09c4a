/*
 * grpc.h - gRPC over http.h: five-byte prefixes, trailers, deadlines, cancellation
 *
 * Messages are bytes here; protobuf is the caller's. Sizes over LIMIT_GRPC_MESSAGE end a call with
 * RESOURCE_EXHAUSTED. Compression is neither sent nor accepted (a compressed message is UNIMPLEMENTED).
 * Back-pressure: as in http.h; a received message counts as consumed when grpc_call_consumed() is called for it.
 */
#ifndef QS_HTTP_GRPC_H
#define QS_HTTP_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/http.h"

enum grpc_status {
    GRPC_OK = 0, GRPC_CANCELLED = 1, GRPC_UNKNOWN = 2, GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4, GRPC_NOT_FOUND = 5, GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7, GRPC_RESOURCE_EXHAUSTED = 8, GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10, GRPC_OUT_OF_RANGE = 11, GRPC_UNIMPLEMENTED = 12, GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14, GRPC_DATA_LOSS = 15, GRPC_UNAUTHENTICATED = 16,
};

struct grpc_call;

struct grpc_ops {
    void (*on_message)(struct grpc_call *c, const void *p, size_t n, void *ctx);
    void (*on_half_close)(struct grpc_call *c, void *ctx);      /* server: the client sent its last message */
    void (*on_writable)(struct grpc_call *c, void *ctx);
    /* Server: the client cancelled, its deadline passed or it vanished before grpc_finish; not called after
     * grpc_finish. Client: the call ended; `status`, and *e filled from the trailers (code from "qs-error" if
     * there, else from the status) when status is not OK. The call is gone after it returns, on both sides. */
    void (*on_end)(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx);
};

/* --- server ---------------------------------------------------------------------------------- */

/* Called at the start of a call, before any message came; sets ops (grpc_call_set) before it returns, or finishes. */
typedef void (*grpc_method_fn)(struct grpc_call *c, void *arg);

struct grpc_method {
    const char *path;           /* "/quicksand.node.Node/Create" */
    grpc_method_fn fn;
};

bool grpc_is_request(const struct http_request *rq);    /* content-type application/grpc... */
/* Dispatch over a table sorted or not; unknown methods get UNIMPLEMENTED. */
void grpc_serve(struct http_stream *st, const struct http_request *rq, const struct grpc_method *table,
                size_t n, void *arg);
void grpc_call_set(struct grpc_call *c, const struct grpc_ops *ops, void *ctx);
const char *grpc_call_metadata(const struct grpc_call *c, const char *name);    /* NULL if absent */
const char *grpc_call_authority(const struct grpc_call *c);
/* Ends the call: trailers grpc-status, grpc-message; with an error also qs-error, qs-param and qs-hint. */
void grpc_finish(struct grpc_call *c, enum grpc_status status, const char *message);
void grpc_finish_err(struct grpc_call *c, const struct err *e);
/* Send one message and finish OK: unary replies. */
void grpc_reply(struct grpc_call *c, const void *p, size_t n);
/* An additional trailer of the reply, before grpc_finish (texts are copied). */
void grpc_call_trailer(struct grpc_call *c, const char *name, const char *value);

/* --- both ------------------------------------------------------------------------------------ */

void grpc_send(struct grpc_call *c, const void *p, size_t n);
size_t grpc_queued(const struct grpc_call *c);
void grpc_call_consumed(struct grpc_call *c, size_t n);     /* payload bytes of on_message handed on */

/* --- client ---------------------------------------------------------------------------------- */

/* timeout_ms 0 = none. */
struct grpc_call *grpc_client_call(struct http_client *c, const char *path,
                                   const struct http_header *metadata, size_t n, uint64_t timeout_ms,
                                   const struct grpc_ops *ops, void *ctx);
void grpc_send_end(struct grpc_call *c);        /* half-close */
void grpc_cancel(struct grpc_call *c);          /* on_end(CANCELLED) comes later */

#endif
