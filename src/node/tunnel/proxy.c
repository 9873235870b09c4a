/*
 * proxy.c - one connection through the proxy, see proxy.h
 *
 * TLS for the name of an open port is handed to flow.c once it stands, unread. All else is HTTP: where a request goes is said by
 * its host, by its path (/t/<sandbox>/<port>/...), or by its connect token; without a token only open ports are reached.
 *
 * One request a connection: the head is read and checked here, rewritten and sent inside with `connection: close`; then the
 * bytes of its body go in and the answer comes out as it is. Nothing that a client sends after its request goes inside, or
 * it could speak there with headers that are ours to give; only an upgrade that was accepted (101) opens the connection for all.
 */
#include "node/tunnel/proxy.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/h1_parse.h"
#include "net/addr.h"
#include "net/conn.h"
#include "node/monitor_link.h"
#include "node/tunnel/dialed.h"
#include "node/tunnel/name.h"
#include "node/tunnel/pass.h"
#include "node/tunnel/proxy_head.h"
#include "node/tunnel/tunnel.h"
#include "sys/fd.h"

#define DIAL_MS 10000
#define HEAD_MS 15000 /* for a head to be complete */
#define HIGH (256 * 1024)
#define LOW (64 * 1024)

enum { CLIENT, INSIDE };

enum body { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_RAW };

struct visit {
    struct node *node;
    struct visit **link, *next;
    char sandbox[ID_SIZE];   /* "" until it is known where the request goes */
    char name[NET_TLS_NAME]; /* that TLS was asked for; "" = none */
    uint16_t port;
    struct sockaddr_storage peer;
    struct net_conn *side[2];
    bool has_ended[2];
    struct loop_timer *timer;
    struct monitor_req *dialing;
    struct buf in; /* head, and what came behind it */
    size_t scanned;
    struct buf out; /* the rewritten head */
    enum body body;
    uint64_t left; /* of BODY_LENGTH */
    struct h1_chunked chunked;
    bool is_upgrade;  /* was asked for, and is not answered */
    bool is_answered; /* our own answer is on its way */
    bool has_answer;  /* bytes of the server's came */
    char status[12];  /* the first bytes of the answer */
    size_t nstatus;
};

static void visit_free(struct visit *v)
{
    if (v->dialing != NULL)
        monitor_cancel(v->dialing);
    net_conn_free(v->side[CLIENT]);
    net_conn_free(v->side[INSIDE]);
    loop_timer_free(v->timer);
    buf_done(&v->in);
    buf_done(&v->out);
    *v->link = v->next;
    if (v->next != NULL)
        v->next->link = v->link;
    free(v);
}

void visits_cut(struct node *n, const char *sandbox)
{
    for (struct visit *v = n->visits, *next; v != NULL; v = next) {
        next = v->next;
        if (sandbox == NULL || strcmp(v->sandbox, sandbox) == 0)
            visit_free(v);
    }
}

const struct visit *visit_next(const struct node *n, const struct visit *after,
                               const char **ret_sandbox)
{
    const struct visit *v = after != NULL ? after->next : n->visits;

    while (v != NULL && v->sandbox[0] == '\0')
        v = v->next;
    *ret_sandbox = v != NULL ? v->sandbox : NULL;
    return v;
}

/* --- our own answers ------------------------------------------------------------------------- */

static void answer(struct visit *v, int status, const char *reason, const char *text)
{
    char head[256];

    if (v->is_answered)
        return;
    v->is_answered = true;
    (void)snprintf(
        head, sizeof head,
        "HTTP/1.1 %d %s\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %zu\r\n%sconnection: close\r\n\r\n",
        status, reason, strlen(text) + 1, status == 401 ? "www-authenticate: Bearer\r\n" : "");
    net_conn_write(v->side[CLIENT], head, strlen(head));
    net_conn_write(v->side[CLIENT], text, strlen(text));
    net_conn_write(v->side[CLIENT], "\n", 1);
    net_conn_finish(v->side[CLIENT]);
}

/* --- the head -------------------------------------------------------------------------------- */

static void peer_text(const struct visit *v, char *out, size_t size)
{
    net_addr_format((const struct sockaddr *)&v->peer, out, size);
    char *colon = strrchr(out, ':');
    if (colon != NULL)
        *colon = '\0';
}

/* Where a request goes, and who lets it. */
struct target {
    const char *sandbox;
    uint16_t port;
    const struct allow *allow;
    struct pass *pass; /* NULL: the port is open to all */
    char prefix[64];   /* of the path, taken off */
};

