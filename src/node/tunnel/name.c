/*
 * name.c - see name.h
 */
#include "node/tunnel/name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"

#define KEY_DIGITS 32
#define PATH "/t/"

void name_host(const char *domain, const char *sandbox, uint16_t port, char out[NET_TLS_NAME])
{
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, sandbox, strlen(sandbox));
    sha256_end(&s, digest);
    sha256_hex(digest, hex);
    (void)snprintf(out, NET_TLS_NAME, "%u-%.*s.%s", port, KEY_DIGITS, hex, domain);
}

bool name_is_below(const char *host, const char *domain)
{
    size_t n = strlen(host), d = strlen(domain);

    return d > 0 && n > d + 1 && host[n - d - 1] == '.' && strcmp(host + n - d, domain) == 0;
}

void name_of_authority(const char *authority, char out[NET_TLS_NAME])
{
    char host[NET_TLS_NAME + 1];
    size_t n = strcspn(authority, ":");

    (void)snprintf(host, sizeof host, "%.*s", n < sizeof host ? (int)n : 0, authority);
    net_tls_name(host, out);
}

int name_check(const char *field, const char *text, const char *domain, char out[NET_TLS_NAME],
               struct err *e)
{
    net_tls_name(text, out);
    const char *last = strrchr(out, '.');
    if (last == NULL || last[1 + strspn(last + 1, "0123456789")] == '\0')
        return err_param(e, ERR_INVALID, field, "'%.80s' is not a host name of two labels or more",
                         text);
    for (const char *label = out; label != NULL; label = strchr(label, '.')) {
        label += *label == '.';
        size_t n = strcspn(label, ".");
        if (n > 63 || label[0] == '-' || label[n - 1] == '-' || memchr(label, '_', n) != NULL)
            return err_param(e, ERR_INVALID, field,
                             "'%.80s' has a label that no host name can have", text);
    }
    if (domain[0] != '\0' && (strcmp(out, domain) == 0 || name_is_below(out, domain)))
        return err_param(e, ERR_INVALID, field,
                         "'%.80s' is of tunnel_domain, whose names the server gives out", text);
    return 0;
}

bool name_parse_path(const char *target, struct name_path *ret)
{
    if (strncmp(target, PATH, strlen(PATH)) != 0)
        return false;
    const char *at = target + strlen(PATH);
    size_t n = strcspn(at, "/?");
    if (n >= ID_SIZE || at[n] != '/')
        return false;
    memcpy(ret->sandbox, at, n);
    ret->sandbox[n] = '\0';
    at += n + 1;
    n = strspn(at, "0123456789");
    unsigned long port = n > 0 && n <= 5 && at[0] != '0' ? strtoul(at, NULL, 10) : 0;
    at += n;
    if (!id_is(ret->sandbox, "sb-") || port < 1 || port > 65535 ||
        (*at != '\0' && *at != '/' && *at != '?'))
        return false;
    ret->port = (uint16_t)port;
    ret->len = (size_t)(at - target);
    return true;
}
