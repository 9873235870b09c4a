/*
 * sandbox_def.c - reading the definition of a sandbox
 */
#include "api/modal/sandbox_def.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/modal/network_def.h"
#include "base/mem.h"

#define TIMEOUT_DEFAULT_S 300
#define GRACE_MS 2000               /* between SIGTERM and SIGKILL when a sandbox is terminated */
#define PROBE_INTERVAL_MS 100
#define LOG_MB 256                  /* clients expect all output to be kept, and read it late */

static int refuse(struct err *e, const char *option, const char *why)
{
    return err_param(e, ERR_INVALID, option, "the option %s is not supported by this server: %s", option, why);
}

/* --- what is not there --------------------------------------------------------------------------------------------- */

static bool is_set(const char *text)
{
    return m_text(text)[0] != '\0';
}

static int check_hardware(struct mcall *c, const M(Resources) *r, struct err *e)
{
    if (r == NULL)
        return 0;
    const M(GPUConfig) *gpu = r->gpu_config;
    if (gpu != NULL && ((gpu->has_type && gpu->type != 0) || gpu->count > 0 || is_set(gpu->gpu_type)))
        return refuse(e, "gpu", "it has no GPUs");
    if (r->rdma)
        return refuse(e, "rdma", "it has no RDMA devices");
    return 0;
}

static int check_mounts(const M(Sandbox) *d, struct err *e)
{
    if (d->n_volume_mounts > 0)
        return refuse(e, "volumes", "volumes do not exist yet");
    if (d->n_nfs_mounts > 0)
        return refuse(e, "network_file_systems", "network file systems do not exist here");
    if (d->n_cloud_bucket_mounts > 0 || d->n_s3_mounts > 0)
        return refuse(e, "cloud_bucket_mounts", "buckets cannot be mounted");
    return 0;
}

static int check_identity(const M(Sandbox) *d, struct err *e)
{
    if (d->include_oidc_identity_token)
        return refuse(e, "include_oidc_identity_token", "it issues no identity tokens");
    if (d->include_x509_svid)
        return refuse(e, "include_x509_svid", "it issues no certificates");
    if (d->enable_snapshot)
        return refuse(e, "enable_snapshot", "memory snapshots do not exist here");
    return 0;
}

static int check_place(struct mcall *c, const M(Sandbox) *d, struct err *e)
{
    static const char *const clouds[] = {"", "auto", "aws", "gcp", "oci", "azure"};
    static const char *const areas[] = {"us", "eu", "ap", "uk", "ca", "me", "sa", "af", "mx", "jp", "au", "il", "asia", "europe",
                                        "northamerica", "southamerica", "australia", "africa", "global"};
    const char *cloud = m_text(d->cloud_provider_str);
    bool is_known = false;

    for (size_t i = 0; i < array_len(clouds); i++)
        is_known |= strcmp(clouds[i], cloud) == 0;
    if (!is_known)
        return err_param(e, ERR_INVALID, "cloud", "unknown cloud '%.40s'", cloud);
    const M(SchedulerPlacement) *p = d->scheduler_placement;
    for (size_t i = 0; p != NULL && i < p->n_regions; i++) {
        const char *region = p->regions[i];
        size_t n = strcspn(region, "-");
        is_known = false;
        for (size_t k = 0; k < array_len(areas); k++)
            is_known |= strlen(areas[k]) == n && strncmp(areas[k], region, n) == 0;
        if (!is_known)
            return err_param(e, ERR_INVALID, "region", "unknown region '%.40s'", region);
    }
    if (cloud[0] != '\0' || (p != NULL && p->n_regions > 0))
        m_warn(c, "cloud and region have no effect: this server is one machine");
    return 0;
}

