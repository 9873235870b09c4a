/*
 * dns.c - the resolver of a sandbox
 *
 * Answers for names that the policy allows, with addresses that it would let a connection go to. Nothing else of what was
 * asked reaches a resolver of the host: not the packet, only the name.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sandbox_net.h"
#include "egress/dns/wire.h"
#include "egress/egress.h"

#define QUERIES_MAX 256         /* under way a sandbox */
#define BURST (10 * LIMIT_DNS_RATE)
#define TTL_MAX_S 60            /* a change of policy should show soon */
#define NOTED_A_SECOND 20       /* queries of a sandbox that are written to the log; all are counted */

struct dns_pending {
    struct dns_pending *prev, *next;    /* of the box */
    struct box *box;
    struct lookup *lookup;
    struct udp_ends ends;           /* who asked, if by UDP */
    struct dns_connection *connection;  /* else */
    struct dns_query query;
};

bool dns_is_resolver(const struct address *to, uint16_t port)
{
    struct address resolver;

    return port == SANDBOX_NET_DNS_PORT && address_parse(SANDBOX_NET_DNS4, &resolver) &&
           memcmp(to, &resolver, sizeof resolver) == 0;
}

static void note(struct box *b, const struct dns_query *q, const struct dns_reply *r)
{
    int64_t second = clock_boot_ms() / 1000;

    if (second != b->noted_second) {
        b->noted_second = second;
        b->noted = 0;
    }
    if (b->noted++ < NOTED_A_SECOND)
        log_info("egress.query", "sandbox=%s name=%s type=%u code=%d addresses=%zu", b->id, q->name[0] != '\0' ? q->name : "-",
                 q->type, r->code, r->n);
}

static void answer(struct box *b, const struct udp_ends *ends, struct dns_connection *c, const struct dns_query *q,
                   const struct dns_reply *r)
{
    uint8_t out[DNS_ANSWER_MAX];
    size_t n = dns_answer(q, r, c != NULL ? DNS_ANSWER_MAX : q->room, out);

    note(b, q, r);
    if (c != NULL) {
        dns_tcp_answer(c, out, n);
        return;
    }
    const struct udp_ends back = {
        .from = ends->to, .to = ends->from, .from_port = ends->to_port, .to_port = ends->from_port};
    udp_send(b, &back, out, n);
}

static void drop(struct dns_pending *p)
{
    struct box *b = p->box;

    *(p->prev != NULL ? &p->prev->next : &b->queries) = p->next;
    if (p->next != NULL)
        p->next->prev = p->prev;
    b->nqueries--;
    free(p);
}

void dns_cancel(struct box *b)
{
    while (b->queries != NULL) {
        names_cancel(b->queries->lookup);
        drop(b->queries);
    }
}

void dns_forget(struct box *b, const struct dns_connection *c)
{
    struct dns_pending *next;

    for (struct dns_pending *p = b->queries; p != NULL; p = next) {
        next = p->next;
        if (p->connection != c)
            continue;
        names_cancel(p->lookup);
        drop(p);
    }
}

/* An address that is not public is told only if some rule was written for it. */
static bool may_tell(const struct box *b, const struct address *a)
{
    bool local = dial_is_local(a);

    if (!local && address_class(a) == ADDRESS_PUBLIC)
        return true;
    for (uint32_t i = 0; i < b->policy.nrules; i++)
        if (policy_allows(&b->policy.rules[i]) && policy_permits_address(&b->policy, (int)i, a, local))
            return true;
    return false;
}

static int code_of(enum names_result r)
{
    return r == NAMES_NOWHERE ? DNS_NXDOMAIN : r == NAMES_FAILED ? DNS_SERVFAIL : DNS_NOERROR;
}

