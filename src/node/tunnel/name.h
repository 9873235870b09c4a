/*
 * name.h - the names of ports of sandboxes in host names and paths
 *
 * A host is <port>-<32 digits>.<tunnel_domain>; the digits are of a hash of the sandbox's id, because hosts do not tell upper
 * from lower case and ids do. A path is /t/<sandbox id>/<port>/...
 */
#ifndef QS_NODE_TUNNEL_NAME_H
#define QS_NODE_TUNNEL_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "net/tls.h"

void name_host(const char *domain, const char *sandbox, uint16_t port, char out[NET_TLS_NAME]);
bool name_is_below(const char *host, const char *domain);
/* The host of an authority, without its port, as net_tls_name makes it. */
void name_of_authority(const char *authority, char out[NET_TLS_NAME]);
/* Of a host that somebody wants to have: `field` names it in errors. Two labels at least, no address, not below `domain`. */
int name_check(const char *field, const char *text, const char *domain, char out[NET_TLS_NAME], struct err *e);

struct name_path {
    char sandbox[ID_SIZE];
    uint16_t port;
    size_t len;                 /* of the prefix, without the slash after it */
};
bool name_parse_path(const char *target, struct name_path *ret);

#endif