static int check_experiments(struct mcall *c, const M(Sandbox) *d, struct err *e)
{
    for (size_t i = 0; i < d->n_experimental_options_v2; i++) {
        const char *key = m_text(d->experimental_options_v2[i]->key), *value = m_text(d->experimental_options_v2[i]->value);
        bool is_off = strcmp(value, "false") == 0 || strcmp(value, "False") == 0 || value[0] == '\0';
        if (is_off)
            continue;
        if (strcmp(key, "enable_exit_snapshot") == 0)
            return refuse(e, "enable_exit_snapshot", "snapshots do not exist yet");
        m_warn(c, "the experimental option %s is not known and has no effect", key);
    }
    for (size_t i = 0; i < d->n_experimental_options; i++)
        if (d->experimental_options[i]->value)
            m_warn(c, "the experimental option %s is not known and has no effect", m_text(d->experimental_options[i]->key));
    if (is_set(d->runtime) || is_set(d->runsc_runtime_version))
        m_warn(c, "runtime has no effect: there is one way to isolate a sandbox");
    return 0;
}

/* --- environment --------------------------------------------------------------------------------------------------- */

static int add_secret(struct mcall *c, json_t *env, const char *id, struct err *e)
{
    auto_json *values = secret_values(c->m->vault, m_text(id), e);

    if (values == NULL)
        return -1;
    (void)json_object_update(env, values);
    return 0;
}

static void add_map(json_t *env, const M(StringMap) *map)
{
    for (size_t i = 0; map != NULL && i < map->n_contents; i++)
        (void)json_object_set_new(env, m_text(map->contents[i]->key), json_string(m_text(map->contents[i]->value)));
}

static int read_env(struct mcall *c, const M(Sandbox) *d, const struct def_env *from, json_t *env, struct err *e)
{
    if (from->nsources == 0)
        for (size_t i = 0; i < d->n_secret_ids; i++)
            if (add_secret(c, env, d->secret_ids[i], e) < 0)
                return -1;
    for (size_t i = 0; i < from->nsources; i++) {
        const M(SecretSource) *s = from->sources[i];
        if (s->source_case == MODAL__CLIENT__SECRET_SOURCE__SOURCE_SECRET_ID && add_secret(c, env, s->secret_id, e) < 0)
            return -1;
        if (s->source_case == MODAL__CLIENT__SECRET_SOURCE__SOURCE_ENV)
            add_map(env, s->env);
    }
    add_map(env, d->environment_variables);
    add_map(env, from->ephemeral);
    return 0;
}

static void set_text(json_t *o, const char *key, const char *value)
{
    if (is_set(value))
        (void)json_object_set_new(o, key, json_string(value));
}

static void read_pty(const M(PTYInfo) *p, struct sandbox_def *out)
{
    out->spec.tty = p != NULL && (!p->has_enabled || p->enabled);
    if (!out->spec.tty)
        return;
    out->spec.rows = p->winsz_rows > 0 && p->winsz_rows < 10000 ? p->winsz_rows : 24;
    out->spec.cols = p->winsz_cols > 0 && p->winsz_cols < 10000 ? p->winsz_cols : 80;
    set_text(out->env, "TERM", p->env_term);
    set_text(out->env, "COLORTERM", p->env_colorterm);
    set_text(out->env, "TERM_PROGRAM", p->env_term_program);
}

/* --- limits, probe, tags ------------------------------------------------------------------------------------------- */

