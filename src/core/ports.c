/*
 * ports.c - checks and messages of open ports
 */
#include "core/ports.h"

#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/mem.h"
#include "core/internal.h"

static int check_allow(const json_t *allow, struct err *e)
{
    const json_t *item;
    struct cidr c;
    size_t i;

    if (json_array_size(allow) > LIMIT_PORT_ALLOW)
        return err_param(e, ERR_TOO_LARGE, "inbound_allow", "inbound_allow has %zu items, at most %d are accepted",
                         json_array_size(allow), LIMIT_PORT_ALLOW);
    json_array_foreach(allow, i, item)
    {
        const char *text = json_string_value(item);
        const char *why = text != NULL ? cidr_parse(text, &c) : "not a string";
        if (why != NULL)
            return err_param(e, ERR_INVALID, "inbound_allow", "item %zu of inbound_allow, '%.60s': %s", i,
                             text != NULL ? text : "", why);
    }
    return 0;
}

static int check_port(const json_t *ports, size_t i, struct err *e)
{
    const json_t *item = json_array_get(ports, i);
    json_int_t port = json_integer_value(json_object_get(item, "port"));

    if (port < 1 || port > 65535)
        return err_param(e, ERR_INVALID, "ports", "item %zu of ports has no port from 1 to 65535", i);
    for (size_t k = 0; k < i; k++)
        if (json_integer_value(json_object_get(json_array_get(ports, k), "port")) == port)
            return err_param(e, ERR_INVALID, "ports", "port %d is in ports more than once", (int)port);
    return 0;
}

int ports_check(const json_t *ports, const json_t *allow, struct err *e)
{
    if (json_array_size(ports) > LIMIT_PORTS)
        return err_param(e, ERR_TOO_LARGE, "ports", "ports has %zu items, at most %d are accepted", json_array_size(ports),
                         LIMIT_PORTS);
    for (size_t i = 0; i < json_array_size(ports); i++)
        if (check_port(ports, i, e) < 0)
            return -1;
    return check_allow(allow, e);
}

void ports_messages(const json_t *ports, const json_t *allow, struct port_messages *ret)
{
    size_t n = json_array_size(ports), nallow = json_array_size(allow);

    *ret = (struct port_messages){.n = n};
    ret->items = mem_array(n + 1, sizeof *ret->items);
    ret->list = mem_array(n + 1, sizeof *ret->list);
    ret->allowed = mem_array(nallow + 1, sizeof *ret->allowed);
    for (size_t i = 0; i < nallow; i++)
        ret->allowed[i] = (char *)(uintptr_t)json_string_value(json_array_get(allow, i));
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(ports, i);
        Quicksand__Node__Port *p = &ret->items[i];
        quicksand__node__port__init(p);
        p->has_port = p->has_h2 = p->has_raw = p->has_restricted = true;
        p->port = (uint32_t)json_integer_value(json_object_get(item, "port"));
        p->h2 = json_is_true(json_object_get(item, "h2"));
        p->raw = json_is_true(json_object_get(item, "raw"));
        p->host = (char *)(uintptr_t)json_string_value(json_object_get(item, "host"));
        p->restricted = allow != NULL;
        p->allowed = ret->allowed;
        p->n_allowed = nallow;
        ret->list[i] = p;
    }
}

void port_messages_done(struct port_messages *m)
{
    free(m->items);
    free(m->list);
    free(m->allowed);
}

int ports_sandbox(struct core *c, const char *sandbox, bool must_live, struct sandbox_row *ret, struct err *e)
{
    if (store_sandbox_get(c->store, sandbox, ret, e) < 0)
        return -1;
    if (ret->state == STORE_DELETING)
        return err_set(e, ERR_NOT_FOUND, "no sandbox '%s'", sandbox);
    if (must_live && ret->state == STORE_ENDED)
        return err_set(e, ERR_GONE, "sandbox %s has ended", sandbox);
    return 0;
}

int inbound_of_sandbox(struct core *c, const char *sandbox, struct inbound *ret, struct err *e)
{
    auto_sandbox_row row = {0};

    *ret = (struct inbound){0};
    if (ports_sandbox(c, sandbox, true, &row, e) < 0)
        return -1;
    ret->spec = js_parse(row.spec, strlen(row.spec), 4 * LIMIT_JSON_BODY, e);
    if (ret->spec == NULL)
        return err_wrap(e, "row of %s", sandbox);
    const json_t *list = json_object_get(ret->spec, "inbound_allow"), *item;
    size_t i;
    ret->restricted = list != NULL;
    ret->allowed = mem_array(json_array_size(list) + 1, sizeof *ret->allowed);
    json_array_foreach(list, i, item)
        ret->allowed[ret->n++] = (char *)(uintptr_t)json_string_value(item);
    return 0;
}

void inbound_done(struct inbound *in)
{
    free(in->allowed);
    json_decref(in->spec);
}

void core_set_tunnel_host(struct core *c, const char *host)
{
    free(c->tunnel_host);
    c->tunnel_host = mem_strdup(host);
}

char *authority_host(const char *authority)
{
    size_t n = strcspn(authority, ":");

    if (authority[0] == '[') {              /* an IPv6 literal keeps its brackets */
        const char *end = strchr(authority, ']');
        n = end != NULL ? (size_t)(end - authority) + 1 : 0;
    }
    return n > 0 ? mem_printf("%.*s", (int)n, authority) : mem_strdup("127.0.0.1");
}

char *core_tunnel_host(const struct core *c, const char *authority)
{
    if (c->tunnel_host != NULL && c->tunnel_host[0] != '\0')
        return mem_strdup(c->tunnel_host);
    return authority_host(authority);
}

char *core_tunnel_url(const struct core *c, const char *authority, const char *host, uint32_t port)
{
    bool is_named = host != NULL && host[0] != '\0';
    auto_free char *name = is_named ? mem_strdup(host) : core_tunnel_host(c, authority);

    return port == 443 ? mem_printf("https://%s", name) : mem_printf("https://%s:%u", name, port);
}
