/*
 * service.c - service.* operations: health, errors, limits, audit, the description of the API
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/rest/list.h"
#include "api/rest/rest.h"
#include "base/mem.h"
#include "core/audit.h"
#include "core/sandbox.h"
#include "json/json.h"
#include "node.pb-c.h"

#define HEALTH_TIMEOUT_MS 1000

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

static const char *part(bool is_up)
{
    return is_up ? "ok" : "down";
}

static void on_health(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct call *c = ctx;
    const Quicksand__Node__HealthResponse *h = (const Quicksand__Node__HealthResponse *)reply;
    bool is_ok = h != NULL && h->keeper && h->egress && h->image;
    json_t *o = json_object(), *parts = json_object();

    set(o, "status", json_string(is_ok ? "ok" : "degraded"));
    set(o, "version", json_string(QS_VERSION));
    set(parts, "node", json_string(part(h != NULL)));
    set(parts, "keeper", json_string(h != NULL ? part(h->keeper) : "unknown"));
    set(parts, "egress", json_string(h != NULL ? part(h->egress) : "unknown"));
    set(parts, "image", json_string(h != NULL ? part(h->image) : "unknown"));
    set(o, "parts", parts);
    set(o, "sandboxes", json_integer((json_int_t)sandbox_live_count(c->core)));
    set(o, "pool_ready", h != NULL ? json_integer(h->pool_ready) : json_null());
    set(o, "memory_total_bytes",
        h != NULL ? json_integer((json_int_t)h->memory_total) : json_null());
    set(o, "memory_available_bytes",
        h != NULL ? json_integer((json_int_t)h->memory_available) : json_null());
    set(o, "disk_total_bytes", h != NULL ? json_integer((json_int_t)h->trees_total) : json_null());
    set(o, "disk_free_bytes", h != NULL ? json_integer((json_int_t)h->trees_free) : json_null());
    call_reply(c, 200, o);
}

static void health(struct call *c)
{
    Quicksand__Node__Empty rq = QUICKSAND__NODE__EMPTY__INIT;

    (void)node_unary(c->core, "Health", &rq.base, &quicksand__node__health_response__descriptor,
                     HEALTH_TIMEOUT_MS, false, on_health, c);
}

static void errors(struct call *c)
{
    json_t *list = json_array(), *o = json_object();

    for (int i = ERR_OK + 1; i < ERR_MAX_; i++) {
        const struct err_row *r = err_row((enum err_code)i);
        json_t *row = json_object();
        set(row, "code", json_string(r->name));
        set(row, "http_status", json_integer(r->http_status));
        set(row, "grpc_status", json_integer(r->grpc_status));
        set(row, "retryable", json_boolean(r->retryable));
        set(row, "meaning", json_string(r->meaning));
        set(row, "hint", json_string(r->hint));
        (void)json_array_append_new(list, row);
    }
    set(o, "items", list);
    call_reply(c, 200, o);
}

static const struct {
    const char *name;
    int64_t value;
    const char *unit, *what;
} limit_rows[] = {
    {"http_head", LIMIT_HTTP_HEAD, "bytes", "request line and headers"},
    {"http_headers", LIMIT_HTTP_HEADERS, "fields", "header fields of a request"},
    {"json_body", LIMIT_JSON_BODY, "bytes", "a JSON request body"},
    {"json_depth", LIMIT_JSON_DEPTH, "levels", "nesting of a JSON request body"},
    {"connections", LIMIT_CONNECTIONS, "connections", "open client connections"},
    {"streams", LIMIT_STREAMS, "streams", "requests at once on an HTTP/2 connection"},
    {"name", LIMIT_NAME, "bytes", "a name of a sandbox, app or image"},
    {"tags", LIMIT_TAGS, "tags", "tags of a sandbox"},
    {"tag_key", LIMIT_TAG_KEY, "bytes", "the key of a tag"},
    {"tag_value", LIMIT_TAG_VALUE, "bytes", "the value of a tag"},
    {"list", LIMIT_LIST, "items", "a page of a list"},
    {"argv", LIMIT_ARGV_BYTES, "bytes", "the arguments of a command, each with a final NUL"},
    {"argc", LIMIT_ARGC, "arguments", "the arguments of a command"},
    {"env", LIMIT_ENV_BYTES, "bytes",
     "the variables of a command, each as NAME=value with a final NUL"},
    {"envc", LIMIT_ENVC, "variables", "the variables of a command"},
    {"path", LIMIT_PATH, "bytes", "a path"},
    {"execs_live", LIMIT_EXECS_LIVE, "execs", "commands running at once in a sandbox"},
    {"execs_kept", LIMIT_EXECS_KEPT, "execs", "finished commands that are remembered in a sandbox"},
    {"output", LIMIT_OUTPUT_BYTES, "bytes",
     "unread output of a command, default of output_limit_bytes"},
    {"log", LIMIT_LOG_BYTES, "bytes", "kept output of an entry point"},
    {"lifetime_default", LIMIT_LIFETIME_DEFAULT, "seconds", "timeout_s of a sandbox unless given"},
    {"idle_default", LIMIT_IDLE_DEFAULT, "seconds",
     "idle_timeout_s of a sandbox without a command unless given"},
    {"lifetime", LIMIT_LIFETIME_MAX, "seconds", "timeout_s of a sandbox"},
    {"grace", LIMIT_GRACE_MAX, "seconds", "grace_s of a sandbox"},
    {"retain_default", LIMIT_RETAIN_DEFAULT, "seconds", "retain_s of a sandbox unless given"},
    {"wait", LIMIT_WAIT_MAX, "seconds", "a long poll"},
    {"cpu_min", LIMIT_CPU_MILLI_MIN, "thousandths of a core", "smallest cpu of a sandbox"},
    {"cpu", LIMIT_CPU_MILLI_MAX, "thousandths of a core", "largest cpu of a sandbox"},
    {"memory_min", LIMIT_MEMORY_MB_MIN, "MiB", "smallest memory_mb of a sandbox"},
    {"memory", LIMIT_MEMORY_MB_MAX, "MiB", "largest memory_mb of a sandbox"},
    {"pids_min", LIMIT_PIDS_MIN, "processes", "smallest pids of a sandbox"},
    {"pids", LIMIT_PIDS_MAX, "processes", "largest pids of a sandbox"},
    {"weight", LIMIT_WEIGHT_MAX, "", "largest cpu_weight and io_weight; 100 is usual"},
    {"nofile_min", LIMIT_NOFILE_MIN, "files", "smallest nofile of a sandbox"},
    {"nofile", LIMIT_NOFILE_MAX, "files", "largest nofile of a sandbox, unless the host's own ceiling is lower"},
    {"disk", LIMIT_DISK_MB_MAX, "MiB", "largest disk_mb of a sandbox"},
    {"spool", LIMIT_SPOOL_BYTES, "bytes", "kept output of a sandbox, unless configured"},
    {"layers", LIMIT_LAYERS, "layers", "layers of an image"},
    {"upload_bytes", LIMIT_UPLOAD_BYTES, "bytes", "a file or blob that a client of Modal uploads"},
    {"mount_files", LIMIT_MOUNT_FILES, "files", "files of one mount"},
    {"sandboxes", LIMIT_SANDBOXES, "sandboxes", "live sandboxes of a machine"},
    {"ports", LIMIT_PORTS, "ports", "ports of a sandbox that are open to the outside"},
    {"port_allow", LIMIT_PORT_ALLOW, "prefixes", "inbound_allow of a sandbox"},
    {"tunnel_flows", LIMIT_TUNNEL_FLOWS, "connections", "open connections into a port of a sandbox"},
    {"passes", LIMIT_PASSES, "tokens", "connect tokens of a sandbox"},
    {"pass_metadata", LIMIT_PASS_METADATA, "bytes", "metadata of a connect token"},
    {"policy_rules", LIMIT_POLICY_RULES, "rules", "rules of a network policy"},
    {"policy_items", LIMIT_POLICY_ITEMS, "items", "names, prefixes and ports of all rules of a network policy"},
    {"flows", LIMIT_FLOWS, "connections", "open connections of a sandbox to the outside"},
    {"udp_flows", LIMIT_UDP_FLOWS, "pairs of ends", "pairs of ends between which a sandbox exchanges datagrams"},
    {"bandwidth_min", LIMIT_BANDWIDTH_MIN, "bits a second", "smallest bandwidth of a network policy"},
    {"bandwidth", LIMIT_BANDWIDTH_MAX, "bits a second", "largest bandwidth of a network policy"},
    {"dns_rate", LIMIT_DNS_RATE, "queries a second", "queries of a sandbox for names that are not remembered"},
    {"dns_name", LIMIT_DNS_NAME, "characters", "names that the resolver takes"},
};

static void add_limit(json_t *list, const char *name, json_int_t value, const char *unit, const char *what)
{
    json_t *row = json_object();

    set(row, "name", json_string(name));
    set(row, "value", json_integer(value));
    set(row, "unit", json_string(unit));
    set(row, "what", json_string(what));
    (void)json_array_append_new(list, row);
}

static void limits(struct call *c)
{
    const struct sandbox_limits *d = core_default_limits(c->core);
    json_t *list = json_array(), *o = json_object();

    for (size_t i = 0; i < array_len(limit_rows); i++)
        add_limit(list, limit_rows[i].name, limit_rows[i].value, limit_rows[i].unit, limit_rows[i].what);
    /* Those that depend on host and configuration. */
    add_limit(list, "cpu_default", d->cpu_milli, "thousandths of a core", "cpu of a sandbox unless given; 0 = no limit");
    add_limit(list, "memory_default", (json_int_t)d->memory_mb, "MiB", "memory_mb of a sandbox unless given; 0 = no limit");
    add_limit(list, "disk_default", (json_int_t)d->disk_mb, "MiB", "disk_mb of a sandbox unless given; 0 = no limit");
    add_limit(list, "pids_default", d->pids, "processes", "pids of a sandbox unless given");
    add_limit(list, "nofile_default", d->nofile, "files", "nofile of a sandbox unless given");
    set(o, "items", list);
    call_reply(c, 200, o);
}

