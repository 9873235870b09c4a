/*
 * ports.c - port.* operations: ways from outside to servers in a sandbox
 */
#include "api/rest/ports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/rest/node_ask.h"
#include "base/mem.h"
#include "core/ports.h"
#include "json/json.h"
#include "store/store.h"

static json_t *port_json(const struct call *c, const Quicksand__Node__Tunnel *t)
{
    auto_free char *any = core_tunnel_host(c->core, c->rq->authority);
    auto_free char *url = core_tunnel_url(c->core, c->rq->authority, t->host, t->tls_port);
    auto_free char *shared = core_tunnel_url(c->core, c->rq->authority, NULL, t->shared_port);
    auto_free char *path_url = mem_printf("%s/t/%s/%u/", shared, call_param(c, "id"), t->port);

    return json_pack("{s:i, s:s, s:s, s:i, s:o, s:s, s:s}", "port", (int)t->port, "kind",
                     t->raw_port != 0 ? "raw"
                     : t->h2          ? "h2"
                                      : "tls",
                     "host", t->host != NULL && t->host[0] != '\0' ? t->host : any, "tls_port",
                     (int)t->tls_port, "raw_port",
                     t->raw_port != 0 ? json_integer(t->raw_port) : json_null(), "url", url,
                     "path_url", path_url);
}

/* --- what a body says ------------------------------------------------------------------------ */

static int read_item(const json_t *item, size_t i, json_t *out, struct err *e)
{
    const char *key, *kind = "tls";
    json_t *value;

    if (json_is_integer(item)) {
        json_object_set(out, "port", (json_t *)(uintptr_t)item);
        return 0;
    }
    if (!json_is_object(item))
        return err_param(e, ERR_INVALID, "ports", "item %zu of ports is neither a number nor {port, kind, host}", i);
    json_object_foreach((json_t *)(uintptr_t)item, key, value)
    {
        if (strcmp(key, "port") == 0 && json_is_integer(value))
            json_object_set(out, "port", value);
        else if (strcmp(key, "kind") == 0 && json_is_string(value))
            kind = json_string_value(value);
        else if (strcmp(key, "host") == 0 && json_is_string(value))
            json_object_set(out, "host", value);
        else
            return err_param(
                e, ERR_INVALID, "ports",
                "item %zu of ports has '%.40s', but takes the number port, kind and host", i, key);
    }
    if (strcmp(kind, "tls") != 0 && strcmp(kind, "h2") != 0 && strcmp(kind, "raw") != 0)
        return err_param(e, ERR_INVALID, "ports", "kind of item %zu of ports is '%.40s', but must be one of tls|h2|raw", i, kind);
    json_object_set_new(out, "h2", json_boolean(strcmp(kind, "h2") == 0));
    json_object_set_new(out, "raw", json_boolean(strcmp(kind, "raw") == 0));
    return 0;
}

