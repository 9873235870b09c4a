/*
 * exec_model.h - a command in the API's words and in the node's
 *
 * Used by every operation on commands (execs.c, run.c, stdio*.c) and by the file operations, which are commands of
 * ours: the checked body becomes an ExecStartRequest, the node's Exec becomes the exec object.
 */
#ifndef QS_API_REST_EXEC_MODEL_H
#define QS_API_REST_EXEC_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/limits.h"
#include "json/json.h"
#include "node.pb-c.h"

/* The rows of the body of a command, for the tables of execs.c and run.c. */
#define EXEC_FIELDS                                                                                                    \
    {"command", FIELD_STRINGS, FIELD_REQUIRED, 1, LIMIT_ARGC, NULL, "argv; no shell; looked up in PATH"},              \
    {"env", FIELD_STRING_MAP, 0, 0, LIMIT_ENVC, NULL, "variables over the sandbox's"},                                 \
    {"workdir", FIELD_STRING, FIELD_ABS_PATH, 1, LIMIT_PATH - 1, NULL, "absolute; must exist; default the sandbox's"}, \
    {"user", FIELD_STRING, 0, 1, 255, NULL, "name or id, with optional :group; default the sandbox's"},                \
    {"umask", FIELD_STRING, 0, 1, 4, NULL, "octal; default 022"},                                                      \
    {"nice", FIELD_INT, 0, 0, 19, NULL, "0 to 19; default 0"},                                                         \
    {"nofile", FIELD_INT, 0, 3, 1048576, NULL, "limit of open files; default inherited"},                              \
    {"timeout_s", FIELD_NUMBER, FIELD_NULLABLE | FIELD_OPEN_MIN, 0, (double)LIMIT_LIFETIME_MAX, NULL,                  \
     "then SIGTERM, grace_s later SIGKILL of the whole tree; default none"},                                           \
    {"grace_s", FIELD_NUMBER, 0, 0, LIMIT_GRACE_MAX, NULL, "between SIGTERM and SIGKILL; default 2"},                  \
    {"tty", FIELD_TTY, 0, 0, 0, NULL, "true or {rows, cols}: give it a terminal"},                                     \
    {"stdout", FIELD_ENUM, 0, 0, 0, "keep|drop", "default keep"},                                                      \
    {"stderr", FIELD_ENUM, 0, 0, 0, "keep|drop|merge", "default keep; merge: into stdout"},                            \
    {"output_limit_bytes", FIELD_INT, 0, 1, 1099511627776.0, NULL,                                                     \
     "unread bytes a stream before it ends with reason output_limit; default 1073741824"}

struct exec_request {
    Quicksand__Node__ExecStartRequest start;    /* refers to everything below */
    Quicksand__Node__Command command;
    Quicksand__Node__ExecRef ref;
    char sandbox[LIMIT_ID];
    char exec_id[LIMIT_ID];
    ProtobufCBinaryData *argv, *env;            /* owned; the texts are the body's */
    char **env_texts;                           /* owned, NAME=value */
    json_t *body;                               /* a reference that keeps the texts alive */
};

/* From the checked body; *ret is filled even on failure and always needs exec_request_done. */
int exec_request_init(struct exec_request *ret, const char *sandbox, const char *exec_id, json_t *body,
                      struct err *e);
void exec_request_done(struct exec_request *rq);

/* rows and cols of {rows, cols}; false when they are missing or out of range. */
bool exec_size_parse(const json_t *object, uint32_t *ret_rows, uint32_t *ret_cols);

/* The exec object. */
json_t *exec_json(const Quicksand__Node__Exec *x, const char *sandbox);
bool exec_has_ended(const Quicksand__Node__Exec *x);
/* Fills *e and returns -1 when the program could not be started (state failed). */
int exec_start_error(const Quicksand__Node__Exec *x, struct err *e);

#endif
