/*
 * flow.c - datagrams that leave, and their answers
 *
 * A flow is one pair of ends: what the first datagram of it was allowed, the others are too, until it has been idle or the
 * policy changes. Outside it is a connected socket, so that nobody but whom the sandbox spoke to can answer. What may not
 * leave is refused like by a host where nobody listens.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/egress.h"
#include "egress/udp/packet.h"
#include "sys/fd.h"

#define BUCKETS 256
#define ANSWERS_A_TURN 32
#define SWEEP_MS 5000
#define IDLE_ASKED_MS 30000         /* nothing has come back yet */
#define IDLE_ANSWERED_MS 180000
#define IDLE_EVICTED_MS 2000        /* where all are in use, one that was silent for this long gives way */

struct udp_flow {
    struct udp_flow *newer, *older; /* by last use */
    struct udp_flow *next;          /* of the bucket */
    struct box *box;
    struct udp_ends ends;           /* as the sandbox sees them */
    char name[POLICY_DOMAIN_MAX + 1];   /* by which it was allowed; "" = none */
    int fd;                         /* owned */
    struct loop_io *io;
    int64_t used_ms;
    bool answered;
};

struct udp_flows {
    struct udp_flow *buckets[BUCKETS];
    struct udp_flow *newest, *oldest;
    uint32_t n;
    struct loop_timer *sweep;
};

static uint8_t answer[UDP_PAYLOAD_MAX];

/* Collisions that somebody makes slow down his own datagrams: there are few flows. */
static struct udp_flow **bucket_of(struct udp_flows *t, const struct udp_ends *e)
{
    uint32_t h = (uint32_t)e->from_port << 16 ^ e->to_port;

    for (size_t i = 0; i < sizeof e->to.b; i++)
        h = h * 31 + e->to.b[i] + e->from.b[i];
    return &t->buckets[(h ^ h >> 16) % BUCKETS];
}

static bool is_same(const struct udp_ends *a, const struct udp_ends *b)
{
    return a->from_port == b->from_port && a->to_port == b->to_port && memcmp(&a->from, &b->from, sizeof a->from) == 0 &&
           memcmp(&a->to, &b->to, sizeof a->to) == 0;
}

static void unlink_used(struct udp_flows *t, struct udp_flow *f)
{
    *(f->newer != NULL ? &f->newer->older : &t->newest) = f->older;
    *(f->older != NULL ? &f->older->newer : &t->oldest) = f->newer;
}

static void link_used(struct udp_flows *t, struct udp_flow *f)
{
    f->newer = NULL;
    f->older = t->newest;
    *(t->newest != NULL ? &t->newest->newer : &t->oldest) = f;
    t->newest = f;
    f->used_ms = clock_boot_ms();
}

static void touch(struct udp_flow *f)
{
    struct udp_flows *t = f->box->udp_flows;

    unlink_used(t, f);
    link_used(t, f);
}

static void end(struct udp_flow *f)
{
    struct udp_flows *t = f->box->udp_flows;
    struct udp_flow **at = bucket_of(t, &f->ends);

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    unlink_used(t, f);
    t->n--;
    loop_io_free(f->io);
    fd_close(&f->fd);
    free(f);
}

static void on_sweep(void *arg)
{
    struct udp_flows *t = arg;
    struct udp_flow *newer;
    int64_t now = clock_boot_ms();

    for (struct udp_flow *f = t->oldest; f != NULL; f = newer) {
        newer = f->newer;
        if (now - f->used_ms >= (f->answered ? IDLE_ANSWERED_MS : IDLE_ASKED_MS))
            end(f);
    }
    if (t->n > 0)
        loop_timer_set(t->sweep, SWEEP_MS);
}

static struct udp_flows *table(struct box *b)
{
    if (b->udp_flows == NULL) {
        b->udp_flows = mem_zalloc(sizeof *b->udp_flows);
        b->udp_flows->sweep = loop_timer_new(b->egress->loop, on_sweep, b->udp_flows);
    }
    return b->udp_flows;
}

/*
 * An address says nothing of its name: it counts as every one for which the resolver of this sandbox gave it. Of what the
 * policy says about each of them, and about the address alone, the first rule decides, as ever.
 */
static bool may_leave(const struct box *b, const struct udp_ends *e, struct policy_verdict *ret, char *ret_name,
                      enum egress_reason *ret_reason)
{
    const struct name_entry *n = NULL;
    struct policy_verdict v;
    struct policy_flow pf = {.to = &e->to, .port = e->to_port, .protocol = POLICY_UDP};

    ret_name[0] = '\0';
    policy_ask(&b->policy, &pf, ret);
    while ((n = names_of(b, &e->to, n)) != NULL) {
        pf.name = n->name;
        policy_ask(&b->policy, &pf, &v);
        if (v.rule < 0 || (ret->rule >= 0 && v.rule >= ret->rule))
            continue;
        *ret = v;
        (void)snprintf(ret_name, POLICY_DOMAIN_MAX + 1, "%s", n->name);
    }
    *ret_reason = EGRESS_BY_RULE;
    if (ret->action != POLICY_ALLOW)
        return false;
    *ret_reason = EGRESS_ADDRESS;
    return policy_permits_address(&b->policy, ret->rule, &e->to, dial_is_local(&e->to));
}

