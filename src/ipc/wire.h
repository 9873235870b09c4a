/*
 * wire.h - the codec of the internal messages: little-endian, length-prefixed, sticky errors
 *
 * Used by the keeper, node, monitor, init, egress and image; compiled with musl too, so it needs
 * libc alone. A reader is over untrusted bytes: every getter checks, the first failure sticks, later
 * getters return zero, and wire_end() is true only if all went well and no byte is left.
 */
#ifndef QS_IPC_WIRE_H
#define QS_IPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_writer {
    uint8_t *data;              /* borrowed */
    size_t size;
    size_t len;
    bool failed;
};

void wire_init(struct wire_writer *w, void *memory, size_t size);
void wire_put_u8(struct wire_writer *w, uint8_t v);
void wire_put_u16(struct wire_writer *w, uint16_t v);
void wire_put_u32(struct wire_writer *w, uint32_t v);
void wire_put_u64(struct wire_writer *w, uint64_t v);
void wire_put_i32(struct wire_writer *w, int32_t v);
void wire_put_i64(struct wire_writer *w, int64_t v);
void wire_put_bool(struct wire_writer *w, bool v);
void wire_put_bytes(struct wire_writer *w, const void *p, size_t n);    /* u32 length, bytes */
void wire_put_str(struct wire_writer *w, const char *s);                /* as bytes, without NUL */

struct wire_reader {
    const uint8_t *data;        /* borrowed */
    size_t len;
    size_t at;
    bool failed;
};

void wire_read(struct wire_reader *r, const void *p, size_t n);
uint8_t wire_get_u8(struct wire_reader *r);
uint16_t wire_get_u16(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
int32_t wire_get_i32(struct wire_reader *r);
int64_t wire_get_i64(struct wire_reader *r);
bool wire_get_bool(struct wire_reader *r);              /* 0 or 1, anything else fails */
/* Borrowed slice of at most max bytes; NULL and *ret_len 0 on failure. */
const void *wire_get_bytes(struct wire_reader *r, size_t max, size_t *ret_len);
/* Into a field of `size` bytes, NUL-terminated; embedded NULs and longer texts fail. */
void wire_get_str(struct wire_reader *r, char *out, size_t size);
void wire_fail(struct wire_reader *r);
bool wire_end(const struct wire_reader *r);

#endif
