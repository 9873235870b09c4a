/*
 * network.c - packet rules in a network namespace, and the ports that the daemon listens on
 *
 * The rules are tried in a namespace of a child's own: a table, a chain and one rule with what sandboxes' rules are made of. The
 * batch is written here byte by byte, for there is one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/doctor/doctor.h"
#include "sys/fd.h"

#define TABLE "doctor"
#define CHAIN "c"
#define PRIORITY_MANGLE (-150)
#define ANSWERS 8

static uint8_t batch[4096];
static size_t used;

static void put(const void *p, size_t n)
{
    memcpy(batch + used, p, n);
    used += n;
    while (used % 4 != 0)
        batch[used++] = 0;
}

static size_t message_open(uint16_t type, uint16_t flags, uint8_t family, uint16_t res)
{
    size_t at = used;
    const struct nlmsghdr head = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = 1};
    const struct nfgenmsg gen = {.nfgen_family = family, .version = NFNETLINK_V0, .res_id = htons(res)};

    put(&head, sizeof head);
    put(&gen, sizeof gen);
    return at;
}

static void message_close(size_t at)
{
    const uint32_t len = (uint32_t)(used - at);

    memcpy(batch + at + offsetof(struct nlmsghdr, nlmsg_len), &len, sizeof len);
}

static void attribute(uint16_t type, const void *p, size_t n)
{
    const struct nlattr a = {.nla_type = type, .nla_len = (uint16_t)(sizeof a + n)};

    put(&a, sizeof a);
    put(p, n);
}

static void attribute_u32(uint16_t type, uint32_t value)
{
    const uint32_t wire = htonl(value);

    attribute(type, &wire, sizeof wire);
}

static void attribute_text(uint16_t type, const char *text)
{
    attribute(type, text, strlen(text) + 1);
}

static size_t nest_open(uint16_t type)
{
    size_t at = used;
    const struct nlattr a = {.nla_type = (uint16_t)(type | NLA_F_NESTED)};

    put(&a, sizeof a);
    return at;
}

static void nest_close(size_t at)
{
    const uint16_t len = (uint16_t)(used - at);

    memcpy(batch + at + offsetof(struct nlattr, nla_len), &len, sizeof len);
}

static uint16_t type_of(unsigned message)
{
    return (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | message);
}

static void rule(void)
{
    const uint16_t port = htons(1);
    size_t message = message_open(type_of(NFT_MSG_NEWRULE), NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK, NFPROTO_INET, 0);

    attribute_text(NFTA_RULE_TABLE, TABLE);
    attribute_text(NFTA_RULE_CHAIN, CHAIN);
    size_t list = nest_open(NFTA_RULE_EXPRESSIONS);
    size_t x = nest_open(NFTA_LIST_ELEM);
    attribute_text(NFTA_EXPR_NAME, "immediate");
    size_t data = nest_open(NFTA_EXPR_DATA);
    attribute_u32(NFTA_IMMEDIATE_DREG, NFT_REG_1);
    size_t value = nest_open(NFTA_IMMEDIATE_DATA);
    attribute(NFTA_DATA_VALUE, &port, sizeof port);
    nest_close(value);
    nest_close(data);
    nest_close(x);
    x = nest_open(NFTA_LIST_ELEM);
    attribute_text(NFTA_EXPR_NAME, "tproxy");
    data = nest_open(NFTA_EXPR_DATA);
    attribute_u32(NFTA_TPROXY_FAMILY, NFPROTO_UNSPEC);
    attribute_u32(NFTA_TPROXY_REG_PORT, NFT_REG_1);
    nest_close(data);
    nest_close(x);
    nest_close(list);
    message_close(message);
}

static void build(void)
{
    used = 0;
    message_close(message_open(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
    size_t at = message_open(type_of(NFT_MSG_NEWTABLE), NLM_F_CREATE | NLM_F_ACK, NFPROTO_INET, 0);
    attribute_text(NFTA_TABLE_NAME, TABLE);
    message_close(at);
    at = message_open(type_of(NFT_MSG_NEWCHAIN), NLM_F_CREATE | NLM_F_ACK, NFPROTO_INET, 0);
    attribute_text(NFTA_CHAIN_TABLE, TABLE);
    attribute_text(NFTA_CHAIN_NAME, CHAIN);
    size_t hook = nest_open(NFTA_CHAIN_HOOK);
    attribute_u32(NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
    attribute_u32(NFTA_HOOK_PRIORITY, (uint32_t)PRIORITY_MANGLE);
    nest_close(hook);
    attribute_text(NFTA_CHAIN_TYPE, "filter");
    message_close(at);
    rule();
    message_close(message_open(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
}

/* In the child. The first error is the cause; an acknowledgement for each of the three means that all is in place. */
static int load_rules(void)
{
    const struct timeval patience = {.tv_sec = 10};
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    _Alignas(struct nlmsghdr) uint8_t answer[8192];
    int acks = 0;

    build();
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 || send(fd, batch, used, 0) < 0)
        return -errno;
    for (int i = 0; i < ANSWERS && acks < 3; i++) {
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        if (n < 0)
            return -errno;
        const struct nlmsghdr *h = (const struct nlmsghdr *)answer;
        for (size_t left = (size_t)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            const struct nlmsgerr *e = NLMSG_DATA(h);
            if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof e->error))
                continue;
            if (e->error != 0)
                return e->error;
            acks++;
        }
    }
    return acks == 3 ? 0 : -EPROTO;
}

