/*
 * wire.h - DNS messages: a query of a sandbox, and the answer to it
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

#define DNS_QUERY_MAX 1232
#define DNS_ANSWER_MAX 1232         /* what every path takes in one piece; more records than that are left out */
#define DNS_DATAGRAM_MAX 512        /* for who does not say that it takes more */
#define DNS_QUESTION_MAX 264

enum { DNS_A = 1, DNS_PTR = 12, DNS_AAAA = 28, DNS_OPT = 41, DNS_IXFR = 251, DNS_AXFR = 252 };
enum {
    DNS_NOERROR = 0, DNS_FORMERR = 1, DNS_SERVFAIL = 2, DNS_NXDOMAIN = 3, DNS_NOTIMP = 4, DNS_REFUSED = 5,
    DNS_BADVERS = 16,               /* an extension of another version than 0 */
};

struct dns_query {
    uint16_t id;
    bool recursion;
    uint16_t type;
    char name[POLICY_DOMAIN_MAX + 1];   /* normalized */
    uint8_t question[DNS_QUESTION_MAX]; /* as it was asked: answers repeat it */
    size_t question_len;
    bool is_extended;               /* it has an OPT record; so has the answer */
    uint16_t room;                  /* of a datagram with the answer */
};

struct dns_reply {
    int code;
    bool is_blocked;                /* by the policy: said to who knows extensions (RFC 8914) */
    const struct address *addresses;
    size_t n;
    uint32_t ttl;
};

/* DNS_NOERROR, or the code to answer with; -1: nothing to answer to (no query, or not even a header). */
int dns_parse(const uint8_t *p, size_t n, struct dns_query *ret);
/*
 * The answer's length, at most `room` (of DNS_DATAGRAM_MAX to DNS_ANSWER_MAX). Addresses of the other family than was asked
 * for are left out; where one does not fit, the answer says that there is more.
 */
size_t dns_answer(const struct dns_query *q, const struct dns_reply *r, size_t room, uint8_t out[DNS_ANSWER_MAX]);

#endif