static bool open_target(const struct tunnel *tunnel, struct target *ret)
{
    if (tunnel == NULL)
        return false;
    ret->sandbox = tunnel->sandbox;
    ret->port = tunnel->port;
    ret->allow = &tunnel->allow;
    return true;
}

/* For whom the token of this request is, if it goes where the request wants to: `host` and `path` may say. */
static bool token_target(struct visit *v, const struct h1_head *h, const char *host,
                         const struct name_path *path, struct target *ret)
{
    char token[PASS_TOKEN + 1], name[NET_TLS_NAME];
    struct err e;

    if (!proxy_head_token(h, token, sizeof token)) {
        answer(v, 401, "Unauthorized", "a connect token is needed: authorization: Bearer <token>");
        return false;
    }
    struct pass *p = pass_find(v->node, token, &e);
    if (p == NULL) {
        answer(v, 401, "Unauthorized", e.message);
        return false;
    }
    name_host(v->node->conf.tunnel_domain, p->sandbox, p->port, name);
    if ((host != NULL && strcmp(host, name) != 0) ||
        (path != NULL && (path->port != p->port || strcmp(path->sandbox, p->sandbox) != 0))) {
        answer(v, 403, "Forbidden", "the connect token is for another port");
        return false;
    }
    *ret = (struct target){.sandbox = p->sandbox, .port = p->port, .allow = &p->allow, .pass = p};
    return true;
}

/* By the name of the host, by the path, or by the token alone. False: answered. */
static bool find_target(struct visit *v, const struct h1_head *h, struct target *ret)
{
    const char *domain = v->node->conf.tunnel_domain;
    struct name_path path;
    char host[NET_TLS_NAME];

    *ret = (struct target){0};
    name_of_authority(h->authority, host);
    bool is_named = name_is_below(host, domain);
    if ((name_is_below(v->name, domain) || is_named) && v->name[0] != '\0' &&
        strcmp(v->name, host) != 0) {
        answer(v, 421, "Misdirected Request", "this connection is for another host");
        return false;
    }
    if (open_target(tunnel_named(v->node, host), ret))
        return true;
    if (is_named)
        return token_target(v, h, host, NULL, ret);
    if (!name_parse_path(h->target, &path))
        return token_target(v, h, NULL, NULL, ret);
    if (!open_target(tunnel_find(v->node, path.sandbox, path.port), ret) &&
        !token_target(v, h, NULL, &path, ret))
        return false;
    (void)snprintf(ret->prefix, sizeof ret->prefix, "%.*s", (int)path.len, h->target);
    return true;
}

static bool write_head(struct visit *v, const struct h1_head *h, const struct target *t)
{
    const char *rest = h->target + strlen(t->prefix);
    auto_free char *target =
        mem_printf("%s%s", rest[0] == '/' || t->prefix[0] == '\0' ? "" : "/", rest);
    char peer[64];

    peer_text(v, peer, sizeof peer);
    const struct proxy_head x = {.target = target,
                                 .peer = peer,
                                 .prefix = t->prefix,
                                 .metadata = t->pass != NULL ? t->pass->metadata : "",
                                 .is_tls = net_conn_is_tls(v->side[CLIENT])};
    proxy_head_write(&v->out, h, &x);
    return !v->out.failed;
}

static void dial(struct visit *v);

static void on_head(struct visit *v, size_t len)
{
    auto_free struct h1_head *h = mem_zalloc(sizeof *h);
    auto_free char *text = mem_dup(v->in.data, len);
    struct target t;
    const char *why;
    struct err e;

    int r = h1_head_parse(text, len, h, &why);
    if (r < 0) {
        answer(v, -r, "Bad Request", why);
        return;
    }
    if (!find_target(v, h, &t))
        return;
    if (!allow_has(t.allow, (const struct sockaddr *)&v->peer)) {
        answer(v, 403, "Forbidden", "connections from this address are not allowed");
        return;
    }
    if (t.pass != NULL && pass_count(v->node, t.pass, &e) < 0) {
        answer(v, 500, "Internal Server Error", e.message);
        return;
    }
    if (!write_head(v, h, &t)) {
        answer(v, 431, "Request Header Fields Too Large", "the head is too large");
        return;
    }
    (void)snprintf(v->sandbox, sizeof v->sandbox, "%s", t.sandbox);
    v->port = t.port;
    v->is_upgrade = h->has_upgrade;
    v->body = h->is_chunked ? BODY_CHUNKED : h->content_length > 0 ? BODY_LENGTH : BODY_NONE;
    v->left = h->content_length > 0 ? (uint64_t)h->content_length : 0;
    h1_chunked_init(&v->chunked);
    memmove(v->in.data, v->in.data + len, v->in.len - len);
    v->in.len -= len;
    loop_timer_clear(v->timer);
    net_conn_set_patient(v->side[CLIENT]); /* it may have ended its direction already */
    net_conn_pause(v->side[CLIENT], true);
    dial(v);
}

