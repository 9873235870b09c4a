/*
 * addr.c - parsing and printing socket addresses
 */
#include "net/addr.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static int parse_port(const char *text, uint16_t *ret)
{
    unsigned port = 0;

    if (*text == '\0' || strlen(text) > 5)
        return -1;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return -1;
        port = port * 10 + (unsigned)(*p - '0');
    }
    if (port > UINT16_MAX)
        return -1;
    *ret = (uint16_t)port;
    return 0;
}

static int parse_unix(const char *path, struct net_addr *ret, struct err *e)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&ret->sa;
    size_t len = strlen(path);

    if (len == 0 || len >= sizeof un->sun_path)
        return err_set(e, ERR_INVALID, "socket path '%s' must have 1 to %zu bytes", path,
                       sizeof un->sun_path - 1);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, len + 1);
    ret->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
    return 0;
}

int net_addr_parse(const char *text, struct net_addr *ret, struct err *e)
{
    struct net_addr a = {0};
    char host[INET6_ADDRSTRLEN + 2];
    uint16_t port;

    if (strncmp(text, "unix:", 5) == 0) {
        if (parse_unix(text + 5, &a, e) < 0)
            return -1;
        *ret = a;
        return 0;
    }
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof host || parse_port(colon + 1, &port) < 0)
        return err_set(e, ERR_INVALID, "address '%s' is not host:port or unix:/path", text);
    size_t len = (size_t)(colon - text);
    memcpy(host, text, len);
    host[len] = '\0';

    struct sockaddr_in *v4 = (struct sockaddr_in *)&a.sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a.sa;
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) != 1)
            return err_set(e, ERR_INVALID, "'%s' is not an IPv6 address", host + 1);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        a.len = sizeof *v6;
    } else if (len == 0) {
        v6->sin6_family = AF_INET6;
        v6->sin6_addr = in6addr_any;
        v6->sin6_port = htons(port);
        a.len = sizeof *v6;
    } else {
        const char *name = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
        if (inet_pton(AF_INET, name, &v4->sin_addr) != 1)
            return err_set(e, ERR_INVALID, "'%s' is not a numeric address", host);
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        a.len = sizeof *v4;
    }
    *ret = a;
    return 0;
}

void net_addr_format(const struct sockaddr *sa, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN];

    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
        (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        (void)snprintf(out, size, "%s:%u", host, ntohs(v4->sin_port));
    } else if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
            (void)inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], host, sizeof host);
            (void)snprintf(out, size, "%s:%u", host, ntohs(v6->sin6_port));
        } else {
            (void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
            (void)snprintf(out, size, "[%s]:%u", host, ntohs(v6->sin6_port));
        }
    } else {
        (void)snprintf(out, size, "%s", sa->sa_family == AF_UNIX ? "unix" : "unknown");
    }
}

int net_addr_port(const struct net_addr *a)
{
    if (a->sa.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&a->sa)->sin_port);
    if (a->sa.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&a->sa)->sin6_port);
    return 0;
}
