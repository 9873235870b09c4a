/*
 * range.h - the Range header of a download, as far as we serve it: one range of bytes
 */
#ifndef QS_API_REST_RANGE_H
#define QS_API_REST_RANGE_H

#include <stdbool.h>
#include <stdint.h>

struct range {
    bool suffix;                /* the last `length` bytes */
    uint64_t offset;
    uint64_t length;            /* UINT64_MAX = to the end */
};

/* False for anything else (several ranges, another unit, nonsense): the whole file is the answer then (RFC 9110). */
bool range_parse(const char *text, struct range *ret);

#endif
