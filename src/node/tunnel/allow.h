/*
 * allow.h - the addresses that may connect into a sandbox: all, or those of a list of prefixes
 *
 * Shared by tunnels and connect tokens. An empty list lets nobody in.
 */
#ifndef QS_NODE_TUNNEL_ALLOW_H
#define QS_NODE_TUNNEL_ALLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/err.h"
#include "json/json.h"

struct allow {
    bool is_open;               /* to every address; the list does not count */
    size_t n;
    struct cidr *list;          /* owned */
};

/* `a` is zeroed, and to be freed with allow_done also after ERR_INVALID. */
int allow_read(struct allow *a, bool restricted, char *const *prefixes, size_t n, struct err *e);
void allow_done(struct allow *a);
bool allow_is_same(const struct allow *a, const struct allow *b);
/* Of the peer itself; sockets of other families than the internet's are nobody's. */
bool allow_has(const struct allow *a, const struct sockaddr *peer);

/* As the member "allowed" of an object on disk; none means open. */
void allow_to_json(const struct allow *a, json_t *o);
void allow_from_json(struct allow *a, const json_t *o);

#endif
