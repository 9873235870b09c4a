/*
 * proxy.c - one connection through the proxy, see proxy.h
 *
 * One request a connection: the head is read and checked here, rewritten and sent inside with `connection: close`; then the
 * bytes of its body go in and the answer comes out as it is. Nothing that a client sends after its request goes inside, or it could
 * speak there with headers that are ours to give; only an upgrade that was accepted (101) opens the connection for all.
 */
#include "node/tunnel/proxy.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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
#include "node/tunnel/pass.h"
#include "node/tunnel/tunnel.h"
#include "sys/fd.h"

#define DIAL_MS 10000
#define HEAD_MS 15000           /* for a head to be complete */
#define HIGH (256 * 1024)
#define LOW (64 * 1024)
#define COOKIE "quicksand_token="

enum { CLIENT, INSIDE };

enum body { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_RAW };

struct visit {
    struct node *node;
    struct visit **link, *next;
    char sandbox[ID_SIZE];              /* "" until the token is known */
    uint16_t port;
    struct sockaddr_storage peer;
    struct net_conn *side[2];
    bool has_ended[2];
    struct loop_timer *timer;
    struct monitor_req *dialing;
    struct buf in;                      /* head, and what came behind it */
    size_t scanned;
    struct buf out;                     /* the rewritten head */
    enum body body;
    uint64_t left;                      /* of BODY_LENGTH */
    struct h1_chunked chunked;
    bool is_upgrade;                    /* was asked for, and is not answered */
    bool is_answered;                   /* our own answer is on its way */
    bool has_answer;                    /* bytes of the server's came */
    char status[12];                    /* the first bytes of the answer */
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

const struct visit *visit_next(const struct node *n, const struct visit *after, const char **ret_sandbox)
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
    (void)snprintf(head, sizeof head,
                   "HTTP/1.1 %d %s\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %zu\r\n%sconnection: close\r\n\r\n",
                   status, reason, strlen(text) + 1, status == 401 ? "www-authenticate: Bearer\r\n" : "");
    net_conn_write(v->side[CLIENT], head, strlen(head));
    net_conn_write(v->side[CLIENT], text, strlen(text));
    net_conn_write(v->side[CLIENT], "\n", 1);
    net_conn_finish(v->side[CLIENT]);
}

/* --- the head -------------------------------------------------------------------------------- */

