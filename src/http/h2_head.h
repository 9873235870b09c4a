/*
 * h2_head.h - collects the header block that a connection is receiving
 *
 * Blocks do not interleave, so a connection has one collector; its texts are valid until the next block.
 */
#ifndef QS_HTTP_H2_HEAD_H
#define QS_HTTP_H2_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "http/http.h"

struct h2_head {
    char *mem;                  /* owned */
    size_t len, size;
    size_t total;               /* bytes seen, kept or not */
    size_t n;
    size_t ncookies;
    bool is_over;               /* over a limit: fields are dropped */
    int status;
    uint32_t method, path, authority;   /* offsets into mem, 0 = absent */
    struct {
        uint32_t name, value;
    } at[LIMIT_HTTP_HEADERS];
    struct http_header fields[LIMIT_HTTP_HEADERS];
};

void head_clear(struct h2_head *hd);
void head_done(struct h2_head *hd);
void head_add(struct h2_head *hd, const uint8_t *name, size_t name_len, const uint8_t *value,
              size_t value_len);
/* The block is complete: fills fields[]. */
void head_finish(struct h2_head *hd);

#endif
