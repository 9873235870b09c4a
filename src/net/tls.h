/*
 * tls.h - certificates and the server's TLS settings (OpenSSL)
 */
#ifndef QS_NET_TLS_H
#define QS_NET_TLS_H

#include <stdbool.h>

#include "base/err.h"

struct net_tls;
struct ssl_st;

/* TLS 1.2 and newer, ALPN h2 and http/1.1. PEM files; the certificate file may hold a chain. */
struct net_tls *net_tls_server(const char *cert_file, const char *key_file, struct err *e);
/* Other protocols than those, in the form of RFC 7301: each with its length in front. `protocols` is static. */
void net_tls_set_alpn(struct net_tls *t, const char *protocols);
/* Asked with the name of each hello ("" = none or not a host's; lower case, no dot at its end) for the settings whose
 * certificate is shown (NULL: its own) and the protocols that are agreed on (static; NULL: its own). */
#define NET_TLS_NAME 254
typedef void (*net_tls_choose_cb)(void *arg, const char *name, struct net_tls **ret_tls, const char **ret_alpn);
void net_tls_set_chooser(struct net_tls *t, net_tls_choose_cb cb, void *arg);
/* The host name in `text` as a chooser gets it; "" if it is none. */
void net_tls_name(const char *text, char out[NET_TLS_NAME]);
/* Connections made with it live on. Accepts NULL. */
void net_tls_free(struct net_tls *t);
struct ssl_st *net_tls_accept(struct net_tls *t, int fd);   /* for conn.c; NULL if memory is gone */

/* Makes a certificate for localhost and this host's name, signed by itself, unless both files are there. The key is
 * readable by its owner only. *ret_made (may be NULL) tells whether it was made. */
int net_tls_self_signed(const char *cert_file, const char *key_file, bool *ret_made, struct err *e);

#endif
