/*
 * policy.h - what may leave a sandbox: ordered rules over names, addresses, ports and protocols
 *
 * One type for every dialect: core makes it from JSON and from Modal's messages, ipc/policy_wire.h carries it to the
 * node and to egress, egress asks it about every connection and query. The first rule that matches decides; what no
 * rule matches is denied. Addresses that are not public are refused on top of that unless a rule's prefix was written
 * for them (policy_permits_address).
 */
#ifndef QS_BASE_POLICY_H
#define QS_BASE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/address.h"
#include "base/limits.h"

#define POLICY_DOMAIN_MAX 253

enum policy_action {
    POLICY_ALLOW = 1,
    POLICY_DENY,
    POLICY_LOG,             /* is noted; the rules after it decide */
};

enum policy_protocol {
    POLICY_ANY,             /* every TCP connection; with domains: TLS and HTTP, where the name is in the first bytes */
    POLICY_TCP,             /* the bytes are not looked at; with domains: addresses that the resolver gave for the name */
    POLICY_TLS,
    POLICY_HTTP,
    POLICY_UDP,
    POLICY_PROTOCOLS_
};

struct policy_ports {
    uint16_t first, last;
};

/* An empty list matches everything, but of ports, in a rule that allows, not mail's; names and prefixes together must both match. */
struct policy_rule {
    uint8_t action;                 /* enum policy_action */
    uint8_t protocol;               /* enum policy_protocol */
    char name[LIMIT_NAME + 1];      /* for messages; "" = none */
    uint32_t ndomains, ncidrs, nports;
    char **domains;                 /* owned; "example.com", "*.example.com" (below it, at any depth), "*" */
    struct cidr *cidrs;             /* owned */
    struct policy_ports *ports;     /* owned */
};

enum {
    POLICY_DNS_OPEN = 1,            /* the resolver answers every name, not only those of rules */
    POLICY_REFUSE_ECH = 2,          /* a TLS greeting with an encrypted inner one is refused where the name decides */
    POLICY_FLAGS_ = 3,
};

struct policy_index;

struct policy {
    uint32_t flags;
    uint32_t nrules;
    struct policy_rule *rules;      /* owned */
    struct policy_index *index;     /* owned; NULL until policy_compile, and for small ones */
};

void policy_init(struct policy *p);
void policy_done(struct policy *p);
struct policy_rule *policy_add(struct policy *p, enum policy_action action, enum policy_protocol protocol);
void policy_rule_domain(struct policy_rule *r, const char *domain);     /* normalized */
void policy_rule_cidr(struct policy_rule *r, const struct cidr *c);
void policy_rule_ports(struct policy_rule *r, uint16_t first, uint16_t last);
/* Every public address by every port but mail's. */
void policy_open(struct policy *p);
/*
 * Modal's two lists: every port of the prefixes, and TLS on port 443 to the names. Both empty allow nothing. NULL, or the
 * item that is none, with *ret_why; the caller calls policy_done in any case.
 */
const char *policy_allow_lists(struct policy *p, char *const *cidrs, size_t ncidrs, char *const *domains, size_t ndomains,
                               const char **ret_why);
/* Prepares for questions; the rules do not change after it. */
void policy_compile(struct policy *p);

/*
 * A name as rules and clients write it: lower case, without a final dot. A wildcard counts only if `wildcard`.
 * NULL, or what is wrong with it.
 */
const char *policy_domain(const char *text, bool wildcard, char out[POLICY_DOMAIN_MAX + 1]);
const char *policy_action_name(enum policy_action a);
const char *policy_protocol_name(enum policy_protocol p);

struct policy_flow {
    const struct address *to;       /* NULL: not known yet; then no prefix matches */
    const char *name;               /* normalized; NULL: none was said */
    uint16_t port;
    enum policy_protocol protocol;  /* POLICY_TCP: neither TLS nor HTTP */
};

struct policy_verdict {
    enum policy_action action;      /* ALLOW or DENY */
    int rule;                       /* -1: none matched */
    int logged;                     /* the first LOG rule that matched, or -1 */
    bool by_name;                   /* the rule has domains: where the flow may go is where the name leads */
};

void policy_ask(const struct policy *p, const struct policy_flow *f, struct policy_verdict *ret);

/* What the first bytes would have to tell before it can be decided. */
enum policy_need { POLICY_NEEDS_NOTHING, POLICY_NEEDS_NAME };
enum policy_need policy_needs(const struct policy *p, const struct address *to, uint16_t port);

/*
 * Whether a rule that allows `f` lets it go to *to as well: not unless the address is public, or one of the rule's prefixes names
 * it. `local` says that it is an address of this host. The class is for messages.
 */
bool policy_permits_address(const struct policy *p, int rule, const struct address *to, bool local);

/* Whether the resolver may say anything about a name. */
bool policy_resolves(const struct policy *p, const char *name);

#endif
