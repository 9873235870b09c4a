/*
 * sandbox_spec.c - what a sandbox is told at its creation: checks, the form kept in its row, the
 * node's request
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/life.h"
#include "core/network.h"
#include "core/policy_json.h"
#include "core/ports.h"
#include "json/json.h"

#define USER_MAX 128

int spec_check_name(const char *name, const char *param, struct err *e)
{
    if (name_is_valid(name, strlen(name)))
        return 0;
    return err_param(
        e, ERR_INVALID, param,
        "%s must be 1 to %d of the characters A-Z a-z 0-9 . _ - and neither '.' nor '..' "
        "nor shaped like an app id",
        param, LIMIT_NAME);
}

static bool is_tag_key(const char *key)
{
    size_t n = strlen(key);

    return n > 0 && n <= LIMIT_TAG_KEY && strncmp(key, "quicksand.", 10) != 0 &&
           strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-") == n;
}

int spec_check_tags(const json_t *tags, bool null_is_allowed, struct err *e)
{
    const char *key;
    json_t *value;

    if (json_object_size(tags) > LIMIT_TAGS)
        return err_param(e, ERR_TOO_LARGE, "tags", "tags has %zu entries, at most %d are kept",
                         json_object_size(tags), LIMIT_TAGS);
    json_object_foreach((json_t *)tags, key, value)
    {
        if (!is_tag_key(key))
            return err_param(e, ERR_INVALID, "tags",
                             "a key of tags is not 1 to %d of the characters "
                             "A-Z a-z 0-9 . _ / - or begins with 'quicksand.'",
                             LIMIT_TAG_KEY);
        if (json_is_null(value) && null_is_allowed)
            continue;
        if (!json_is_string(value))
            return err_param(e, ERR_INVALID, "tags", "the value of tag '%s' must be a string", key);
        if (json_string_length(value) > LIMIT_TAG_VALUE)
            return err_param(e, ERR_TOO_LARGE, "tags",
                             "the value of tag '%s' has %zu bytes, at most %d are kept", key,
                             json_string_length(value), LIMIT_TAG_VALUE);
    }
    return 0;
}

static int check_env(const json_t *env, struct err *e)
{
    size_t bytes = 0;
    const char *key;
    json_t *value;

    if (json_object_size(env) > LIMIT_ENVC)
        return err_param(e, ERR_TOO_LARGE, "env", "env has %zu variables, at most %d are accepted",
                         json_object_size(env), LIMIT_ENVC);
    json_object_foreach((json_t *)env, key, value)
    {
        if (*key == '\0')
            return err_param(e, ERR_INVALID, "env", "a name in env is empty");
        if (strchr(key, '=') != NULL)
            return err_param(e, ERR_INVALID, "env", "the name '%.60s' in env has a '='", key);
        if (!json_is_string(value))
            return err_param(e, ERR_INVALID, "env", "the value of '%.60s' in env must be a string",
                             key);
        bytes += strlen(key) + json_string_length(value) + 2;
    }
    if (bytes > LIMIT_ENV_BYTES)
        return err_param(e, ERR_TOO_LARGE, "env", "env has %zu bytes, at most %d are accepted",
                         bytes, LIMIT_ENV_BYTES);
    return 0;
}

static int check_command(const json_t *command, struct err *e)
{
    size_t bytes = 0, i;
    const json_t *item;

    if (json_array_size(command) == 0)
        return err_param(e, ERR_INVALID, "command",
                         "command must have at least one item, or be null");
    if (json_array_size(command) > LIMIT_ARGC)
        return err_param(e, ERR_TOO_LARGE, "command",
                         "command has %zu items, at most %d are accepted", json_array_size(command),
                         LIMIT_ARGC);
    json_array_foreach(command, i, item)
    {
        if (!json_is_string(item))
            return err_param(e, ERR_INVALID, "command", "item %zu of command must be a string", i);
        bytes += json_string_length(item) + 1;
    }
    if (json_string_length(json_array_get(command, 0)) == 0)
        return err_param(e, ERR_INVALID, "command",
                         "the first item of command, the program, is empty");
    if (bytes > LIMIT_ARGV_BYTES)
        return err_param(e, ERR_TOO_LARGE, "command",
                         "command has %zu bytes, at most %d are accepted", bytes, LIMIT_ARGV_BYTES);
    return 0;
}

static int check_user(const char *user, struct err *e)
{
    size_t n = strlen(user);
    const char *colon = strchr(user, ':');

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)user[i] <= ' ' || user[i] == 127)
            return err_param(e, ERR_INVALID, "user", "user has a space or control character");
    if (n == 0 || n > USER_MAX || user[0] == ':' ||
        (colon != NULL && (colon[1] == '\0' || strchr(colon + 1, ':') != NULL)))
        return err_param(e, ERR_INVALID, "user",
                         "user must be a name or id with an optional :group, at most %d bytes",
                         USER_MAX);
    return 0;
}

static uint32_t number(const json_t *spec, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(spec, key));
}

int spec_check(const struct sandbox_spec *s, struct err *e)
{
    if (spec_check_name(s->app, "app", e) < 0)
        return -1;
    if (s->name != NULL && spec_check_name(s->name, "name", e) < 0)
        return -1;
    if (s->command != NULL && check_command(s->command, e) < 0)
        return -1;
    if (s->env != NULL && check_env(s->env, e) < 0)
        return -1;
    if (s->tags != NULL && spec_check_tags(s->tags, false, e) < 0)
        return -1;
    if (s->workdir != NULL && (s->workdir[0] != '/' || strlen(s->workdir) >= LIMIT_PATH))
        return err_param(e, ERR_INVALID, "workdir",
                         "workdir must be an absolute path of at most %d bytes", LIMIT_PATH - 1);
    if (s->user != NULL && check_user(s->user, e) < 0)
        return -1;
    return ports_check(s->ports, s->inbound_allow, e);
}

char *spec_text(const struct sandbox_spec *s, const struct image_row *image, struct err *e)
{
    auto_json *env = js_parse(image->env, strlen(image->env), 2 * LIMIT_JSON_BODY, e);
    auto_json *o = json_object();
    const char *workdir = s->workdir != NULL       ? s->workdir
                          : image->workdir != NULL ? image->workdir
                                                   : "/";
    const char *user = s->user != NULL ? s->user : image->user != NULL ? image->user : "root";

    if (env == NULL) {
        err_wrap(e, "environment of image %s", image->id);
        return NULL;
    }
    if (s->env != NULL)
        (void)json_object_update(env, (json_t *)(uintptr_t)s->env); /* only the first is changed */
    if (check_env(env, e) < 0)
        return NULL;
    if (s->command != NULL)
        (void)json_object_set(o, "command", (json_t *)(uintptr_t)s->command);
    (void)json_object_set(o, "env", env);
    (void)json_object_set_new(o, "workdir", json_string(workdir));
    (void)json_object_set_new(o, "user", json_string(user));
    limits_put(o, &s->limits);
    (void)json_object_set_new(o, "no_new_privileges", json_boolean(s->no_new_privileges));
    (void)json_object_set_new(o, "user_namespaces", json_boolean(s->user_namespaces));
    (void)json_object_set_new(o, "stdin", json_boolean(s->stdin_open));
    (void)json_object_set_new(o, "tty", json_boolean(s->tty));
    (void)json_object_set_new(o, "rows", json_integer(s->rows));
    (void)json_object_set_new(o, "cols", json_integer(s->cols));
    (void)json_object_set_new(o, "log_mb", json_integer(s->log_mb));
    if (!network_is_blocked(s->network))
        (void)json_object_set(o, "network", (json_t *)(uintptr_t)s->network);
    if (s->network_policy != NULL)
        (void)json_object_set(o, "network_policy", (json_t *)(uintptr_t)s->network_policy);
    if (s->probe != NULL)
        (void)json_object_set(o, "probe", (json_t *)(uintptr_t)s->probe);
    if (json_array_size(s->ports) > 0)
        (void)json_object_set(o, "ports", (json_t *)(uintptr_t)s->ports);
    if (s->inbound_allow != NULL)
        (void)json_object_set(o, "inbound_allow", (json_t *)(uintptr_t)s->inbound_allow);
    if (s->dialect != NULL)
        (void)json_object_set(o, "dialect", (json_t *)(uintptr_t)s->dialect);
    return js_text(o, false);
}

