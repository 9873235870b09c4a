/*
 * wire.c - see netload.h
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netload.h"

static uint8_t block[BLOCK];

void die(const char *what)
{
    perror(what);
    exit(1);
}

SSL_CTX *wire_server_tls(const char *cert, const char *key)
{
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());

    if (c == NULL || SSL_CTX_use_certificate_chain_file(c, cert) != 1 ||
        SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1)
        die(cert);
    return c;
}

SSL_CTX *wire_client_tls(void)
{
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());

    if (c == NULL)
        die("TLS");
    return c;
}

static void tune(int fd)
{
    static const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void wire_dial(struct wire *w, const char *host, const char *port, SSL_CTX *tls, const char *name)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};

    *w = (struct wire){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
        die(host);
    if (connect(w->fd, (const struct sockaddr *)&a, sizeof a) < 0)
        die("connect");
    tune(w->fd);
    if (tls == NULL)
        return;
    w->ssl = SSL_new(tls);
    if (w->ssl == NULL || SSL_set_fd(w->ssl, w->fd) != 1 || SSL_set_tlsext_host_name(w->ssl, name) != 1 ||
        SSL_connect(w->ssl) != 1)
        die("TLS with the server");
}

bool wire_accept(struct wire *w, int fd, SSL_CTX *tls)
{
    *w = (struct wire){.fd = fd};
    tune(fd);
    if (tls == NULL)
        return true;
    w->ssl = SSL_new(tls);
    return w->ssl != NULL && SSL_set_fd(w->ssl, fd) == 1 && SSL_accept(w->ssl) == 1;
}

void wire_close(struct wire *w)
{
    if (w->ssl != NULL) {
        (void)SSL_shutdown(w->ssl);
        SSL_free(w->ssl);
    }
    (void)close(w->fd);
}

void wire_write(struct wire *w, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t r = w->ssl != NULL ? SSL_write(w->ssl, (const char *)p + at, (int)(n - at))
                                   : write(w->fd, (const char *)p + at, n - at);
        if (r <= 0)
            die("write");
        at += (size_t)r;
    }
}

void wire_fill(struct wire *w, uint64_t n)
{
    for (uint64_t left = n; left > 0;) {
        size_t part = left < BLOCK ? (size_t)left : BLOCK;
        wire_write(w, block, part);
        left -= part;
    }
}

/* 0: the peer has ended. */
static size_t some(struct wire *w, void *p, size_t n)
{
    ssize_t r = w->ssl != NULL ? SSL_read(w->ssl, p, (int)n) : read(w->fd, p, n);

    return r > 0 ? (size_t)r : 0;
}

static bool hold_more(struct wire *w)
{
    size_t n = w->nheld < HEAD_MAX ? some(w, w->held + w->nheld, HEAD_MAX - w->nheld) : 0;

    w->nheld += n;
    w->held[w->nheld] = '\0';
    return n > 0;
}

bool wire_hold(struct wire *w, size_t n)
{
    while (w->nheld < n)
        if (!hold_more(w))
            return false;
    return true;
}

size_t wire_head(struct wire *w)
{
    for (;;) {
        char *end = w->nheld > 0 ? strstr(w->held, "\r\n\r\n") : NULL;
        if (end != NULL) {
            end[3] = '\0';
            return (size_t)(end - w->held) + 4;
        }
        if (!hold_more(w))
            return 0;
    }
}

void wire_drop(struct wire *w, uint64_t n)
{
    size_t part = n < w->nheld ? (size_t)n : w->nheld;

    w->nheld -= part;
    memmove(w->held, w->held + part, w->nheld + 1);
    for (uint64_t left = n - part; left > 0;) {
        size_t r = some(w, block, left < BLOCK ? (size_t)left : BLOCK);
        if (r == 0)
            die("read");
        left -= r;
    }
}
