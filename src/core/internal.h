/*
 * internal.h - what the files of core share
 */
#ifndef QS_CORE_INTERNAL_H
#define QS_CORE_INTERNAL_H

#include "base/log.h"
#include "base/map.h"
#include "core/core.h"
#include "core/sandbox.h"
#include "node.pb-c.h"
#include "store/store.h"

struct node_call;
struct operation;
struct operation_wait;
struct refresh;

struct core {
    struct loop *loop;
    struct store *store;                /* borrowed */
    struct vault *vault;                /* borrowed */
    struct http_client *node;
    char *data_dir;
    char *tunnel_host;                  /* NULL or "": the host of a client's own URL */
    bool is_stopping;

    struct node_call *calls;            /* under way, for core_stop */

    struct map boxes;                   /* id -> struct box: every row that has not ended */
    struct sandbox_limits defaults;
    uint32_t nofile_max;                /* what the host lets a process have */
    size_t live;                        /* boxes in a live state */
    struct loop_timer *poll_timer;
    bool is_polling;                    /* a look at the node is under way, or the timer for it runs */
    bool is_looking;                    /* a look is under way */
    int64_t looked_ms, next_full_ms;    /* CLOCK_BOOTTIME: begin of the last look; when to ask for everything again */
    struct refresh *refresh_now;        /* who waits for the look under way */
    struct refresh *refresh_next;       /* and for the one after it */
    bool is_reconciled;                 /* one List was compared with the rows since the start */
    bool node_is_down;                  /* the last List failed: said once in the log */
    struct loop_timer *sweep_timer;
    int64_t next_expire_ms;             /* of old audit lines and idempotency keys */
    int64_t next_survey_ms;             /* of the layers that lie on the node */
    bool is_surveying;

    struct map tokens;                  /* id -> struct token_row: those used since the start; owned */
    size_t imports;                     /* image imports under way: no layer is removed meanwhile */
    char removing[128];                 /* layer that the node is removing, "" = none */
    struct removal_wait *removal_waits; /* who wants to go on when it has gone */

    struct operation *operations;       /* running */
    struct operation_wait *operation_waits;
    json_t *build_network;              /* NULL = open; owned */
    char *registry_auth;                /* path of the file of registry credentials, NULL = none; owned */

    struct audit_row *audit;            /* waiting for the next flush; owned */
    size_t naudit;
    uint64_t audit_lost;
    int64_t anonymous_second;           /* lines of calls without a token in this second */
    unsigned anonymous;
    struct loop_timer *audit_timer;
};

/* core.c: something failed; the message may hold a peer's text and is escaped. `id` is the
 * object, "-" = none. */
void core_log(enum log_level level, const char *event, const char *id, const struct err *e);
/* node_call.c: answers whatever is under way with "stopping"; frees what is left once the
 * connection is gone. */
void node_calls_fail_all(struct core *c);
void node_calls_free_all(struct core *c);
/* sandbox_recover.c: starts recovery and the timers, and ends them. */
int sandboxes_open(struct core *c, struct err *e);
void sandboxes_close(struct core *c);
/* image.c: removes layers that no image names, one at a time. */
void layers_expire(struct core *c, int64_t now_us);     /* uploads that no build took, layers that nothing names */
void images_sweep(struct core *c);
/* layer_survey.c: when it is time, looks for layers that no row knows; removes them by the sweep. */
void layers_survey(struct core *c);
/* Calls fn once no layer is being removed, maybe at once; for callers that keep further removals away (core->imports). */
void images_when_quiet(struct core *c, void (*fn)(void *arg), void *arg);
/* operation.c */
int operations_open(struct core *c, struct err *e);
void operations_stop(struct core *c);       /* answers whoever waits */
void operations_close(struct core *c);
/* token.c */
void tokens_close(struct core *c);
/* audit.c */
void audit_open(struct core *c);
void audit_close(struct core *c);

#endif