/* --- the node's request ---------------------------------------------------------------------- */

/* Everything that the request points to. */
struct request_parts {
    json_t *spec, *layers;
    char **env, **layer;
    size_t nenv, nlayers;
    ProtobufCBinaryData *argv, *probe_argv;
    struct port_messages ports;
    uint8_t *policy;
};

static void parts_done(struct request_parts *p)
{
    for (size_t i = 0; i < p->nenv; i++)
        free(p->env[i]);
    free(p->env);
    free(p->layer);
    free(p->argv);
    free(p->probe_argv);
    port_messages_done(&p->ports);
    free(p->policy);
    json_decref(p->spec);
    json_decref(p->layers);
}

static void fill_env(struct request_parts *p, Quicksand__Node__Defaults *d)
{
    json_t *env = json_object_get(p->spec, "env"), *value;
    const char *key;

    p->env = mem_array(json_object_size(env) + 1, sizeof *p->env);
    json_object_foreach(env, key, value) p->env[p->nenv++] =
        mem_printf("%s=%s", key, json_string_value(value));
    d->env = p->env;
    d->n_env = p->nenv;
}

/* Borrows the strings; the caller frees the array. */
static ProtobufCBinaryData *make_argv(const json_t *strings)
{
    ProtobufCBinaryData *argv = mem_array(json_array_size(strings) + 1, sizeof *argv);
    size_t i;
    json_t *item;

    json_array_foreach(strings, i, item) argv[i] = (ProtobufCBinaryData){
        json_string_length(item), (uint8_t *)(uintptr_t)json_string_value(item)};
    return argv;
}

