/*
 * netload.h - what the files of netload share
 *
 * A wire is a connection, with TLS or without, read through a buffer. Whatever fails on it ends the process: a benchmark has no
 * use for half of a sample.
 */
#ifndef BENCH_NETLOAD_H
#define BENCH_NETLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK ((size_t)256 * 1024)
#define HEAD_MAX ((size_t)8 * 1024)

struct ssl_st;
struct ssl_ctx_st;

struct wire {
    int fd;
    struct ssl_st *ssl;         /* NULL: plain */
    char held[HEAD_MAX + 1];    /* read, and not used yet; ends with a zero */
    size_t nheld;
};

_Noreturn void die(const char *what);

/* wire.c */
struct ssl_ctx_st *wire_server_tls(const char *cert, const char *key);
struct ssl_ctx_st *wire_client_tls(void);       /* which believes everybody */
/* tls NULL: plain. name: asked for in the greeting. */
void wire_dial(struct wire *w, const char *host, const char *port, struct ssl_ctx_st *tls, const char *name);
bool wire_accept(struct wire *w, int fd, struct ssl_ctx_st *tls);
void wire_close(struct wire *w);
void wire_write(struct wire *w, const void *p, size_t n);
void wire_fill(struct wire *w, uint64_t n);     /* n bytes of no meaning */
/* A head into `held`, with a zero in place of its last byte; its length, or 0: the peer has ended. */
size_t wire_head(struct wire *w);
void wire_drop(struct wire *w, uint64_t n);     /* the next bytes, which may be held already */
/* The first n bytes that come, into `held`. false: the peer has ended. */
bool wire_hold(struct wire *w, size_t n);

/* serve.c: never comes back. wanted: a line that every head must have, or NULL. */
_Noreturn void serve(const char *host, const char *port, const char *cert, const char *key, const char *wanted);

#endif
