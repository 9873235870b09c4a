/*
 * limit_fields.h - the limits of a sandbox in the bodies of create and PATCH
 *
 * Used by sandboxes.c. A field that is absent means the default at a create and no change at a PATCH;
 * null means none.
 */
#ifndef QS_API_REST_LIMIT_FIELDS_H
#define QS_API_REST_LIMIT_FIELDS_H

#include "api/rest/call_impl.h"
#include "core/sandbox.h"

/* Those that may change while the sandbox runs. */
#define CHANGEABLE_LIMIT_FIELDS                                                                                       \
    {"cpu", FIELD_NUMBER, FIELD_NULLABLE, 0.01, 1024, NULL, "cores; null = no limit; default a part of the host's"},   \
    {"cpu_weight", FIELD_INT, 0, 1, LIMIT_WEIGHT_MAX, NULL, "share under contention; default 100"},                  \
    {"memory_mb", FIELD_INT, FIELD_NULLABLE, LIMIT_MEMORY_MB_MIN, LIMIT_MEMORY_MB_MAX, NULL,                         \
     "null = no limit; default a part of the host's"},                                                               \
    {"memory_request_mb", FIELD_INT, FIELD_NULLABLE, 1, LIMIT_MEMORY_MB_MAX, NULL,                                   \
     "set aside for it, at most memory_mb; default null = nothing"},                                                 \
    {"pids", FIELD_INT, 0, LIMIT_PIDS_MIN, LIMIT_PIDS_MAX, NULL, "processes and threads; default 4096"},             \
    {"io_weight", FIELD_INT, FIELD_NULLABLE, 1, LIMIT_WEIGHT_MAX, NULL,                                              \
     "share of the disk under contention, where the host can; default null = 100"}

#define LIMIT_FIELDS                                                                                                  \
    CHANGEABLE_LIMIT_FIELDS,                                                                                          \
    {"disk_mb", FIELD_INT, FIELD_NULLABLE, 1, LIMIT_DISK_MB_MAX, NULL,                                               \
     "of the writable layer, names and attributes of files included; null = no limit; default 8192"},                \
    {"nofile", FIELD_INT, 0, LIMIT_NOFILE_MIN, LIMIT_NOFILE_MAX, NULL,                                               \
     "open files a process; default 65536, or what the host lets it"},                                               \
    {"oom", FIELD_ENUM, 0, 0, 0, "exec|sandbox|process",                                                             \
     "what ends when the memory limit kills a process; default exec"}

void limits_read(const struct call *c, struct sandbox_limits *ret);
void limits_read_patch(const struct call *c, struct sandbox_patch *p);
json_t *limits_json(const json_t *spec);        /* of the row */

#endif