json_t *ports_of_body(const json_t *body, struct err *e)
{
    const json_t *ports = json_object_get(body, "ports"), *item;
    json_t *out = json_array();
    size_t i;

    if (ports != NULL && !json_is_array(ports)) {
        (void)err_param(e, ERR_INVALID, "ports", "ports must be an array");
        json_decref(out);
        return NULL;
    }
    json_array_foreach(ports, i, item)
    {
        json_t *one = json_object();
        json_array_append_new(out, one);
        if (read_item(item, i, one, e) < 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* --- the operations -------------------------------------------------------------------------- */

static void on_list(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__PortListResponse *rs = (const Quicksand__Node__PortListResponse *)reply;

    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    json_t *o = json_object(), *items = json_array();
    for (size_t i = 0; i < rs->n_tunnels; i++)
        json_array_append_new(items, port_json(c, rs->tunnels[i]));
    json_object_set_new(o, "items", items);
    call_reply(c, 200, o);
}

static void on_open(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    if (e != NULL)
        call_fail(c, e);
    else
        call_reply(c, 200, port_json(c, (const Quicksand__Node__Tunnel *)reply));
}

/* The sandbox of the path must be there. */
static int check_sandbox(struct call *c, bool must_live, struct err *e)
{
    auto_sandbox_row row = {0};

    return ports_sandbox(c->core, call_param(c, "id"), must_live, &row, e);
}

static int read_port(struct call *c, json_int_t *ret, struct err *e)
{
    const char *text = call_param(c, "port");
    char *end;

    *ret = strtol(text, &end, 10);
    if (*end != '\0' || end == text || *ret < 1 || *ret > 65535)
        return err_param(e, ERR_INVALID, "port", "the port is '%.40s', but must be a number from 1 to 65535", text);
    return 0;
}

static void list(struct call *c)
{
    Quicksand__Node__PortRequest rq = QUICKSAND__NODE__PORT_REQUEST__INIT;
    struct err e;

    if (check_sandbox(c, false, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    rq.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    node_ask(c, "PortList", &rq.base, &quicksand__node__port_list_response__descriptor, NODE_ASK_MS, true, on_list, NULL);
}

static void put(struct call *c)
{
    Quicksand__Node__PortRequest rq = QUICKSAND__NODE__PORT_REQUEST__INIT;
    const json_t *allow = json_object_get(c->body, "inbound_allow");
    const char *kind = call_string(c, "kind", "tls");
    struct port_messages m;
    json_int_t port;
    struct err e;

    if (json_is_null(allow))
        allow = NULL;
    if (read_port(c, &port, &e) < 0 || check_sandbox(c, true, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    auto_json *ports = json_pack("[{s:I, s:b, s:b}]", "port", port, "h2", strcmp(kind, "h2") == 0,
                                 "raw", strcmp(kind, "raw") == 0);
    (void)json_object_set_new(json_array_get(ports, 0), "host", json_string(call_string(c, "host", "")));
    if (ports_check(ports, allow, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    ports_messages(ports, allow, &m);
    rq.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    rq.port = m.list[0];
    node_ask(c, "PortOpen", &rq.base, &quicksand__node__tunnel__descriptor, NODE_ASK_MS, true, on_open, NULL);
    port_messages_done(&m);
}

static void delete (struct call *c)
{
    Quicksand__Node__PortRequest rq = QUICKSAND__NODE__PORT_REQUEST__INIT;
    Quicksand__Node__Port p = QUICKSAND__NODE__PORT__INIT;
    json_int_t port;
    struct err e;

    if (read_port(c, &port, &e) < 0 || check_sandbox(c, false, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    rq.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    rq.port = &p;
    p.has_port = true;
    p.port = (uint32_t)port;
    node_ask(c, "PortClose", &rq.base, &quicksand__node__empty__descriptor, NODE_ASK_MS, false, node_answer_empty, NULL);
}

static const struct field put_body[] = {
    {"kind", FIELD_ENUM, 0, 0, 0, "tls|h2|raw",
     "tls (default): TLS ends at the node; h2: the same, with HTTP/2; raw: a second port without TLS too"},
    {"inbound_allow", FIELD_STRINGS, FIELD_NULLABLE, 0, LIMIT_PORT_ALLOW, NULL,
     "prefixes whose addresses alone may connect; null (default) = all"},
    {"host", FIELD_STRING, FIELD_NULLABLE, 1, 253, NULL,
     "a name of its own, for which the server has a certificate in tunnel_certs"},
};

#define PORTS "/v1/sandboxes/{id}/ports"

const struct op rest_port_ops[] = {
    {"port.list", "GET", PORTS, "sandbox:read", 0, "Ports that can be reached from outside", NULL, 0, NULL, 0, 200, list},
    {"port.open", "PUT", PORTS "/{port}", "sandbox:write", 0, "Open a port; the same again changes nothing", NULL, 0, put_body,
     array_len(put_body), 200, put},
    {"port.close", "DELETE", PORTS "/{port}", "sandbox:write", 0, "Close a port and cut its connections", NULL, 0, NULL, 0, 204,
     delete},
};
const size_t rest_port_nops = array_len(rest_port_ops);
