/*
 * build.h - building an image out of a Dockerfile
 *
 * Called by the dialects. A build is an operation: its log, progress and result are there. Every RUN is a sandbox; what it wrote
 * becomes a layer. COPY is done by the image role without one.
 */
#ifndef QS_API_SHARED_BUILD_BUILD_H
#define QS_API_SHARED_BUILD_BUILD_H

#include "core/operation.h"
#include "core/registry_auth.h"
#include "json/json.h"

/* Of steps and their keys: another one never takes a result of an older one. */
#define BUILD_VERSION "2"
#define BUILD_STEP_TIMEOUT_S 3600
#define BUILD_STEP_DISK_MB (16 * 1024)

/* Borrowed during build_begin. */
struct build_spec {
    const char *kind;                   /* of the operation: "image.build" */
    const char *dockerfile;
    size_t dockerfile_len;
    const char *context;                /* layer with the files of COPY; NULL = none */
    const char *name;                   /* of the image; NULL = none */
    const char *target;                 /* stage; NULL = the last */
    const char *image;                  /* id that the image is to have; NULL = a new one */
    const json_t *args;                 /* object of strings, NULL = none */
    const json_t *secrets;              /* object of strings, for --mount=type=secret; NULL = none */
    bool secret_env;                    /* they are variables of every RUN too */
    const json_t *bases;                /* object: what FROM names -> image id; NULL = none */
    const json_t *labels;               /* object of strings, NULL = none */
    const json_t *network;              /* "block", "open" or a policy, see core/policy_json.h; NULL = the configured one */
    const struct registry_auth *auth;   /* for the registries of FROM; NULL or empty = as core knows them */
    bool whole_context;                 /* a .dockerignore in it is a file like others */
    bool no_cache;
    bool refresh;                       /* resolve tags of FROM again */
    int64_t step_timeout_ms;            /* 0 = BUILD_STEP_TIMEOUT_S */
    uint64_t memory_mb, disk_mb;        /* of a RUN; 0 = as sandboxes have it */
    uint32_t cpu_milli;
};

int build_begin(struct core *c, const struct build_spec *spec, char ret_operation[ID_SIZE], struct err *e);
/* After core_start: removes what builds of an earlier process left. */
int build_recover(struct core *c, struct err *e);
/* Would the text be taken? ERR_INVALID with line and column. */
int build_check(const char *dockerfile, size_t n, struct err *e);

#endif
