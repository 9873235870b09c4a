/*
 * ready.h - is the server in a sandbox ready? The probe of its defaults says so
 *
 * The probe runs while somebody waits, as a hidden exec that is started again every interval until enough of them in a row
 * exit with 0; all but commands are tried by the file helper, inside. When it has succeeded, the time is kept with the
 * sandbox's defaults and answers every later question at once.
 */
#ifndef QS_NODE_READY_H
#define QS_NODE_READY_H

#include "node/node.h"

struct ready_wait;

/* ready_ms is of the wall clock; or why not: ERR_TIMEOUT says what the last try said, and ends the sandbox if the probe is
 * of that kind; ERR_PRECONDITION: it has no probe; ERR_GONE: it has ended. Comes once, from the loop. */
typedef void (*ready_cb)(void *ctx, int64_t ready_ms, const struct err *e);

struct ready_wait *ready_wait(struct node *n, const char *sandbox, int64_t timeout_ms, ready_cb cb, void *ctx);
void ready_cancel(struct ready_wait *w);        /* accepts NULL; not after the callback */

#endif
