/*
 * egress.h - what the files of the egress role share
 *
 * A box is a sandbox with a network: its two sockets, its policy, its counters. A flow is one connection out of it.
 *
 * Who calls whom: link.c (the node's messages) -> box.c; the loop -> flow.c (a connection until it is decided) -> dial.c (to
 * where it may go) -> relay.c (bytes), and open/ where a rule is about requests; the loop -> udp/udp.c (datagrams) ->
 * udp/flow.c (decides and relays them), and dns/dns.c (queries; dns/tcp.c for those by TCP) -> dns/names.c (what names lead
 * to) -> dns/resolve.c (the host's resolvers). relay.c and udp/flow.c -> throttle.c (bytes a second); whoever decides ->
 * decisions.c (counts, and the log that the node keeps). hello.c, head.c, scan.c and dns/wire.c read strangers' bytes and know
 * nothing else, udp/packet.c writes packets.
 */
#ifndef QS_EGRESS_EGRESS_H
#define QS_EGRESS_EGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/address.h"
#include "base/conf.h"
#include "base/ids.h"
#include "base/map.h"
#include "base/policy.h"
#include "egress/head.h"
#include "egress/open/inject.h"
#include "egress/throttle.h"
#include "egress/udp/packet.h"
#include "ipc/egress_proto.h"
#include "loop/loop.h"
#include "sys/mover.h"

#define NAME_ADDRESSES_MAX 32       /* of a name that are told */
#define ADDRESSES_MAX 8             /* and of those that are tried */

struct resolver;
struct link_server;
struct name_cache;
struct open_tls;
struct net_authority;
struct opened;

struct egress {
    struct loop *loop;
    struct resolver *resolver;
    struct link_server *links;
    struct map boxes;               /* sandbox id -> box, owned */
    struct loop_timer *totals_timer;    /* the node is told what has changed */
    struct open_tls *tls;
    uint64_t own_netns;             /* cookie of the host's namespace */
};

struct flow;
struct dial;
struct dns_connection;
struct dns_pending;
struct lookup;
struct teller;
struct udp_flows;

struct box {
    struct egress *egress;
    char id[ID_SIZE];
    int tcp, udp, raw4, raw6;       /* owned */
    struct loop_io *tcp_io, *udp_io;
    struct loop_timer *pause;       /* the listener rests, because descriptors are short */
    uint64_t netns;                 /* cookie of its namespace */
    uint64_t revision;
    struct policy policy;
    struct throttle up, down;       /* what it says of bytes a second */
    struct secrets secrets;         /* that the policy names */
    struct net_authority *authority;    /* of opened connections; NULL: there is none */
    uint64_t collected;             /* bytes of bodies that are kept until they are signed */
    struct flow *flows;             /* all open ones */
    uint32_t nflows;
    struct udp_flows *udp_flows;    /* made when first used */
    struct dns_pending *queries;    /* under way */
    uint32_t nqueries;
    struct dns_connection *dns_connections;
    uint32_t ndns_connections;
    double tokens;                  /* DNS queries that may come now */
    int64_t tokens_ms;
    int64_t noted_second;           /* queries written to the log in this second */
    unsigned noted;
    struct lookup *lookups;         /* under way */
    struct name_cache *names;       /* made when first used */
    struct egress_status status;    /* counters and the last denials; revision and flows_now are filled when asked */
    struct teller *teller;          /* made when first used */
    struct egress_totals told;      /* what the node knows */
};

enum flow_state {
    FLOW_READ,                      /* waits for the first bytes */
    FLOW_RESOLVE,
    FLOW_DIAL,
    FLOW_RELAY,
    FLOW_REFUSED,                   /* the refusal is being read */
};

/* Bytes on their way in one direction, and what does not fit into the next socket yet. */
struct way {
    uint8_t *rest;                  /* owned */
    size_t rest_len, rest_at;
    struct mover mover;             /* what the kernel moves past us */
    bool is_bulk;                   /* it is asked to */
    uint64_t bytes;                 /* that came */
    bool eof;                       /* read to the end */
    bool shut;                      /* and passed on */
    bool waits;                     /* for tokens (throttle.h), in the queue of these */
    struct flow *wait_prev, *wait_next;
};