void doctor_check_rules(struct doctor *d)
{
    struct doctor_child c;
    int r = doctor_child_start(&c, CLONE_NEWNET, 0, load_rules);

    if (r == 0)
        r = doctor_child_act(&c);
    doctor_child_end(&c);
    if (r == 0)
        doctor_ok(d, "packet_rules", "nf_tables with tproxy");
    else if (geteuid() != 0)
        doctor_bad(d, "packet_rules", FINDING_DEGRADED, "cannot be tried without root",
                   "sudo quicksand doctor", "%s", strerror(-r));
    else
        doctor_bad(d, "packet_rules", FINDING_DEGRADED, "sandboxes have loopback alone, and no way out",
                   doctor_has_module("nft_tproxy") ? "modprobe -a nf_tables nft_tproxy"
                                                   : "boot a kernel with nf_tables and nft_tproxy (Debian's own have them)",
                   "nf_tables with tproxy: %s", strerror(-r));
}

/* "HOST:PORT", "[HOST]:PORT", ":PORT". */
static int resolve(const char *text, struct addrinfo **ret)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    char host[160];
    const char *colon = strrchr(text, ':');

    if (colon == NULL || (size_t)(colon - text) >= sizeof host)
        return -EINVAL;
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    char *name = host;
    size_t n = strlen(name);
    if (n > 1 && name[0] == '[' && name[n - 1] == ']') {
        name[n - 1] = '\0';
        name++;
    }
    return getaddrinfo(*name != '\0' ? name : NULL, colon + 1, &hints, ret) == 0 ? 0 : -EINVAL;
}

static int try_bind(const struct addrinfo *a)
{
    auto_close int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, 1) < 0 ? -errno : 0;
}

static void port(struct doctor *d, const char *key, const char *address)
{
    struct addrinfo *found = NULL;
    char fix[300];

    if (*address == '\0' || strncmp(address, "unix:", 5) == 0)
        return;
    int r = resolve(address, &found);
    if (r == 0)
        r = try_bind(found);
    if (found != NULL)
        freeaddrinfo(found);
    if (r == 0) {
        doctor_ok(d, key, "%s is free", address);
    } else if (r == -EADDRINUSE && d->daemon != NULL) {
        doctor_ok(d, key, "%s, taken by the daemon that runs", address);
    } else {
        snprintf(
            fix, sizeof fix,
            r == -EADDRINUSE
                ? "ss -ltnp 'sport = :%s' names the program; end it, or set %s to another address"
                : "set %2$s to an address of this host (port %1$s)",
            strrchr(address, ':') + (strrchr(address, ':') != NULL), key);
        doctor_bad(d, key, FINDING_MISSING, "the daemon cannot listen", fix, "%s: %s", address, strerror(-r));
    }
}

void doctor_check_ports(struct doctor *d)
{
    port(d, "listen", d->conf.listen);
    port(d, "router_listen", d->conf.router_listen);
}
