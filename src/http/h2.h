/*
 * h2.h - one HTTP/2 connection over nghttp2, either side
 *
 * Made by server.c (first bytes were the preface) and client.c; owns its net_conn.
 *
 * Flow control: the connection's window is given back as bytes arrive, a stream's when its user consumed them: so a
 * stalled stream never stalls its neighbours.
 */
#ifndef QS_HTTP_H2_H
#define QS_HTTP_H2_H

#include "http/stream.h"
#include "net/conn.h"

struct h2;

/* Takes the connection. */
struct h2 *h2_new(const struct http_conn_config *conf, struct net_conn *net);
void h2_read(struct h2 *h, const uint8_t *p, size_t n);     /* bytes read before h2_new */
/* GOAWAY, closes all streams and the connection; on_gone comes from inside or, if a callback of this connection is
 * running, when it returns. */
void h2_free(struct h2 *h);

struct http_stream *h2_request(struct h2 *h, const char *method, const char *path, const char *authority,
                               const struct http_header *fields, size_t n, bool has_body);
/* Client: may another request be sent on this connection? */
bool h2_has_room(const struct h2 *h);
bool h2_is_closing(const struct h2 *h);

/* For fuzzing and tests: a server session without a socket. Output is dropped. */
struct h2 *h2_new_detached(const struct http_conn_config *conf);

#endif
