/*
 * head.h - the head of an HTTP/1 request: which name is asked for, and where the next request begins
 *
 * Pure functions over a stranger's bytes; fuzzed. Stricter than servers are: what two of them could read in two ways is
 * refused.
 */
#ifndef QS_EGRESS_HEAD_H
#define QS_EGRESS_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/policy.h"

#define HEAD_MAX (64 * 1024)

enum head_result {
    HEAD_MORE,
    HEAD_OK,
    HEAD_BAD,
};

enum head_body { HEAD_NO_BODY, HEAD_LENGTH, HEAD_CHUNKED };

struct head {
    size_t len;                     /* with the empty line */
    bool has_name;
    bool is_literal;                /* the host is an address: there is no name */
    bool is_mismatch;               /* two hosts, or the target names another */
    bool is_http10;
    bool is_connect;
    bool is_websocket;              /* asks to go on as something that is no HTTP */
    char name[POLICY_DOMAIN_MAX + 1];
    enum head_body body;
    uint64_t length;
    size_t upgrade_at;              /* of the field name "Upgrade" when it offers anything else; 0 = none */
};

/* Whether bytes can be the begin of an HTTP/1 request: no (-1), yes (1), cannot tell yet (0). */
int head_sniff(const uint8_t *p, size_t n);
enum head_result head_parse(const uint8_t *p, size_t n, struct head *ret);

/*
 * Follows the requests of one connection: every head must name `name`. Bytes of heads are held back until they are
 * known to be good.
 */
struct scan {
    char name[POLICY_DOMAIN_MAX + 1];
    uint8_t *held;                  /* owned */
    size_t nheld;
    enum scan_state { SCAN_HEAD, SCAN_BODY, SCAN_CHUNK, SCAN_CHUNK_END, SCAN_TRAILER, SCAN_WAIT, SCAN_OPAQUE } state;
    uint64_t left;                  /* of body or chunk */
    unsigned line;                  /* bytes of the line so far */
    bool in_chunk;                  /* the body is a chunk: a line follows it */
    bool line_cr;
    bool ext;                       /* within a chunk's extension */
    unsigned requests;
    bool is_serial;                 /* the caller gives a head only when the response before it is through */
    bool is_head_out;               /* what scan_feed let out is a head */
};

void scan_init(struct scan *s, const char *name);
void scan_done(struct scan *s);
/*
 * Takes *used bytes of p; *out and *out_len (in p or in s) may go on. False: the connection must end, with `*why` set.
 * With nothing used and nothing out the answer to an upgrade has to come first (SCAN_WAIT).
 */
enum scan_why { SCAN_MALFORMED = 1, SCAN_MISMATCH, SCAN_METHOD };
bool scan_feed(struct scan *s, const uint8_t *p, size_t n, size_t *used, const uint8_t **out, size_t *out_len,
               enum scan_why *why);
/* The first bytes of the answer to the first request, while in SCAN_WAIT; false: too few to tell. */
bool scan_answer(struct scan *s, const uint8_t *p, size_t n);

#endif