static void on_head_bytes(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
    struct visit *v = ctx;

    if (v->is_answered)
        return;
    if (v->body != BODY_NONE || v->sandbox[0] != '\0' || buf_add(&v->in, p, n) < 0) {
        if (v->sandbox[0] == '\0')
            answer(v, 431, "Request Header Fields Too Large", "the head is too large");
        else
            (void)buf_add(&v->in, p,
                          n); /* of the read that had the head's end; the next one comes later */
        return;
    }
    ssize_t len = h1_head_find(v->in.data, v->in.len, &v->scanned);
    if (len < 0)
        answer(v, (int)-len, "Bad Request", "the head cannot be read");
    else if (len > 0)
        on_head(v, (size_t)len);
}

/* The name of a port that is open needs no HTTP: the connection is its. */
static void on_secure(struct net_conn *c, void *ctx)
{
    struct visit *v = ctx;

    net_conn_server_name(c, v->name);
    struct tunnel *t = tunnel_named(v->node, v->name);
    if (t == NULL)
        return;
    if (!allow_has(&t->allow, (const struct sockaddr *)&v->peer)) {
        log_info("tunnel.refused", "sandbox=%s port=%u cause=\"address is not allowed\"",
                 t->sandbox, t->port);
        visit_free(v);
        return;
    }
    v->side[CLIENT] = NULL;
    visit_free(v);
    flow_adopt(t, c);
}

static void on_head_end(struct net_conn *c, int sys_errno, void *ctx)
{
    visit_free(ctx);
}

static void on_timer(void *arg)
{
    visit_free(arg);
}

/* --- bytes ----------------------------------------------------------------------------------- */

static void send_inside(struct visit *v, const void *p, size_t n)
{
    net_conn_write(v->side[INSIDE], p, n);
    if (net_conn_queued(v->side[INSIDE]) > HIGH)
        net_conn_pause(v->side[CLIENT], true);
}

/* Ends it from our side: with an answer, unless one has begun. */
static void give_up(struct visit *v, int status, const char *reason, const char *text)
{
    if (v->has_answer) {
        visit_free(v);
        return;
    }
    net_conn_free(v->side[INSIDE]);
    v->side[INSIDE] = NULL;
    net_conn_pause(v->side[CLIENT], false);
    answer(v, status, reason, text);
}

/* What belongs to the request's body; the rest is dropped, or waits for the answer to an upgrade. */
static void take_body(struct visit *v, const char *p, size_t n)
{
    while (n > 0 && v->body == BODY_CHUNKED) {
        const char *body;
        size_t used, len;
        if (h1_chunked_next(&v->chunked, p, n, &used, &body, &len) < 0) {
            give_up(v, 400, "Bad Request", "a chunk of the body cannot be read");
            return;
        }
        send_inside(v, p, used);
        p += used;
        n -= used;
        if (v->chunked.state == H1_CHUNK_DONE)
            v->body = BODY_NONE;
    }
    if (v->body == BODY_LENGTH) {
        size_t take = n < v->left ? n : (size_t)v->left;
        send_inside(v, p, take);
        v->left -= take;
        p += take;
        n -= take;
        if (v->left == 0)
            v->body = BODY_NONE;
    }
    if (v->body == BODY_RAW) {
        send_inside(v, p, n);
    } else if (n > 0 && v->is_upgrade) {
        if (buf_add(&v->in, p, n) < 0)
            give_up(v, 400, "Bad Request", "too much was sent before the upgrade was answered");
        else
            net_conn_pause(v->side[CLIENT], true);
    }
}

/* The status line tells whether the connection changes hands. */
static void watch_status(struct visit *v, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n && v->nstatus < sizeof v->status; i++)
        v->status[v->nstatus++] = (char)p[i];
    if (v->nstatus < sizeof v->status)
        return;
    v->is_upgrade = false;
    if (memcmp(v->status + 8, " 101", 4) != 0)
        return;
    v->body = BODY_RAW;
    send_inside(v, v->in.data, v->in.len);
    buf_clear(&v->in);
    net_conn_pause(v->side[CLIENT], false);
}

