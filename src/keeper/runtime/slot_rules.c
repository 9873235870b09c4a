/*
 * slot_rules.c - the packet rules of a sandbox's network namespace, as one netlink batch
 *
 * In words of nft:
 *
 *   chain pre { type filter hook prerouting priority mangle; policy accept;
 *     <to loopback or the sandbox's own address> accept
 *     meta l4proto tcp tproxy to :61753 meta mark set 0x5153 accept
 *     meta l4proto udp tproxy to :61753 meta mark set 0x5153 accept
 *     meta l4proto tcp reject with tcp reset          # nobody listens: the network is blocked
 *     reject with icmpx admin-prohibited }
 *   chain in { type filter hook input priority filter; policy drop;
 *     <to loopback or the sandbox's own address> accept
 *     meta mark 0x5153 accept }
 *   chain out { type filter hook output priority filter; policy drop;
 *     meta mark 0x5153 accept
 *     <tcp or udp> dport 61753 reject
 *     <to loopback or the sandbox's own address> accept
 *     meta l4proto tcp accept
 *     ip daddr >= 224.0.0.0 reject with icmpx admin-prohibited
 *     ip6 daddr ff00::/8 reject with icmpx admin-prohibited
 *     <from the sandbox's own address> meta l4proto udp accept
 *     reject with icmpx admin-prohibited }
 *
 * `in` repeats what `pre` decided: the namespace's own kernel must answer for no foreign address, and no connection to
 * one may land on a listener that a program of the sandbox has on 0.0.0.0. Datagrams leave from the own address alone,
 * because answers to others would be handed to egress as if they went out.
 */
#include "keeper/runtime/slot_rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "base/sandbox_net.h"
#include "sys/fd.h"

#define TABLE "quicksand"
#define PRIORITY_FILTER 0

/* Offsets in the headers. */
#define IP4_SRC 12
#define IP4_DST 16
#define IP6_SRC 8
#define IP6_DST 24
#define L4_DPORT 2

struct builder {
    uint8_t *at;            /* the next message */
    uint8_t *end;
    uint32_t seq;
    const char *chain;
    struct nftnl_rule *rule;
    int error;
};

static void message_done(struct builder *b, struct nlmsghdr *h)
{
    b->at = (uint8_t *)h + MNL_ALIGN(h->nlmsg_len);
    if (b->at + 2048 > b->end)
        b->error = -ENOBUFS;
}

static struct nlmsghdr *message(struct builder *b, uint16_t type, uint16_t flags)
{
    return nftnl_nlmsg_build_hdr((char *)b->at, type, NFPROTO_INET, NLM_F_CREATE | flags, b->seq++);
}

static void add_table(struct builder *b)
{
    struct nftnl_table *t = nftnl_table_alloc();

    if (t == NULL) {
        b->error = -ENOMEM;
        return;
    }
    nftnl_table_set_str(t, NFTNL_TABLE_NAME, TABLE);
    struct nlmsghdr *h = message(b, NFT_MSG_NEWTABLE, 0);
    nftnl_table_nlmsg_build_payload(h, t);
    nftnl_table_free(t);
    message_done(b, h);
}

static void add_chain(struct builder *b, const char *name, uint32_t hook, int32_t priority, uint32_t policy)
{
    struct nftnl_chain *c = nftnl_chain_alloc();

    if (c == NULL) {
        b->error = -ENOMEM;
        return;
    }
    nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, TABLE);
    nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, name);
    nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, "filter");
    nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, hook);
    nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, priority);
    nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, policy);
    struct nlmsghdr *h = message(b, NFT_MSG_NEWCHAIN, 0);
    nftnl_chain_nlmsg_build_payload(h, c);
    nftnl_chain_free(c);
    message_done(b, h);
    b->chain = name;
}

static void rule(struct builder *b)
{
    b->rule = nftnl_rule_alloc();
    if (b->rule == NULL) {
        b->error = -ENOMEM;
        return;
    }
    nftnl_rule_set_str(b->rule, NFTNL_RULE_TABLE, TABLE);
    nftnl_rule_set_str(b->rule, NFTNL_RULE_CHAIN, b->chain);
}

static void rule_done(struct builder *b)
{
    if (b->rule == NULL)
        return;
    struct nlmsghdr *h = message(b, NFT_MSG_NEWRULE, NLM_F_APPEND);
    nftnl_rule_nlmsg_build_payload(h, b->rule);
    nftnl_rule_free(b->rule);
    b->rule = NULL;
    message_done(b, h);
}

static struct nftnl_expr *expr(struct builder *b, const char *name)
{
    struct nftnl_expr *x = b->rule == NULL ? NULL : nftnl_expr_alloc(name);

    if (x == NULL)
        b->error = -ENOMEM;
    else
        nftnl_rule_add_expr(b->rule, x);
    return x;
}