static bool is_ours(const char *name)
{
    static const char *const names[] = {"connection", "keep-alive", "proxy-connection", "x-forwarded-for", "x-forwarded-proto",
                                        "x-forwarded-host", "x-real-ip", "forwarded", "x-verified-user-data", "x-quicksand-token",
                                        "te"};

    for (size_t i = 0; i < array_len(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The value of our cookie within a Cookie header, or NULL. */
static const char *find_cookie(const char *value, size_t *ret_len)
{
    for (const char *p = value; *p != '\0'; p += strcspn(p, ";"), p += *p == ';') {
        p += strspn(p, " \t");
        if (strncmp(p, COOKIE, strlen(COOKIE)) == 0) {
            *ret_len = strcspn(p + strlen(COOKIE), "; \t");
            return p + strlen(COOKIE);
        }
    }
    return NULL;
}

/* The token that the request shows, into `out`; *ret_field is the header that had it. */
static bool find_token(const struct h1_head *h, char *out, size_t size, const struct http_header **ret_field)
{
    for (size_t i = 0; i < h->nfields; i++) {
        const struct http_header *f = &h->fields[i];
        const char *value = NULL;
        size_t n = 0;
        if (strcmp(f->name, "authorization") == 0 && strncasecmp(f->value, "Bearer ", 7) == 0) {
            value = f->value + 7;
            n = strlen(value);
        } else if (strcmp(f->name, "x-quicksand-token") == 0) {
            value = f->value;
            n = strlen(value);
        } else if (strcmp(f->name, "cookie") == 0) {
            value = find_cookie(f->value, &n);
        }
        if (value != NULL && n < size) {
            (void)snprintf(out, size, "%.*s", (int)n, value);
            *ret_field = f;
            return true;
        }
    }
    return false;
}

/* The Cookie header without our cookie; nothing if that was all. */
static void put_cookies(struct buf *out, const char *value)
{
    bool first = true;

    for (const char *p = value; *p != '\0'; p += *p == ';') {
        p += strspn(p, " \t");
        size_t n = strcspn(p, ";");
        if (n > 0 && strncmp(p, COOKIE, strlen(COOKIE)) != 0) {
            buf_addf(out, "%s%.*s", first ? "cookie: " : "; ", (int)n, p);
            first = false;
        }
        p += n;
    }
    if (!first)
        buf_adds(out, "\r\n");
}

static void peer_text(const struct visit *v, char *out, size_t size)
{
    net_addr_format((const struct sockaddr *)&v->peer, out, size);
    char *colon = strrchr(out, ':');
    if (colon != NULL)
        *colon = '\0';
}

static void write_head(struct visit *v, const struct h1_head *h, const struct pass *p, const struct http_header *token)
{
    char peer[64];

    peer_text(v, peer, sizeof peer);
    buf_addf(&v->out, "%s %s HTTP/1.1\r\n", h->method, h->target);
    for (size_t i = 0; i < h->nfields; i++) {
        const struct http_header *f = &h->fields[i];
        if (strcmp(f->name, "cookie") == 0)
            put_cookies(&v->out, f->value);
        else if (!is_ours(f->name) && f != token)
            buf_addf(&v->out, "%s: %s\r\n", f->name, f->value);
    }
    buf_addf(&v->out, "x-forwarded-for: %s\r\nx-forwarded-proto: %s\r\nx-forwarded-host: %s\r\n", peer,
             net_conn_is_tls(v->side[CLIENT]) ? "https" : "http", h->authority);
    if (p->metadata[0] != '\0')
        buf_addf(&v->out, "x-verified-user-data: %s\r\n", p->metadata);
    buf_addf(&v->out, "connection: %s\r\n\r\n", h->has_upgrade ? "upgrade" : "close");
}

static void dial(struct visit *v);

static void on_head(struct visit *v, size_t len)
{
    auto_free struct h1_head *h = mem_zalloc(sizeof *h);
    auto_free char *text = mem_dup(v->in.data, len);
    char token[PASS_TOKEN + 1];
    const struct http_header *field;
    const char *why;
    struct err e;

    int r = h1_head_parse(text, len, h, &why);
    if (r < 0) {
        answer(v, -r, "Bad Request", why);
        return;
    }
    if (!find_token(h, token, sizeof token, &field)) {
        answer(v, 401, "Unauthorized", "a connect token is needed: authorization: Bearer <token>");
        return;
    }
    const struct pass *p = pass_use(v->node, token, &e);
    if (p == NULL) {
        answer(v, e.code == ERR_UNAUTHENTICATED ? 401 : 500, "Unauthorized", e.message);
        return;
    }
    if (!allow_has(&p->allow, (const struct sockaddr *)&v->peer)) {
        answer(v, 403, "Forbidden", "connections from this address are not allowed");
        return;
    }
    write_head(v, h, p, field);
    if (v->out.failed) {
        answer(v, 431, "Request Header Fields Too Large", "the head is too large");
        return;
    }
    (void)snprintf(v->sandbox, sizeof v->sandbox, "%s", p->sandbox);
    v->port = p->port;
    v->is_upgrade = h->has_upgrade;
    v->body = h->is_chunked ? BODY_CHUNKED : h->content_length > 0 ? BODY_LENGTH : BODY_NONE;
    v->left = h->content_length > 0 ? (uint64_t)h->content_length : 0;
    h1_chunked_init(&v->chunked);
    memmove(v->in.data, v->in.data + len, v->in.len - len);
    v->in.len -= len;
    loop_timer_clear(v->timer);
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
            (void)buf_add(&v->in, p, n);        /* of the read that had the head's end; the next one comes later */
        return;
    }
    ssize_t len = h1_head_find(v->in.data, v->in.len, &v->scanned);
    if (len < 0)
        answer(v, (int)-len, "Bad Request", "the head cannot be read");
    else if (len > 0)
        on_head(v, (size_t)len);
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
    if (v->side[INSIDE] != NULL && !v->has_ended[1 - to] && net_conn_queued(c) < LOW && !(to == INSIDE && v->is_upgrade && v->in.len > 0))
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

static void on_dialed(void *arg, enum monitor_result res, const struct chan_msg *m, const struct err *e)
{
    static const struct net_conn_ops relay = {.on_read = on_read, .on_sent = on_sent, .on_end = on_end};
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
        answer(v, res == MONITOR_GONE || (e != NULL && e->code == ERR_GONE) ? 410 : 502, "Bad Gateway", text);
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
    take_body(v, rest.data, rest.len);  /* v may be gone */
    buf_done(&rest);
}

static void dial(struct visit *v)
{
    struct mon_dial m = {.port = v->port};
    uint8_t space[128];

    tunnels_wake(v->node);
    v->dialing = monitor_call(v->node->monitors, v->sandbox, MON_DIAL, space, mon_dial_encode(&m, space, sizeof space), DIAL_MS,
                              on_dialed, v);
}

void visit_start(struct node *n, int fd, const struct sockaddr *peer, struct net_tls *tls)
{
    static const struct net_conn_ops ops = {.on_read = on_head_bytes, .on_end = on_head_end};
    size_t count = 0;

    for (const struct visit *v = n->visits; v != NULL; v = v->next)
        count++;
    if (count >= LIMIT_CONNECTIONS) {
        (void)close(fd);
        return;
    }
    struct visit *v = mem_zalloc(sizeof *v);
    v->node = n;
    memcpy(&v->peer, peer, peer->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    buf_init(&v->in, LIMIT_HTTP_HEAD);
    buf_init(&v->out, 2 * LIMIT_HTTP_HEAD);
    v->next = n->visits;
    v->link = &n->visits;
    if (v->next != NULL)
        v->next->link = &v->next;
    n->visits = v;
    net_socket_tune(fd);
    v->timer = loop_timer_new(n->loop, on_timer, v);
    loop_timer_set(v->timer, HEAD_MS);
    v->side[CLIENT] = net_conn_new(n->loop, fd, tls, &ops, v);
}
