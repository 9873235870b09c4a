/*
 * ports.h - ports of a sandbox that can be reached from outside
 *
 * What was asked for at creation stands in the sandbox's spec; which there are now, and where, is the node's to know
 * (PortOpen, PortClose, PortList).
 */
#ifndef QS_CORE_PORTS_H
#define QS_CORE_PORTS_H

#include "core/core.h"
#include "json/json.h"
#include "node.pb-c.h"
#include "store/store.h"

/* `ports`: array of {"port", "h2", "raw", "host"}; `allow`: array of prefixes that alone may connect, or NULL for all addresses.
 * Both may be NULL. */
int ports_check(const json_t *ports, const json_t *allow, struct err *e);

/* The same as messages of the node; texts are those of the JSON. */
struct port_messages {
    size_t n;
    Quicksand__Node__Port *items, **list;
    char **allowed;
};
void ports_messages(const json_t *ports, const json_t *allow, struct port_messages *ret);
void port_messages_done(struct port_messages *m);

/* The row of a sandbox that can have ports: ERR_NOT_FOUND, and ERR_GONE for one that has ended if it must live. */
int ports_sandbox(struct core *c, const char *sandbox, bool must_live, struct sandbox_row *ret, struct err *e);

/* Who may connect into a live sandbox, as its creation said; ERR_NOT_FOUND, ERR_GONE. */
struct inbound {
    json_t *spec;                   /* owned; `allowed` points into it */
    bool restricted;
    char **allowed;
    size_t n;
};
int inbound_of_sandbox(struct core *c, const char *sandbox, struct inbound *ret, struct err *e);
void inbound_done(struct inbound *in);

/* Hosts of tunnels: `host` once at start, "" = that of a client's own URL. */
void core_set_tunnel_host(struct core *c, const char *host);
/* For a client that called under `authority`; IPv6 literals in brackets. The caller frees it. */
char *core_tunnel_host(const struct core *c, const char *authority);
/* Where a port is reached that the node says is below `host` ("" or NULL: any host of it) on `port`. The caller frees it. */
char *core_tunnel_url(const struct core *c, const char *authority, const char *host, uint32_t port);
/* The host of an authority without its port. */
char *authority_host(const char *authority);

#endif
