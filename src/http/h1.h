/*
 * h1.h - one HTTP/1.1 connection, server side
 *
 * Made by server.c; owns its net_conn. One request at a time: what a client pipelines waits.
 */
#ifndef QS_HTTP_H1_H
#define QS_HTTP_H1_H

#include "http/stream.h"
#include "net/conn.h"

struct h1;

/* Takes the connection. */
struct h1 *h1_new(const struct http_conn_config *conf, struct net_conn *net);
void h1_read(struct h1 *h, const uint8_t *p, size_t n);     /* bytes read before h1_new */
/* Closes the stream and the connection; on_gone comes from inside or when the running callback returns. */
void h1_free(struct h1 *h);
/* CLOCK_BOOTTIME ms by which something must have come, 0 = none. */
int64_t h1_deadline_ms(const struct h1 *h);
void h1_timeout(struct h1 *h);

/* For ws.c: answers with `head` and hands further input to ws_input(). */
void h1_upgrade(struct http_stream *st, const char *head, size_t n);
void h1_kick(struct http_stream *st);                   /* output is waiting: have ws_fill() called */
size_t h1_room(const struct http_stream *st);           /* bytes that ws_fill should write at most */
void h1_raw_write(struct http_stream *st, const void *p, size_t n);
/* Send what is queued and close. The stream closes with the connection. */
void h1_finish(struct http_stream *st);
void h1_pause(struct http_stream *st, bool paused);

/* Of ws.c: input of an upgraded stream, and the place to write its output. */
void ws_input(struct http_stream *st, const uint8_t *p, size_t n);
void ws_fill(struct http_stream *st);
size_t ws_queued(const struct http_stream *st);

#endif
