/*
 * tunnels.c - which tunnels there are
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/record.h"
#include "json/json.h"
#include "net/tls.h"
#include "node/certificate.h"
#include "node/monitor_link.h"
#include "node/query.h"
#include "node/tunnel/certs.h"
#include "node/tunnel/name.h"
#include "node/tunnel/pass.h"
#include "node/tunnel/proxy.h"
#include "node/tunnel/tunnel.h"
#include "sys/fd.h"

#define FILE_NAME ".tunnels"
#define FILE_MAX (4 * 1024 * 1024)
/* Whose sandbox has ended is found out, and a sandbox with open connections kept from being idle, this often. */
#define SWEEP_MS 1000

#define ALPN_H1 "\x08http/1.1"
#define ALPN_H2 "\x02h2"

struct tunnels {
    struct range range;
    struct range_port *shared;          /* the first port of the range */
    struct tunnel *first;
    struct map by_name;
    struct certs *certs;
    struct net_tls *tls1, *tls2, *tls_names;    /* of ports for HTTP/1.1, for HTTP/2, of the shared one */
    struct loop_timer *sweep;
    struct query *ask;                  /* about the sandbox of the sweep */
    char asked[ID_SIZE];
};

/* --- who may connect ------------------------------------------------------------------------- */

static void accepted(struct tunnel *t, int fd, const struct sockaddr *peer, struct net_tls *tls)
{
    const struct linger reset = {.l_onoff = 1};

    if (allow_has(&t->allow, peer)) {
        flow_start(t, fd, tls);
        return;
    }
    log_info("tunnel.refused", "sandbox=%s port=%u cause=\"address is not allowed\"", t->sandbox, t->port);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    (void)close(fd);
}

static void on_tls_accepted(int fd, const struct sockaddr *peer, void *arg)
{
    struct tunnel *t = arg;

    accepted(t, fd, peer, t->h2 ? t->node->tunnels->tls2 : t->node->tunnels->tls1);
}

static void on_shared_accepted(int fd, const struct sockaddr *peer, void *arg)
{
    struct node *n = arg;

    visit_start(n, fd, peer, n->tunnels->tls_names);
}

static void on_raw_accepted(int fd, const struct sockaddr *peer, void *arg)
{
    accepted(arg, fd, peer, NULL);
}

/* --- opening and closing --------------------------------------------------------------------- */

static void tunnel_free(struct tunnel *t)
{
    struct map *names = &t->node->tunnels->by_name;

    flows_cut(t);
    for (int i = 0; i < 2; i++) {
        char *name = i == 0 ? t->host : t->name;
        if (name != NULL && map_get(names, name) == t)
            (void)map_del(names, name);
        free(name);
    }
    range_give(t->tls_port);
    range_give(t->raw_port);
    allow_done(&t->allow);
    free(t);
}

static struct tunnel *find(const struct node *n, const char *sandbox, uint16_t port)
{
    for (struct tunnel *t = n->tunnels->first; t != NULL; t = t->next)
        if (t->port == port && strcmp(t->sandbox, sandbox) == 0)
            return t;
    return NULL;
}

static bool is_same(const struct tunnel *a, const struct tunnel *b)
{
    return a->h2 == b->h2 && a->raw == b->raw && strcmp(a->host, b->host) == 0 && allow_is_same(&a->allow, &b->allow);
}

static int take_names(struct tunnel *t, struct err *e)
{
    struct map *names = &t->node->tunnels->by_name;

    if (t->host[0] != '\0' && map_get(names, t->host) != NULL)
        return err_param(e, ERR_CONFLICT, "host", "host '%s' leads to a port already", t->host);
    if (t->host[0] != '\0')
        (void)map_put(names, t->host, t);
    if (t->name[0] != '\0')
        (void)map_put(names, t->name, t);
    return 0;
}

/* The ports may be those of the last run, or 0. */
static int take_ports(struct tunnel *t, uint16_t tls_port, uint16_t raw_port, struct err *e)
{
    struct tunnels *all = t->node->tunnels;

    if (take_names(t, e) < 0)
        return -1;
    if (t->host[0] == '\0' && t->name[0] == '\0') {
        t->tls_port = range_take(&all->range, tls_port, t->node->loop, on_tls_accepted, t, e);
        if (t->tls_port == NULL)
            return -1;
    }
    if (!t->raw)
        return 0;
    t->raw_port = range_take(&all->range, raw_port, t->node->loop, on_raw_accepted, t, e);
    return t->raw_port != NULL ? 0 : -1;
}

