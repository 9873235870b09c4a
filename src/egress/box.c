/*
 * box.c - a sandbox with a network: its sockets, its policy, what it was refused
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/egress.h"
#include "ipc/policy_wire.h"
#include "net/authority.h"
#include "sys/fd.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static int get(int fd, int option, int *ret)
{
    socklen_t n = sizeof *ret;

    return getsockopt(fd, SOL_SOCKET, option, ret, &n) < 0 ? -errno : 0;
}

static int netns_of(int fd, uint64_t *ret)
{
    socklen_t n = sizeof *ret;

    return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, ret, &n) < 0 ? -errno : 0;
}

/* A descriptor comes by way of a monitor: it is believed only what the kernel says of it. */
static int check_socket(int fd, int i, uint64_t *ret_netns, struct err *e)
{
    static const struct {
        int type, protocol;
    } kinds[EGRESS_SOCKETS] = {
        [EGRESS_TCP] = {SOCK_STREAM, IPPROTO_TCP},
        [EGRESS_UDP] = {SOCK_DGRAM, IPPROTO_UDP},
        [EGRESS_RAW4] = {SOCK_RAW, IPPROTO_RAW},
        [EGRESS_RAW6] = {SOCK_RAW, IPPROTO_RAW},
    };
    int domain, type, protocol, accepts = 0;

    if (get(fd, SO_DOMAIN, &domain) < 0 || get(fd, SO_TYPE, &type) < 0 || get(fd, SO_PROTOCOL, &protocol) < 0 ||
        netns_of(fd, ret_netns) < 0)
        return err_set(e, ERR_INVALID, "a descriptor is not a socket");
    (void)get(fd, SO_ACCEPTCONN, &accepts);
    if ((domain != AF_INET && (domain != AF_INET6 || i == EGRESS_RAW4)) || type != kinds[i].type ||
        protocol != kinds[i].protocol || (accepts != 0) != (i == EGRESS_TCP))
        return err_set(e, ERR_INVALID, "a socket is not of the kind that belongs here");
    return 0;
}

static int check_sockets(const struct egress *g, const struct box *old, const int fds[EGRESS_SOCKETS],
                         uint64_t *ret_netns, struct err *e)
{
    struct map_iter it = MAP_ITER;
    uint64_t netns[EGRESS_SOCKETS];
    bool is_one = true;
    const char *id;
    void *value;

    for (int i = 0; i < EGRESS_SOCKETS; i++) {
        if (check_socket(fds[i], i, &netns[i], e) < 0)
            return -1;
        is_one = is_one && netns[i] == netns[0];
    }
    *ret_netns = netns[0];
    if (!is_one || *ret_netns == g->own_netns || *ret_netns == 0)
        return err_set(e, ERR_INVALID, "the sockets are not of a sandbox's network");
    if (old != NULL && old->netns == *ret_netns)
        return 0;
    while (map_next(&g->boxes, &it, &id, &value))
        if (((const struct box *)value)->netns == *ret_netns)
            return err_set(e, ERR_INVALID, "the sockets are those of another sandbox");
    return 0;
}

static void on_tcp(int fd, unsigned what, void *arg)
{
    flow_accept(arg);
}

static void on_udp(int fd, unsigned what, void *arg)
{
    udp_ready(arg);
}

static void on_pause_over(void *arg)
{
    struct box *b = arg;

    loop_io_set(b->tcp_io, LOOP_READ);
}

static void close_sockets(struct box *b)
{
    loop_io_free(b->tcp_io);
    loop_io_free(b->udp_io);
    b->tcp_io = b->udp_io = NULL;
    fd_close(&b->tcp);
    fd_close(&b->udp);
    fd_close(&b->raw4);
    fd_close(&b->raw6);
}

static struct way *up_of(struct flow *f)
{
    return &f->up;
}

static struct way *down_of(struct flow *f)
{
    return &f->down;
}

/* Values that a policy names, and the authority: what only this process has in the clear. */
struct private {
    struct secrets secrets;
    struct net_authority *authority;
};

static int read_private(const struct egress_policy *m, struct private *ret, struct err *e)
{
    const uint8_t *p = m->secrets;
    size_t n = m->secrets_len;
    struct egress_secret s;
    int r;

    *ret = (struct private){0};
    while ((r = egress_secret_next(&p, &n, &s)) == 1)
        secrets_add(&ret->secrets, s.id, s.key, s.value, s.value_len);
    if (r == 0 && m->authority_len > 0)
        ret->authority = net_authority_load((const char *)m->authority, m->authority_len, e);
    if (r == 0 && (ret->authority != NULL || m->authority_len == 0))
        return 0;
    secrets_done(&ret->secrets);
    return err_set(e, ERR_INVALID, r < 0 ? "the secrets are malformed" : "the authority is malformed");
}

