/*
 * exec_env.h - from a command and the sandbox's defaults to the block that init executes
 *
 * Called by create, exec and run. Checks everything a client can get wrong, with the field's name.
 */
#ifndef QS_NODE_EXEC_ENV_H
#define QS_NODE_EXEC_ENV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "node.pb-c.h"
#include "node/network_note.h"

struct exec_env_input {
    const Quicksand__Node__Defaults *defaults;  /* NULL: none */
    const Quicksand__Node__Command *command;
    const struct network_note *network;         /* NULL: none, or nothing of it is in the environment */
    bool tty;
    bool helper;
};

/* Appends the exec_spec block to *ret_spec (made with a cap of LIMIT_CHANNEL_MESSAGE). */
int exec_env_build(const struct exec_env_input *in, struct buf *ret_spec, struct err *e);

/* The defaults of a sandbox on their own, checked when it is made. */
int exec_env_check_defaults(const Quicksand__Node__Defaults *d, struct err *e);

#endif