/* "" for `host`: none. */
static struct tunnel *tunnel_new(struct node *n, const char *sandbox, uint16_t port, const char *host)
{
    struct tunnel *t = mem_zalloc(sizeof *t);
    char name[NET_TLS_NAME] = "";

    t->node = n;
    (void)snprintf(t->sandbox, sizeof t->sandbox, "%s", sandbox);
    t->port = port;
    if (n->conf.tunnel_domain[0] != '\0')
        name_host(n->conf.tunnel_domain, sandbox, port, name);
    t->name = mem_strdup(name);
    t->host = mem_strdup(host);
    return t;
}

/* `t` is whole but for its names and ports; it is consumed. */
static struct tunnel *add(struct tunnel *t, uint16_t tls_port, uint16_t raw_port, struct err *e)
{
    struct tunnels *all = t->node->tunnels;
    struct tunnel **at = &all->first;

    if (take_ports(t, tls_port, raw_port, e) < 0) {
        tunnel_free(t);
        return NULL;
    }
    while (*at != NULL)
        at = &(*at)->next;
    *at = t;
    loop_timer_set(all->sweep, SWEEP_MS);
    return t;
}

static int save(struct node *n, struct err *e);

int tunnel_open(struct node *n, const char *sandbox, const Quicksand__Node__Port *p, const struct tunnel **ret, struct err *e)
{
    char host[NET_TLS_NAME] = "";

    if (n->tunnels->range.n == 0)
        return err_set(e, ERR_UNSUPPORTED, "this node has no ports for tunnels: tunnel_listen is empty or all of it is taken");
    if (p->port < 1 || p->port > 65535)
        return err_param(e, ERR_INVALID, "port", "port %u is not from 1 to 65535", p->port);
    if (p->host != NULL && p->host[0] != '\0' &&
        (name_check("host", p->host, n->conf.tunnel_domain, host, e) < 0 || certs_check(n->tunnels->certs, host, e) < 0))
        return -1;
    struct tunnel *t = tunnel_new(n, sandbox, (uint16_t)p->port, host);
    t->h2 = p->h2;
    t->raw = p->raw;
    struct tunnel *old = find(n, sandbox, t->port);
    if (allow_read(&t->allow, p->restricted, p->allowed, p->n_allowed, e) < 0) {
        tunnel_free(t);
        return -1;
    }
    if (old != NULL) {
        bool same = is_same(old, t);
        tunnel_free(t);
        if (!same)
            return err_param(e, ERR_CONFLICT, "port", "port %u is open already, in another way", p->port);
        *ret = old;
        return 0;
    }
    t = add(t, 0, 0, e);
    if (t == NULL)
        return -1;
    if (save(n, e) < 0) {
        (void)tunnel_close(n, sandbox, (uint16_t)p->port);
        return -1;
    }
    *ret = t;
    return 0;
}

size_t tunnel_close(struct node *n, const char *sandbox, uint16_t port)
{
    struct err e;
    size_t closed = 0;

    for (struct tunnel **at = &n->tunnels->first; *at != NULL;) {
        struct tunnel *t = *at;
        if (strcmp(t->sandbox, sandbox) != 0 || (port != 0 && t->port != port)) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        tunnel_free(t);
        closed++;
    }
    /* If it stays in the file, the next run finds that its sandbox is gone. */
    if (closed > 0 && save(n, &e) < 0)
        log_warn("tunnel.save", "cause=\"%s\"", e.message);
    return closed;
}

void tunnels_end(struct node *n, const char *sandbox)
{
    (void)tunnel_close(n, sandbox, 0);
    (void)pass_revoke(n, sandbox, "");
    visits_cut(n, sandbox);
}

uint16_t tunnels_shared_port(const struct node *n)
{
    if (n->tunnels->shared == NULL)
        return 0;
    return n->conf.tunnel_public_port != 0 ? (uint16_t)n->conf.tunnel_public_port : n->tunnels->shared->number;
}

const struct tunnel *tunnel_find(const struct node *n, const char *sandbox, uint16_t port)
{
    return find(n, sandbox, port);
}

struct tunnel *tunnel_named(const struct node *n, const char *host)
{
    return host[0] != '\0' ? map_get(&n->tunnels->by_name, host) : NULL;
}

const char *tunnel_host(const struct tunnel *t)
{
    return t->host[0] != '\0' ? t->host : t->name;
}

