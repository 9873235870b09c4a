/*
 * end.h - one end of a connection that is opened: plain or TLS over a socket, never waiting
 *
 * Bytes written are kept until the socket takes them; who writes looks at end_queued first. OpenSSL works on memory, because
 * the first bytes of a client were read before anybody knew what they are.
 */
#ifndef QS_EGRESS_OPEN_END_H
#define QS_EGRESS_OPEN_END_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

#define END_HIGH (256 * 1024)   /* queued: read no more for it */

struct end {
    int fd;                     /* borrowed */
    SSL *ssl;                   /* owned; NULL: plain */
    struct buf early;           /* plain bytes that were read before */
    struct buf out;             /* for the socket */
    size_t out_at;
    bool eof;                   /* the peer has ended its direction */
    bool is_unclean;            /* without saying so in TLS */
    bool is_full;               /* the socket takes no more now */
    bool made_room;             /* END_HIGH was queued, and is no more: there may be no event for who waited for that */
    bool is_abrupt;             /* our direction is to end without saying so in TLS */
    bool ends, ended;           /* our direction is to end once all is out; and has */
};

void end_init(struct end *d, int fd, const void *early, size_t n);
/* Takes the connection; false if memory is gone. */
bool end_tls(struct end *d, SSL *ssl);
void end_done(struct end *d);
/* 1: done; 0: goes on; -1: failed, see OpenSSL's errors. */
int end_handshake(struct end *d);
/* Bytes, 0 at the end, -EAGAIN, or -errno. */
ssize_t end_read(struct end *d, void *p, size_t n);
int end_write(struct end *d, const void *p, size_t n);
int end_flush(struct end *d);
size_t end_queued(const struct end *d);
/* Ends our direction behind what is queued. */
int end_finish(struct end *d);

#endif
