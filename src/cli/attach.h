/*
 * attach.h - this process's standard streams to those of a command in a sandbox, until it has ended
 *
 * Used by run, exec, sh and logs. Output is followed by offset and survives restarts of the server; stdin is sent with
 * offsets, so nothing is lost or doubled by a repeated request.
 */
#ifndef QS_CLI_ATTACH_H
#define QS_CLI_ATTACH_H

#include <stdbool.h>

#include "cli/client.h"
#include "json/json.h"

struct attach {
    const char *base;           /* "/v1/sandboxes/sb-x/execs/ex-y" */
    bool use_stdin;             /* else the command's stdin is not ours to touch */
    bool tty;
};

/* Attaches and waits for the end. *ret_exec is the exec object (caller owns). *ret_signal: the signal that made us leave
 * before the end, else 0. */
int attach_run(struct client *cl, const struct attach *a, json_t **ret_exec, int *ret_signal, struct err *e);

/* One stream to our stdout or stderr: `path` with its query but the offset. */
int attach_copy(struct client *cl, const char *path_out, const char *path_err, struct err *e);

/* Signals of the operator: those caught since the last call, 0 = none. */
int attach_signal(void);
void attach_catch_signals(void);

#endif
