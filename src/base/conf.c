/*
 * conf.c - the configuration file
 */
#include "base/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONF_MAX_BYTES (64 * 1024)

enum kind { TEXT, U32, U64 };

struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t size;                /* of the text field */
    uint64_t min, max;
};

#define TEXT_KEY(f) {#f, TEXT, offsetof(struct conf, f), sizeof((struct conf *)0)->f, 0, 0}
#define U32_KEY(f, lo, hi) {#f, U32, offsetof(struct conf, f), 0, lo, hi}
#define U64_KEY(f, lo, hi) {#f, U64, offsetof(struct conf, f), 0, lo, hi}

static const struct key keys[] = {
    TEXT_KEY(data_dir),     TEXT_KEY(run_dir),      TEXT_KEY(lib_dir),
    TEXT_KEY(listen),       TEXT_KEY(tls_cert),     TEXT_KEY(tls_key),
    TEXT_KEY(user_control), TEXT_KEY(user_node),    TEXT_KEY(user_egress),
    TEXT_KEY(user_image),   TEXT_KEY(cgroup_name),  TEXT_KEY(log_level),
    TEXT_KEY(egress_dns),   TEXT_KEY(egress_ca),    TEXT_KEY(build_network),
    TEXT_KEY(router_listen), TEXT_KEY(router_host),
    TEXT_KEY(registry_auth), TEXT_KEY(registry_mirrors), TEXT_KEY(registry_insecure),
    TEXT_KEY(registry_ca), TEXT_KEY(registry_proxy), TEXT_KEY(registry_no_proxy),
    TEXT_KEY(registry_ecr_endpoint),
    U32_KEY(registry_stall_s, 1, 3600),
    TEXT_KEY(tunnel_listen), TEXT_KEY(tunnel_host), TEXT_KEY(tunnel_domain), TEXT_KEY(tunnel_certs),
    U32_KEY(tunnel_public_port, 0, 65535),
    U32_KEY(pool_size, 0, 256),
    U32_KEY(max_sandboxes, 1, 20000),
    U64_KEY(trees_bytes, 256ULL << 20, 1ULL << 50),
    U32_KEY(memory_request_percent, 0, 1000),
    U32_KEY(default_cpu_percent, 0, 100),
    U32_KEY(default_memory_percent, 0, 100),
    U32_KEY(default_disk_mb, 0, 1U << 30),
    U32_KEY(spool_mb, 1, 1U << 20),
    U32_KEY(default_pids, 4, 1U << 20),
    U32_KEY(id_base_range, 2, 60000),
};

void conf_defaults(struct conf *c)
{
    *c = (struct conf){
        .data_dir = "/var/lib/quicksand",
        .run_dir = "/run/quicksand",
        .lib_dir = "/usr/lib/quicksand",
        .listen = "127.0.0.1:7070",
        .router_listen = "127.0.0.1:7071",
        .tunnel_listen = "127.0.0.1:7100-7163",
        .tunnel_public_port = 0,
        .user_control = "quicksand",
        .user_node = "quicksand-node",
        .user_egress = "quicksand-egress",
        .user_image = "quicksand-image",
        .build_network = "open",
        .registry_stall_s = 60,
        .pool_size = 8,
        .max_sandboxes = 4096,
        .trees_bytes = 64ULL << 30,
        .memory_request_percent = 80,
        .default_cpu_percent = 75,
        .default_memory_percent = 50,
        .default_disk_mb = 8192,
        .default_pids = 4096,
        .spool_mb = 10240,
        .id_base_range = 16384,
        .cgroup_name = "quicksand",
        .log_level = "info",
    };
}

static int set_number(void *field, const struct key *k, const char *value, int line, struct err *e)
{
    char *end;

    errno = 0;
    uint64_t v = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end != '\0' || errno != 0 || v < k->min || v > k->max)
        return err_param(e, ERR_INVALID, k->name,
                         "line %d: %s is '%s', but must be a whole number from %" PRIu64 " to %" PRIu64,
                         line, k->name, value, k->min, k->max);
    if (k->kind == U32)
        *(uint32_t *)field = (uint32_t)v;
    else
        *(uint64_t *)field = v;
    return 0;
}

static int set_key(struct conf *c, const char *name, const char *value, int line, struct err *e)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct key *k = &keys[i];
        if (strcmp(k->name, name) != 0)
            continue;
        void *field = (char *)c + k->offset;
        if (k->kind != TEXT)
            return set_number(field, k, value, line, e);
        if (strlen(value) >= k->size)
            return err_param(e, ERR_INVALID, k->name, "line %d: %s is longer than %zu bytes", line,
                             name, k->size - 1);
        memcpy(field, value, strlen(value) + 1);
        return 0;
    }
    return err_param(e, ERR_UNKNOWN_FIELD, "", "line %d: unknown key '%.60s'", line, name);
}

static char *trim(char *s)
{
    while (*s == ' ' || *s == '\t')
        s++;
    size_t n = strlen(s);
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
        s[--n] = '\0';
    return s;
}

int conf_parse(struct conf *c, const char *text, size_t len, struct err *e)
{
    char row[1024];
    int line = 0;

    for (size_t at = 0; at < len;) {
        const char *nl = memchr(text + at, '\n', len - at);
        size_t n = nl != NULL ? (size_t)(nl - (text + at)) : len - at;
        line++;
        if (n >= sizeof row || memchr(text + at, '\0', n) != NULL)
            return err_set(e, ERR_INVALID, "line %d: too long, or has a NUL", line);
        memcpy(row, text + at, n);
        row[n] = '\0';
        at += n + 1;

        char *s = trim(row);
        if (*s == '\0' || *s == '#')
            continue;
        char *eq = strchr(s, '=');
        if (eq == NULL)
            return err_set(e, ERR_INVALID, "line %d: no '=' in '%.60s'", line, s);
        *eq = '\0';
        if (set_key(c, trim(s), trim(eq + 1), line, e) < 0)
            return -1;
    }
    return 0;
}

int conf_load(struct conf *c, const char *path, bool optional, struct err *e)
{
    static char text[CONF_MAX_BYTES];

    conf_defaults(c);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT && optional)
            return 0;
        return err_sys(e, errno, "open %s", path);
    }
    size_t len = 0;
    for (;;) {
        ssize_t n = read(fd, text + len, sizeof text - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int r = errno;
            (void)close(fd);
            return err_sys(e, r, "read %s", path);
        }
        if (n == 0)
            break;
        len += (size_t)n;
        if (len == sizeof text) {
            (void)close(fd);
            return err_set(e, ERR_TOO_LARGE, "%s is over %d bytes", path, CONF_MAX_BYTES);
        }
    }
    (void)close(fd);
    if (conf_parse(c, text, len, e) < 0)
        return err_wrap(e, "%s", path);
    return 0;
}