struct flow {
    struct box *box;
    struct flow *prev, *next;       /* of the box */
    enum flow_state state;
    int in, out;                    /* inside, outside; owned */
    struct loop_io *in_io, *out_io;
    unsigned in_wants, out_wants;
    struct loop_timer *timer;
    struct address to;              /* where the sandbox wanted to go */
    uint16_t port;
    uint8_t protocol;               /* enum policy_protocol */
    bool by_name;
    bool opens;                     /* its requests are decided one by one: open.h */
    struct opened *opened;          /* NULL until it is connected; owned */
    bool watched;                   /* every request is looked at: `scan` is set up */
    char name[POLICY_DOMAIN_MAX + 1];   /* "" = none */
    int rule;                       /* that allowed it */
    int logged;                     /* the first rule of action log that matched when it was last asked about, or -1 */
    struct address dialled;
    uint8_t *first;                 /* bytes read before the decision; owned */
    size_t first_len;
    unsigned reads;
    struct lookup *lookup;          /* under way, or NULL */
    struct address addresses[ADDRESSES_MAX];
    size_t naddresses;
    struct dial *dial;              /* while in FLOW_DIAL; owned */
    struct scan scan;
    uint8_t answer[16];             /* first bytes of the answer, while an upgrade waits for it */
    size_t answer_len;
    struct way up, down;
    uint64_t bytes_before;          /* both ways, when it was last looked whether a half closed one is still used */
};

/* box.c */
/* Takes the descriptors (enum in ipc/egress_proto.h) if it succeeds. */
struct box *box_attach(struct egress *g, const struct egress_policy *m, int fds[EGRESS_SOCKETS], struct err *e);
int box_policy(struct egress *g, const struct egress_policy *m, struct err *e);
void box_detach(struct box *b);
void boxes_done(struct egress *g);
/* Whether any rule signs requests: then HTTP/2 is not offered, because bodies have to be known first. */
bool box_signs(const struct box *b);
/* decisions.c: notes what did not go out. protocol: or EGRESS_QUERY; `rule` -1: none matched; to and name may be NULL. */
void box_deny(struct box *b, enum egress_reason reason, unsigned protocol, const struct address *to, uint16_t port,
              const char *name, int rule);
/* What goes out, and a rule of action log (`rule`) has matched. */
void box_note(struct box *b, unsigned protocol, const struct address *to, uint16_t port, const char *name, int rule);
/* The same for a request of a connection that is opened, and one that secrets were put into. */
struct request_about {
    const char *method, *path;      /* path: without query */
    const char *secrets;            /* names with commas between them */
};
void box_deny_request(struct flow *f, enum egress_reason reason, int rule, const struct request_about *r);
void box_note_request(struct flow *f, int rule, const struct request_about *r);
void box_injected(struct flow *f, int rule, const struct request_about *r);
void box_tell_totals(struct box *b);        /* to the node, if they have changed */
void box_tell_rest(struct box *b);          /* and all that it was not told yet: the box ends */

/* link.c */
struct link_server *links_new(struct egress *g, int listener, uint32_t node_uid);
void links_free(struct link_server *s);
bool links_tell(struct egress *g, uint16_t type, const void *p, size_t n);     /* false: nobody was told */

/* flow.c */
void flow_accept(struct box *b);
void flow_free(struct flow *f);             /* without a word: the peer sees what the kernel makes of it */
void flow_reset(struct flow *f);            /* both sides see a reset */
void flow_check(struct flow *f);            /* the policy is another: cuts what it does not allow */
void flow_timer(struct flow *f, uint64_t ms, loop_timer_cb cb);
void flow_want(struct flow *f, unsigned in, unsigned out);
/* Notes it, says it in the client's protocol where there is a way to, and ends the connection. */
void flow_refuse(struct flow *f, enum egress_reason reason, const struct address *to, int rule);
/* Allowed, but it cannot be made; status: what HTTP is told. */
void flow_failed(struct flow *f, const char *status, const char *why);