uint16_t tunnel_tls_port(const struct tunnel *t)
{
    return t->tls_port != NULL ? t->tls_port->number : tunnels_shared_port(t->node);
}

void tunnels_wake(struct node *n)
{
    loop_timer_set(n->tunnels->sweep, SWEEP_MS);
}

const struct tunnel *tunnel_next(const struct node *n, const char *sandbox, const struct tunnel *after)
{
    const struct tunnel *t = after != NULL ? after->next : n->tunnels->first;

    while (t != NULL && strcmp(t->sandbox, sandbox) != 0)
        t = t->next;
    return t;
}

/* --- on disk --------------------------------------------------------------------------------- */

static json_t *to_json(const struct tunnel *t)
{
    json_t *o = json_pack("{s:s, s:i, s:b, s:b, s:s, s:i, s:i}", "sandbox", t->sandbox, "port",
                          (int)t->port, "h2", t->h2, "raw", t->raw, "host", t->host, "tls_port",
                          t->tls_port != NULL ? (int)t->tls_port->number : 0, "raw_port",
                          t->raw_port != NULL ? (int)t->raw_port->number : 0);

    allow_to_json(&t->allow, o);
    return o;
}

static int save(struct node *n, struct err *e)
{
    auto_json *all = json_array();

    for (const struct tunnel *t = n->tunnels->first; t != NULL; t = t->next)
        json_array_append_new(all, to_json(t));
    auto_free char *text = js_text(all, false);
    int r = fd_replace_file(n->state_fd, FILE_NAME, text, strlen(text), 0600, false);
    return r < 0 ? err_sys(e, -r, "keep the list of tunnels") : 0;
}

static void restore_one(struct node *n, const json_t *o)
{
    const char *sandbox = json_string_value(json_object_get(o, "sandbox"));
    json_int_t port = json_integer_value(json_object_get(o, "port"));
    const char *host = json_string_value(json_object_get(o, "host"));
    struct err e;

    if (sandbox == NULL || !id_is(sandbox, "sb-") || port < 1 || port > 65535)
        return;
    struct tunnel *t = tunnel_new(n, sandbox, (uint16_t)port, host != NULL ? host : "");
    t->h2 = json_is_true(json_object_get(o, "h2"));
    t->raw = json_is_true(json_object_get(o, "raw"));
    allow_from_json(&t->allow, o);
    if (add(t, (uint16_t)json_integer_value(json_object_get(o, "tls_port")),
            (uint16_t)json_integer_value(json_object_get(o, "raw_port")), &e) == NULL)
        log_warn("tunnel.lost", "sandbox=%s port=%d cause=\"%s\"", sandbox, (int)port, e.message);
}

