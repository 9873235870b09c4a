/*
 * flow.c - one connection through a tunnel
 *
 * The monitor dials first; then bytes go both ways until both directions have ended. Whoever is slow slows the other
 * side down, not us. A side that fails ends the other without the politeness of an orderly end, so that nobody takes a
 * part for the whole. Without TLS the bytes do not pass here at all (net/relay.h). HTTP/2 by name goes through a guard
 * (http/h2_guard.h), because clients use a connection for every name that its certificate has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/h2_guard.h"
#include "net/conn.h"
#include "net/relay.h"
#include "node/monitor_link.h"
#include "node/tunnel/dialed.h"
#include "node/tunnel/name.h"
#include "node/tunnel/tunnel.h"
#include "sys/fd.h"

#define DIAL_MS 10000
#define HIGH (256 * 1024)
#define LOW (64 * 1024)
#define REFUSAL_MS 5000 /* for the first words of a client to whom nobody listens */

enum { CLIENT, INSIDE };

struct flow {
    struct tunnel *tunnel;
    struct flow **link, *next; /* of the tunnel's */
    struct monitor_req *dialing;
    int client_fd;       /* until the dial is answered */
    struct net_tls *tls; /* NULL: a plain tunnel */
    struct net_conn *side[2];
    struct net_relay *relay; /* instead of the sides, without TLS */
    struct h2_guard *guard;  /* NULL: bytes are not looked at */
    bool has_ended[2];       /* it sends no more */
    bool is_refused;
    struct loop_timer *timer;
};

static void flow_free(struct flow *f)
{
    if (f->dialing != NULL)
        monitor_cancel(f->dialing);
    net_conn_free(f->side[CLIENT]);
    net_conn_free(f->side[INSIDE]);
    net_relay_free(f->relay);
    h2_guard_free(f->guard);
    fd_close(&f->client_fd);
    loop_timer_free(f->timer);
    *f->link = f->next;
    if (f->next != NULL)
        f->next->link = f->link;
    free(f);
}

void flows_cut(struct tunnel *t)
{
    while (t->flows != NULL)
        flow_free(t->flows);
}

static int side_of(const struct flow *f, const struct net_conn *c)
{
    return c == f->side[CLIENT] ? CLIENT : INSIDE;
}

/* --- bytes ----------------------------------------------------------------------------------- */

static void on_read(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
    struct flow *f = ctx;
    int from = side_of(f, c);
    struct net_conn *to = f->side[1 - from];

    /* Who speaks plainly where TLS is asked for gets no further. */
    if (from == CLIENT && f->tls != NULL && !net_conn_is_tls(c)) {
        flow_free(f);
        return;
    }
    if (f->guard != NULL &&
        (from == CLIENT ? h2_guard_from_client : h2_guard_from_server)(f->guard, p, n) < 0) {
        flow_free(f);
        return;
    }
    if (f->guard == NULL)
        net_conn_write(to, p, n);
    if (net_conn_queued(to) > HIGH)
        net_conn_pause(c, true);
}

static void guard_to_client(void *ctx, const void *p, size_t n)
{
    struct flow *f = ctx;

    net_conn_write(f->side[CLIENT], p, n);
}

static void guard_to_server(void *ctx, const void *p, size_t n)
{
    struct flow *f = ctx;

    net_conn_write(f->side[INSIDE], p, n);
}

/* The connection is for the name that TLS was asked for. */
static bool guard_is_for_us(void *ctx, const char *authority)
{
    struct flow *f = ctx;
    char host[NET_TLS_NAME];

    name_of_authority(authority, host);
    return host[0] != '\0' &&
           (strcmp(host, f->tunnel->host) == 0 || strcmp(host, f->tunnel->name) == 0);
}

static void on_sent(struct net_conn *c, void *ctx)
{
    struct flow *f = ctx;
    int to = side_of(f, c);

    if (f->side[INSIDE] == NULL)
        return; /* TLS's own words, while the monitor dials */
    if (net_conn_has_ended_output(f->side[CLIENT]) && net_conn_has_ended_output(f->side[INSIDE])) {
        flow_free(f);
        return;
    }
    if (!f->has_ended[1 - to] && net_conn_queued(c) < LOW)
        net_conn_pause(f->side[1 - to], false);
}

static void on_end(struct net_conn *c, int sys_errno, void *ctx)
{
    struct flow *f = ctx;
    int from = side_of(f, c);

    /* Who leaves without a word of TLS has no claim to what the server says first. */
    bool is_plain = from == CLIENT && f->tls != NULL && !net_conn_is_tls(c);
    if (sys_errno != 0 || f->side[INSIDE] == NULL || is_plain) {
        flow_free(f);
        return;
    }
    f->has_ended[from] = true;
    net_conn_end_output(f->side[1 - from]);
}

static const struct net_conn_ops relay = {.on_read = on_read, .on_sent = on_sent, .on_end = on_end};

/* --- nobody listens -------------------------------------------------------------------------- */

static bool looks_like_http(const uint8_t *p, size_t n)
{
    static const char *const methods[] = {"GET ",    "POST ",    "PUT ",  "HEAD ",
                                          "DELETE ", "OPTIONS ", "PATCH "};

    for (size_t i = 0; i < array_len(methods); i++)
        if (n >= strlen(methods[i]) && memcmp(p, methods[i], strlen(methods[i])) == 0)
            return true;
    return false;
}

