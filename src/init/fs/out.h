/*
 * out.h - what the file helper prints: buffered bytes and JSON, to a descriptor or to memory
 */
#ifndef QS_INIT_FS_OUT_H
#define QS_INIT_FS_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUT_MEMORY_MAX (64u * 1024 * 1024)

struct signs;

struct out {
    int fd;                             /* -1: to memory, up to OUT_MEMORY_MAX */
    char *data;
    size_t len, size;
    int error;                          /* the first errno; sticky */
    struct signs *signs;                /* borrowed: writing waits for credit; NULL = it does not */
};

void out_init(struct out *o, int fd);
void out_bytes(struct out *o, const void *p, size_t n);
void out_text(struct out *o, const char *s);
void out_u64(struct out *o, uint64_t v);
void out_i64(struct out *o, int64_t v);
void out_free(struct out *o);            /* of one that goes to memory */
int out_flush(struct out *o);           /* 0 or -errno, of this or of any call before */

/* A JSON string. Bytes that are no UTF-8 become U+FFFD. Returns whether all were. */
bool out_string(struct out *o, const char *p, size_t n);
void out_base64(struct out *o, const void *p, size_t n);        /* a JSON string */
/* "name":"text" and, only if the text is no UTF-8, ,"name_b64":"..." behind it. */
void out_named(struct out *o, const char *name, const char *p, size_t n);

#endif
