/*
 * dns_wire.h - DNS messages: a query of a sandbox, and the answer to it
 *
 * Pure functions over a stranger's bytes; fuzzed.
 */
#ifndef QS_EGRESS_DNS_WIRE_H
#define QS_EGRESS_DNS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/address.h"
#include "base/policy.h"

#define DNS_QUERY_MAX 512
#define DNS_ANSWER_MAX 512
#define DNS_ADDRESSES 8             /* in an answer; so that it always fits */

enum { DNS_A = 1, DNS_PTR = 12, DNS_AAAA = 28 };
enum { DNS_NOERROR = 0, DNS_FORMERR = 1, DNS_SERVFAIL = 2, DNS_NXDOMAIN = 3, DNS_NOTIMP = 4, DNS_REFUSED = 5 };

struct dns_query {
    uint16_t id;
    bool recursion;
    uint16_t type;
    char name[POLICY_DOMAIN_MAX + 1];   /* normalized */
    uint8_t question[DNS_QUERY_MAX];    /* as it was asked: answers repeat it */
    size_t question_len;
};

/* DNS_NOERROR, or the code to answer with; -1: nothing to answer to (no query, or not even a header). */
int dns_parse(const uint8_t *p, size_t n, struct dns_query *ret);
/* The answer's length. Addresses of the other family than was asked for are left out. */
size_t dns_answer(const struct dns_query *q, int code, const struct address *addresses, size_t n, uint32_t ttl,
                  uint8_t out[DNS_ANSWER_MAX]);

#endif
