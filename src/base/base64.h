/*
 * base64.h - for bytes that JSON cannot carry: the API's on the outside, the file helper's inside of sandboxes
 */
#ifndef QS_BASE_BASE64_H
#define QS_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Strict, with padding; false if malformed. Writes at most n / 4 * 3 bytes. Decoding in place is allowed. */
bool base64_decode(const char *p, size_t n, void *out, size_t *ret_len);
/* Writes 4 * ((n + 2) / 3) bytes. */
void base64_encode(const void *p, size_t n, char *out);

#endif
