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
#include "base/err.h"
#include "base/ids.h"
#include "base/limits.h"

#define POLICY_DOMAIN_MAX 253
#define POLICY_PLACEHOLDER_MIN 16

enum policy_action {
    POLICY_ALLOW = 1,
    POLICY_DENY,
    POLICY_LOG,             /* is noted; the rules after it decide */
    POLICY_INJECT,          /* allowed, and what `injects` says is put into each request */
};

enum policy_protocol {
    POLICY_ANY,             /* every TCP connection; with domains: TLS and HTTP, where the name is in the first bytes */
    POLICY_TCP,             /* the bytes are not looked at; with domains: addresses that the resolver gave for the name */
    POLICY_TLS,
    POLICY_HTTP,
    POLICY_UDP,             /* datagrams; with domains: like POLICY_TCP */
    POLICY_PROTOCOLS_
};

struct policy_ports {
    uint16_t first, last;
};

enum policy_inject_kind {
    POLICY_HEADER = 1,      /* name: the field; value: a template */
    POLICY_QUERY,           /* name: the parameter; value: a template */
    POLICY_BASIC,           /* name, value: templates of user and password */
    POLICY_SIGV4,           /* name: service, value: region; "" = those of the signature that the request has */
    POLICY_PLACEHOLDER,     /* name: variable of the environment inside; value: its text; with: a template for it */
    POLICY_INJECT_KINDS_
};

/*
 * What is put into a request outside of the sandbox. In templates `$KEY` and `${KEY}` stand for a value of the secret and `$$`
 * for a dollar sign. Values are never part of a policy.
 */
struct policy_inject {
    uint8_t kind;                   /* enum policy_inject_kind */
    bool replace;                   /* field or parameter: only where the request has it already */
    char secret[LIMIT_NAME + 1];    /* name or id, as it was written; "" = none: templates without keys */
    char secret_id[ID_SIZE];        /* which that is; "" = not looked up yet */
    char *name, *value, *with;      /* owned, never NULL */
};

/* An empty list matches everything, but of ports, in a rule that allows, not mail's and by UDP not DNS's; names and prefixes
 * together must both match. */
struct policy_rule {
    uint8_t action;                 /* enum policy_action */
    uint8_t protocol;               /* enum policy_protocol */
    char name[LIMIT_NAME + 1];      /* for messages; "" = none */
    uint32_t ndomains, ncidrs, nports;
    char **domains;                 /* owned; "example.com", "*.example.com" (below it, at any depth), "*" */
    struct cidr *cidrs;             /* owned */
    struct policy_ports *ports;     /* owned */
    /* Of requests: such a rule has domains, and a connection that could match it is opened. */
    uint32_t nmethods, npaths, ninjects;
    char **methods;                 /* owned; upper case */
    char **paths;                   /* owned; without query; '*' is any run of characters */
    struct policy_inject *injects;  /* owned; of POLICY_INJECT */
    bool redact;                    /* values of secrets are blackened in responses */
};

enum {
    POLICY_DNS_OPEN = 1,            /* the resolver answers every name, not only those of rules */
    POLICY_REFUSE_ECH = 2,          /* a TLS greeting with an encrypted inner one is refused where the name decides */
    POLICY_FLAGS_ = 3,
};

struct policy_index;

/* What the sandbox may send and receive in a second, in bits; 0 = no limit. */
struct policy_bandwidth {
    uint64_t up_bits_s, down_bits_s;
};

struct policy {
    uint32_t flags;
    struct policy_bandwidth bandwidth;
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
void policy_rule_method(struct policy_rule *r, const char *method);
void policy_rule_path(struct policy_rule *r, const char *path);
/* Valid until the next one is added; the caller sets `secret`. */
struct policy_inject *policy_rule_inject(struct policy_rule *r, enum policy_inject_kind kind, const char *name, const char *value,
                                         const char *with);
/* The keys of the secret that it wants; "NAME" of "$NAME" in templates, and those of a signature. */
typedef void (*policy_key_fn)(void *ctx, const char *key, size_t n);
void policy_inject_keys(const struct policy_inject *j, policy_key_fn fn, void *ctx);
static inline bool policy_allows(const struct policy_rule *r)
{
    return r->action == POLICY_ALLOW || r->action == POLICY_INJECT;
}
/* Whether the rule is about requests, so that a connection has to be opened for it. */
static inline bool policy_is_of_requests(const struct policy_rule *r)
{
    return r->nmethods > 0 || r->npaths > 0 || r->action == POLICY_INJECT;
}
/* Whether any TLS connection may have to be opened: then the sandbox needs an authority. */
bool policy_opens_tls(const struct policy *p);
/* Nothing, or between the bounds above. */
static inline bool policy_bits_s_is_valid(uint64_t n)
{
    return n == 0 || (n >= LIMIT_BANDWIDTH_MIN && n <= LIMIT_BANDWIDTH_MAX);
}
/* What is wrong with a rule as a whole, or NULL; core and the decoder ask. */
const char *policy_rule_wrong(const struct policy_rule *r);
/* Every public address by every port but mail's. */
void policy_open(struct policy *p);
/* Everything of IPv4 or IPv6: who allows that needs names, and means no mail. */
bool policy_cidr_is_everything(const struct cidr *c);
/*
 * Modal's two lists: every port of the prefixes, and TLS on port 443 to the names. Both empty allow nothing. The error names
 * the item; the caller calls policy_done in any case.
 */
int policy_allow_lists(struct policy *p, char *const *cidrs, size_t ncidrs, char *const *domains, size_t ndomains, struct err *e);
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
    const char *method, *path;      /* of the request (policy_path); NULL: of a connection, whose requests are not known yet */
};

struct policy_verdict {
    enum policy_action action;      /* ALLOW or DENY; a rule that injects allows */
    int rule;                       /* -1: none matched */
    int logged;                     /* the first LOG rule that matched, or -1 */
    bool by_name;                   /* the rule has domains: where the flow may go is where the name leads */
    bool opens;                     /* of a connection that is allowed: its requests decide, each of them */
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

#define POLICY_PATH_MAX 8192
/*
 * The path of a request's target as rules see it: without query, letters and digits not escaped, one slash where there are
 * several. False: it has "." or ".." between slashes (escaped ones too, or with a parameter), a bad escape, a control
 * character or a backslash, or is too long: servers read that in more than one way.
 */
bool policy_path(const char *target, size_t n, char out[POLICY_PATH_MAX + 1]);
/* With its escaped slashes as slashes, as some servers read it. */
void policy_path_slashes(const char *path, char out[POLICY_PATH_MAX + 1]);
bool policy_path_matches(const char *pattern, const char *path);
bool policy_template_is_valid(const char *text);
/*
 * What begins at the dollar sign *at: the length of "$KEY", "${KEY}" or "$$" with its key (none of "$$", *ret_len is 0), or 0 if
 * it is none of these.
 */
size_t policy_template_next(const char *at, const char **ret_key, size_t *ret_len);

/* Whether a rule allows the name if it leads to one of the rule's prefixes: then it has to be resolved before it is denied. */
bool policy_may_lead(const struct policy *p, const char *name, uint16_t port, enum policy_protocol protocol);
/* Whether the resolver may say anything about a name. */
bool policy_resolves(const struct policy *p, const char *name);

#endif
