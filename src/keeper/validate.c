/*
 * validate.c - are the values of a keeper message acceptable?
 */
#include "keeper/validate.h"

#include <inttypes.h>
#include <string.h>

#define LAYER_DIGITS 64
#define HOSTNAME_MAX 63
#define MIB (1024ULL * 1024)

/* Exactly 64 lower-case hexadecimal digits. */
static bool is_layer(const char *text)
{
    return strspn(text, "0123456789abcdef") == LAYER_DIGITS && text[LAYER_DIGITS] == '\0';
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool validate_is_hostname(const char *text)
{
    size_t n = strnlen(text, HOSTNAME_MAX + 1);

    if (n == 0 || n > HOSTNAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 || text[i - 1] == '.';
        bool last = i + 1 == n || text[i + 1] == '.';
        if (text[i] == '.' ? first || last
                           : !is_alnum(text[i]) && (text[i] != '-' || first || last))
            return false;
    }
    return true;
}

static int check_sandbox(const char *id, struct err *e)
{
    if (!id_is(id, "sb-"))
        return err_param(e, ERR_INVALID, "sandbox",
                         "sandbox id is not of the form sb- and 22 letters or digits");
    return 0;
}

static int check_range(const char *param, uint64_t value, uint64_t min, uint64_t max, struct err *e)
{
    if (value < min || value > max)
        return err_param(e, ERR_INVALID, param,
                         "%s is %" PRIu64 ", but must be from %" PRIu64 " to %" PRIu64, param,
                         value, min, max);
    return 0;
}

/* A range, or 0 for "none". */
static int check_optional(const char *param, uint64_t value, uint64_t min, uint64_t max,
                          struct err *e)
{
    return value == 0 ? 0 : check_range(param, value, min, max, e);
}

static int check_resources(const struct keeper_resources *r, struct err *e)
{
    uint64_t most = r->memory_bytes != 0 ? r->memory_bytes : LIMIT_MEMORY_MB_MAX * MIB;

    if (check_optional("cpu_milli", r->cpu_milli, LIMIT_CPU_MILLI_MIN, LIMIT_CPU_MILLI_MAX, e) < 0 ||
        check_range("cpu_weight", r->cpu_weight, 1, LIMIT_WEIGHT_MAX, e) < 0 ||
        check_optional("memory_bytes", r->memory_bytes, LIMIT_MEMORY_MB_MIN * MIB,
                       LIMIT_MEMORY_MB_MAX * MIB, e) < 0 ||
        check_range("memory_request_bytes", r->memory_request_bytes, 0, most, e) < 0 ||
        check_optional("pids", r->pids, LIMIT_PIDS_MIN, LIMIT_PIDS_MAX, e) < 0 ||
        check_optional("io_weight", r->io_weight, 1, LIMIT_WEIGHT_MAX, e) < 0)
        return -1;
    return 0;
}

static int check_layers(const struct keeper_create *m, struct err *e)
{
    if (check_range("nlayers", m->nlayers, 1, LIMIT_LAYERS, e) < 0)
        return -1;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        if (!is_layer(m->layers[i]))
            return err_param(e, ERR_INVALID, "layers",
                             "layer %" PRIu32 " is not 64 lower-case hex digits", i);
        /* overlay refuses the same directory twice, and says only "too many links" */
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(m->layers[i], m->layers[j]) == 0)
                return err_param(e, ERR_INVALID, "layers", "layer %s is named twice", m->layers[i]);
    }
    return 0;
}

static int check_times(const struct keeper_create *m, struct err *e)
{
    if (m->deadline_ms < 0 || m->deadline_ms > WALL_MS_MAX)
        return err_param(e, ERR_INVALID, "deadline_ms",
                         "deadline_ms is %" PRId64 ", but must be from 0 to %lld", m->deadline_ms,
                         WALL_MS_MAX);
    if (check_range("idle_ms", m->idle_ms, 0, LIMIT_LIFETIME_MAX * 1000, e) < 0 ||
        check_range("grace_ms", m->grace_ms, 0, LIMIT_GRACE_MAX * 1000, e) < 0)
        return -1;
    return 0;
}

int validate_create(const struct keeper_create *m, struct err *e)
{
    if (check_sandbox(m->sandbox, e) < 0)
        return -1;
    if (!validate_is_hostname(m->hostname))
        return err_param(e, ERR_INVALID, "hostname",
                         "hostname is not a host name of at most %d bytes", HOSTNAME_MAX);
    if (check_layers(m, e) < 0)
        return -1;
    if (m->delta[0] != '\0' && !id_is(m->delta, "im-"))
        return err_param(e, ERR_INVALID, "delta",
                         "delta is not of the form im- and 22 letters or digits");
    if (check_resources(&m->r, e) < 0 ||
        check_optional("disk_bytes", m->disk_bytes, DISK_BYTES_MIN, DISK_BYTES_MAX, e) < 0 ||
        check_times(m, e) < 0 || check_range("log_bytes", m->log_bytes, 0, LOG_BYTES_MAX, e) < 0 ||
        check_optional("spool_bytes", m->spool_bytes, SPOOL_BYTES_MIN, LOG_BYTES_MAX, e) < 0 ||
        check_range("oom", m->oom, 0, OOM_POLICIES - 1, e) < 0 ||
        check_range("options", m->options, 0, KEEPER_OPTIONS, e) < 0)
        return -1;
    return 0;
}

int validate_destroy(const struct keeper_destroy *m, struct err *e)
{
    return check_sandbox(m->sandbox, e);
}

int validate_tree(const struct keeper_tree *m, struct err *e)
{
    return check_sandbox(m->sandbox, e);
}

int validate_limits(const struct keeper_limits *m, struct err *e)
{
    if (check_sandbox(m->sandbox, e) < 0)
        return -1;
    return check_resources(&m->r, e);
}

int validate_layer(const struct keeper_layer *m, struct err *e)
{
    if (!is_layer(m->layer))
        return err_param(e, ERR_INVALID, "layer", "layer is not 64 lower-case hex digits");
    return 0;
}
