/*
 * tar.h - the machine's own tar program, at one end of a pipe
 */
#ifndef QS_CLI_TAR_H
#define QS_CLI_TAR_H

#include <sys/types.h>

#include "base/err.h"

/* Starts it with `child_fd` as its descriptor `as_fd`; -1 with the error. */
pid_t tar_start(char *const argv[], int child_fd, int as_fd, struct err *e);
/* Waits for it; -1 when it failed. */
int tar_end(pid_t pid, struct err *e);

#endif