static void fill_command(struct request_parts *p, const json_t *command,
                         Quicksand__Node__Command *cmd)
{
    p->argv = make_argv(command);
    cmd->argv = p->argv;
    cmd->n_argv = json_array_size(command);
}

static void fill_probe(struct request_parts *p, const json_t *probe, Quicksand__Node__Probe *out)
{
    const json_t *argv = json_object_get(probe, "argv");

    out->has_tcp_port = json_object_get(probe, "tcp_port") != NULL;
    out->tcp_port = number(probe, "tcp_port");
    out->check = (char *)(uintptr_t)json_string_value(json_object_get(probe, "check"));
    out->has_log = out->has_try_ms = out->has_threshold = out->has_terminate = true;
    out->log = json_is_true(json_object_get(probe, "log"));
    out->try_ms = number(probe, "try_ms");
    out->threshold = number(probe, "threshold");
    out->terminate = json_is_true(json_object_get(probe, "terminate"));
    out->has_interval_ms = true;
    out->interval_ms = number(probe, "interval_ms");
    p->probe_argv = make_argv(argv);
    out->argv = p->probe_argv;
    out->n_argv = json_array_size(argv);
}

static void fill_layers(struct request_parts *p, Quicksand__Node__CreateRequest *rq)
{
    size_t i;
    json_t *item;

    p->layer = mem_array(json_array_size(p->layers) + 1, sizeof *p->layer);
    json_array_foreach(p->layers, i, item) p->layer[p->nlayers++] =
        (char *)(uintptr_t)json_string_value(item);
    rq->layers = p->layer;
    rq->n_layers = p->nlayers;
}

static void fill_limits(const struct sandbox_row *row, const json_t *spec,
                        Quicksand__Node__CreateRequest *rq)
{
    struct sandbox_limits l;

    sandbox_limits_of(spec, &l);
    rq->has_version = true;
    rq->version = 1;
    rq->has_cpu_milli = rq->has_cpu_weight = rq->has_pids = true;
    rq->cpu_milli = l.cpu_milli;
    rq->cpu_weight = l.cpu_weight;
    rq->pids = l.pids;
    rq->has_memory_bytes = rq->has_memory_request_bytes = rq->has_disk_bytes = true;
    rq->memory_bytes = l.memory_mb << 20;
    rq->memory_request_bytes = l.memory_request_mb << 20;
    rq->disk_bytes = l.disk_mb << 20;
    rq->has_io_weight = rq->has_oom = true;
    rq->io_weight = l.io_weight;
    rq->oom = l.oom;
    rq->has_spool_bytes = true;
    rq->spool_bytes = l.spool_mb << 20;
    rq->has_no_new_privileges = rq->has_user_namespaces = true;
    rq->no_new_privileges = json_is_true(json_object_get(spec, "no_new_privileges"));
    rq->user_namespaces = json_is_true(json_object_get(spec, "user_namespaces"));
    rq->has_deadline_ms = rq->has_idle_ms = rq->has_grace_ms = rq->has_log_bytes = true;
    rq->deadline_ms = row->expires_ms;
    rq->idle_ms = row->idle_ms;
    rq->grace_ms = row->grace_ms;
    rq->log_bytes = number(spec, "log_mb") != 0 ? (uint64_t)number(spec, "log_mb") << 20 : LIMIT_LOG_BYTES;
}