static int read_limits(struct mcall *c, const M(Resources) *r, struct sandbox_spec *s, struct err *e)
{
    struct sandbox_limits *l = &s->limits;

    *l = *core_default_limits(c->m->core);
    if (r == NULL)
        return 0;
    if (r->milli_cpu_max != 0 && r->milli_cpu_max < r->milli_cpu)
        return err_param(e, ERR_INVALID, "cpu", "the CPU limit is below the request");
    if (r->memory_mb_max != 0 && r->memory_mb_max < r->memory_mb)
        return err_param(e, ERR_INVALID, "memory", "the memory limit is below the request");
    if (r->milli_cpu_max != 0 && (r->milli_cpu_max < LIMIT_CPU_MILLI_MIN || r->milli_cpu_max > LIMIT_CPU_MILLI_MAX))
        return err_param(e, ERR_INVALID, "cpu", "the CPU limit must be from %d to %d thousandths of a core", LIMIT_CPU_MILLI_MIN,
                         LIMIT_CPU_MILLI_MAX);
    if (r->memory_mb_max != 0 && (r->memory_mb_max < LIMIT_MEMORY_MB_MIN || r->memory_mb_max > LIMIT_MEMORY_MB_MAX))
        return err_param(e, ERR_INVALID, "memory", "the memory limit must be from %d to %d MiB", LIMIT_MEMORY_MB_MIN,
                         LIMIT_MEMORY_MB_MAX);
    if (r->milli_cpu != 0) {            /* a share under contention: 100 for a core */
        uint32_t weight = r->milli_cpu / 10;
        l->cpu_weight = weight < 1 ? 1 : weight > LIMIT_WEIGHT_MAX ? LIMIT_WEIGHT_MAX : weight;
    }
    if (r->memory_mb > LIMIT_MEMORY_MB_MAX)
        return err_param(e, ERR_INVALID, "memory", "the memory request is %u MiB, but must be at most %d", r->memory_mb,
                         LIMIT_MEMORY_MB_MAX);
    if (r->ephemeral_disk_mb > LIMIT_DISK_MB_MAX)
        return err_param(e, ERR_INVALID, "ephemeral_disk", "the disk limit is %u MiB, but must be at most %lld",
                         r->ephemeral_disk_mb, LIMIT_DISK_MB_MAX);
    /* A default that is below what is asked to be set aside goes with it. */
    if (r->milli_cpu_max != 0 || (l->cpu_milli != 0 && l->cpu_milli < r->milli_cpu))
        l->cpu_milli = r->milli_cpu_max != 0 ? r->milli_cpu_max : r->milli_cpu;
    if (r->memory_mb_max != 0 || (l->memory_mb != 0 && l->memory_mb < r->memory_mb))
        l->memory_mb = r->memory_mb_max != 0 ? r->memory_mb_max : r->memory_mb;
    l->memory_request_mb = r->memory_mb;
    if (r->ephemeral_disk_mb != 0)
        l->disk_mb = r->ephemeral_disk_mb;
    return 0;
}

static int read_probe(const M(Probe) *p, struct sandbox_def *out, struct err *e)
{
    if (p == NULL || p->probe_oneof_case == MODAL__CLIENT__PROBE__PROBE_ONEOF__NOT_SET)
        return 0;
    out->probe = json_object();
    uint32_t interval = p->has_interval_ms && p->interval_ms > 0 ? p->interval_ms : PROBE_INTERVAL_MS;
    (void)json_object_set_new(out->probe, "interval_ms", json_integer(interval));
    if (p->probe_oneof_case == MODAL__CLIENT__PROBE__PROBE_ONEOF_TCP_PORT) {
        if (p->tcp_port < 1 || p->tcp_port > 65535)
            return err_param(e, ERR_INVALID, "readiness_probe", "the port of the readiness probe must be from 1 to 65535");
        (void)json_object_set_new(out->probe, "tcp_port", json_integer(p->tcp_port));
    } else {
        json_t *argv = json_array();
        for (size_t i = 0; i < p->exec_command->n_argv; i++)
            (void)json_array_append_new(argv, json_string(p->exec_command->argv[i]));
        (void)json_object_set_new(out->probe, "argv", argv);
        if (json_array_size(argv) == 0 || p->exec_command->argv[0][0] == '\0')
            return err_param(e, ERR_INVALID, "readiness_probe", "the command of the readiness probe is empty");
    }
    out->spec.probe = out->probe;
    return 0;
}

json_t *sandbox_tags_json(M(SandboxTag) *const *tags, size_t n)
{
    json_t *o = json_object();

    for (size_t i = 0; i < n; i++)
        (void)json_object_set_new(o, m_text(tags[i]->tag_name), json_string(m_text(tags[i]->tag_value)));
    return o;
}

static int read_times(const M(Sandbox) *d, struct sandbox_spec *s, struct err *e)
{
    uint32_t timeout_s = d->timeout_secs != 0 ? d->timeout_secs : TIMEOUT_DEFAULT_S;

    if (timeout_s > LIMIT_LIFETIME_MAX)
        return err_param(e, ERR_INVALID, "timeout", "the timeout must be at most %lld s", LIMIT_LIFETIME_MAX);
    if (d->has_idle_timeout_secs && (d->idle_timeout_secs == 0 || d->idle_timeout_secs > LIMIT_LIFETIME_MAX))
        return err_param(e, ERR_INVALID, "idle_timeout", "the idle timeout must be from 1 to %lld s", LIMIT_LIFETIME_MAX);
    s->timeout_ms = timeout_s * 1000LL;
    s->idle_ms = d->has_idle_timeout_secs ? d->idle_timeout_secs * 1000ULL : 0;
    s->grace_ms = GRACE_MS;
    s->log_mb = LOG_MB;
    s->retain_ms = LIMIT_RETAIN_DEFAULT * 1000ULL;
    return 0;
}

