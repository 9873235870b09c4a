/*
 * policy_explain.c - which rule of a policy decides about a URL
 *
 * The same questions that egress asks, without a connection. Where a name leads is not looked up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/policy_json.h"

#define PARAM "url"

struct target {
    char name[POLICY_DOMAIN_MAX + 1];
    struct address to;
    bool has_to;
    uint16_t port;
    enum policy_protocol protocol;
};

static const struct {
    const char *scheme;
    enum policy_protocol protocol;
    uint16_t port;
} schemes[] = {{"https://", POLICY_TLS, 443}, {"wss://", POLICY_TLS, 443}, {"tls://", POLICY_TLS, 0},
               {"http://", POLICY_HTTP, 80},  {"ws://", POLICY_HTTP, 80},  {"tcp://", POLICY_TCP, 0},
               {"ssh://", POLICY_TCP, 22},    {"udp://", POLICY_UDP, 0},  {"quic://", POLICY_UDP, 443},
               {"dns://", POLICY_UDP, 53},    {"", POLICY_TCP, 0}};

static int read_port(const char *text, uint16_t *ret, struct err *e)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || v < 1 || v > 65535)
        return err_param(e, ERR_INVALID, PARAM, "'%.20s' is not a port", text);
    *ret = (uint16_t)v;
    return 0;
}

static int read_host(char *host, struct target *t, struct err *e)
{
    char *port = strrchr(host, ':');

    if (host[0] == '[') {
        char *end = strchr(host, ']');
        if (end == NULL)
            return err_param(e, ERR_INVALID, PARAM, "the address has no ]");
        *end = '\0';
        host++;
        port = end[1] == ':' ? end + 1 : NULL;
    } else if (port != NULL && strchr(host, ':') != port) {
        port = NULL;            /* an IPv6 address */
    }
    if (port != NULL) {
        *port = '\0';
        if (read_port(port + 1, &t->port, e) < 0)
            return -1;
    }
    if (t->port == 0)
        return err_param(e, ERR_INVALID, PARAM, "the URL needs a port");
    t->has_to = address_parse(host, &t->to);
    const char *wrong = t->has_to ? NULL : policy_domain(host, false, t->name);
    return wrong != NULL ? err_param(e, ERR_INVALID, PARAM, "'%.80s' is not a host: %s", host, wrong) : 0;
}

static int read_target(const char *url, struct target *t, struct err *e)
{
    char host[POLICY_DOMAIN_MAX + 16];
    size_t i = 0;

    while (strncmp(url, schemes[i].scheme, strlen(schemes[i].scheme)) != 0)
        i++;
    *t = (struct target){.protocol = schemes[i].protocol, .port = schemes[i].port};
    url += strlen(schemes[i].scheme);
    size_t n = strcspn(url, "/?#");
    if (n == 0 || n >= sizeof host || memchr(url, '@', n) != NULL)
        return err_param(e, ERR_INVALID, PARAM, "the URL has no host, or more than a host and a port");
    memcpy(host, url, n);
    host[n] = '\0';
    return read_host(host, t, e);
}

/* The path of the URL as rules see it; false: the request would be refused. */
static bool read_path(const char *url, char out[POLICY_PATH_MAX + 1])
{
    const char *scheme = strstr(url, "://"), *host = scheme != NULL ? scheme + 3 : url;
    const char *path = host + strcspn(host, "/?#");

    if (*path != '/') {
        memcpy(out, "/", 2);
        return true;
    }
    return policy_path(path, strcspn(path, "#"), out);
}

json_t *policy_explain(const struct policy *p, const char *url, const char *address, const char *method, struct err *e)
{
    auto_free char *path = mem_alloc(POLICY_PATH_MAX + 1);
    struct policy_verdict v;
    struct target t;
    const char *note = NULL;

    if (read_target(url, &t, e) < 0)
        return NULL;
    if (address != NULL && !t.has_to) {
        t.has_to = address_parse(address, &t.to);
        if (!t.has_to) {
            err_param(e, ERR_INVALID, "address", "'%.60s' is not an address", address);
            return NULL;
        }
    }
    bool is_request = t.protocol == POLICY_TLS || t.protocol == POLICY_HTTP;
    if (is_request && !read_path(url, path)) {
        err_param(e, ERR_INVALID, PARAM, "servers read the path of the URL in more than one way; such a request is refused");
        return NULL;
    }
    const struct policy_flow f = {.to = t.has_to ? &t.to : NULL,
                                  .name = t.name[0] != '\0' ? t.name : NULL,
                                  .port = t.port,
                                  .protocol = t.protocol,
                                  .method = is_request ? method != NULL ? method : "GET" : NULL,
                                  .path = is_request ? path : NULL};
    struct policy_flow connection = f;
    struct policy_verdict opens;
    connection.method = connection.path = NULL;
    policy_ask(p, &f, &v);
    policy_ask(p, &connection, &opens);
    if (v.action == POLICY_ALLOW && t.has_to && !policy_permits_address(p, v.rule, &t.to, false)) {
        v.action = POLICY_DENY;
        note = "the address is not public, and no prefix of the rule was written for it";
    } else if (!t.has_to) {
        note = "rules over addresses are looked at once the name is resolved; give the address to see which";
    }
    json_t *o = json_object();
    (void)json_object_set_new(o, "url", json_string(url));
    (void)json_object_set_new(o, "action", json_string(policy_action_name(v.action)));
    (void)json_object_set_new(o, "rule", v.rule >= 0 ? json_integer(v.rule + 1) : json_null());
    (void)json_object_set_new(o, "rule_name", v.rule >= 0 && p->rules[v.rule].name[0] != '\0'
                                                  ? json_string(p->rules[v.rule].name) : json_null());
    (void)json_object_set_new(o, "logged_by", v.logged >= 0 ? json_integer(v.logged + 1) : json_null());
    (void)json_object_set_new(o, "name", js_string_or_null(t.name[0] != '\0' ? t.name : NULL));
    (void)json_object_set_new(o, "port", json_integer(t.port));
    (void)json_object_set_new(o, "protocol", json_string(policy_protocol_name(t.protocol)));
    (void)json_object_set_new(o, "opened", json_boolean(opens.opens));
    (void)json_object_set_new(o, "injects", json_boolean(v.rule >= 0 && p->rules[v.rule].action == POLICY_INJECT &&
                                                         v.action == POLICY_ALLOW));
    (void)json_object_set_new(o, "resolves", json_boolean(t.name[0] == '\0' || policy_resolves(p, t.name)));
    (void)json_object_set_new(o, "note", js_string_or_null(note));
    return o;
}
