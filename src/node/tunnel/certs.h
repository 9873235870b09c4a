/*
 * certs.h - the certificates that tunnels show, by host name
 *
 * The node's own (certificate.h) for all, and in conf.tunnel_certs the pairs <name>.crt and <name>.key: <name> is a host, or
 * tunnel_domain, whose certificate has to be one for *.<tunnel_domain>. Files that change are read again; one that cannot be
 * read leaves the last good one in use.
 */
#ifndef QS_NODE_TUNNEL_CERTS_H
#define QS_NODE_TUNNEL_CERTS_H

#include "net/tls.h"
#include "node/node.h"

struct certs;

struct certs *certs_new(struct node *n, struct err *e);
void certs_free(struct certs *c);
/* The settings for a host; `host` is a name that was given out, never a stranger's. The node's own if there are no files. */
struct net_tls *certs_get(struct certs *c, const char *host);
/* There are files for the host, and they can be used. ERR_INVALID. */
int certs_check(struct certs *c, const char *host, struct err *e);

#endif
