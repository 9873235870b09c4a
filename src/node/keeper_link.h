/*
 * keeper_link.h - the one connection from the node to the keeper
 *
 * Requests may be made at any time. While the keeper is away they wait for it for KEEPER_WAIT_MS; a
 * request that was under way when the connection broke is sent again, so every request must be safe
 * to repeat (CREATE is: ERR_EXISTS means adopt). The callback comes exactly once, never from inside
 * the call.
 */
#ifndef QS_NODE_KEEPER_LINK_H
#define QS_NODE_KEEPER_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ipc/channel.h"
#include "ipc/keeper_proto.h"
#include "loop/loop.h"

#define KEEPER_WAIT_MS 2000

struct keeper_link;

/* Success: e is NULL, payload follows the reply (LIST, STATS), *fd may be taken. */
typedef void (*keeper_cb)(void *arg, const struct err *e, const uint8_t *payload, size_t len,
                          int *fd);

struct keeper_link *keeper_link_new(struct loop *l, const char *socket_path);
void keeper_call(struct keeper_link *k, enum keeper_type type, const void *p, size_t n,
                 uint64_t timeout_ms, keeper_cb cb, void *arg);
void keeper_link_free(struct keeper_link *k);

#endif
