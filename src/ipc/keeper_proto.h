/*
 * keeper_proto.h - node -> keeper (SEQPACKET, keeper.sock) and keeper -> monitor (inherited pair)
 *
 * Fixed messages: the keeper checks every field again, whoever asks. The keeper answers each request
 * with KEEPER_REPLY and the same tag.
 */
#ifndef QS_IPC_KEEPER_PROTO_H
#define QS_IPC_KEEPER_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"
#include "base/limits.h"

enum keeper_type {
    KEEPER_CREATE = 1,  /* node -> keeper: struct keeper_create; reply carries the monitor connection */
    KEEPER_DESTROY,     /* node -> keeper: struct keeper_destroy: end it if it lives, remove every trace */
    KEEPER_LIST,        /* node -> keeper, empty: reply payload is count + ids that have any trace */
    KEEPER_LIMITS,      /* node -> keeper: struct keeper_limits: change limits of a running sandbox; the reply's payload
                           is its set of processors (KEEPER_CPUS bytes) */
    KEEPER_LAYER_DELETE,/* node -> keeper: struct keeper_layer */
    KEEPER_STATS,       /* node -> keeper, empty: struct keeper_stats */
    KEEPER_REPLY,       /* keeper -> node: struct keeper_reply, then the payload of LIST or STATS */
    KEEPER_TREE,        /* node -> keeper: struct keeper_tree; the reply carries the tree that an ended sandbox wrote, read-only,
                         * with the ids of the image role */
    KEEPER_CONFIGURE = 100, /* keeper -> monitor: struct keeper_configure; descriptors below */
    KEEPER_CONFIGURED,  /* monitor -> keeper: i32 errno */
};

/* Limits that may also change while the sandbox runs. */
struct keeper_resources {
    uint32_t cpu_milli;                 /* quota; 0 = none */
    uint32_t cpu_weight;                /* 1 .. 10000 as cgroup v2 */
    uint64_t memory_bytes;              /* limit; 0 = none */
    uint64_t memory_request_bytes;      /* set aside: not reclaimed while others have more; 0 = nothing */
    uint32_t pids;                      /* 0 = LIMIT_PIDS_DEFAULT */
    uint32_t io_weight;                 /* 1 .. 10000; 0 = as the host has it */
};

/* What follows when the memory limit has killed a process. */
enum oom_policy {
    OOM_EXEC,                           /* the rest of its exec goes with it */
    OOM_SANDBOX,                        /* the sandbox ends */
    OOM_PROCESS,                        /* nothing else */
    OOM_POLICIES
};

#define KEEPER_CPUS 128                 /* bytes of a set of processors, as sched_setaffinity takes it */

/* Bits of `options`. */
enum {
    KEEPER_NO_NEW_PRIVILEGES = 1,       /* setuid programs inside gain nothing */
    KEEPER_USER_NAMESPACES = 2,         /* user namespaces below the sandbox's, and mounts in them */
    KEEPER_NETWORK = 4,                 /* keep the sockets that lead to egress; else loopback is all there is */
    KEEPER_OPTIONS = 7,                 /* all there are */
};

struct keeper_create {
    char sandbox[ID_SIZE];              /* sb- + 22 */
    char hostname[LIMIT_ID];
    uint32_t nlayers;                   /* 1 .. LIMIT_LAYERS, without the scaffold */
    char layers[LIMIT_LAYERS][72];      /* layer ids, top first: 64 lower-case hex digits */
    char delta[ID_SIZE];                /* "" or im-...: the writable tree starts as a clone of it */
    struct keeper_resources r;
    uint64_t disk_bytes;                /* 0 = none */
    int64_t deadline_ms;                /* wall clock; 0 = none */
    uint64_t idle_ms;                   /* 0 = none */
    uint32_t grace_ms;                  /* between SIGTERM and SIGKILL at the end */
    uint64_t log_bytes;                 /* kept output of the entry point */
    uint64_t spool_bytes;               /* kept output of everything together; 0 = LIMIT_SPOOL_BYTES */
    uint8_t oom;                        /* enum oom_policy */
    uint32_t options;
};

struct keeper_destroy {
    char sandbox[ID_SIZE];
};

struct keeper_tree {
    char sandbox[ID_SIZE];              /* that has ended */
};

struct keeper_limits {
    char sandbox[ID_SIZE];
    struct keeper_resources r;
};

struct keeper_layer {
    char layer[72];
};

struct keeper_stats {
    uint32_t pool_ready;
    uint32_t sandboxes;
    uint64_t memory_total, memory_available;
    uint64_t trees_total, trees_free;
};

struct keeper_reply {
    uint16_t code;              /* enum err_code, 0 = done */
    int32_t sys_errno;
    char param[32];             /* the field that is to blame, or "" */
    char message[200];
};

/*
 * CONFIGURE turns a slot's monitor into the monitor of a sandbox. Descriptors, in order: run directory
 * of the sandbox (O_PATH|O_DIRECTORY is not enough: a real directory descriptor), one end of a connection whose
 * other end the node gets, upper tree mount, layer mounts (nlayers, top first, scaffold first),
 * seccomp program (memfd).
 */
struct keeper_configure {
    char sandbox[ID_SIZE];
    char hostname[LIMIT_ID];
    uint32_t node_uid;          /* who may connect to monitor.sock besides root */
    uint32_t nlayers;           /* with the scaffold */
    uint64_t memory_bytes;
    uint64_t shm_bytes;
    int64_t deadline_ms;
    uint64_t idle_ms;
    uint32_t grace_ms;
    uint64_t log_bytes;
    uint64_t spool_bytes;
    uint8_t oom;
    uint8_t cpus[KEEPER_CPUS];  /* where init and all commands run; none set = anywhere */
    uint32_t options;
};

/* Encoders return the length, 0 if it does not fit. Decoders return 0 or -EBADMSG and check only form;
 * values are checked by the keeper (keeper/validate.c). */
size_t keeper_create_encode(const struct keeper_create *m, void *out, size_t size);
size_t keeper_destroy_encode(const struct keeper_destroy *m, void *out, size_t size);
size_t keeper_tree_encode(const struct keeper_tree *m, void *out, size_t size);
size_t keeper_limits_encode(const struct keeper_limits *m, void *out, size_t size);
size_t keeper_layer_encode(const struct keeper_layer *m, void *out, size_t size);
size_t keeper_stats_encode(const struct keeper_stats *m, void *out, size_t size);
size_t keeper_reply_encode(const struct keeper_reply *m, void *out, size_t size);
size_t keeper_configure_encode(const struct keeper_configure *m, void *out, size_t size);
int keeper_create_decode(struct keeper_create *ret, const void *p, size_t n);
int keeper_destroy_decode(struct keeper_destroy *ret, const void *p, size_t n);
int keeper_tree_decode(struct keeper_tree *ret, const void *p, size_t n);
int keeper_limits_decode(struct keeper_limits *ret, const void *p, size_t n);
int keeper_layer_decode(struct keeper_layer *ret, const void *p, size_t n);
int keeper_stats_decode(struct keeper_stats *ret, const void *p, size_t n);
/* Leaves *ret_used at the first byte after the reply, for the payload of LIST and STATS. */
int keeper_reply_decode(struct keeper_reply *ret, const void *p, size_t n, size_t *ret_used);
int keeper_configure_decode(struct keeper_configure *ret, const void *p, size_t n);

#endif