static void on_read(struct net_conn *c, const uint8_t *p, size_t n, void *ctx)
{
    struct visit *v = ctx;

    if (v->is_answered)
        return;
    if (c == v->side[CLIENT]) {
        take_body(v, (const char *)p, n);
        return;
    }
    v->has_answer = true;
    if (v->is_upgrade)
        watch_status(v, p, n);
    net_conn_write(v->side[CLIENT], p, n);
    if (net_conn_queued(v->side[CLIENT]) > HIGH)
        net_conn_pause(c, true);
}

static void on_sent(struct net_conn *c, void *ctx)
{
    struct visit *v = ctx;
    int to = c == v->side[CLIENT] ? CLIENT : INSIDE;

    /* The answer is out: nothing more can happen. */
    if (net_conn_has_ended_output(v->side[CLIENT])) {
        visit_free(v);
        return;
    }
    if (v->side[INSIDE] != NULL && !v->has_ended[1 - to] && net_conn_queued(c) < LOW &&
        !(to == INSIDE && v->is_upgrade && v->in.len > 0))
        net_conn_pause(v->side[1 - to], false);
}

static void on_end(struct net_conn *c, int sys_errno, void *ctx)
{
    struct visit *v = ctx;
    int from = c == v->side[CLIENT] ? CLIENT : INSIDE;

    if (from == INSIDE && !v->has_answer) {
        give_up(v, 502, "Bad Gateway", "the server closed the connection without an answer");
        return;
    }
    if (sys_errno != 0 || v->is_answered) {
        visit_free(v);
        return;
    }
    v->has_ended[from] = true;
    net_conn_end_output(v->side[1 - from]);
}

static void on_dialed(void *arg, enum monitor_result res, const struct chan_msg *m,
                      const struct err *e)
{
    static const struct net_conn_ops relay = {
        .on_read = on_read, .on_sent = on_sent, .on_end = on_end};
    struct visit *v = arg;
    char text[96];

    v->dialing = NULL;
    int fd = res == MONITOR_REPLY ? dialed_socket(m) : -1;
    if (fd < 0) {
        if (res == MONITOR_GONE || (e != NULL && e->code == ERR_GONE))
            (void)snprintf(text, sizeof text, "the sandbox has ended");
        else
            (void)snprintf(text, sizeof text, "nothing listens on port %u of the sandbox", v->port);
        net_conn_pause(v->side[CLIENT], false);
        answer(v, res == MONITOR_GONE || (e != NULL && e->code == ERR_GONE) ? 410 : 502,
               "Bad Gateway", text);
        return;
    }
    v->side[INSIDE] = net_conn_new(v->node->loop, fd, NULL, &relay, v);
    net_conn_set(v->side[CLIENT], &relay, v);
    net_conn_set_patient(v->side[INSIDE]);
    net_conn_set_patient(v->side[CLIENT]);
    net_conn_write(v->side[INSIDE], v->out.data, v->out.len);
    buf_done(&v->out);
    net_conn_pause(v->side[CLIENT], false);
    struct buf rest = v->in;
    buf_init(&v->in, LIMIT_HTTP_HEAD);
    take_body(v, rest.data, rest.len); /* v may be gone */
    buf_done(&rest);
}

static void dial(struct visit *v)
{
    struct mon_dial m = {.port = v->port};
    uint8_t space[128];

    tunnels_wake(v->node);
    v->dialing = monitor_call(v->node->monitors, v->sandbox, MON_DIAL, space,
                              mon_dial_encode(&m, space, sizeof space), DIAL_MS, on_dialed, v);
}

void visit_start(struct node *n, int fd, const struct sockaddr *peer, struct net_tls *tls)
{
    static const struct net_conn_ops ops = {
        .on_read = on_head_bytes, .on_secure = on_secure, .on_end = on_head_end};
    size_t count = 0;

    for (const struct visit *v = n->visits; v != NULL; v = v->next)
        count++;
    if (count >= LIMIT_CONNECTIONS) {
        (void)close(fd);
        return;
    }
    struct visit *v = mem_zalloc(sizeof *v);
    v->node = n;
    memcpy(&v->peer, peer,
           peer->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    buf_init(&v->in, LIMIT_HTTP_HEAD);
    buf_init(&v->out, 2 * LIMIT_HTTP_HEAD);
    v->next = n->visits;
    v->link = &n->visits;
    if (v->next != NULL)
        v->next->link = &v->next;
    n->visits = v;
    v->timer = loop_timer_new(n->loop, on_timer, v);
    loop_timer_set(v->timer, HEAD_MS);
    v->side[CLIENT] = net_conn_new(n->loop, fd, tls, &ops, v);
}
