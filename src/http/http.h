/*
 * http.h - the waist: one request and its response, whatever carries them
 *
 * A server accepts TLS (ALPN h2, http/1.1), HTTP/2 with prior knowledge and HTTP/1.1 on one listener and
 * hands each request to one callback as a stream. A client makes streams over HTTP/2.
 * The same calls write bodies on both sides.
 *
 * Flow control: received body bytes are credit: the peer may have HTTP_WINDOW unconsumed bytes under way
 * in a stream; http_stream_consume() gives the credit back when the bytes were handed on. Sent bytes are queued
 * without bound by the library, so a producer stops when http_stream_queued() is above HTTP_HIGH and goes on in
 * on_writable (called when the queue falls below HTTP_LOW).
 *
 * Lifetime: the stream belongs to the library and lives until on_close returns; on_close is called exactly once for
 * every stream, after which no call with it is allowed. The context pointer is the caller's.
 * All callbacks run on the loop; no call of this header calls back from inside itself (events are deferred),
 * except that the request callback may respond at once, and that http_server_free and http_client_free close all
 * streams, calling on_close of each, before they return (when called from a callback of a connection, that
 * connection's streams close as soon as it returns).
 */
#ifndef QS_HTTP_HTTP_H
#define QS_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/loop.h"

#define HTTP_WINDOW (4 * 1024 * 1024)
#define HTTP_HIGH (256 * 1024)
#define HTTP_LOW (64 * 1024)

struct http_stream;
struct http_server;
struct http_client;

struct http_header {
    const char *name;           /* lower case */
    const char *value;
};

struct http_request {
    const char *method;
    const char *path;           /* as sent, percent-encoded, without the query */
    const char *query;          /* as sent, "" if none */
    const char *authority;      /* Host or :authority, "" if none */
    int version;                /* 10, 11 or 20 */
    bool tls;
    char peer[64];              /* "127.0.0.1:4711", "unix" */
    const struct http_header *headers;
    size_t nheaders;
    bool has_body;              /* false: on_body_end comes at once */
    int64_t content_length;     /* -1 unknown */
};

struct http_response {          /* client side */
    int status;
    const struct http_header *headers;
    size_t nheaders;
};

/* Why a stream closed. */
enum http_close {
    HTTP_CLOSE_DONE,            /* both directions complete */
    HTTP_CLOSE_CANCELLED,       /* the peer reset it or vanished */
    HTTP_CLOSE_ERROR,           /* protocol error, or our connection failed */
};

struct http_ops {
    void (*on_response)(struct http_stream *st, const struct http_response *rs, void *ctx); /* client */
    /* Server: not called any more after http_stream_end. */
    void (*on_body)(struct http_stream *st, const void *p, size_t n, void *ctx);
    /* End of the peer's body; trailers may be empty. Client: the response is complete. */
    void (*on_body_end)(struct http_stream *st, const struct http_header *trailers, size_t n, void *ctx);
    void (*on_writable)(struct http_stream *st, void *ctx);
    void (*on_close)(struct http_stream *st, enum http_close why, void *ctx);
};

/* Value of a header or NULL; name in lower case. */
const char *http_header_get(const struct http_header *h, size_t n, const char *name);

/* --- both sides ------------------------------------------------------------------------------ */

void http_stream_set(struct http_stream *st, const struct http_ops *ops, void *ctx);
void http_stream_consume(struct http_stream *st, size_t n);
void http_stream_write(struct http_stream *st, const void *p, size_t n);
/* No more bytes from us; a second call is ignored. Trailers (HTTP/2, or chunked HTTP/1.1) may be NULL. */
void http_stream_end(struct http_stream *st, const struct http_header *trailers, size_t n);
size_t http_stream_queued(const struct http_stream *st);
/* Abandon: RST_STREAM, or closing the HTTP/1.1 connection. on_close still comes. */
void http_stream_cancel(struct http_stream *st);

/* --- server ---------------------------------------------------------------------------------- */

/* The request and its texts are valid during the call. The handler calls http_stream_set before it returns, or
 * responds completely. */
typedef void (*http_request_cb)(struct http_stream *st, const struct http_request *rq, void *arg);

/* Status and headers (names lower case); content-length, if given, is kept, else HTTP/1.1 is chunked.
 * HEAD, 204 and 304 send no body whatever is written. May be called once. */
void http_respond(struct http_stream *st, int status, const struct http_header *h, size_t n);
/* A complete response in one call. */
void http_respond_all(struct http_stream *st, int status, const char *content_type, const void *p, size_t n);

struct http_server *http_server_new(struct loop *l, http_request_cb cb, void *arg);
/* "127.0.0.1:7070", "[::]:7070", "unix:/path" or an inherited descriptor (takes ownership). */
int http_server_listen(struct http_server *s, const char *address, struct err *e);
int http_server_listen_fd(struct http_server *s, int fd, struct err *e);
/* The bound port of the first TCP listener (for port 0), 0 if none. */
int http_server_port(const struct http_server *s);
/* PEM files for connections that start with a TLS record. May be called again to reload. */
int http_server_tls(struct http_server *s, const char *cert_file, const char *key_file, struct err *e);
void http_server_free(struct http_server *s);   /* cancels everything */

/* --- WebSocket (RFC 6455), server side ------------------------------------------------------- */

struct ws_ops {
    void (*on_message)(struct http_stream *st, bool binary, const void *p, size_t n, void *ctx);
    void (*on_writable)(struct http_stream *st, void *ctx);
    void (*on_close)(struct http_stream *st, int code, void *ctx);  /* in place of http_ops.on_close */
};
bool ws_is_upgrade(const struct http_request *rq);
/* Answers 101 and switches the stream (HTTP/1.1 only); or -1 after nothing was sent. Messages over
 * `max_message` close with 1009. Pings are answered. */
int ws_accept(struct http_stream *st, const struct http_request *rq, size_t max_message,
              const struct ws_ops *ops, void *ctx, struct err *e);
void ws_send(struct http_stream *st, bool binary, const void *p, size_t n);
void ws_close(struct http_stream *st, int code);
/* Stop and go on reading: what stands between a fast client and a slow consumer. Messages of one read may still come. */
void ws_pause(struct http_stream *st, bool paused);

/* --- server-sent events ---------------------------------------------------------------------- */

/* Responds 200 text/event-stream with up to 8 more headers; afterwards sse_send; http_stream_end closes. A comment
 * line goes out every 15 s of silence so that proxies keep the connection. */
void sse_start(struct http_stream *st, const struct http_header *more, size_t n);
void sse_send(struct http_stream *st, const char *event, const char *id, const char *data, size_t n);

/* --- client ---------------------------------------------------------------------------------- */

/* HTTP/2 with prior knowledge to "unix:/path" or "host:port" (numeric); reconnects on the next request after a
 * failure. Requests made while connecting are queued. */
struct http_client *http_client_new(struct loop *l, const char *address);
struct http_stream *http_client_request(struct http_client *c, const char *method, const char *path,
                                        const struct http_header *h, size_t n, bool has_body,
                                        const struct http_ops *ops, void *ctx);
void http_client_free(struct http_client *c);   /* cancels everything */

#endif