/* dial.c: f->addresses are to be tried. The flow may be gone afterwards. */
void dial_start(struct flow *f);
void dial_cancel(struct flow *f);                   /* also of a flow that does not dial */
bool dial_is_local(const struct address *a);        /* an address of this host */
bool dial_has_way(const struct address *a);         /* the host has a route to it */
int dial_datagram(const struct address *a, uint16_t port);  /* a connected socket, or -errno */

/* relay.c */
void relay_start(struct flow *f);
void relay_go_on_up(struct flow *f);        /* bytes may be read again; the flow may be gone afterwards */
void relay_go_on_down(struct flow *f);
void relay_inside(struct flow *f, unsigned what);   /* f->in is ready, and f->in_io not ours */
void relay_keep_alive(int fd);      /* finds out that the other side is gone */

/* udp/udp.c */
void udp_ready(struct box *b);
void udp_send(const struct box *b, const struct udp_ends *ends, const void *payload, size_t n);    /* into the sandbox */
void udp_refuse(const struct box *b, const struct udp_ends *ends, size_t n);    /* to who sent n bytes */

/* udp/flow.c */
void udp_flow_datagram(struct box *b, const struct udp_ends *ends, const uint8_t *p, size_t n);
void udp_flows_check(struct box *b);        /* the policy is another: ends what it does not allow */
uint32_t udp_flows_count(const struct box *b);
void udp_flows_free(struct box *b);

/* dns/dns.c */
bool dns_is_resolver(const struct address *to, uint16_t port);
void dns_datagram(struct box *b, const struct udp_ends *ends, const uint8_t *p, size_t n);
/* Of a connection (NULL: by a datagram). The answer may come at once, and end the connection. */
void dns_query(struct box *b, const struct udp_ends *ends, struct dns_connection *c, const uint8_t *p, size_t n);
void dns_forget(struct box *b, const struct dns_connection *c);     /* it has ended: the answers are given to nobody */
void dns_cancel(struct box *b);

/* dns/tcp.c */
void dns_tcp_start(struct box *b, int fd);  /* takes it */
void dns_tcp_answer(struct dns_connection *c, const uint8_t *p, size_t n);
void dns_tcp_free(struct box *b);

/* dns/names.c: what names lead to, remembered a sandbox */
struct name_entry {
    char name[POLICY_DOMAIN_MAX + 1];
    struct address addresses[NAME_ADDRESSES_MAX];
    size_t n;
    int64_t until_ms;               /* boot clock: asked anew after it */
};
enum names_result {
    NAMES_FOUND,
    NAMES_EMPTY,                    /* the name is there, without addresses */
    NAMES_NOWHERE,                  /* there is no such name */
    NAMES_FAILED,                   /* nobody could tell */
};
typedef void (*names_cb)(void *arg, const struct name_entry *entry, enum names_result r);  /* an entry if NAMES_FOUND */
/* The callback may come at once; then NULL is returned. */
struct lookup *names_find(struct box *b, const char *name, names_cb cb, void *arg);
bool names_knows(const struct box *b, const char *name);     /* names_find would answer at once */
void names_cancel(struct lookup *l);
void names_cancel_all(struct box *b);
/* The names for which the resolver gave this address; next: entry to go on from, NULL to begin. */
const struct name_entry *names_of(const struct box *b, const struct address *to, const struct name_entry *after);
void names_free(struct name_cache *c);

/* dns/resolve.c: both families of a name from the host's resolvers */
struct question;
typedef void (*resolve_cb)(void *arg, enum names_result r, const struct address *addresses, size_t n, uint32_t ttl);
struct resolver *resolver_new(struct loop *l, const char *servers, struct err *e);
void resolver_free(struct resolver *r);
struct question *resolver_ask(struct resolver *r, const char *name, resolve_cb cb, void *arg);    /* never at once */
void resolver_cancel(struct question *q);

#endif
