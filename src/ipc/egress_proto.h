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
    EGRESS_ATTACH,      /* struct egress_policy, descriptors: TCP listener, UDP socket. Repeated: takes their place */
    EGRESS_POLICY,      /* struct egress_policy for an attached sandbox, else ERR_NOT_FOUND */
    EGRESS_DETACH,      /* str sandbox: cut everything; of an unknown one EGRESS_OK as well */
    EGRESS_STATUS,      /* str sandbox -> EGRESS_STATUS_R */
    EGRESS_STATUS_R,    /* struct egress_status */
    EGRESS_OK,          /* empty */
    EGRESS_ERROR,       /* struct egress_error */
    EGRESS_DENIED,      /* egress -> node, tag 0: struct egress_denial, of str sandbox before it; may be left out under load */
};

struct egress_policy {
    char sandbox[ID_SIZE];
    uint64_t revision;          /* what EGRESS_STATUS_R says is in force */
    bool keep;                  /* open connections that the policy would not allow stay open */
    const uint8_t *policy;      /* ipc/policy_wire.h; borrowed */
    size_t policy_len;
};

struct egress_error {
    uint16_t code;              /* enum err_code */
    char message[200];
};

#define EGRESS_DENIALS 64       /* kept a sandbox */

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
    EGRESS_REASONS_
};
const char *egress_reason_name(enum egress_reason r);

struct egress_denial {
    uint64_t seq;               /* of the sandbox, from 1 */
    int64_t when_ms;            /* wall clock */
    uint8_t reason;             /* enum egress_reason */
    uint8_t protocol;           /* enum policy_protocol; POLICY_UDP: a DNS query */
    uint16_t port;
    struct address to;
    char rule[LIMIT_NAME + 1];  /* the rule's name or number; "" = no rule matched */
    char name[POLICY_DOMAIN_MAX + 1];   /* "" = none was said */
};

struct egress_status {
    uint64_t revision;
    uint64_t sent, received;    /* bytes of the sandbox, from it and to it */
    uint64_t flows, flows_now;  /* connections that went out, and those open */
    uint64_t failed;            /* allowed, but could not be made */
    uint64_t queries;           /* DNS */
    uint64_t denied;            /* all of them, with those not kept */
    uint32_t ndenials;
    struct egress_denial denials[EGRESS_DENIALS];   /* the last ones, oldest first */
};

size_t egress_policy_encode(const struct egress_policy *m, void *out, size_t size);
int egress_policy_decode(struct egress_policy *ret, const void *p, size_t n);
size_t egress_error_encode(const struct egress_error *m, void *out, size_t size);
int egress_error_decode(struct egress_error *ret, const void *p, size_t n);
size_t egress_status_encode(const struct egress_status *m, void *out, size_t size);
int egress_status_decode(struct egress_status *ret, const void *p, size_t n);
size_t egress_denied_encode(const char *sandbox, const struct egress_denial *m, void *out, size_t size);
int egress_denied_decode(char ret_sandbox[ID_SIZE], struct egress_denial *ret, const void *p, size_t n);
/* "sb-..." alone. */
size_t egress_ref_encode(const char *sandbox, void *out, size_t size);
int egress_ref_decode(char ret[ID_SIZE], const void *p, size_t n);

#endif
