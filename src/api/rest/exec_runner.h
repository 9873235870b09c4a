/*
 * exec_runner.h - a command from its start to its end in one streaming call of the node
 *
 * Used by run.c and by the file helper (fs_helper.c). The call is made again with the same exec id and the offsets
 * reached when the node restarts, so the command runs once and each byte comes once.
 */
#ifndef QS_API_REST_EXEC_RUNNER_H
#define QS_API_REST_EXEC_RUNNER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/core.h"
#include "node.pb-c.h"

struct exec_runner_ops {
    /* It runs. At most once. */
    void (*on_started)(void *ctx, const Quicksand__Node__Exec *x);
    void (*on_data)(void *ctx, int stream, const void *p, size_t n);
    /* The last callback: the final record, or NULL and the error. A program that could not be started is an error. */
    void (*on_end)(void *ctx, const Quicksand__Node__Exec *x, const struct err *e);
};

struct exec_runner;

/*
 * `start` is packed at once and may go afterwards. `lazy`: on_started and little output may come as late as the end,
 * which then comes sooner.
 */
struct exec_runner *exec_runner_new(struct core *c, const Quicksand__Node__ExecStartRequest *start, bool lazy,
                                    const struct exec_runner_ops *ops, void *ctx);
void exec_runner_consumed(struct exec_runner *r, size_t n);
/* Accepts NULL; allowed from its own callbacks. The command goes on. */
void exec_runner_free(struct exec_runner *r);

#endif
