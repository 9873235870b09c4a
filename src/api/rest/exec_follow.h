/*
 * exec_follow.h - both output streams of a command and then its end, for clients that want them as one sequence
 *
 * Used by stdio_events.c and stdio_ws.c. Order: all output of both streams, then the exec object, once.
 */
#ifndef QS_API_REST_EXEC_FOLLOW_H
#define QS_API_REST_EXEC_FOLLOW_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/core.h"
#include "json/json.h"

struct exec_follow_ops {
    void (*on_data)(void *ctx, int stream, uint64_t offset, const void *p, size_t n);
    /* The last callback: the exec object (borrowed), or NULL and the error. */
    void (*on_exit)(void *ctx, json_t *exec, const struct err *e);
};

struct exec_follow;

struct exec_follow *exec_follow_new(struct core *c, const char *sandbox, const char *exec_id, uint64_t stdout_offset,
                                    uint64_t stderr_offset, const struct exec_follow_ops *ops, void *ctx);
/* Everything given so far has gone on to the client. */
void exec_follow_consumed(struct exec_follow *f);
/* Accepts NULL; allowed from its own callbacks. */
void exec_follow_free(struct exec_follow *f);

#endif