static void apply(struct box *b, struct policy *p, struct private *private, uint64_t revision, bool keep)
{
    struct flow *next;

    policy_done(&b->policy);
    secrets_done(&b->secrets);
    net_authority_free(b->authority);
    b->policy = *p;
    throttle_set(&b->up, p->bandwidth.up_bits_s);
    throttle_set(&b->down, p->bandwidth.down_bits_s);
    b->secrets = private->secrets;
    b->authority = private->authority;
    b->revision = revision;
    for (struct flow *f = b->flows; f != NULL; f = next) {
        next = f->next;
        /* What is not decided yet is decided by the new one. */
        if (!keep || f->state == FLOW_RESOLVE || f->state == FLOW_DIAL)
            flow_check(f);
    }
    if (!keep)
        udp_flows_check(b);
}

struct box *box_attach(struct egress *g, const struct egress_policy *m, int fds[EGRESS_SOCKETS], struct err *e)
{
    struct box *b = map_get(&g->boxes, m->sandbox);
    struct private private;
    struct policy p;
    uint64_t netns;

    if (check_sockets(g, b, fds, &netns, e) < 0)
        return NULL;
    if (policy_decode(&p, m->policy, m->policy_len) < 0) {
        err_set(e, ERR_INVALID, "the policy is malformed");
        return NULL;
    }
    if (read_private(m, &private, e) < 0) {
        policy_done(&p);
        return NULL;
    }
    for (int i = 0; i < EGRESS_SOCKETS; i++) {
        if (fd_set_nonblock(fds[i], true) == 0)
            continue;
        policy_done(&p);
        secrets_done(&private.secrets);
        net_authority_free(private.authority);
        err_set(e, ERR_INTERNAL, "the sockets cannot be set up");
        return NULL;
    }
    if (b == NULL) {
        b = mem_zalloc(sizeof *b);
        b->egress = g;
        b->tcp = b->udp = b->raw4 = b->raw6 = -1;
        b->pause = loop_timer_new(g->loop, on_pause_over, b);
        b->up = (struct throttle){.loop = g->loop, .way = up_of, .go_on = relay_go_on_up};
        b->down = (struct throttle){.loop = g->loop, .way = down_of, .go_on = relay_go_on_down};
        b->status.totals = b->told = m->totals;
        (void)snprintf(b->id, sizeof b->id, "%s", m->sandbox);
        (void)map_put(&g->boxes, b->id, b);
    }
    close_sockets(b);
    b->tcp = take_fd(&fds[EGRESS_TCP]);
    b->udp = take_fd(&fds[EGRESS_UDP]);
    b->raw4 = take_fd(&fds[EGRESS_RAW4]);
    b->raw6 = take_fd(&fds[EGRESS_RAW6]);
    b->netns = netns;
    apply(b, &p, &private, m->revision, m->keep);
    /* What is accepted has it from there. */
    relay_keep_alive(b->tcp);
    (void)setsockopt(b->tcp, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    b->tcp_io = loop_io_new(g->loop, b->tcp, LOOP_READ, on_tcp, b);
    b->udp_io = loop_io_new(g->loop, b->udp, LOOP_READ, on_udp, b);
    return b;
}

int box_policy(struct egress *g, const struct egress_policy *m, struct err *e)
{
    struct box *b = map_get(&g->boxes, m->sandbox);
    struct private private;
    struct policy p;

    if (b == NULL)
        return err_set(e, ERR_NOT_FOUND, "no sandbox %s here", m->sandbox);
    if (policy_decode(&p, m->policy, m->policy_len) < 0)
        return err_set(e, ERR_INVALID, "the policy is malformed");
    if (read_private(m, &private, e) < 0) {
        policy_done(&p);
        return -1;
    }
    apply(b, &p, &private, m->revision, m->keep);
    return 0;
}

void box_detach(struct box *b)
{
    close_sockets(b);
    loop_timer_free(b->pause);
    while (b->flows != NULL)
        flow_reset(b->flows);
    throttle_done(&b->up);
    throttle_done(&b->down);
    udp_flows_free(b);
    dns_tcp_free(b);
    dns_cancel(b);
    names_cancel_all(b);
    names_free(b->names);
    box_tell_rest(b);
    policy_done(&b->policy);
    secrets_done(&b->secrets);
    net_authority_free(b->authority);
    (void)map_del(&b->egress->boxes, b->id);
    free(b);
}

void boxes_done(struct egress *g)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;

    while (map_next(&g->boxes, &it, &id, &value))
        box_detach(value);
    map_done(&g->boxes);
}

bool box_signs(const struct box *b)
{
    for (uint32_t i = 0; i < b->policy.nrules; i++)
        for (uint32_t j = 0; j < b->policy.rules[i].ninjects; j++)
            if (b->policy.rules[i].injects[j].kind == POLICY_SIGV4)
                return true;
    return false;
}