static bool make_room(struct udp_flows *t)
{
    if (t->n < LIMIT_UDP_FLOWS)
        return true;
    if (clock_boot_ms() - t->oldest->used_ms < IDLE_EVICTED_MS)
        return false;
    end(t->oldest);
    return true;
}

static void on_answer(int fd, unsigned what, void *arg)
{
    struct udp_flow *f = arg;
    struct box *b = f->box;
    const struct udp_ends back = {
        .from = f->ends.to, .to = f->ends.from, .from_port = f->ends.to_port, .to_port = f->ends.from_port};

    for (int i = 0; i < ANSWERS_A_TURN; i++) {
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        if (n < 0) {
            if (errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH)
                udp_refuse(b, &f->ends, 0);     /* it is said by those outside, and passed on */
            return;
        }
        f->answered = true;
        touch(f);
        if (!throttle_takes(&b->down, (size_t)n))
            continue;
        b->status.totals.received += (uint64_t)n;
        udp_send(b, &back, answer, (size_t)n);
    }
}

static struct udp_flow *begin(struct box *b, const struct udp_ends *e, const char *name)
{
    struct udp_flows *t = table(b);
    int fd = dial_datagram(&e->to, e->to_port);

    if (fd < 0)
        return NULL;
    struct udp_flow *f = mem_zalloc(sizeof *f);
    *f = (struct udp_flow){.box = b, .ends = *e, .fd = fd};
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    struct udp_flow **at = bucket_of(t, e);
    f->next = *at;
    *at = f;
    link_used(t, f);
    f->io = loop_io_new(b->egress->loop, fd, LOOP_READ, on_answer, f);
    if (t->n++ == 0)
        loop_timer_set(t->sweep, SWEEP_MS);
    b->status.totals.flows++;
    return f;
}

static struct udp_flow *open_flow(struct box *b, const struct udp_ends *e)
{
    char name[POLICY_DOMAIN_MAX + 1];
    enum egress_reason reason;
    struct policy_verdict v;

    bool ok = may_leave(b, e, &v, name, &reason);
    if (v.logged >= 0)
        box_note(b, POLICY_UDP, &e->to, e->to_port, name[0] != '\0' ? name : NULL, v.logged);
    if (ok && !make_room(table(b))) {
        reason = EGRESS_LIMIT;
        ok = false;
    }
    if (!ok) {
        box_deny(b, reason, POLICY_UDP, &e->to, e->to_port, name[0] != '\0' ? name : NULL, v.rule);
        return NULL;
    }
    struct udp_flow *f = begin(b, e, name);
    if (f == NULL)
        b->status.totals.failed++;
    return f;
}

void udp_flow_datagram(struct box *b, const struct udp_ends *e, const uint8_t *p, size_t n)
{
    struct udp_flow *f = *bucket_of(table(b), e);

    while (f != NULL && !is_same(&f->ends, e))
        f = f->next;
    if (f == NULL)
        f = open_flow(b, e);
    else
        touch(f);
    if (f == NULL) {
        udp_refuse(b, e, n);
        return;
    }
    if (!throttle_takes(&b->up, n))
        return;
    ssize_t sent = send(f->fd, p, n, MSG_NOSIGNAL);
    /* What is told here is the fate of an earlier one; this one has not been sent yet. */
    if (sent < 0 && (errno == ECONNREFUSED || errno == EHOSTUNREACH))
        sent = send(f->fd, p, n, MSG_NOSIGNAL);
    if (sent >= 0)
        b->status.totals.sent += (uint64_t)sent;
    else if (errno != EAGAIN && errno != ENOBUFS)
        udp_refuse(b, e, n);
}

void udp_flows_check(struct box *b)
{
    char name[POLICY_DOMAIN_MAX + 1];
    enum egress_reason reason;
    struct policy_verdict v;
    struct udp_flow *newer;

    for (struct udp_flow *f = b->udp_flows != NULL ? b->udp_flows->oldest : NULL; f != NULL; f = newer) {
        newer = f->newer;
        if (may_leave(b, &f->ends, &v, name, &reason))
            continue;
        box_deny(b, reason, POLICY_UDP, &f->ends.to, f->ends.to_port, f->name[0] != '\0' ? f->name : NULL, v.rule);
        udp_refuse(b, &f->ends, 0);
        end(f);
    }
}

uint32_t udp_flows_count(const struct box *b)
{
    return b->udp_flows != NULL ? b->udp_flows->n : 0;
}

void udp_flows_free(struct box *b)
{
    if (b->udp_flows == NULL)
        return;
    while (b->udp_flows->oldest != NULL)
        end(b->udp_flows->oldest);
    loop_timer_free(b->udp_flows->sweep);
    free(b->udp_flows);
    b->udp_flows = NULL;
}
