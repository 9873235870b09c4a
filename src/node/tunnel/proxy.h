/*
 * proxy.h - the port that all sandboxes share: TLS by name, and HTTP/1.1 by name, by path or for who shows a connect token
 *
 * Listens on the first port of conf.tunnel_listen, with TLS and without. A token is in `authorization: Bearer`, in
 * `x-quicksand-token` or in the cookie `quicksand_token`, and does not go further than here.
 */
#ifndef QS_NODE_TUNNEL_PROXY_H
#define QS_NODE_TUNNEL_PROXY_H

#include <sys/socket.h>

#include "node/node.h"

struct net_tls;
struct visit;

/* Takes the descriptor. */
void visit_start(struct node *n, int fd, const struct sockaddr *peer, struct net_tls *tls);
void visits_cut(struct node *n, const char *sandbox);       /* NULL: all */
/* The sandbox of the first visit after `after` (NULL: of all) that has one; NULL: there is none. */
const struct visit *visit_next(const struct node *n, const struct visit *after, const char **ret_sandbox);

#endif