static void restore(struct node *n)
{
    auto_free char *text = mem_alloc(FILE_MAX);
    auto_close int fd = openat(n->state_fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const json_t *o;
    size_t i;

    if (fd < 0)
        return;                 /* there were none */
    ssize_t len = fd_read_all(fd, text, FILE_MAX);
    auto_json *all = len >= 0 ? json_loadb(text, (size_t)len, 0, NULL) : NULL;
    if (!json_is_array(all))
        log_warn("tunnel.file", "cause=\"%s cannot be read: its tunnels are lost\"", FILE_NAME);
    json_array_foreach(all, i, o)
        restore_one(n, o);
}

/* --- the sweep ------------------------------------------------------------------------------- */

static void on_touched(void *arg, enum monitor_result res, const struct chan_msg *m, const struct err *e)
{
}

static void touch(struct node *n, const char *sandbox)
{
    (void)monitor_call(n->monitors, sandbox, MON_TOUCH, NULL, 0, SWEEP_MS * 5, on_touched, NULL);
}

static void on_seen(void *arg, const struct sandbox_record *r, const struct err *e)
{
    struct node *n = arg;
    bool is_gone = e != NULL ? e->code == ERR_NOT_FOUND : r->state == SB_ENDED;

    if (is_gone)
        tunnels_end(n, n->tunnels->asked);
}

/* The sandbox after the one asked about last, in the order of the list. */
static const struct tunnel *next_to_ask(const struct tunnels *all)
{
    const struct tunnel *t = all->first;

    while (t != NULL && strcmp(t->sandbox, all->asked) != 0)
        t = t->next;
    while (t != NULL && strcmp(t->sandbox, all->asked) == 0)
        t = t->next;
    return t != NULL ? t : all->first;
}

static void on_sweep(void *arg)
{
    struct node *n = arg;
    struct tunnels *all = n->tunnels;
    const struct tunnel *t = next_to_ask(all);
    const struct visit *v = NULL;
    const char *sandbox;

    if (t == NULL && n->visits == NULL)
        return;                 /* none is left; the next one sets the timer again */
    if (t != NULL && all->ask == NULL) {
        (void)snprintf(all->asked, sizeof all->asked, "%s", t->sandbox);
        query_sandbox_soon(n, &all->ask, all->asked, on_seen, n);
    }
    for (t = all->first; t != NULL; t = t->next)
        if (t->flows != NULL)
            touch(n, t->sandbox);
    while ((v = visit_next(n, v, &sandbox)) != NULL)
        touch(n, sandbox);
    loop_timer_set(all->sweep, SWEEP_MS);
}

/* --- life ------------------------------------------------------------------------------------ */

static void choose_own(void *arg, const char *name, struct net_tls **ret_tls, const char **ret_alpn)
{
    struct node *n = arg;

    *ret_tls = certs_get(n->tunnels->certs, "");
}

static void choose_by_name(void *arg, const char *name, struct net_tls **ret_tls, const char **ret_alpn)
{
    struct node *n = arg;
    const struct tunnel *t = tunnel_named(n, name);

    /* Names that nobody was given are strangers' words, and not looked for among files. */
    bool is_known = t != NULL || name_is_below(name, n->conf.tunnel_domain);
    *ret_tls = certs_get(n->tunnels->certs, is_known ? name : "");
    *ret_alpn = t != NULL && t->h2 ? ALPN_H2 : ALPN_H1;
}

static struct net_tls *make_tls(struct node *n, net_tls_choose_cb choose, const char *protocol, struct err *e)
{
    char cert[512], key[512];

    if (certificate_files(n, cert, key, sizeof cert, e) < 0)
        return NULL;
    struct net_tls *t = net_tls_server(cert, key, e);
    if (t != NULL) {
        net_tls_set_alpn(t, protocol);
        net_tls_set_chooser(t, choose, n);
    }
    return t;
}

static int check_domain(struct node *n, struct err *e)
{
    char *domain = n->conf.tunnel_domain, name[NET_TLS_NAME];

    if (domain[0] == '\0')
        return 0;
    if (n->tunnels->range.n == 0)
        return err_param(e, ERR_INVALID, "tunnel_domain", "tunnel_domain needs a port of tunnel_listen");
    if (name_check("tunnel_domain", domain, "", name, e) < 0)
        return -1;
    memcpy(domain, name, strlen(name) + 1);     /* as long as it was, or shorter */
    return 0;
}

int tunnels_new(struct node *n, struct err *e)
{
    struct tunnels *all = mem_zalloc(sizeof *all);

    n->tunnels = all;
    all->sweep = loop_timer_new(n->loop, on_sweep, n);
    map_init(&all->by_name);
    passes_new(n);
    if (range_open(&all->range, n->conf.tunnel_listen, e) < 0 || check_domain(n, e) < 0)
        return -1;
    if (all->range.n == 0)
        return 0;
    all->certs = certs_new(n, e);
    all->tls1 = all->certs != NULL ? make_tls(n, choose_own, ALPN_H1, e) : NULL;
    all->tls2 = all->tls1 != NULL ? make_tls(n, choose_own, ALPN_H2, e) : NULL;
    all->tls_names = all->tls2 != NULL ? make_tls(n, choose_by_name, ALPN_H1, e) : NULL;
    if (all->tls_names == NULL)
        return -1;
    all->shared = range_take(&all->range, 0, n->loop, on_shared_accepted, n, e);
    if (all->shared == NULL)
        return -1;
    restore(n);
    return 0;
}

void tunnels_free(struct node *n)
{
    struct tunnels *all = n->tunnels;

    if (all == NULL)
        return;
    query_cancel(&all->ask);
    visits_cut(n, NULL);
    passes_free(n);
    while (all->first != NULL) {
        struct tunnel *t = all->first;
        all->first = t->next;
        tunnel_free(t);
    }
    loop_timer_free(all->sweep);
    range_close(&all->range);
    net_tls_free(all->tls1);
    net_tls_free(all->tls2);
    net_tls_free(all->tls_names);
    certs_free(all->certs);
    map_done(&all->by_name);
    free(all);
    n->tunnels = NULL;
}
