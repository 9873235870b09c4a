/*
 * stdin_pump.h - bytes of a client into the stdin of a command, each exactly once
 *
 * Used by POST .../stdin, the WebSocket, `run` and the file helper. Bytes go in pieces, each with its offset, so a
 * piece may be sent again when the node restarts: what the sandbox has already taken is skipped there. A piece is
 * answered once the program's pipe has taken it, which is the back-pressure: at most one is under way.
 *
 * Without an offset of the client's the pieces are appended: the pump asks where stdin stands, and pumps that append
 * to the same command take turns by the piece, so none overwrites another.
 */
#ifndef QS_API_SHARED_STDIN_PUMP_H
#define QS_API_SHARED_STDIN_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/core.h"

#define STDIN_APPEND UINT64_MAX

struct stdin_pump_ops {
    /* n of the bytes given to stdin_pump_write have gone on: credit for more. */
    void (*on_taken)(void *ctx, size_t n);
    /* After stdin_pump_end, when all is taken; earlier when stdin is closed or the call failed. Comes once; the pump
     * is still to be freed. `taken` and `closed` are stdin's as last seen. */
    void (*on_done)(void *ctx, const struct err *e, uint64_t taken, bool closed);
};

struct stdin_pump;

struct stdin_pump *stdin_pump_new(struct core *c, const char *sandbox, const char *exec_id, uint64_t offset,
                                  const struct stdin_pump_ops *ops, void *ctx);
/* Copies; ignored after the end. False when the caller was told of no credit for so many bytes. */
bool stdin_pump_write(struct stdin_pump *p, const void *data, size_t n);
size_t stdin_pump_queued(const struct stdin_pump *p);
/* No more bytes; with eof the command's stdin is closed after the last. */
void stdin_pump_end(struct stdin_pump *p, bool eof);
/* Accepts NULL; allowed from its own callbacks. What is under way may still arrive. */
void stdin_pump_free(struct stdin_pump *p);

#endif
