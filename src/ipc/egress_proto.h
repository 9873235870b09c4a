/*
 * egress_proto.h - node <-> egress, over egress.sock
 *
 * The node hands over, for each sandbox with a network, its two sockets and its policy in one message, so that nothing is
 * ever accepted without a policy. Requests carry a tag and are answered with the same tag, by EGRESS_OK, EGRESS_ERROR or
 * the reply named below. egress forgets everything when it ends; the node tells it again.
 */
#ifndef QS_IPC_EGRESS_PROTO_H
#define QS_IPC_EGRESS_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/address.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/policy.h"

enum egress_type {
    EGRESS_HELLO = 1,   /* node -> egress: empty */
    EGRESS_HELLO_R,     /* u32 number of sandboxes it serves, str version */
    EGRESS_ATTACH,      /* struct egress_policy, EGRESS_SOCKETS descriptors. Repeated: takes their place */
    EGRESS_POLICY,      /* struct egress_policy for an attached sandbox, else ERR_NOT_FOUND */
    EGRESS_DETACH,      /* str sandbox: cut everything; of an unknown one EGRESS_OK as well */
    EGRESS_STATUS,      /* str sandbox -> EGRESS_STATUS_R */
    EGRESS_STATUS_R,    /* struct egress_status */
    EGRESS_OK,          /* empty */
    EGRESS_ERROR,       /* struct egress_error */
    EGRESS_DECISION,    /* egress -> node, tag 0: struct egress_decision, of str sandbox before it */
    EGRESS_TOTALS,      /* egress -> node, tag 0: struct egress_totals, of str sandbox before it, when they have changed */
};

/* What a sandbox has used since it was made. The node keeps it and gives it back with EGRESS_ATTACH. */
struct egress_totals {
    uint64_t sent, received;    /* bytes of the sandbox, from it and to it */
    uint64_t flows;             /* connections that went out */
    uint64_t failed;            /* allowed, but could not be made */
    uint64_t queries;           /* DNS */
    uint64_t denied;
    uint64_t noted;             /* allowed, and a rule of action log had matched */
    uint64_t injected;          /* requests that secrets were put into */
};

/* TCP listener, UDP socket, raw sockets of IPv4 and IPv6 (without IPv6 another of IPv4). */
enum { EGRESS_TCP, EGRESS_UDP, EGRESS_RAW4, EGRESS_RAW6, EGRESS_SOCKETS };

/* As protocol of a denial: a query of the resolver. */
#define EGRESS_QUERY POLICY_PROTOCOLS_

struct egress_policy {
    char sandbox[ID_SIZE];
    uint64_t revision;          /* what EGRESS_STATUS_R says is in force */
    bool keep;                  /* open connections that the policy would not allow stay open */
    char name[LIMIT_NAME + 1];  /* what control calls it, for the node: "" = nothing */
    uint32_t version;
    bool follows;               /* is replaced by later versions of the name */
    const uint8_t *policy;      /* ipc/policy_wire.h; borrowed */
    size_t policy_len;
    struct egress_totals totals;        /* with EGRESS_ATTACH: where counting goes on, if egress has not counted yet */
    const uint8_t *authority;   /* PEM: key and certificate that opened connections are shown; borrowed */
    size_t authority_len;       /* 0 = none */
    const uint8_t *secrets;     /* egress_secret, one behind the other; borrowed */
    size_t secrets_len;
};

/* Values that the policy names; on their way to egress alone, and on no disk. */
#define EGRESS_SECRETS_BYTES (96 * 1024)
#define EGRESS_AUTHORITY_BYTES (8 * 1024)
struct egress_secret {
    char id[ID_SIZE];
    char key[256];
    const char *value;          /* borrowed, not ended by a NUL */
    size_t value_len;
};

struct egress_error {
    uint16_t code;              /* enum err_code */
    char message[200];
};

#define EGRESS_DENIALS 64       /* kept a sandbox */
#define EGRESS_METHOD_MAX 31
#define EGRESS_PATH_MAX 400
#define EGRESS_SECRETS_MAX 200
#define EGRESS_LINE_BYTES 1536  /* a decision at most */

