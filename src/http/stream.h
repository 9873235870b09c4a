/*
 * stream.h - inside of a stream, shared by the files of http; nobody else includes it
 *
 * A stream is closed (on_close, then freed) only by its transport and only from the loop, never from inside a call of
 * the user: whatever a call of http.h causes is deferred.
 */
#ifndef QS_HTTP_STREAM_H
#define QS_HTTP_STREAM_H

#include "http/http.h"
#include "net/queue.h"

struct sse;
struct ws;

/* What carries a stream: HTTP/2 or HTTP/1.1. */
struct http_transport {
    /* ends: there is no body and the response is complete with its head */
    void (*respond)(struct http_stream *st, int status, const struct http_header *h, size_t n, bool ends);
    void (*write)(struct http_stream *st, const void *p, size_t n);
    void (*end)(struct http_stream *st, const struct http_header *trailers, size_t n);
    void (*consume)(struct http_stream *st, size_t n);
    void (*cancel)(struct http_stream *st);
    size_t (*queued)(const struct http_stream *st);
};

struct http_stream {
    const struct http_transport *tp;
    void *conn;                     /* struct h2 or struct h1; NULL once it is gone */
    struct loop *loop;
    const struct http_ops *ops;     /* NULL until http_stream_set */
    void *ctx;
    struct loop_job job;            /* calls back what a call caused */
    struct queue out;               /* HTTP/2: body bytes that wait */
    struct http_header *trailers;   /* owned, one block; they wait behind the body */
    size_t ntrailers;
    struct http_stream *prev, *next;    /* HTTP/2: streams of the connection */
    size_t unconsumed;
    struct sse *sse;                /* owned */
    struct ws *ws;                  /* ws.c frees it in its on_close */
    uint32_t peer_code;             /* HTTP/2: code of the reset */
    int close_errno;                /* why the connection failed, 0 if unknown */
    int32_t id;
    bool is_client;
    bool is_head;                   /* the request was HEAD */
    bool has_responded;             /* server: http_respond was called; client: the response is there */
    bool is_mute;                   /* no body may be sent: writes are dropped */
    bool has_ended;                 /* http_stream_end was called */
    bool peer_ended;                /* the peer's body is complete */
    bool is_cancelled;
    bool is_deferred;               /* HTTP/2: the sender waits for bytes */
    bool is_writable_due;
    bool is_answered;               /* HTTP/2 server: the response is sent, the request still comes */
    bool is_grace_over;
};

/* What a connection, h1 or h2, gets from server.c or client.c. */
struct http_conn_config {
    struct loop *loop;
    http_request_cb on_request;     /* NULL on the client side */
    void *request_arg;
    char peer[64];
    void (*on_gone)(void *owner);   /* the connection and its streams are no more */
    void *owner;
};

struct http_stream *stream_new(struct loop *l, const struct http_transport *tp, void *conn);
/* on_close and the end of the stream. */
void stream_close(struct http_stream *st, enum http_close why);
/* The same a moment later, for a stream that its connection has let go. */
void stream_close_soon(struct http_stream *st);
void stream_body(struct http_stream *st, const void *p, size_t n);
void stream_body_end(struct http_stream *st, const struct http_header *trailers, size_t n);
/* After the queue went from `before` to its length of now: on_writable if it fell below HTTP_LOW. */
void stream_sent(struct http_stream *st, size_t before, size_t now);
/* Like http_respond; ends: the head is all. */
void stream_respond(struct http_stream *st, int status, const struct http_header *h, size_t n, bool ends);
/* A short JSON error. `message` is our own text. */
void stream_error(struct http_stream *st, int status, const char *code, const char *message);
/* Copy headers into one block (free it). */
struct http_header *headers_copy(const struct http_header *h, size_t n);
/* Connection-specific headers, which only a transport may set. */
bool header_is_hop_by_hop(const char *name);
/* What follows a line break in a value would be a header of its own: the value ends there. */
size_t header_value_len(const char *value);
/* Splits a target; true if its characters are allowed. path is cut at '?' in place. */
bool target_split(char *target, const char **ret_path, const char **ret_query);
const char *date_now(void);

void sse_done(struct http_stream *st);

#endif
