/*
 * request.h - keeper.sock: messages of the node in, replies out
 */
#ifndef QS_KEEPER_REQUEST_H
#define QS_KEEPER_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Who waits for an answer. The connection may be gone by then. */
struct reply_to {
    uint32_t connection; /* 0 = nobody */
    uint32_t tag;
};

int request_listen(struct err *e);

/* e NULL = done. `fd` (-1 = none) is passed on and stays the caller's. */
void request_reply(struct reply_to to, const struct err *e, const void *payload, size_t len,
                   int fd);

#endif