/* A label of the domain name system out of a name, which may have other characters and other
 * ends. */
static void make_hostname(const struct sandbox_row *row, char out[64])
{
    size_t n = 0;

    for (const char *p = row->name; *p != '\0' && n < 63; p++) {
        bool is_alnum =
            (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z');
        if (is_alnum || n > 0)
            out[n++] = is_alnum ? *p : '-';
    }
    while (n > 0 && out[n - 1] == '-')
        n--;
    out[n] = '\0';
    if (n == 0)
        (void)snprintf(out, 64, "%s", row->id);
}

int spec_with_request(struct core *c, const struct sandbox_row *row, const struct image_row *image,
                      void (*fn)(void *ctx, const Quicksand__Node__CreateRequest *rq), void *ctx,
                      struct err *e)
{
    Quicksand__Node__CreateRequest rq = QUICKSAND__NODE__CREATE_REQUEST__INIT;
    Quicksand__Node__Defaults defaults = QUICKSAND__NODE__DEFAULTS__INIT;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    Quicksand__Node__Probe probe = QUICKSAND__NODE__PROBE__INIT;
    Quicksand__Node__Network network = QUICKSAND__NODE__NETWORK__INIT;
    struct request_parts p = {0};
    struct policy_origin origin;
    char hostname[64];

    p.spec = js_parse(row->spec, strlen(row->spec), 4 * LIMIT_JSON_BODY, e);
    p.layers =
        p.spec != NULL ? js_parse(image->layers, strlen(image->layers), LIMIT_JSON_BODY, e) : NULL;
    if (p.layers == NULL) {
        parts_done(&p);
        return err_wrap(e, "row of %s", row->id);
    }
    const char *workdir = json_string_value(json_object_get(p.spec, "workdir"));
    const json_t *argv = json_object_get(p.spec, "command");
    rq.sandbox_id = (char *)(uintptr_t)row->id;
    make_hostname(row, hostname);
    rq.hostname = hostname;
    fill_limits(row, p.spec, &rq);
    fill_layers(&p, &rq);
    fill_env(&p, &defaults);
    defaults.has_cwd = true;
    defaults.cwd = (ProtobufCBinaryData){strlen(workdir), (uint8_t *)(uintptr_t)workdir};
    defaults.has_nofile = true;
    defaults.nofile = number(p.spec, "nofile");
    defaults.user = (char *)(uintptr_t)json_string_value(json_object_get(p.spec, "user"));
    if (json_object_get(p.spec, "probe") != NULL) {
        fill_probe(&p, json_object_get(p.spec, "probe"), &probe);
        defaults.probe = &probe;
    }
    rq.defaults = &defaults;
    ports_messages(json_object_get(p.spec, "ports"), json_object_get(p.spec, "inbound_allow"), &p.ports);
    rq.ports = p.ports.list;
    rq.n_ports = p.ports.n;
    if (json_object_get(p.spec, "network") != NULL) {
        policy_origin_read(json_object_get(p.spec, "network_policy"), &origin);
        if (network_request(c, json_object_get(p.spec, "network"), &origin, &network, &p.policy, e) < 0) {
            parts_done(&p);
            return err_wrap(e, "row of %s", row->id);
        }
        rq.network = &network;
    }
    if (argv != NULL) {
        fill_command(&p, argv, &command);
        rq.entry = &command;
        rq.has_entry_stdin = rq.has_entry_tty = true;
        rq.entry_stdin = json_is_true(json_object_get(p.spec, "stdin"));
        rq.entry_tty = json_is_true(json_object_get(p.spec, "tty"));
        if (rq.entry_tty) {
            rq.has_rows = rq.has_cols = true;
            rq.rows = number(p.spec, "rows");
            rq.cols = number(p.spec, "cols");
        }
    }
    fn(ctx, &rq);
    parts_done(&p);
    return 0;
}
