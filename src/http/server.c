/*
 * server.c - HTTP servers: listeners, first bytes, limits, time
 *
 * A connection's first bytes decide what it speaks: 0x16 begins TLS (net/conn.c sees to that), the HTTP/2 preface
 * HTTP/2, anything else is HTTP/1.1.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "http/h1.h"
#include "http/h2.h"
#include "net/addr.h"
#include "net/listen.h"
#include "net/tls.h"

#define LISTENERS_MAX 8
#define FIRST_MS 30000          /* for TLS and the first bytes */
#define SWEEP_MS 1000
#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define PREFACE_LEN (sizeof PREFACE - 1)

struct server_conn {
    struct http_server *server;     /* NULL once it is gone */
    struct server_conn *prev, *next;
    struct net_conn *net;           /* until the protocol is known; then its own */
    struct h1 *h1;
    struct h2 *h2;
    int64_t deadline_ms;
    char peer[64];
    size_t nsniffed;
    uint8_t sniffed[PREFACE_LEN];
};

struct http_server {
    struct loop *loop;
    http_request_cb cb;
    void *arg;
    struct net_listener *listeners[LISTENERS_MAX];
    size_t nlisteners;
    struct net_tls *tls;
    struct server_conn *conns;
    size_t nconns;
    struct loop_timer *sweep;
    bool is_sweeping;
};

static void unlink_conn(struct server_conn *sc)
{
    struct http_server *s = sc->server;

    if (s == NULL)
        return;
    if (sc->prev != NULL)
        sc->prev->next = sc->next;
    else
        s->conns = sc->next;
    if (sc->next != NULL)
        sc->next->prev = sc->prev;
    s->nconns--;
    sc->server = NULL;
}

static void on_gone(void *owner)
{
    struct server_conn *sc = owner;

    unlink_conn(sc);
    free(sc);
}

static void drop(struct server_conn *sc)
{
    if (sc->h1 != NULL) {
        h1_free(sc->h1);
    } else if (sc->h2 != NULL) {
        h2_free(sc->h2);
    } else {
        net_conn_free(sc->net);
        on_gone(sc);
    }
}

/* --- first bytes ----------------------------------------------------------------------------- */

static void decide(struct server_conn *sc, bool is_h2, const uint8_t *p, size_t n)
{
    struct http_server *s = sc->server;
    struct http_conn_config conf = {.loop = s->loop,
                                    .on_request = s->cb,
                                    .request_arg = s->arg,
                                    .on_gone = on_gone,
                                    .owner = sc};
    struct net_conn *net = sc->net;
    uint8_t sniffed[PREFACE_LEN];
    size_t nsniffed = sc->nsniffed;

    memcpy(conf.peer, sc->peer, sizeof conf.peer);
    memcpy(sniffed, sc->sniffed, nsniffed);
    sc->net = NULL;
    if (is_h2) {
        struct h2 *h2 = sc->h2 = h2_new(&conf, net);
        if (nsniffed > 0)
            h2_read(h2, sniffed, nsniffed);     /* a part of the preface: calls nobody, frees nothing */
        h2_read(h2, p, n);
    } else {
        struct h1 *h1 = sc->h1 = h1_new(&conf, net);
        if (nsniffed > 0)
            h1_read(h1, sniffed, nsniffed);     /* a part of a method: the same */
        h1_read(h1, p, n);
    }
}

static void on_read(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
    struct server_conn *sc = ctx;
    size_t want = PREFACE_LEN - sc->nsniffed;
    size_t len = n < want ? n : want;

    if (memcmp(&PREFACE[sc->nsniffed], p, len) != 0) {
        decide(sc, false, p, n);
    } else if (len == want) {
        decide(sc, true, p, n);
    } else {
        memcpy(sc->sniffed + sc->nsniffed, p, len);
        sc->nsniffed += len;
    }
}

static void on_end(struct net_conn *c, int sys_errno, void *ctx)
{
    drop(ctx);
}

static const struct net_conn_ops sniff_ops = {.on_read = on_read, .on_end = on_end};

/* --- time ------------------------------------------------------------------------------------ */

static void start_sweep(struct http_server *s)
{
    if (s->is_sweeping)
        return;
    s->is_sweeping = true;
    loop_timer_set(s->sweep, SWEEP_MS);
}

