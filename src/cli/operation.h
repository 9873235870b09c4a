/*
 * operation.h - following an operation of the server to its end
 */
#ifndef QS_CLI_OPERATION_H
#define QS_CLI_OPERATION_H

#include "cli/client.h"

/*
 * Prints the operation's log to stderr (unless `quiet`) until it has ended; takes `operation`, as the call that began it
 * answered. 0 with the ended operation, which is the caller's; -1 with its error. An interrupt (^C) cancels it.
 */
int operation_follow(struct client *cl, json_t *operation, bool quiet, json_t **ret, struct err *e);

#endif
