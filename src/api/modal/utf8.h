/*
 * utf8.h - cutting a stream of bytes into texts
 *
 * Logs are texts on the wire; programs write bytes. Pure.
 */
#ifndef QS_API_MODAL_UTF8_H
#define QS_API_MODAL_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Appends p[0..n) to out as UTF-8: what is not becomes U+FFFD. Returns how many bytes were used: with `is_last` all, else up to
 * three are left, the beginning of a character. */
size_t utf8_take(const void *p, size_t n, bool is_last, struct buf *out);
bool utf8_is_valid(const char *text);

#endif
