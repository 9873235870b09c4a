/*
 * grpc_frame.h - splits a stream of bytes into gRPC messages
 *
 * A prefix of five bytes (compressed flag, length) stands before each message; bytes may come in any pieces. A message
 * that is in one piece already is handed on in place.
 */
#ifndef QS_HTTP_GRPC_FRAME_H
#define QS_HTTP_GRPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a message at most this much counts against the window until it is consumed: the rest of a larger one must be
 * allowed to come, or it would never be complete. */
#define GRPC_HOLD (2 * 1024 * 1024)

struct grpc_frames {
    uint8_t prefix[5];
    unsigned nprefix;
    size_t size;                /* of the message under way */
    size_t have;
    uint8_t *mem;               /* owned; the message under way */
    size_t mem_size;
};

/* False stops: the frames object may be gone. */
typedef bool (*grpc_frame_cb)(void *arg, const void *p, size_t n);

enum grpc_frame_result {
    GRPC_FRAME_OK, GRPC_FRAME_STOPPED, GRPC_FRAME_COMPRESSED, GRPC_FRAME_TOO_LARGE, GRPC_FRAME_MALFORMED,
};

/* *ret_free: bytes that do not wait for a consumer (prefixes, what is over GRPC_HOLD); written before each message is
 * handed on and at the end; the caller sets it to 0. */
enum grpc_frame_result grpc_frames_feed(struct grpc_frames *f, const uint8_t *p, size_t n, size_t *ret_free,
                                        grpc_frame_cb cb, void *arg);
/* Is a message cut off? */
bool grpc_frames_is_partial(const struct grpc_frames *f);
void grpc_frames_done(struct grpc_frames *f);

#endif
