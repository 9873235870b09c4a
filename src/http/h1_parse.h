/*
 * h1_parse.h - HTTP/1.1 request heads and chunked bodies from untrusted bytes
 *
 * Pure functions of their input. Strict where leniency lets two parsers disagree about where a request ends
 * (RFC 9112, sections 2.2, 5, 6, 7): what is not exactly right is refused and the connection is closed.
 */
#ifndef QS_HTTP_H1_PARSE_H
#define QS_HTTP_H1_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "http/http.h"

struct h1_head {
    const char *method;
    char *target;               /* origin form or "*"; path and query are not split */
    const char *authority;      /* of the target, else of Host; "" if none */
    int version;                /* 10 or 11 */
    size_t nfields;
    struct http_header fields[LIMIT_HTTP_HEADERS];
    int64_t content_length;     /* -1: none given */
    bool is_chunked;
    bool is_keep_alive;
    bool expects_continue;
    bool has_upgrade;           /* "connection: upgrade" */
};

/* Where the head ends: its length with the empty line, 0 if more is needed, or -(HTTP status). *scanned, 0 at first,
 * remembers what was looked at. Line breaks before the request line count to it. */
ssize_t h1_head_find(const char *p, size_t n, size_t *scanned);
/* Parses a complete head in place: texts of *ret point into p. 0, or -(HTTP status) with *ret_why. */
int h1_head_parse(char *p, size_t n, struct h1_head *ret, const char **ret_why);

enum h1_chunk_state {
    H1_CHUNK_SIZE, H1_CHUNK_EXT, H1_CHUNK_SIZE_LF, H1_CHUNK_DATA, H1_CHUNK_DATA_CR, H1_CHUNK_DATA_LF,
    H1_CHUNK_TRAILER, H1_CHUNK_DONE,
};

struct h1_chunked {
    enum h1_chunk_state state;
    uint64_t left;              /* of this chunk */
    unsigned digits;
    unsigned line;              /* bytes of this size line */
    size_t ntrailer;
    char trailer[4096];         /* the trailer section as received */
};

void h1_chunked_init(struct h1_chunked *d);
/* Takes bytes from p: *ret_used of them; *ret_len bytes at *ret_body are body. Call again while bytes are left
 * and the state is not H1_CHUNK_DONE. 0 or -(HTTP status). */
int h1_chunked_next(struct h1_chunked *d, const char *p, size_t n, size_t *ret_used, const char **ret_body,
                    size_t *ret_len);
/* The trailers once done; texts point into d. Returns their count or -(HTTP status). */
ssize_t h1_chunked_trailers(struct h1_chunked *d, struct http_header *out, size_t max);

#endif
