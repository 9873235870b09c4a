/*
 * json.h - strict JSON: what jansson allows, less whatever two readers could understand differently
 *
 * Called by api (request bodies) and by core and store (what they keep as JSON text). Duplicate
 * keys, NUL in keys, invalid UTF-8, nesting over LIMIT_JSON_DEPTH, numbers out of range and
 * trailing bytes are errors. A NUL in a string is for the caller to refuse (js_has_nul), who can
 * name the field. NaN and infinities do not exist in JSON. Allocation goes through base/mem.h, so
 * building a document does not fail.
 */
#ifndef QS_JSON_JSON_H
#define QS_JSON_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Call once before anything of jansson is used. */
void js_init(void);

/* An object or array; NULL with ERR_MALFORMED (place and cause) or ERR_TOO_LARGE. The caller
 * owns the result. */
json_t *js_parse(const void *p, size_t n, size_t max_bytes, struct err *e);

/* Some string in it has a NUL, so that its C text is cut short. */
bool js_has_nul(const json_t *j);

/* The same text with every number as a real, after js_parse refused a number that no integer
 * holds: to find the field it is in. NULL if the text has other faults. */
json_t *js_parse_reals(const void *p, size_t n);

/* Compact text, keys sorted when `sorted` (for hashing); the caller frees. */
char *js_text(const json_t *j, bool sorted);

/* Text that may not be UTF-8 (a path, a peer's name): invalid bytes become U+FFFD. The caller
 * owns the result. */
json_t *js_string_lossy(const char *text);
/* NULL becomes JSON null. */
json_t *js_string_or_null(const char *text);
/* Milliseconds or microseconds since the epoch as seconds with fraction; 0 becomes null. */
json_t *js_time_ms(int64_t ms);
json_t *js_time_us(int64_t us);

/* The name of `names` nearest to `name` by edit distance, NULL if none is near enough to be
 * meant. */
const char *js_nearest(const char *name, const char *const *names, size_t n);

#define auto_json __attribute__((cleanup(js_decref_p))) json_t

static inline void js_decref_p(json_t **j)
{
    json_decref(*j);
}

#endif
