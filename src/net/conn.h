/*
 * conn.h - one stream connection: non-blocking socket, output queue, TLS if the peer begins with it
 *
 * Used by http (both sides). Output is queued and sent once at the end of the turn of the loop, or, for what an input
 * caused, as soon as that input was handled: one system call for all of it.
 *
 * Callbacks come from the loop, never from inside a call of this header. net_conn_free may be called in any of them.
 */
#ifndef QS_NET_CONN_H
#define QS_NET_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/loop.h"
#include "net/addr.h"
#include "net/tls.h"

/* on_fill should stop when this much is queued. */
#define NET_CONN_FILL (256 * 1024)

struct net_conn;

struct net_conn_ops {
    void (*on_read)(struct net_conn *c, const uint8_t *p, size_t n, void *ctx);
    /* TLS stands, before the first byte of on_read (may be NULL). */
    void (*on_secure)(struct net_conn *c, void *ctx);
    /* About to send: the place to produce output late (may be NULL). */
    void (*on_fill)(struct net_conn *c, void *ctx);
    /* The queue got shorter (may be NULL). */
    void (*on_sent)(struct net_conn *c, void *ctx);
    /* The peer closed (0), or the connection failed (an errno). The owner frees the connection, or, after 0, may still
     * send what is queued and then finish. */
    void (*on_end)(struct net_conn *c, int sys_errno, void *ctx);
};

/* Takes an accepted descriptor. `tls`, if not NULL, serves a peer whose first byte begins a TLS record; until it has come,
 * what is written waits, unless the connection is finished. */
struct net_conn *net_conn_new(struct loop *l, int fd, struct net_tls *tls,
                              const struct net_conn_ops *ops, void *ctx);
/* A connection under way: writes are queued until it stands; failure comes as on_end. */
struct net_conn *net_conn_connect(struct loop *l, const struct net_addr *a,
                                  const struct net_conn_ops *ops, void *ctx);
void net_conn_set(struct net_conn *c, const struct net_conn_ops *ops, void *ctx);
/* New settings for a peer of whom nothing was read yet. */
void net_conn_set_tls(struct net_conn *c, struct net_tls *tls);
bool net_conn_is_tls(const struct net_conn *c);
/* The host that the peer asked TLS for, as net_tls_name has it; "" without. */
void net_conn_server_name(const struct net_conn *c, char out[NET_TLS_NAME]);

void net_conn_write(struct net_conn *c, const void *p, size_t n);
/* Room to write n bytes in place; then net_conn_wrote. */
uint8_t *net_conn_reserve(struct net_conn *c, size_t n);
void net_conn_wrote(struct net_conn *c, size_t n);
size_t net_conn_queued(const struct net_conn *c);
/* Have on_fill called and the queue sent soon. */
void net_conn_kick(struct net_conn *c);

/* Acknowledges what was read now and not with the next data: for a peer that may be holding back the rest of what we wait
 * for until then (Nagle's algorithm at a client that writes head and body apart; it costs such a request 40 ms). */
void net_conn_ack_now(struct net_conn *c);
/* While paused nothing is read; that the peer went away is still noticed (on_end). */
void net_conn_pause(struct net_conn *c, bool paused);
/* For who relays: while paused the peer's leaving is not looked for either, because what it said before is still wanted. */
void net_conn_set_patient(struct net_conn *c);
/* Send what is queued, close our direction, throw away what still comes for a moment (so that the peer gets to read our
 * last words), then on_end. */
void net_conn_finish(struct net_conn *c);
/* One attempt to send what is queued, before net_conn_free; calls nobody back. */
void net_conn_send_now(struct net_conn *c);
/* We have no more to say: what is queued is sent, then the peer is told (TLS: close_notify; FIN). Reading goes on; nothing
 * may be written after it. */
void net_conn_end_output(struct net_conn *c);
bool net_conn_has_ended_output(const struct net_conn *c);       /* the peer was told */
/* Closes at once. Accepts NULL. */
void net_conn_free(struct net_conn *c);

/* No delay, keepalive, and an end to peers that vanished; inherited by accepted sockets. No-op on unix sockets. */
void net_socket_tune(int fd);

#endif
