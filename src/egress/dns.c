/*
 * dns.c - the resolver of a sandbox
 *
 * Answers for names that the policy allows, with addresses that it would let a connection go to. Nothing else of what was
 * asked reaches a resolver of the host: not the packet, only the name.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sandbox_net.h"
#include "egress/dns_wire.h"
#include "egress/egress.h"

#define QUERIES_A_TURN 32
#define QUERIES_MAX 256         /* under way a sandbox */
#define BURST (10 * LIMIT_DNS_RATE)
#define TTL_MAX_S 60            /* a change of policy should show soon */

struct dns_pending {
    struct dns_pending *prev, *next;    /* of the box */
    struct box *box;
    struct lookup *lookup;
    struct sockaddr_storage from;
    socklen_t from_len;
    struct dns_query query;
};

/* The answer comes from the address that was asked; the port is put right by the namespace's rules. */
static void answer(const struct box *b, const struct sockaddr_storage *to, socklen_t to_len, const struct dns_query *q,
                   int code, const struct address *addresses, size_t n, uint32_t ttl)
{
    static const uint8_t resolver[4] = {192, 0, 2, 53};
    uint8_t out[DNS_ANSWER_MAX];
    struct iovec iov = {.iov_base = out, .iov_len = dns_answer(q, code, addresses, n, ttl, out)};
    union {
        char bytes[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr align;
    } control = {{0}};
    struct sockaddr_storage name = *to;
    struct msghdr m = {
        .msg_name = &name, .msg_namelen = to_len, .msg_iov = &iov, .msg_iovlen = 1,
        .msg_control = control.bytes, .msg_controllen = sizeof control.bytes,
    };
    struct in_pktinfo info = {0};

    memcpy(&info.ipi_spec_dst, resolver, sizeof resolver);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_IP;
    c->cmsg_type = IP_PKTINFO;
    c->cmsg_len = CMSG_LEN(sizeof info);
    memcpy(CMSG_DATA(c), &info, sizeof info);
    (void)!sendmsg(b->udp, &m, MSG_NOSIGNAL);   /* a full buffer is a lost packet, as everywhere */
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

static void on_name(void *arg, const struct name_entry *entry)
{
    struct dns_pending *p = arg;
    struct address good[ADDRESSES_MAX];
    struct box *b = p->box;
    size_t n = 0;

    for (size_t i = 0; entry != NULL && i < entry->n; i++) {
        /* On a host without IPv6 its addresses would be tried first and, accepted here, never be given up. */
        if (!address_is4(&entry->addresses[i]) && !dial_has_way(&entry->addresses[i]))
            continue;
        if (may_tell(b, &entry->addresses[i]))
            good[n++] = entry->addresses[i];
        else
            box_deny(b, EGRESS_ADDRESS, POLICY_UDP, &entry->addresses[i], SANDBOX_NET_DNS_PORT, p->query.name, -1);
    }
    int64_t left = entry != NULL ? (entry->until_ms - clock_boot_ms()) / 1000 : 0;
    uint32_t ttl = left < 0 ? 0 : left > TTL_MAX_S ? TTL_MAX_S : (uint32_t)left;
    answer(b, &p->from, p->from_len, &p->query, entry == NULL ? DNS_NXDOMAIN : DNS_NOERROR, good, n, ttl);
    drop(p);
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

static void query(struct box *b, const uint8_t *bytes, size_t n, const struct sockaddr_storage *from, socklen_t from_len)
{
    struct dns_query q;
    int code = dns_parse(bytes, n, &q);

    if (code < 0)
        return;
    b->status.totals.queries++;
    if (code != DNS_NOERROR) {
        answer(b, from, from_len, &q, code, NULL, 0, 0);
        return;
    }
    enum egress_reason reason = EGRESS_BY_RULE;
    bool ok = policy_resolves(&b->policy, q.name);
    /* What is remembered costs nobody outside anything: a program that connects often asks often. */
    if (ok && !names_knows(b, q.name)) {
        reason = EGRESS_LIMIT;
        ok = strlen(q.name) <= LIMIT_DNS_NAME && b->nqueries < QUERIES_MAX && take_token(b);
    }
    if (!ok) {
        if (q.type == DNS_A || q.type == DNS_AAAA || reason == EGRESS_LIMIT)
            box_deny(b, reason, POLICY_UDP, NULL, SANDBOX_NET_DNS_PORT, q.name, -1);
        answer(b, from, from_len, &q, reason == EGRESS_LIMIT ? DNS_REFUSED : DNS_NXDOMAIN, NULL, 0, 0);
        return;
    }
    if (q.type != DNS_A && q.type != DNS_AAAA) {
        answer(b, from, from_len, &q, DNS_NOERROR, NULL, 0, 0);    /* the name is there, without such records */
        return;
    }
    struct dns_pending *p = mem_zalloc(sizeof *p);
    *p = (struct dns_pending){.next = b->queries, .box = b, .from = *from, .from_len = from_len, .query = q};
    if (b->queries != NULL)
        b->queries->prev = p;
    b->queries = p;
    b->nqueries++;
    struct lookup *l = names_find(b, q.name, on_name, p);
    if (l != NULL)
        p->lookup = l;
}

/* Whether the packet was sent to the resolver: other packets are none of its business. */
static bool is_for_resolver(struct msghdr *m)
{
    static const uint8_t resolver[4] = {192, 0, 2, 53};

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        struct sockaddr_in to;
        if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_RECVORIGDSTADDR || c->cmsg_len < CMSG_LEN(sizeof to))
            continue;
        memcpy(&to, CMSG_DATA(c), sizeof to);
        return to.sin_port == htons(SANDBOX_NET_DNS_PORT) && memcmp(&to.sin_addr, resolver, sizeof resolver) == 0;
    }
    return false;
}

void dns_ready(struct box *b)
{
    uint8_t bytes[DNS_QUERY_MAX + 1];
    struct sockaddr_storage from;
    union {
        char bytes[256];
        struct cmsghdr align;
    } control;

    for (int i = 0; i < QUERIES_A_TURN; i++) {
        struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
        struct msghdr m = {
            .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1,
            .msg_control = control.bytes, .msg_controllen = sizeof control.bytes,
        };
        ssize_t n = recvmsg(b->udp, &m, 0);
        if (n < 0)
            return;
        if (is_for_resolver(&m))
            query(b, bytes, (size_t)n, &from, m.msg_namelen);
    }
}