/* Why something did not go out. */
enum egress_reason {
    EGRESS_BY_RULE = 1,         /* a rule denies it, or none allows it */
    EGRESS_ADDRESS,             /* where the name leads, or the address itself, is not public */
    EGRESS_NAME,                /* no name, two names, or one that is none, where the name decides */
    EGRESS_MISMATCH,            /* names that should be alike are not */
    EGRESS_METHOD,              /* CONNECT, an upgrade to HTTP/2, and the like, where the name decides */
    EGRESS_ENCRYPTED,           /* an encrypted ClientHello, and the policy refuses those */
    EGRESS_LIMIT,               /* too many connections or queries */
    EGRESS_MALFORMED,
    EGRESS_NOTED,               /* it did go out: a rule of action log matched */
    EGRESS_SECRET,              /* what a rule puts in could not be put in */
    EGRESS_PINNED,              /* the client does not take the sandbox's own authority for the server's */
    EGRESS_CERTIFICATE,         /* the server's certificate cannot be verified */
    EGRESS_INJECTED,            /* it did go out, with secrets of a rule in it */
    EGRESS_PROTOCOL,            /* the client speaks no protocol in which requests can be looked at */
    EGRESS_REASONS_
};
const char *egress_reason_name(enum egress_reason r);
const char *egress_protocol_name(unsigned protocol);    /* of a denial */

struct egress_denial {
    uint64_t seq;               /* of the sandbox, from 1 */
    int64_t when_ms;            /* wall clock */
    uint8_t reason;             /* enum egress_reason */
    uint8_t protocol;           /* enum policy_protocol, or EGRESS_QUERY */
    uint16_t port;
    struct address to;
    char rule[LIMIT_NAME + 1];  /* the rule's name or number; "" = no rule matched */
    char name[POLICY_DOMAIN_MAX + 1];   /* "" = none was said */
};

/* A line of the log: what was denied, or allowed and noted. Those that are alike and follow soon are one line with a count. */
struct egress_decision {
    struct egress_denial about;     /* seq: the number of the line, which the node gives; rule: of action log, if allowed */
    uint8_t verdict;                /* POLICY_ALLOW, POLICY_DENY */
    uint64_t revision;              /* of the policy that decided */
    uint32_t count;
    uint64_t missed;                /* others before this line that are in none: too many different ones */
    /* Of a request; "" = of a connection. All of it is printable ASCII. */
    char method[EGRESS_METHOD_MAX + 1];
    char path[EGRESS_PATH_MAX + 1];         /* without query, cut */
    char secrets[EGRESS_SECRETS_MAX + 1];   /* names of those that were put in, with commas between them, cut */
};

struct egress_status {
    uint64_t revision;
    struct egress_totals totals;
    uint64_t flows_now;             /* open */
    uint32_t ndenials;
    struct egress_denial denials[EGRESS_DENIALS];   /* the last ones, oldest first */
};

size_t egress_policy_encode(const struct egress_policy *m, void *out, size_t size);
int egress_policy_decode(struct egress_policy *ret, const void *p, size_t n);
/* One of the list. */
size_t egress_secret_encode(const struct egress_secret *m, void *out, size_t size);
/* The first of *p, which then points behind it. 1, 0 at the end, or -EBADMSG. */
int egress_secret_next(const uint8_t **p, size_t *n, struct egress_secret *ret);
size_t egress_error_encode(const struct egress_error *m, void *out, size_t size);
int egress_error_decode(struct egress_error *ret, const void *p, size_t n);
size_t egress_status_encode(const struct egress_status *m, void *out, size_t size);
int egress_status_decode(struct egress_status *ret, const void *p, size_t n);
size_t egress_decision_encode(const char *sandbox, const struct egress_decision *m, void *out, size_t size);
int egress_decision_decode(char ret_sandbox[ID_SIZE], struct egress_decision *ret, const void *p, size_t n);
size_t egress_totals_encode(const char *sandbox, const struct egress_totals *m, void *out, size_t size);
int egress_totals_decode(char ret_sandbox[ID_SIZE], struct egress_totals *ret, const void *p, size_t n);
/* "sb-..." alone. */
size_t egress_ref_encode(const char *sandbox, void *out, size_t size);
int egress_ref_decode(char ret[ID_SIZE], const void *p, size_t n);

#endif
