/*
 * response.h - follows the responses of one HTTP/1 connection, each to one request
 *
 * A pure function over a server's bytes: what goes on to the client is appended to a buffer, with words blackened if that is
 * asked for. What two readers could read in two ways is refused.
 */
#ifndef QS_EGRESS_OPEN_RESPONSE_H
#define QS_EGRESS_OPEN_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "egress/open/redact.h"

#define RESPONSE_HEAD_MAX (256 * 1024)

enum response_state {
    RESPONSE_HEAD, RESPONSE_LENGTH, RESPONSE_SIZE, RESPONSE_CHUNK, RESPONSE_CHUNK_END, RESPONSE_TRAILER, RESPONSE_TO_EOF,
    RESPONSE_OPAQUE, RESPONSE_DONE,
};

struct response {
    enum response_state state;
    bool is_head_request, may_switch;
    bool is_packed;             /* refused, because it cannot be read: then feed fails */
    int status;                 /* of the last head of this response; 0: none yet */
    uint64_t left;
    struct buf line;            /* head, or a line between chunks */
    struct redact *words;       /* borrowed; NULL: nothing is blackened */
};

void response_init(struct response *r);
void response_done(struct response *r);
/* The next one, to a request of method HEAD or of one that asked for another protocol. */
void response_begin(struct response *r, bool is_head_request, bool may_switch, struct redact *words);
/* Bytes used, up to the end of the response (RESPONSE_DONE); -1: it cannot be followed. */
ssize_t response_feed(struct response *r, const uint8_t *p, size_t n, struct buf *out);
/* The server has closed; false: in the middle of something. */
bool response_eof(struct response *r, struct buf *out);

#endif
