/*
 * text.h - bytes that strangers chose, on their way into and out of JSON
 *
 * JSON carries text only: output and file names that are not valid UTF-8 travel as base64 beside a null text field.
 */
#ifndef QS_API_REST_TEXT_H
#define QS_API_REST_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json/json.h"

/* Valid UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing above U+10FFFF. */
bool text_is_utf8(const void *p, size_t n);
/* Length of an unfinished but so far valid UTF-8 sequence at the end (0 to 3). */
size_t text_utf8_tail(const void *p, size_t n);

/* Caller owns; NUL-terminated. */
char *text_base64(const void *p, size_t n);
/* Strict: padding required, no blanks. NULL if malformed; caller owns, may hold any byte. */
uint8_t *text_unbase64(const char *text, size_t n, size_t *ret_len);

/* Sets object[name] to the text, or to null and object[name_b64] to the base64. */
void text_set(json_t *object, const char *name, const void *p, size_t n);

#endif