static void set_u32(struct nftnl_expr *x, uint16_t attribute, uint32_t value)
{
    if (x != NULL)
        nftnl_expr_set_u32(x, attribute, value);
}

static void set_bytes(struct nftnl_expr *x, uint16_t attribute, const void *p, size_t n)
{
    if (x != NULL)
        (void)nftnl_expr_set(x, attribute, p, (uint32_t)n);
}

/* Register 1 is the only one in use. */
static void compare(struct builder *b, uint32_t op, const void *p, size_t n)
{
    struct nftnl_expr *x = expr(b, "cmp");

    set_u32(x, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
    set_u32(x, NFTNL_EXPR_CMP_OP, op);
    set_bytes(x, NFTNL_EXPR_CMP_DATA, p, n);
}

static void is_equal(struct builder *b, const void *p, size_t n)
{
    compare(b, NFT_CMP_EQ, p, n);
}

static void load_meta(struct builder *b, uint32_t key)
{
    struct nftnl_expr *x = expr(b, "meta");

    set_u32(x, NFTNL_EXPR_META_KEY, key);
    set_u32(x, NFTNL_EXPR_META_DREG, NFT_REG_1);
}

static void load_payload(struct builder *b, uint32_t base, uint32_t offset, uint32_t len)
{
    struct nftnl_expr *x = expr(b, "payload");

    set_u32(x, NFTNL_EXPR_PAYLOAD_DREG, NFT_REG_1);
    set_u32(x, NFTNL_EXPR_PAYLOAD_BASE, base);
    set_u32(x, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
    set_u32(x, NFTNL_EXPR_PAYLOAD_LEN, len);
}

static void load_value(struct builder *b, const void *p, size_t n)
{
    struct nftnl_expr *x = expr(b, "immediate");

    set_u32(x, NFTNL_EXPR_IMM_DREG, NFT_REG_1);
    set_bytes(x, NFTNL_EXPR_IMM_DATA, p, n);
}

static void family(struct builder *b, uint8_t nfproto)
{
    load_meta(b, NFT_META_NFPROTO);
    is_equal(b, &nfproto, sizeof nfproto);
}

static void protocol(struct builder *b, uint8_t proto)
{
    load_meta(b, NFT_META_L4PROTO);
    is_equal(b, &proto, sizeof proto);
}

static void to_port(struct builder *b, uint16_t number)
{
    uint16_t wire = htons(number);

    load_payload(b, NFT_PAYLOAD_TRANSPORT_HEADER, L4_DPORT, sizeof wire);
    is_equal(b, &wire, sizeof wire);
}

static void marked(struct builder *b)
{
    uint32_t mark = SANDBOX_NET_MARK;

    load_meta(b, NFT_META_MARK);
    is_equal(b, &mark, sizeof mark);
}

static void set_mark(struct builder *b)
{
    uint32_t mark = SANDBOX_NET_MARK;

    load_value(b, &mark, sizeof mark);
    struct nftnl_expr *x = expr(b, "meta");
    set_u32(x, NFTNL_EXPR_META_KEY, NFT_META_MARK);
    set_u32(x, NFTNL_EXPR_META_SREG, NFT_REG_1);
}

/* To the listening socket on our port, whatever its address; where there is none the rule does not match. */
static void hand_over(struct builder *b)
{
    uint16_t wire = htons(SANDBOX_NET_PORT);

    load_value(b, &wire, sizeof wire);
    struct nftnl_expr *x = expr(b, "tproxy");
    set_u32(x, NFTNL_EXPR_TPROXY_FAMILY, NFPROTO_UNSPEC);
    set_u32(x, NFTNL_EXPR_TPROXY_REG_PORT, NFT_REG_1);
}

static void accept_it(struct builder *b)
{
    struct nftnl_expr *x = expr(b, "immediate");

    set_u32(x, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
    set_u32(x, NFTNL_EXPR_IMM_VERDICT, NF_ACCEPT);
    rule_done(b);
}

static void reject_with(struct builder *b, uint32_t type, uint8_t code)
{
    struct nftnl_expr *x = expr(b, "reject");

    set_u32(x, NFTNL_EXPR_REJECT_TYPE, type);
    if (x != NULL)
        nftnl_expr_set_u8(x, NFTNL_EXPR_REJECT_CODE, code);
    rule_done(b);
}

static void reject_it(struct builder *b)
{
    reject_with(b, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
}

static void address4(struct builder *b, uint32_t offset, const char *address, uint8_t bytes)
{
    struct in_addr a;

    (void)inet_pton(AF_INET, address, &a);
    family(b, NFPROTO_IPV4);
    /* Whole bytes of a prefix need no mask. */
    load_payload(b, NFT_PAYLOAD_NETWORK_HEADER, offset, bytes);
    is_equal(b, &a, bytes);
}

static void address6(struct builder *b, uint32_t offset, const char *address)
{
    struct in6_addr a;

    (void)inet_pton(AF_INET6, address, &a);
    family(b, NFPROTO_IPV6);
    load_payload(b, NFT_PAYLOAD_NETWORK_HEADER, offset, sizeof a);
    is_equal(b, &a, sizeof a);
}

/* Multicast, broadcast, and what was never given to anybody: their first byte is this or more. */
static void refuse_many(struct builder *b, uint8_t nfproto, uint32_t offset, uint8_t first)
{
    rule(b);
    family(b, nfproto);
    load_payload(b, NFT_PAYLOAD_NETWORK_HEADER, offset, 1);
    compare(b, NFT_CMP_GTE, &first, 1);
    reject_it(b);
}

static void accept_own(struct builder *b)
{
    rule(b);
    address4(b, IP4_DST, "127.0.0.0", 1);
    accept_it(b);
    rule(b);
    address4(b, IP4_DST, SANDBOX_NET_SELF4, 4);
    accept_it(b);
    rule(b);
    address6(b, IP6_DST, "::1");
    accept_it(b);
    rule(b);
    address6(b, IP6_DST, SANDBOX_NET_SELF6);
    accept_it(b);
}

static const uint8_t protocols[] = {IPPROTO_TCP, IPPROTO_UDP};

static void chain_pre(struct builder *b)
{
    add_chain(b, "pre", NF_INET_PRE_ROUTING, NF_IP_PRI_MANGLE, NF_ACCEPT);
    accept_own(b);
    for (size_t i = 0; i < array_len(protocols); i++) {
        rule(b);
        protocol(b, protocols[i]);
        hand_over(b);
        set_mark(b);
        accept_it(b);
    }
    rule(b);
    protocol(b, IPPROTO_TCP);
    reject_with(b, NFT_REJECT_TCP_RST, 0);
    rule(b);
    reject_it(b);
}

static void chain_in(struct builder *b)
{
    add_chain(b, "in", NF_INET_LOCAL_IN, PRIORITY_FILTER, NF_DROP);
    accept_own(b);
    rule(b);
    marked(b);
    accept_it(b);
}

static void chain_out(struct builder *b)
{
    add_chain(b, "out", NF_INET_LOCAL_OUT, PRIORITY_FILTER, NF_DROP);
    rule(b);
    marked(b);
    accept_it(b);
    for (size_t i = 0; i < array_len(protocols); i++) {
        rule(b);
        protocol(b, protocols[i]);
        to_port(b, SANDBOX_NET_PORT);
        reject_it(b);
    }
    accept_own(b);
    rule(b);
    protocol(b, IPPROTO_TCP);
    accept_it(b);
    refuse_many(b, NFPROTO_IPV4, IP4_DST, 224);
    refuse_many(b, NFPROTO_IPV6, IP6_DST, 0xff);
    rule(b);
    address4(b, IP4_SRC, SANDBOX_NET_SELF4, 4);
    protocol(b, IPPROTO_UDP);
    accept_it(b);
    rule(b);
    address6(b, IP6_SRC, SANDBOX_NET_SELF6);
    protocol(b, IPPROTO_UDP);
    accept_it(b);
    rule(b);
    reject_it(b);
}

int slot_rules_build(uint8_t *out, size_t size, size_t *ret_len)
{
    struct builder b = {.at = out, .end = out + size, .seq = 1};

    if (size < 4096)
        return -ENOBUFS;
    message_done(&b, nftnl_batch_begin((char *)b.at, b.seq++));
    add_table(&b);
    chain_pre(&b);
    chain_in(&b);
    uint8_t *last = b.at;
    chain_out(&b);
    /* The last message before the end is acknowledged: then all of them were taken. */
    while (last + ((struct nlmsghdr *)last)->nlmsg_len < b.at)
        last += MNL_ALIGN(((struct nlmsghdr *)last)->nlmsg_len);
    ((struct nlmsghdr *)last)->nlmsg_flags |= NLM_F_ACK;
    message_done(&b, nftnl_batch_end((char *)b.at, b.seq++));
    if (b.error < 0)
        return b.error;
    *ret_len = (size_t)(b.at - out);
    return 0;
}

int slot_rules_load(const uint8_t *rules, size_t len)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[1024];
    } answer;
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);

    if (fd < 0 || send(fd, rules, len, 0) < 0)
        return -errno;
    /* The first answer is the error, or the acknowledgement: all is one transaction. */
    ssize_t n = recv(fd, &answer, sizeof answer, 0);
    if (n < 0)
        return -errno;
    if ((size_t)n < sizeof answer.head + sizeof answer.error.error || answer.head.nlmsg_type != NLMSG_ERROR)
        return -EBADMSG;
    return answer.error.error;
}
