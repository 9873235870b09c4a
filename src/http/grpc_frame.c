/*
 * grpc_frame.c - gRPC message framing
 */
#include "http/grpc_frame.h"

#include <string.h>

#include "base/limits.h"
#include "base/mem.h"

/* The length is the peer's word: memory grows with what really comes. */
#define FIRST_SIZE (64 * 1024)

static size_t over_hold(size_t at, size_t n)
{
    size_t end = at + n;

    if (end <= GRPC_HOLD)
        return 0;
    return at >= GRPC_HOLD ? n : end - GRPC_HOLD;
}

static void keep(struct grpc_frames *f, const uint8_t *p, size_t n)
{
    if (f->mem_size - f->have < n) {
        size_t size = f->mem_size > 0 ? f->mem_size : FIRST_SIZE;
        while (size - f->have < n)
            size *= 2;
        if (size > f->size)
            size = f->size;
        f->mem = mem_realloc(f->mem, size);
        f->mem_size = size;
    }
    memcpy(f->mem + f->have, p, n);
    f->have += n;
}

static void clear(struct grpc_frames *f)
{
    f->nprefix = 0;
    f->have = 0;
    f->size = 0;
    f->mem = NULL;
    f->mem_size = 0;
}

enum grpc_frame_result grpc_frames_feed(struct grpc_frames *f, const uint8_t *p, size_t n, size_t *ret_free,
                                        grpc_frame_cb cb, void *arg)
{
    while (n > 0 || (f->nprefix == 5 && f->size == 0)) {
        if (f->nprefix < 5) {
            f->prefix[f->nprefix++] = *p++;
            n--;
            (*ret_free)++;
            if (f->nprefix == 1 && f->prefix[0] == 1)
                return GRPC_FRAME_COMPRESSED;
            if (f->nprefix == 1 && f->prefix[0] != 0)
                return GRPC_FRAME_MALFORMED;
            if (f->nprefix < 5)
                continue;
            f->size = (size_t)f->prefix[1] << 24 | (size_t)f->prefix[2] << 16 |
                      (size_t)f->prefix[3] << 8 | f->prefix[4];
            if (f->size > LIMIT_GRPC_MESSAGE)
                return GRPC_FRAME_TOO_LARGE;
            continue;
        }
        size_t len = n < f->size - f->have ? n : f->size - f->have;
        *ret_free += over_hold(f->have, len);
        if (f->have == 0 && len == f->size) {
            clear(f);
            if (!cb(arg, p, len))
                return GRPC_FRAME_STOPPED;
        } else {
            keep(f, p, len);
            if (f->have == f->size) {
                uint8_t *mem = f->mem;
                size_t size = f->size;
                clear(f);
                bool goes_on = cb(arg, mem, size);
                free(mem);
                if (!goes_on)
                    return GRPC_FRAME_STOPPED;
            }
        }
        p += len;
        n -= len;
    }
    return GRPC_FRAME_OK;
}

bool grpc_frames_is_partial(const struct grpc_frames *f)
{
    return f->nprefix > 0;
}

void grpc_frames_done(struct grpc_frames *f)
{
    free(f->mem);
    clear(f);
}
