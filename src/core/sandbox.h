/*
 * sandbox.h - the life of sandboxes
 *
 * Called by every dialect. Functions with a callback answer exactly once, perhaps before they
 * return; the texts and rows handed to the callback are valid during it. A sandbox that is being
 * removed does not exist for callers.
 */
#ifndef QS_CORE_SANDBOX_H
#define QS_CORE_SANDBOX_H

#include "core/core.h"
#include "core/idempotency.h"
#include "json/json.h"
#include "store/store.h"

/* What the node said last. Of an ended sandbox the row keeps usage and activity. */
struct sandbox_seen {
    uint8_t state;                  /* enum sandbox_state of ipc/record.h, 0 = never seen */
    int64_t last_activity_ms;       /* 0 = unknown */
    char last_activity[16];
    uint64_t cpu_us, memory_peak, memory_now, pids_now, oom_kills;
};

struct sandbox {
    const struct sandbox_row *row;
    struct sandbox_seen seen;
    bool is_replay;                 /* create: an earlier request with the key made it */
    bool is_existing;               /* create: if_exists=return found it */
};

typedef void (*sandbox_fn)(void *ctx, const struct sandbox *sb, const struct err *e);

enum sandbox_if_exists { IF_EXISTS_ERROR, IF_EXISTS_RETURN, IF_EXISTS_REPLACE };

/* 0 = none, if nothing else is said. */
struct sandbox_limits {
    uint32_t cpu_milli;
    uint32_t cpu_weight;            /* never 0 */
    uint64_t memory_mb, memory_request_mb;
    uint32_t pids;                  /* never 0 */
    uint32_t io_weight;             /* 0 = as the host has it */
    uint64_t disk_mb;
    uint32_t nofile;                /* never 0 */
    uint8_t oom;                    /* enum oom_policy */
    uint64_t spool_mb;              /* kept output of all commands together; 0 = LIMIT_SPOOL_BYTES */
};

/* What a sandbox has that does not say. A default that is below what was asked to be set aside goes with it. */
const struct sandbox_limits *core_default_limits(const struct core *c);
void core_set_default_limits(struct core *c, const struct sandbox_limits *l, uint32_t nofile_max);
void sandbox_limits_of(const json_t *spec, struct sandbox_limits *ret);    /* of the row */
const char *sandbox_oom_name(uint8_t oom);          /* "exec", "sandbox", "process" */

/* Everything is borrowed during sandbox_create. The dialect has checked ranges; names, tags,
 * environment and command are checked here. */
struct sandbox_spec {
    const char *image;              /* id or name */
    const char *app;
    const char *name;               /* NULL = none */
    enum sandbox_if_exists if_exists;
    const json_t *command;          /* array of strings; NULL = the sandbox idles */
    const json_t *env;              /* object of strings, NULL = none */
    const json_t *tags;             /* object of strings, NULL = none */
    const char *workdir, *user;     /* NULL = the image's */
    int64_t timeout_ms;             /* 0 = no cap */
    uint64_t idle_ms;               /* 0 = none */
    uint32_t grace_ms;
    uint64_t retain_ms;
    struct sandbox_limits limits;   /* begin with core_default_limits() */
    bool no_new_privileges;
    bool user_namespaces;
    bool stdin_open;
    bool tty;
    uint32_t rows, cols;
    uint32_t log_mb;                /* kept output of the entry point; 0 = LIMIT_LOG_BYTES */
    const json_t *network;          /* "block" (NULL too), "open", a policy (policy_json.h) or a policy's name (policies.h) */
    const json_t *network_policy;   /* where it comes from, which sandbox_create finds out */
    const json_t *probe;            /* of node.proto's Probe: tcp_port, argv or check, interval_ms and so on; NULL = none */
    const json_t *ports;            /* [{"port", "h2", "raw"}]; NULL = none */
    const json_t *inbound_allow;    /* prefixes whose addresses alone may connect to them; NULL = all */
    const json_t *dialect;          /* what the dialect wants to find again in the row's spec; NULL = nothing */
};

/* `token_id` made the call; with `key` (NULL = none) a repetition of the same request (hash)
 * finds the same sandbox. */
void sandbox_create(struct core *c, const struct sandbox_spec *spec, const char *token_id, const char *key,
                    const uint8_t hash[IDEM_HASH_SIZE], sandbox_fn fn, void *ctx);

/* The sandbox as it is: its node is asked while it lives. With wait_ms, as soon as it has ended,
 * or as it is then. */
struct sandbox_wait;
struct sandbox_wait *sandbox_get(struct core *c, const char *id, uint64_t wait_ms, sandbox_fn fn, void *ctx);
void sandbox_wait_cancel(struct sandbox_wait *w);   /* fn is not called any more; NULL (answered already) is accepted */

struct sandbox_end_how {
    const char *actor;
    int32_t signal;                 /* 0 = SIGTERM */
    int64_t grace_ms;               /* -1 = the sandbox's own */
    int64_t wait_ms;                /* -1 = grace and 10 s */
};
void sandbox_terminate(struct core *c, const char *id, const struct sandbox_end_how *how, sandbox_fn fn, void *ctx);
/* Ends it at once and removes every trace; sb is NULL in the callback. */
void sandbox_delete(struct core *c, const char *id, sandbox_fn fn, void *ctx);

struct sandbox_patch {
    bool has_extend, has_expires, has_idle, has_name;
    int64_t extend_ms;
    int64_t expires_ms;             /* 0 = no deadline */
    uint64_t idle_ms;               /* 0 = none */
    const char *name;               /* NULL = no name */
    bool has_cpu, has_cpu_weight, has_memory, has_memory_request, has_pids, has_io_weight;
    struct sandbox_limits limits;   /* those fields of it */
};
void sandbox_update(struct core *c, const char *id, const struct sandbox_patch *p, sandbox_fn fn, void *ctx);

/* Tags: JSON object as text (the caller frees) and revision. */
int sandbox_tags_get(struct core *c, const char *id, char **ret_tags, int64_t *ret_revision, struct err *e);
/* Replaces, or with `merge` changes single ones (null removes); expected -1 = whatever the
 * revision is. */
int sandbox_tags_set(struct core *c, const char *id, const json_t *tags, bool merge, int64_t expected, char **ret_tags,
                     int64_t *ret_revision, struct err *e);

/* Calls fn (perhaps at once) when what has ended up to now is known, as far as the node can be
 * reached: before a list. */
void sandbox_refresh(struct core *c, void (*fn)(void *ctx), void *ctx);
/* Of the store, with what was seen last of live ones. */
typedef void (*sandbox_each_fn)(void *ctx, const struct sandbox *sb);
int sandbox_list(struct core *c, const struct sandbox_filter *f, sandbox_each_fn fn, void *ctx, struct err *e);
/* The id of a name: the live one, or with `any` the latest. */
int sandbox_by_name(struct core *c, const char *app, const char *name, bool any, char ret_id[ID_SIZE], struct err *e);

const char *sandbox_state_name(const struct sandbox *sb);
size_t sandbox_live_count(const struct core *c);

#endif
