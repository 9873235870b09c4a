/*
 * tunnel.h - ways from outside to servers inside sandboxes
 *
 * A tunnel leads from a port of this machine, or from a host name on the one port that all such share, to a port of one
 * sandbox: with TLS that ends here, and, if asked for, from a port of its own without. Bytes are not looked at, but for HTTP/2
 * by name, where every request has to be for that name. The monitor dials inside, so a sandbox without network has tunnels too.
 *
 * Tunnels are kept in data_dir/node/.tunnels and come back with their ports after a restart of the node. They end with
 * their sandbox, and with them every connection through them.
 */
#ifndef QS_NODE_TUNNEL_TUNNEL_H
#define QS_NODE_TUNNEL_TUNNEL_H

#include "base/ids.h"
#include "node/node.h"
#include "node/tunnel/allow.h"
#include "node/tunnel/range.h"

struct flow;
struct net_conn;
struct net_tls;

struct tunnel {
    struct node *node;
    struct tunnel *next;
    char sandbox[ID_SIZE];
    uint16_t port;              /* inside */
    bool h2;                    /* TLS agrees on HTTP/2, else on HTTP/1.1 */
    bool raw;                   /* has the second port too */
    char *host;                 /* asked for by name; owned, "" = none */
    char *name;                 /* below conf.tunnel_domain; owned, "" = there is no domain */
    struct allow allow;         /* owned */
    struct range_port *tls_port;        /* NULL: it has a name */
    struct range_port *raw_port;        /* NULL without `raw` */
    struct flow *flows;
};

struct tunnels;

/* Ports of conf.tunnel_listen and the tunnels of the last run. Before the filter is installed. */
int tunnels_new(struct node *n, struct err *e);
void tunnels_free(struct node *n);

/* The same tunnel again changes nothing; another kind or list of addresses under that port is ERR_CONFLICT. */
int tunnel_open(struct node *n, const char *sandbox, const Quicksand__Node__Port *p, const struct tunnel **ret, struct err *e);
/* Port 0: all of the sandbox. How many there were. */
size_t tunnel_close(struct node *n, const char *sandbox, uint16_t port);
/* Every way into the sandbox: tunnels, connect tokens, connections. */
void tunnels_end(struct node *n, const char *sandbox);
/* Of names, paths and connect tokens, as clients reach it; 0: there is none. */
uint16_t tunnels_shared_port(const struct node *n);
const struct tunnel *tunnel_find(const struct node *n, const char *sandbox, uint16_t port);    /* NULL: not open */
struct tunnel *tunnel_named(const struct node *n, const char *host);
/* The name under which TLS leads to it, "" = any. */
const char *tunnel_host(const struct tunnel *t);
uint16_t tunnel_tls_port(const struct tunnel *t);
/* There are connections that keep their sandboxes from being idle. */
void tunnels_wake(struct node *n);
const struct tunnel *tunnel_next(const struct node *n, const char *sandbox, const struct tunnel *after);

/* flow.c: one connection, whose descriptor it takes; or, by name, one whose TLS stands. */
void flow_start(struct tunnel *t, int fd, struct net_tls *tls);
void flow_adopt(struct tunnel *t, struct net_conn *client);
void flows_cut(struct tunnel *t);

#endif