static void on_sweep(void *arg)
{
    struct http_server *s = arg;
    int64_t now_ms = clock_boot_ms();
    bool is_needed = false;
    struct server_conn *next;

    s->is_sweeping = false;
    for (struct server_conn *sc = s->conns; sc != NULL; sc = next) {
        next = sc->next;
        int64_t due_ms = sc->h1 != NULL ? h1_deadline_ms(sc->h1) : sc->h2 != NULL ? 0 : sc->deadline_ms;
        if (sc->h2 == NULL)
            is_needed = true;
        if (due_ms == 0 || due_ms > now_ms)
            continue;
        if (sc->h1 != NULL)
            h1_timeout(sc->h1);
        else
            drop(sc);
    }
    if (is_needed)
        start_sweep(s);
}

/* --- connections ----------------------------------------------------------------------------- */

static void on_accept(int fd, const struct sockaddr *peer, void *arg)
{
    static const char full[] =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
        "content-length: 78\r\nconnection: close\r\n\r\n"
        "{\"error\":{\"code\":\"no_capacity\",\"message\":\"too many connections are open now\"}}";
    struct http_server *s = arg;

    if (s->nconns >= LIMIT_CONNECTIONS) {
        (void)send(fd, full, sizeof full - 1, MSG_NOSIGNAL | MSG_DONTWAIT);    /* a courtesy */
        (void)close(fd);
        return;
    }
    struct server_conn *sc = mem_zalloc(sizeof *sc);
    sc->server = s;
    sc->next = s->conns;
    if (sc->next != NULL)
        sc->next->prev = sc;
    s->conns = sc;
    s->nconns++;
    sc->deadline_ms = clock_boot_ms() + FIRST_MS;
    net_addr_format(peer, sc->peer, sizeof sc->peer);
    sc->net = net_conn_new(s->loop, fd, s->tls, &sniff_ops, sc);
    start_sweep(s);
}

struct http_server *http_server_new(struct loop *l, http_request_cb cb, void *arg)
{
    struct http_server *s = mem_zalloc(sizeof *s);

    s->loop = l;
    s->cb = cb;
    s->arg = arg;
    s->sweep = loop_timer_new(l, on_sweep, s);
    return s;
}

static int add_listener(struct http_server *s, struct net_listener *ls)
{
    if (ls == NULL)
        return -1;
    s->listeners[s->nlisteners++] = ls;
    return 0;
}

int http_server_listen(struct http_server *s, const char *address, struct err *e)
{
    if (s->nlisteners == LISTENERS_MAX)
        return err_set(e, ERR_LIMIT, "a server has at most %d listeners", LISTENERS_MAX);
    return add_listener(s, net_listen(s->loop, address, on_accept, s, e));
}

int http_server_listen_fd(struct http_server *s, int fd, struct err *e)
{
    if (s->nlisteners == LISTENERS_MAX) {
        (void)close(fd);
        return err_set(e, ERR_LIMIT, "a server has at most %d listeners", LISTENERS_MAX);
    }
    return add_listener(s, net_listen_fd(s->loop, fd, on_accept, s, e));
}

int http_server_port(const struct http_server *s)
{
    for (size_t i = 0; i < s->nlisteners; i++) {
        int port = net_listener_port(s->listeners[i]);
        if (port != 0)
            return port;
    }
    return 0;
}

int http_server_tls(struct http_server *s, const char *cert_file, const char *key_file, struct err *e)
{
    struct net_tls *t = net_tls_server(cert_file, key_file, e);

    if (t == NULL)
        return -1;
    /* Connections whose first byte has not come hold the old settings. */
    for (struct server_conn *sc = s->conns; sc != NULL; sc = sc->next) {
        if (sc->net != NULL)
            net_conn_set_tls(sc->net, t);
    }
    net_tls_free(s->tls);
    s->tls = t;
    return 0;
}

void http_server_free(struct http_server *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->nlisteners; i++)
        net_listener_free(s->listeners[i]);
    while (s->conns != NULL) {
        struct server_conn *sc = s->conns;
        s->conns = sc->next;
        if (sc->next != NULL)
            sc->next->prev = NULL;
        sc->server = NULL;
        drop(sc);
    }
    loop_timer_free(s->sweep);
    net_tls_free(s->tls);
    free(s);
}
