/*
 * conf.h - the configuration file: `key = value` lines, # comments
 *
 * One file for all roles, read by each at start (the keeper before it accepts anything). Unknown
 * keys and bad values are errors that name the line. Documented in docs/configuration.md.
 */
#ifndef QS_BASE_CONF_H
#define QS_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CONF_DEFAULT_PATH "/etc/quicksand/quicksand.conf"

struct conf {
    char data_dir[256];         /* /var/lib/quicksand */
    char run_dir[200];          /* /run/quicksand: sockets (short: sun_path holds 108 bytes) */
    char lib_dir[256];          /* /usr/lib/quicksand: role programs, monitor, init */
    char listen[128];           /* 127.0.0.1:7070 - control's API listener, "" = none */
    char router_listen[128];    /* 127.0.0.1:7071 - node's listener for Modal's command router, "" = none */
    char router_host[128];      /* host of the router's URL as clients reach it; "" = the host of their own URL */
    char tunnel_listen[128];    /* 127.0.0.1:7100-7163 - ports that tunnels into sandboxes may have, "" = none */
    char tunnel_host[128];      /* host of tunnels as clients reach it; "" = the host of their own URL */
    char tunnel_domain[200];    /* tunnels have names below it, all on the first port of tunnel_listen; "" = each its own port */
    char tunnel_certs[256];     /* directory with <name>.crt and <name>.key of hosts that tunnels may have; "" = none */
    uint32_t tunnel_public_port;        /* of that first port, as clients reach it; 0 = the same */
    char tls_cert[256];         /* PEM files; "" = self-signed, made at first run */
    char tls_key[256];
    char user_control[64];      /* quicksand, or a numeric uid */
    char user_node[64];
    char user_egress[64];
    char user_image[64];
    char egress_dns[256];       /* resolvers that names of connections out are asked of, "1.1.1.1,9.9.9.9:53"; "" = the host's */
    char build_network[768];    /* of RUN in builds: "open", "block", or words of domains and prefixes; default "open" */
    /* PEM file of authorities that servers of opened connections may have, besides the host's; "" = none */
    char egress_ca[256];
    uint32_t pool_size;         /* slots kept ready; default 8 */
    uint32_t max_sandboxes;     /* admission limit of this node */
    uint32_t memory_request_percent;    /* of the host's memory that sandboxes may have set aside */
    uint32_t default_cpu_percent;       /* of the host, for a sandbox that does not say */
    uint32_t default_memory_percent;
    uint32_t default_disk_mb;
    uint32_t default_pids;
    uint32_t spool_mb;          /* kept output of a sandbox, all its commands together */
    uint64_t trees_bytes;       /* most of the btrfs image, which grows */
    uint32_t id_base_range;     /* first 65536-id range is id_base_range * 65536; default 16384 */
    char cgroup_name[64];       /* directory under each hierarchy; default "quicksand" */
    char registry_auth[256];    /* credentials of registries, in the form of ~/.docker/config.json; "" = none */
    char registry_mirrors[768]; /* registry=host words: asked before the registry */
    char registry_insecure[768];/* hosts that may be spoken to without TLS, or with a certificate of anybody */
    char registry_ca[256];      /* PEM file of authorities, "" = the system's */
    char registry_proxy[256];   /* URL of a proxy for all registries, "" = none */
    char registry_no_proxy[512];/* hosts that are reached without it */
    char registry_ecr_endpoint[256];    /* URL that access keys of AWS are exchanged at, "" = the region's own */
    uint32_t registry_stall_s;  /* a registry that sends nothing for so long is given up; default 60 */
    char log_level[16];         /* error warn info debug */
};

void conf_defaults(struct conf *c);
/* Reads `path` over the defaults. A missing file is an error unless `optional`. */
int conf_load(struct conf *c, const char *path, bool optional, struct err *e);
/* One line's worth; exported for the fuzz target. */
int conf_parse(struct conf *c, const char *text, size_t len, struct err *e);

#endif