static void on_refused_read(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
    struct flow *f = ctx;
    char head[256], body[128];

    if ((f->tls != NULL && !net_conn_is_tls(c)) || !looks_like_http(p, n)) {
        flow_free(f);
        return;
    }
    if (f->is_refused)
        return; /* the rest of the request */
    f->is_refused = true;
    int len =
        snprintf(body, sizeof body, "nothing listens on port %u of the sandbox\n", f->tunnel->port);
    (void)snprintf(
        head, sizeof head,
        "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n",
        len);
    net_conn_write(c, head, strlen(head));
    net_conn_write(c, body, (size_t)len);
    net_conn_finish(c);
}

static void on_refused_end(struct net_conn *c, int sys_errno, void *ctx)
{
    flow_free(ctx);
}

static void on_timer(void *arg)
{
    flow_free(arg);
}

/* A browser is told what is wrong; others see their connection end. */
static void refuse(struct flow *f)
{
    static const struct net_conn_ops ops = {.on_read = on_refused_read, .on_end = on_refused_end};

    if (f->side[CLIENT] == NULL)
        f->side[CLIENT] =
            net_conn_new(f->tunnel->node->loop, take_fd(&f->client_fd), f->tls, &ops, f);
    else
        net_conn_set(f->side[CLIENT], &ops, f);
    net_conn_pause(f->side[CLIENT], false);
    f->timer = loop_timer_new(f->tunnel->node->loop, on_timer, f);
    loop_timer_set(f->timer, REFUSAL_MS);
}

/* --- the dial -------------------------------------------------------------------------------- */

static void on_relayed(void *ctx)
{
    flow_free(ctx);
}

static void on_dialed(void *arg, enum monitor_result res, const struct chan_msg *m,
                      const struct err *e)
{
    struct flow *f = arg;
    struct loop *loop = f->tunnel->node->loop;

    f->dialing = NULL;
    if (res == MONITOR_ERROR && e->code == ERR_UNAVAILABLE) {
        refuse(f);
        return;
    }
    int fd = res == MONITOR_REPLY ? dialed_socket(m) : -1;
    if (fd < 0) {
        log_info("tunnel.dial", "sandbox=%s port=%u cause=\"%s\"", f->tunnel->sandbox,
                 f->tunnel->port, e != NULL ? e->message : "the sandbox has ended");
        flow_free(f);
        return;
    }
    if (f->tls == NULL && f->side[CLIENT] == NULL) {
        f->relay = net_relay_new(loop, take_fd(&f->client_fd), fd, on_relayed, f);
        return;
    }
    f->side[INSIDE] = net_conn_new(loop, fd, NULL, &relay, f);
    if (f->side[CLIENT] == NULL)
        f->side[CLIENT] = net_conn_new(loop, take_fd(&f->client_fd), f->tls, &relay, f);
    net_conn_set_patient(f->side[INSIDE]);
    net_conn_set_patient(f->side[CLIENT]);
    net_conn_pause(f->side[CLIENT], false);
}

/* A connection more, or NULL: there are enough. */
static struct flow *flow_new(struct tunnel *t)
{
    size_t count = 0;

    for (const struct flow *f = t->flows; f != NULL; f = f->next)
        count++;
    if (count >= LIMIT_TUNNEL_FLOWS) {
        log_info("tunnel.refused", "sandbox=%s port=%u cause=\"%zu connections are open\"",
                 t->sandbox, t->port, count);
        return NULL;
    }
    struct flow *f = mem_zalloc(sizeof *f);
    f->tunnel = t;
    f->client_fd = -1;
    f->next = t->flows;
    f->link = &t->flows;
    if (f->next != NULL)
        f->next->link = &f->next;
    t->flows = f;
    return f;
}

static void dial(struct flow *f)
{
    struct mon_dial m = {.port = f->tunnel->port};
    uint8_t space[128];

    tunnels_wake(f->tunnel->node);
    f->dialing = monitor_call(f->tunnel->node->monitors, f->tunnel->sandbox, MON_DIAL, space,
                              mon_dial_encode(&m, space, sizeof space), DIAL_MS, on_dialed, f);
}

void flow_start(struct tunnel *t, int fd, struct net_tls *tls)
{
    struct flow *f = flow_new(t);

    if (f == NULL) {
        (void)close(fd);
        return;
    }
    f->client_fd = fd;
    f->tls = tls;
    dial(f);
}

void flow_adopt(struct tunnel *t, struct net_conn *client)
{
    static const struct h2_guard_ops guard = {
        .to_client = guard_to_client, .to_server = guard_to_server, .is_for_us = guard_is_for_us};
    struct flow *f = flow_new(t);

    if (f == NULL) {
        net_conn_free(client);
        return;
    }
    f->side[CLIENT] = client;
    if (t->h2)
        f->guard = h2_guard_new(&guard, f);
    net_conn_set(client, &relay, f);
    net_conn_set_patient(client);
    net_conn_pause(client, true);
    dial(f);
}