static void openapi(struct call *c)
{
    call_reply(c, 200, rest_openapi());
}

static void add_audit(void *ctx, const struct audit_row *r)
{
    char seq[24];
    json_t *o = json_object();

    set(o, "at", js_time_ms(r->at_ms));
    set(o, "token", r->token[0] != '\0' ? json_string(r->token) : json_null());
    set(o, "method", js_string_lossy(r->method));
    set(o, "path", js_string_lossy(r->path));
    set(o, "operation", r->op[0] != '\0' ? json_string(r->op) : json_null());
    set(o, "target", r->target[0] != '\0' ? js_string_lossy(r->target) : json_null());
    set(o, "status", json_integer(r->status));
    set(o, "request_id", js_string_lossy(r->request_id));
    set(o, "ms", json_integer(r->ms));
    (void)snprintf(seq, sizeof seq, "%" PRId64, r->seq);
    page_add(ctx, o, r->seq, seq);
}

static void audit(struct call *c)
{
    struct page p;
    struct err e;

    if (page_init(&p, c, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    audit_flush(c->core);
    if (store_audit_list(core_store(c->core), p.cursor, page_limit(&p), add_audit, &p, &e) < 0)
        page_fail(&p, c, &e);
    else
        page_reply(&p, c);
}

static const struct field audit_query[] = {LIST_FIELDS};

const struct op rest_service_ops[] = {
    {"service.health", "GET", "/v1/health", NULL, OP_NO_AUTH,
     "Whether the service and its parts are up", NULL, 0, NULL, 0, 200, health},
    {"service.errors", "GET", "/v1/errors", NULL, OP_NO_AUTH, "Every error code", NULL, 0, NULL, 0,
     200, errors},
    {"service.limits", "GET", "/v1/limits", NULL, OP_NO_AUTH, "Every limit", NULL, 0, NULL, 0, 200,
     limits},
    {"service.openapi", "GET", "/openapi.json", NULL, OP_NO_AUTH, "This description", NULL, 0, NULL,
     0, 200, openapi},
    {"service.audit", "GET", "/v1/audit", "token:admin", 0, "One line a call, newest first",
     audit_query, array_len(audit_query), NULL, 0, 200, audit},
};
const size_t rest_service_nops = array_len(rest_service_ops);
