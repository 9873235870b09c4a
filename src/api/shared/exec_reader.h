/*
 * exec_reader.h - one output stream of a command, followed across restarts of the node
 *
 * Used by everything that hands output to a client (stdio.c, stdio_events.c, stdio_ws.c). When the node goes away the
 * reader asks again at the offset it has reached, so its user sees every byte once; it gives up when the node has not
 * answered for NODE_PATIENCE_MS (node_retry.h). Bytes are credit: the node sends no more than a window ahead of what
 * exec_reader_consumed() returned.
 */
#ifndef QS_API_SHARED_EXEC_READER_H
#define QS_API_SHARED_EXEC_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/core.h"

enum { STREAM_STDOUT = 1, STREAM_STDERR = 2 };

struct exec_reader_ops {
    /* `offset` is that of p[0]; larger than where the last bytes ended if the sandbox's machine dropped some. */
    void (*on_data)(void *ctx, uint64_t offset, const void *p, size_t n);
    /* The last callback: e is NULL when everything asked for was given. The reader is still to be freed. */
    void (*on_end)(void *ctx, const struct err *e);
};

struct exec_reader;

struct exec_reader *exec_reader_new(struct core *c, const char *sandbox, const char *exec_id, int stream,
                                    uint64_t offset, bool follow, const struct exec_reader_ops *ops, void *ctx);
void exec_reader_consumed(struct exec_reader *r, size_t n);
/* Accepts NULL; allowed from its own callbacks. No callback comes after it. */
void exec_reader_free(struct exec_reader *r);

#endif
