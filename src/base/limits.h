/*
 * limits.h - every cap in one place
 *
 * LIMIT_ROW(name, value, unit, what) rows are served at /v1/limits and printed in docs/limits.md.
 * Sizes that a peer can influence are compared with one of these before anything is allocated.
 */
#ifndef QS_BASE_LIMITS_H
#define QS_BASE_LIMITS_H

/* Requests */
#define LIMIT_HTTP_HEAD        (64 * 1024)         /* request line and headers, HTTP/1.1 and HTTP/2 */
#define LIMIT_HTTP_HEADERS     100                 /* header fields a request */
#define LIMIT_JSON_BODY        (1024 * 1024)       /* a JSON request body */
#define LIMIT_JSON_DEPTH       32
#define LIMIT_GRPC_MESSAGE     (100 * 1024 * 1024) /* Modal SDKs: 100 MiB either way */
#define LIMIT_CONNECTIONS      8192                /* open client connections */
#define LIMIT_STREAMS          1024                /* concurrent HTTP/2 streams a connection */

/* Objects */
#define LIMIT_NAME             64                  /* names of sandboxes, apps, images */
#define LIMIT_ID               64                  /* any id on the wire, NUL included */
#define LIMIT_TAGS             64                  /* tags a sandbox */
#define LIMIT_TAG_KEY          128
#define LIMIT_TAG_VALUE        1024
#define LIMIT_LIST             1000                /* items a page */

/* Commands */
#define LIMIT_ARGV_BYTES       (128 * 1024)        /* all arguments with their NULs */
#define LIMIT_ARGC             4096
#define LIMIT_ENV_BYTES        (256 * 1024)        /* all variables with their NULs */
#define LIMIT_ENVC             2048
#define LIMIT_PATH             4096                /* PATH_MAX of Linux */
#define LIMIT_EXECS_LIVE       1024                /* running at once a sandbox */
#define LIMIT_EXECS_KEPT       4096                /* finished ones remembered a sandbox */
#define LIMIT_OUTPUT_BYTES     (1024LL * 1024 * 1024)  /* unread output of an exec, default */
#define LIMIT_ROUTER_OUTPUT_BYTES (8LL * 1024 * 1024 * 1024)   /* the same for Modal's clients, who read files this way */
#define LIMIT_LOG_BYTES        (64LL * 1024 * 1024)    /* kept output of the entry point, default */
#define LIMIT_SPOOL_BYTES      (10LL * 1024 * 1024 * 1024)   /* unread output of a sandbox, all execs together */
#define LIMIT_STDIN_CHUNK      (32 * 1024)         /* one stdin message */
#define LIMIT_READ_CHUNK       (56 * 1024)         /* one output message */

/* Time, in seconds */
#define LIMIT_LIFETIME_DEFAULT 3600
#define LIMIT_IDLE_DEFAULT     600
#define LIMIT_LIFETIME_MAX     (366LL * 24 * 3600)
#define LIMIT_GRACE_DEFAULT    5
#define LIMIT_GRACE_MAX        300
#define LIMIT_RETAIN_DEFAULT   (24 * 3600)
#define LIMIT_WAIT_MAX         3600                /* a long poll */

/* Resources */
#define LIMIT_CPU_MILLI_MIN    10
#define LIMIT_CPU_MILLI_MAX    (1024 * 1000)
#define LIMIT_MEMORY_MB_MIN    16
#define LIMIT_MEMORY_MB_MAX    (4 * 1024 * 1024)
#define LIMIT_PIDS_MIN         4
#define LIMIT_PIDS_MAX         (1024 * 1024)
#define LIMIT_PIDS_DEFAULT     4096
#define LIMIT_WEIGHT_MAX       10000               /* of cpu_weight and io_weight; 100 is usual */
#define LIMIT_NOFILE_MIN       16                  /* open files a process */
#define LIMIT_NOFILE_MAX       1048576
#define LIMIT_NOFILE_DEFAULT   65536               /* or the host's own ceiling, if that is lower */
#define LIMIT_DISK_MB_MAX      (1024LL * 1024 * 1024)
#define LIMIT_LAYERS           64                  /* base layers a sandbox mounts */
#define LIMIT_SANDBOXES        20000               /* a node */

/* Uploads of Modal's clients */
#define LIMIT_UPLOAD_BYTES     (16LL * 1024 * 1024 * 1024) /* a file or blob */
#define LIMIT_UPLOADS_OPEN     10000               /* blobs that were declared and not yet sent */
#define LIMIT_UPLOAD_HOURS     6                   /* until a blob must be there, and that a signed URL holds */
#define LIMIT_UPLOAD_KEEP_DAYS 8                   /* a file that nobody asks for */
#define LIMIT_MOUNT_FILES      100000              /* files a mount */

/* Tunnels */
#define LIMIT_PORTS            32                  /* open ports a sandbox */
#define LIMIT_PORT_ALLOW       256                 /* prefixes of inbound_allow */
#define LIMIT_TUNNEL_PORTS     4096                /* ports of the machine in tunnel_listen */
#define LIMIT_PASSES           1000                /* connect tokens a sandbox */
#define LIMIT_PROBE_CHECK      (32 * 1024)         /* bytes of what a readiness probe asks of its helper */
#define LIMIT_PROBE_PATTERN    1024                /* bytes of a regular expression of one */
#define LIMIT_PASS_METADATA    4096                /* bytes that one tells the server inside */
#define LIMIT_TUNNEL_FLOWS     1024                /* open connections a tunnel */

/* Network */
#define LIMIT_POLICY_RULES     10000               /* rules of a network policy */
#define LIMIT_POLICY_ITEMS     50000               /* names, prefixes and port ranges of all its rules */
#define LIMIT_INJECT_TEXT      4096                /* of a template, a field's name or a path in a rule over requests */
#define LIMIT_RULE_INJECTS     32                  /* things that one rule puts into requests; methods and paths alike */
#define LIMIT_POLICY_BYTES     (900 * 1024)        /* a policy on its way to egress */
#define LIMIT_FLOWS            1024                /* open connections to the outside a sandbox */
#define LIMIT_UDP_FLOWS        512                 /* pairs of ends that exchange datagrams, a sandbox */
#define LIMIT_BANDWIDTH_MIN    64000               /* bits a second, smallest bandwidth of a policy */
#define LIMIT_BANDWIDTH_MAX    1000000000000LL     /* bits a second, largest bandwidth of a policy */
#define LIMIT_DNS_CONNECTIONS  16                  /* to the resolver, by TCP, a sandbox */
#define LIMIT_DNS_RATE         50 /* DNS queries a second a sandbox for names that are not remembered, ten times that at once */
#define LIMIT_DNS_NAME         160                 /* longest name that the resolver takes */

/* Internal channels */
#define LIMIT_CHANNEL_INLINE   (64 * 1024)         /* a SEQPACKET message; larger ones go by memfd */
#define LIMIT_CHANNEL_MESSAGE  (1024 * 1024)       /* a message by memfd */
#define LIMIT_CHANNEL_FDS      (LIMIT_LAYERS + 8)  /* a packet; setting up hands over every layer */

#endif
