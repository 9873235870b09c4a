/*
 * image_proto.h - node -> image, over image.sock: one connection a job
 *
 * The tar bytes travel by a pipe whose read end goes with the request. Closing the connection cancels
 * the job and removes what it had unpacked.
 */
#ifndef QS_IPC_IMAGE_PROTO_H
#define QS_IPC_IMAGE_PROTO_H

#include <stddef.h>
#include <stdint.h>

enum image_type {
    IMAGE_UNPACK = 1,   /* node -> image: struct image_unpack + read end of a pipe */
    IMAGE_PROGRESS,     /* image -> node: struct image_progress, at most ten a second */
    IMAGE_DONE,         /* image -> node: struct image_done */
};

struct image_unpack {
    uint64_t max_bytes;         /* unpacked; 0 = no limit */
    uint64_t max_files;
};

struct image_progress {
    uint64_t bytes, files;
};

struct image_done {
    uint16_t code;              /* enum err_code, 0 = done */
    char message[240];          /* names the entry at fault */
    char layer[72];             /* 64 hex: SHA-256 of the uncompressed tar; the tree is layers/<layer> */
    uint64_t bytes, files;
};

size_t image_unpack_encode(const struct image_unpack *m, void *out, size_t size);
size_t image_progress_encode(const struct image_progress *m, void *out, size_t size);
size_t image_done_encode(const struct image_done *m, void *out, size_t size);
int image_unpack_decode(struct image_unpack *ret, const void *p, size_t n);
int image_progress_decode(struct image_progress *ret, const void *p, size_t n);
int image_done_decode(struct image_done *ret, const void *p, size_t n);

#endif
