/*
 * authority.h - a certificate authority of our own: made, kept as PEM text, and issuing certificates for names
 *
 * The node makes one for a sandbox whose connections are opened, egress issues with it.
 */
#ifndef QS_NET_AUTHORITY_H
#define QS_NET_AUTHORITY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct ssl_st;
struct net_authority;

/* Private key and certificate; the caller frees, and wipes first. `name` is its common name. */
char *net_authority_make(const char *name, struct err *e);
/* The certificate of such a text alone; NULL if there is none. Points into it. */
const char *net_authority_certificate(const char *pem);

struct net_authority *net_authority_load(const char *pem, size_t n, struct err *e);
void net_authority_free(struct net_authority *a);       /* accepts NULL */
/* Has the connection show a certificate for the name. Certificates are kept for the next one. */
int net_authority_use(struct net_authority *a, struct ssl_st *ssl, const char *name, struct err *e);

#endif
