/*
 * end.c - one end of a connection that is opened
 */
#include "egress/open/end.h"

#include <errno.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/socket.h>

#define CHUNK (64 * 1024)
#define RECORD (16 * 1024)      /* at once: what OpenSSL's buffers grow to stays in use */
#define FEEDS 2                 /* of one read: then others have their turn */
#define MOST (1024 * 1024)      /* queued: more only of who asks OpenSSL for answers that it does not read */
#define KEPT (4 * 1024)         /* of a queue that is empty */

static uint8_t chunk[RECORD + 1024];

void end_init(struct end *d, int fd, const void *early, size_t n)
{
    *d = (struct end){.fd = fd};
    buf_init(&d->early, SIZE_MAX / 2);
    buf_init(&d->out, SIZE_MAX / 2);
    if (n > 0)
        (void)buf_add(&d->early, early, n);
}

bool end_tls(struct end *d, SSL *ssl)
{
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());

    if (ssl == NULL || in == NULL || out == NULL) {
        SSL_free(ssl);
        (void)BIO_free(in);
        (void)BIO_free(out);
        return false;
    }
    (void)BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    d->ssl = ssl;
    if (d->early.len > 0)
        (void)BIO_write(in, d->early.data, (int)d->early.len);
    buf_clear(&d->early);
    return true;
}

/* Without TLS there may be secrets in it. */
static void wipe_out(struct end *d)
{
    if (d->ssl == NULL && d->out.data != NULL)
        explicit_bzero(d->out.data, d->out.size);
}

void end_done(struct end *d)
{
    wipe_out(d);
    SSL_free(d->ssl);
    d->ssl = NULL;
    buf_done(&d->early);
    buf_done(&d->out);
    d->out_at = 0;
}

/* --- out ------------------------------------------------------------------------------------- */

size_t end_queued(const struct end *d)
{
    return d->out.len - d->out_at;
}

static void take_from_tls(struct end *d)
{
    int n = d->ssl != NULL ? BIO_pending(SSL_get_wbio(d->ssl)) : 0;
    void *to = n > 0 ? buf_reserve(&d->out, (size_t)n) : NULL;

    if (to != NULL && (n = BIO_read(SSL_get_wbio(d->ssl), to, n)) > 0)
        buf_grew(&d->out, (size_t)n);
}

static int flush(struct end *d)
{
    while (end_queued(d) > 0) {
        ssize_t n = send(d->fd, d->out.data + d->out_at, end_queued(d), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        d->is_full = n < 0 && errno == EAGAIN;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        d->out_at += (size_t)n;
    }
    d->is_full = false;
    d->out_at = 0;
    if (d->out.len > 0)
        wipe_out(d);
    buf_clear(&d->out);
    if (d->out.size > KEPT) {
        buf_done(&d->out);
        buf_init(&d->out, SIZE_MAX / 2);
    }
    if (d->ends && !d->ended) {
        d->ended = true;
        (void)shutdown(d->fd, SHUT_WR);
    }
    return 0;
}

int end_flush(struct end *d)
{
    take_from_tls(d);
    bool was_high = end_queued(d) > END_HIGH;
    int r = flush(d);
    d->made_room = d->made_room || (was_high && end_queued(d) <= END_HIGH);
    return r;
}

int end_write(struct end *d, const void *p, size_t n)
{
    if (d->out_at > CHUNK) {
        buf_drop(&d->out, d->out_at);
        d->out_at = 0;
    }
    if (d->ssl == NULL) {
        (void)buf_add(&d->out, p, n);
        return 0;
    }
    /* A memory BIO takes everything. */
    for (size_t done = 0; done < n;) {
        size_t wrote, part = n - done < RECORD ? n - done : RECORD;
        if (SSL_write_ex(d->ssl, (const uint8_t *)p + done, part, &wrote) != 1) {
            ERR_clear_error();
            return -EPIPE;
        }
        done += wrote;
        take_from_tls(d);
    }
    return 0;
}

int end_finish(struct end *d)
{
    if (!d->ends && !d->is_abrupt && d->ssl != NULL && SSL_is_init_finished(d->ssl))
        (void)SSL_shutdown(d->ssl);
    ERR_clear_error();
    d->ends = true;
    return end_flush(d);
}

/* --- in -------------------------------------------------------------------------------------- */

/* More for OpenSSL from the socket: bytes, 0, -EAGAIN or -errno. */
static ssize_t feed_tls(struct end *d)
{
    ssize_t n = d->eof ? 0 : recv(d->fd, chunk, sizeof chunk, 0);

    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if (n == 0)
        d->eof = true;
    else
        (void)BIO_write(SSL_get_rbio(d->ssl), chunk, (int)n);
    return n;
}

int end_handshake(struct end *d)
{
    for (;;) {
        ERR_clear_error();
        int r = SSL_do_handshake(d->ssl);
        take_from_tls(d);
        if (r == 1)
            return 1;
        int why = SSL_get_error(d->ssl, r);
        if (why == SSL_ERROR_WANT_CLIENT_HELLO_CB)
            return 0;
        if (why != SSL_ERROR_WANT_READ)
            return -1;
        ssize_t n = feed_tls(d);
        if (n == -EAGAIN)
            return 0;
        if (n <= 0) {
            d->eof = true;
            return -1;
        }
    }
}

static ssize_t read_plain(struct end *d, void *p, size_t n)
{
    if (d->early.len > 0) {
        size_t part = d->early.len < n ? d->early.len : n;
        memcpy(p, d->early.data, part);
        buf_drop(&d->early, part);
        return (ssize_t)part;
    }
    ssize_t r = recv(d->fd, p, n, 0);
    if (r < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    d->eof = d->eof || r == 0;
    return r;
}

/* Records that are here already: they go on together. What ends or breaks the connection is met again by the next read. */
static size_t read_more(struct end *d, uint8_t *p, size_t n)
{
    size_t all = 0, got;

    while (all < n && BIO_pending(SSL_get_rbio(d->ssl)) > 0 && SSL_read_ex(d->ssl, p + all, n - all, &got) == 1)
        all += got;
    ERR_clear_error();
    return all;
}

ssize_t end_read(struct end *d, void *p, size_t n)
{
    size_t got;

    if (d->ssl == NULL)
        return read_plain(d, p, n);
    for (int feeds = 0;; feeds++) {
        ERR_clear_error();
        if (SSL_read_ex(d->ssl, p, n, &got) == 1)
            return (ssize_t)(got + read_more(d, (uint8_t *)p + got, n - got));
        int why = SSL_get_error(d->ssl, 0);
        take_from_tls(d);       /* an answer to a change of keys */
        if (why == SSL_ERROR_ZERO_RETURN) {
            d->eof = true;
            return 0;
        }
        if (why != SSL_ERROR_WANT_READ) {
            ERR_clear_error();
            return -EPROTO;
        }
        if (end_queued(d) > MOST)
            return -ENOBUFS;
        ssize_t fed = feeds < FEEDS ? feed_tls(d) : -EAGAIN;
        if (fed == 0)
            d->is_unclean = true;
        if (fed <= 0)
            return fed;
    }
}
