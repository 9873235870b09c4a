/*
 * json.h - a small strict JSON parser (RFC 8259) for the arguments of the file helper
 *
 * Pure and without allocation: values go to an array of the caller, strings are decoded in place. The text
 * must be valid UTF-8; numbers keep their text. Repeated names: the first counts.
 */
#ifndef QS_INIT_FS_JSON_H
#define QS_INIT_FS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Members and elements follow their parent in the array; `extent` counts the nodes of the whole value. */
struct json {
    enum json_type type;
    uint32_t extent;
    uint32_t count;                     /* elements or members */
    bool truth;
    const char *text;                   /* string (NUL-terminated, may hold NULs) or number */
    uint32_t len;
};

/*
 * Parses text[0..len), which is overwritten; one byte after it must be writable. Node 0 is the value; a text has
 * fewer values than bytes. Returns the number of nodes, or -EBADMSG, -E2BIG
 * (deeper than JSON_DEPTH, or too few nodes).
 */
#define JSON_DEPTH 16
int json_parse(char *text, size_t len, struct json *nodes, size_t nnodes);

/* The value of a member of object `o`, NULL if it is not there or o is no object. */
const struct json *json_get(const struct json *o, const char *name);
/* Iteration: the first child, and the sibling after `v`; an object's children alternate name, value. */
const struct json *json_first(const struct json *v);
const struct json *json_after(const struct json *v);
bool json_int(const struct json *v, int64_t *ret);     /* a whole number in range */
bool json_is(const struct json *v, const char *text);   /* is this string */

/* Length of the valid UTF-8 sequence at p, 0 if there is none. */
size_t utf8_length(const unsigned char *p, size_t n);

#endif