static void on_name(void *arg, const struct name_entry *entry, enum names_result result)
{
    struct dns_pending *p = arg;
    struct address good[NAME_ADDRESSES_MAX];
    struct dns_reply r = {.code = code_of(result), .addresses = good};
    struct box *b = p->box;

    for (size_t i = 0; entry != NULL && i < entry->n; i++) {
        /* On a host without IPv6 its addresses would be tried first and, accepted here, never be given up. */
        if (!address_is4(&entry->addresses[i]) && !dial_has_way(&entry->addresses[i]))
            continue;
        if (may_tell(b, &entry->addresses[i])) {
            good[r.n++] = entry->addresses[i];
            continue;
        }
        r.is_blocked = true;
        box_deny(b, EGRESS_ADDRESS, EGRESS_QUERY, &entry->addresses[i], SANDBOX_NET_DNS_PORT, p->query.name, -1);
    }
    int64_t left = entry != NULL ? (entry->until_ms - clock_boot_ms()) / 1000 : 0;
    r.ttl = left < 0 ? 0 : left > TTL_MAX_S ? TTL_MAX_S : (uint32_t)left;
    /* The connection may end by the answer, and would take this query along. */
    struct dns_pending asked = *p;
    drop(p);
    answer(b, &asked.ends, asked.connection, &asked.query, &r);
}

static bool take_token(struct box *b)
{
    int64_t now = clock_boot_ms();

    if (b->tokens_ms == 0)
        b->tokens = BURST;
    else
        b->tokens += (double)(now - b->tokens_ms) * LIMIT_DNS_RATE / 1000;
    b->tokens_ms = now;
    if (b->tokens > BURST)
        b->tokens = BURST;
    if (b->tokens < 1)
        return false;
    b->tokens -= 1;
    return true;
}

/* Whether a query is taken: what is remembered costs nobody outside anything, a program that connects often asks often. */
static bool is_taken(struct box *b, const struct dns_query *q)
{
    return names_knows(b, q->name) || (strlen(q->name) <= LIMIT_DNS_NAME && b->nqueries < QUERIES_MAX && take_token(b));
}

void dns_query(struct box *b, const struct udp_ends *ends, struct dns_connection *c, const uint8_t *p, size_t n)
{
    struct dns_query q;
    struct dns_reply r = {.code = dns_parse(p, n, &q)};

    if (r.code < 0)
        return;
    b->status.totals.queries++;
    if (r.code != DNS_NOERROR) {
        answer(b, ends, c, &q, &r);
        return;
    }
    if (!policy_resolves(&b->policy, q.name)) {
        if (q.type == DNS_A || q.type == DNS_AAAA)
            box_deny(b, EGRESS_BY_RULE, EGRESS_QUERY, NULL, SANDBOX_NET_DNS_PORT, q.name, -1);
        r.code = DNS_NXDOMAIN;
        r.is_blocked = true;
        answer(b, ends, c, &q, &r);
        return;
    }
    if (!is_taken(b, &q)) {
        box_deny(b, EGRESS_LIMIT, EGRESS_QUERY, NULL, SANDBOX_NET_DNS_PORT, q.name, -1);
        r.code = DNS_REFUSED;
        answer(b, ends, c, &q, &r);
        return;
    }
    if (q.type != DNS_A && q.type != DNS_AAAA) {
        /* The name is there, without such records; but nobody gets a whole zone. */
        r.code = q.type == DNS_AXFR || q.type == DNS_IXFR ? DNS_REFUSED : DNS_NOERROR;
        answer(b, ends, c, &q, &r);
        return;
    }
    struct dns_pending *w = mem_zalloc(sizeof *w);
    *w = (struct dns_pending){.next = b->queries, .box = b, .connection = c, .query = q};
    if (ends != NULL)
        w->ends = *ends;
    if (b->queries != NULL)
        b->queries->prev = w;
    b->queries = w;
    b->nqueries++;
    struct lookup *l = names_find(b, q.name, on_name, w);
    if (l != NULL)
        w->lookup = l;
}

void dns_datagram(struct box *b, const struct udp_ends *ends, const uint8_t *p, size_t n)
{
    dns_query(b, ends, NULL, p, n);
}