static void read_ports(const M(Sandbox) *d, struct sandbox_def *out)
{
    const M(PortSpecs) *ports =
        d->open_ports_oneof_case == MODAL__CLIENT__SANDBOX__OPEN_PORTS_ONEOF_OPEN_PORTS
            ? d->open_ports
            : NULL;

    out->ports = json_array();
    for (size_t i = 0; ports != NULL && i < ports->n_ports; i++) {
        const M(PortSpec) *p = ports->ports[i];
        (void)json_array_append_new(
            out->ports, json_pack("{s:I, s:b, s:b}", "port", (json_int_t)p->port, "h2",
                                  p->tunnel_type == MODAL__CLIENT__TUNNEL_TYPE__TUNNEL_TYPE_H2,
                                  "raw", p->unencrypted != 0));
    }
    /* An empty list is none on the wire: everybody may connect. */
    if (d->n_inbound_cidr_allowlist > 0)
        out->inbound_allow = json_array();
    for (size_t i = 0; i < d->n_inbound_cidr_allowlist; i++)
        (void)json_array_append_new(out->inbound_allow, json_string(d->inbound_cidr_allowlist[i]));
}

static int check_options(struct mcall *c, const M(Sandbox) *d, struct err *e)
{
    return check_hardware(c, d->resources, e) < 0 || check_mounts(d, e) < 0 || check_identity(d, e) < 0
                   || check_place(c, d, e) < 0 || check_experiments(c, d, e) < 0
               ? -1 : 0;
}

int sandbox_def_read(struct mcall *c, const M(Sandbox) *d, const struct def_env *env, M(SandboxTag) *const *tags,
                     size_t ntags, const char *app, enum modal_generation g, struct sandbox_def *ret, struct err *e)
{
    struct sandbox_spec *s = &ret->spec;

    memset(ret, 0, sizeof *ret);
    ret->env = json_object();
    ret->tags = sandbox_tags_json(tags, ntags);
    ret->dialect = json_pack("{s:i, s:i, s:b}", "generation", g == MODAL_V2 ? 2 : 1, "timeout_s",
                             (int)(d->timeout_secs != 0 ? d->timeout_secs : TIMEOUT_DEFAULT_S), "verbose", d->verbose != 0);
    if (d->n_entrypoint_args > 0) {
        ret->command = json_array();
        for (size_t i = 0; i < d->n_entrypoint_args; i++)
            (void)json_array_append_new(ret->command, json_string(d->entrypoint_args[i]));
    }
    if (!is_set(d->image_id))
        return err_param(e, ERR_INVALID, "image_id", "the definition names no image");
    if (check_options(c, d, e) < 0 || read_times(d, s, e) < 0 || read_limits(c, d->resources, s, e) < 0
        || network_def_read(c, d, &ret->network, e) < 0 || read_probe(d->readiness_probe, ret, e) < 0
        || read_env(c, d, env, ret->env, e) < 0)
        return -1;
    s->network = ret->network;
    read_pty(d->pty_info, ret);
    read_ports(d, ret);
    s->ports = ret->ports;
    s->inbound_allow = ret->inbound_allow;
    if (ret->command == NULL)
        s->tty = false;                 /* there is no program that a terminal could belong to */
    s->image = d->image_id;
    s->app = app;
    s->name = is_set(d->name) ? d->name : NULL;
    s->command = ret->command;
    s->env = ret->env;
    s->tags = ret->tags;
    s->dialect = ret->dialect;
    s->workdir = is_set(d->workdir) ? d->workdir : NULL;
    s->stdin_open = ret->command != NULL;
    return 0;
}

void sandbox_def_done(struct sandbox_def *d)
{
    json_decref(d->command);
    json_decref(d->env);
    json_decref(d->tags);
    json_decref(d->probe);
    json_decref(d->network);
    json_decref(d->ports);
    json_decref(d->inbound_allow);
    json_decref(d->dialect);
}
