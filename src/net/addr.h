/*
 * addr.h - socket addresses as text: "127.0.0.1:7070", "[::1]:7070", "unix:/path"
 *
 * Numeric only: nothing here asks a resolver.
 */
#ifndef QS_NET_ADDR_H
#define QS_NET_ADDR_H

#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

struct net_addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

/* "localhost:port" is 127.0.0.1, ":port" is every address (dual-stack). */
int net_addr_parse(const char *text, struct net_addr *ret, struct err *e);
/* "127.0.0.1:4711", "[::1]:4711", "unix"; IPv4-mapped addresses as IPv4. */
void net_addr_format(const struct sockaddr *sa, char *out, size_t size);
int net_addr_port(const struct net_addr *a);    /* 0 for unix sockets */

#endif
