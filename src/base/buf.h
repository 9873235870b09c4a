/*
 * buf.h - a growing byte buffer that is made with its cap
 *
 * Appending past the cap fails (-ENOBUFS) and sets `failed`, so a sequence of appends is checked
 * once at its end. The contents are always followed by a NUL that does not count.
 */
#ifndef QS_BASE_BUF_H
#define QS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;             /* owned; NULL while empty */
    size_t len;
    size_t size;            /* allocated */
    size_t max;
    bool failed;            /* an append was refused */
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);               /* frees; safe on a zeroed object, twice */
void buf_clear(struct buf *b);              /* keeps the memory */
int buf_add(struct buf *b, const void *p, size_t n);
int buf_adds(struct buf *b, const char *s);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Room for n more bytes; returns where to write them (then buf_grew), NULL over the cap. */
void *buf_reserve(struct buf *b, size_t n);
void buf_grew(struct buf *b, size_t n);
void buf_drop(struct buf *b, size_t n);     /* remove n bytes at the front */
const char *buf_str(struct buf *b);         /* NUL-terminated, "" when empty; borrowed */
char *buf_take(struct buf *b, size_t *ret_len);  /* caller owns; buffer is empty after */

#define auto_buf __attribute__((cleanup(buf_done))) struct buf

#endif
