/*
 * flow.c - a connection out of a sandbox until it is decided
 *
 * Accepted, read until it says which name it is for (if the policy has to know), decided. Names are resolved here and
 * not believed: who says "allowed.example" goes to where that leads, wherever the packets were sent to.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sandbox_net.h"
#include "egress/egress.h"
#include "egress/hello.h"
#include "egress/open/open.h"
#include "sys/fd.h"

#define ACCEPTS_A_TURN 32
#define PAUSE_MS 100
#define FIRST_MS 10000          /* a client that stays silent is taken for one without a name */
#define FIRST_SOON_MS 1000      /* and sooner where it waits for the server to speak */
#define FIRST_MAX (64 * 1024)
#define READS_MAX 400           /* a greeting in single bytes costs its sender more than us */
#define REFUSED_MS 2000

/* --- life ------------------------------------------------------------------------------------ */

void flow_free(struct flow *f)
{
    struct box *b = f->box;

    opened_free(f);
    dial_cancel(f);
    throttle_leave(&b->up, f);
    throttle_leave(&b->down, f);
    loop_io_free(f->in_io);
    loop_io_free(f->out_io);
    loop_timer_free(f->timer);
    names_cancel(f->lookup);
    fd_close(&f->in);
    fd_close(&f->out);
    free(f->first);
    free(f->up.rest);
    free(f->down.rest);
    mover_done(&f->up.mover);
    mover_done(&f->down.mover);
    if (f->watched)
        scan_done(&f->scan);
    *(f->prev != NULL ? &f->prev->next : &b->flows) = f->next;
    if (f->next != NULL)
        f->next->prev = f->prev;
    b->nflows--;
    free(f);
}

static void reset_on_close(int fd)
{
    struct linger l = {.l_onoff = 1};

    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
}

void flow_reset(struct flow *f)
{
    reset_on_close(f->in);
    reset_on_close(f->out);
    flow_free(f);
}

void flow_timer(struct flow *f, uint64_t ms, loop_timer_cb cb)
{
    loop_timer_free(f->timer);
    f->timer = loop_timer_new(f->box->egress->loop, cb, f);
    loop_timer_set(f->timer, ms);
}

void flow_want(struct flow *f, unsigned in, unsigned out)
{
    if (f->in_io != NULL && f->in_wants != in)
        loop_io_set(f->in_io, in);
    if (f->out_io != NULL && f->out_wants != out)
        loop_io_set(f->out_io, out);
    f->in_wants = in;
    f->out_wants = out;
}

static const char *name_or_null(const struct flow *f)
{
    return f->name[0] != '\0' ? f->name : NULL;
}

/* --- refusals -------------------------------------------------------------------------------- */

static void on_refused_over(void *arg)
{
    flow_free(arg);
}

/* What still comes is thrown away, so that the kernel does not take the answer back with a reset. */
static void on_refused_input(int fd, unsigned what, void *arg)
{
    uint8_t waste[4096];

    ssize_t n = recv(fd, waste, sizeof waste, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        flow_free(arg);
}

static void say(struct flow *f, const void *p, size_t n)
{
    (void)!send(f->in, p, n, MSG_NOSIGNAL);
    if (shutdown(f->in, SHUT_WR) < 0) {
        flow_reset(f);
        return;
    }
    f->state = FLOW_REFUSED;
    loop_io_free(f->in_io);
    f->in_io = loop_io_new(f->box->egress->loop, f->in, LOOP_READ, on_refused_input, f);
    flow_timer(f, REFUSED_MS, on_refused_over);
}

static void end_with(struct flow *f, const char *status, const char *text)
{
    /* fatal: access_denied */
    static const uint8_t alert[] = {21, 3, 1, 0, 2, 2, 49};
    char out[1024];

    dial_cancel(f);
    loop_io_free(f->out_io);
    f->out_io = NULL;
    reset_on_close(f->out);
    fd_close(&f->out);
    if (f->state == FLOW_RELAY) {
        flow_reset(f);          /* in the middle of something else */
    } else if (f->protocol == POLICY_TLS) {
        say(f, alert, sizeof alert);
    } else if (f->protocol == POLICY_HTTP) {
        int n = snprintf(out, sizeof out,
                         "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n"
                         "Server: quicksand\r\n\r\n%s",
                         status, strlen(text), text);
        say(f, out, n > 0 && (size_t)n < sizeof out ? (size_t)n : 0);
    } else {
        flow_reset(f);
    }
}

void flow_refuse(struct flow *f, enum egress_reason reason, const struct address *to, int rule)
{
    char text[512], address[ADDRESS_TEXT];

    box_deny(f->box, reason, f->protocol, to, f->port, name_or_null(f), rule);
    const struct egress_status *s = &f->box->status;
    const char *by = s->denials[s->ndenials - 1].rule;
    (void)snprintf(text, sizeof text, "quicksand: the network policy of this sandbox does not allow %s port %u (%s%s%s)\n",
                   f->name[0] != '\0' ? f->name : address_text(to, address), f->port, egress_reason_name(reason),
                   by[0] != '\0' ? " " : "", by);
    end_with(f, "403 Forbidden", text);
}

void flow_failed(struct flow *f, const char *status, const char *why)
{
    char text[512], address[ADDRESS_TEXT];

    f->box->status.totals.failed++;
    (void)snprintf(text, sizeof text, "quicksand: %s port %u: %s\n",
                   f->name[0] != '\0' ? f->name : address_text(&f->to, address), f->port, why);
    if (f->protocol == POLICY_HTTP)
        end_with(f, status, text);
    else
        flow_reset(f);
}

/* --- decision -------------------------------------------------------------------------------- */

static bool may_dial(struct flow *f, const struct address *to, int *ret_rule, bool *ret_opens, enum egress_reason *ret_reason)
{
    const struct policy_flow pf = {
        .to = to, .name = name_or_null(f), .port = f->port, .protocol = (enum policy_protocol)f->protocol};
    struct policy_verdict v;

    policy_ask(&f->box->policy, &pf, &v);
    *ret_rule = v.rule;
    f->logged = v.logged;
    *ret_opens = v.opens;
    *ret_reason = EGRESS_BY_RULE;
    /* A name that was only said counts for nothing: where it decides, the flow has to be where that name leads. */
    if (v.action != POLICY_ALLOW || (v.by_name && !f->by_name))
        return false;
    *ret_reason = EGRESS_ADDRESS;
    return policy_permits_address(&f->box->policy, v.rule, to, dial_is_local(to));
}

/*
 * A program that has both kinds of addresses of a name takes the newer kind first, and the older one only if that cannot be
 * reached, which it is not told here: its connection is accepted before. So the older ones are tried as well.
 */
static void add_older(struct flow *f)
{
    const struct name_entry *n = NULL;
    enum egress_reason reason;
    bool opens;
    int rule;

    while ((n = names_of(f->box, &f->to, n)) != NULL)
        for (size_t i = 0; i < n->n && f->naddresses < ADDRESSES_MAX; i++)
            if (address_is4(&n->addresses[i]) && may_dial(f, &n->addresses[i], &rule, &opens, &reason)) {
                f->opens = f->opens || opens;
                f->addresses[f->naddresses++] = n->addresses[i];
            }
}

/* `addresses` may be those of the flow. */
static void dial_allowed(struct flow *f, const struct address *addresses, size_t n)
{
    enum egress_reason reason = EGRESS_ADDRESS;
    const struct address *bad = NULL;
    int rule = -1, bad_rule = -1, logged = -1;

    f->naddresses = 0;
    f->opens = false;
    for (size_t i = 0; i < n && f->naddresses < ADDRESSES_MAX; i++) {
        enum egress_reason why;
        bool opens;
        if (may_dial(f, &addresses[i], &rule, &opens, &why)) {
            /* Where one address needs it, all are treated so. */
            f->opens = f->opens || opens;
            f->addresses[f->naddresses++] = addresses[i];
            f->rule = rule;
            logged = logged < 0 ? f->logged : logged;
        } else if (bad == NULL) {
            bad = &addresses[i];
            bad_rule = rule;
            reason = why;
        }
    }
    if (f->naddresses == 0) {
        flow_refuse(f, reason, bad, bad_rule);
        return;
    }
    /* Of one that is opened each request is noted. */
    if (logged >= 0 && !f->opens)
        box_note(f->box, (enum policy_protocol)f->protocol, &f->addresses[0], f->port, name_or_null(f), logged);
    if (addresses == &f->to && !address_is4(&f->to))
        add_older(f);
    dial_start(f);
}

static void on_name(void *arg, const struct name_entry *entry, enum names_result r)
{
    struct flow *f = arg;

    f->lookup = NULL;
    if (entry == NULL) {
        flow_failed(f, "502 Bad Gateway", r == NAMES_FAILED ? "the name could not be resolved" : "the name leads nowhere");
        return;
    }
    /* A copy: dialling may replace the entry. */
    struct name_entry copy = *entry;
    dial_allowed(f, copy.addresses, copy.n);
}

static void decide(struct flow *f)
{
    const struct policy_flow pf = {
        .to = &f->to, .name = name_or_null(f), .port = f->port, .protocol = (enum policy_protocol)f->protocol};
    struct policy_verdict v;

    if (f->timer != NULL)
        loop_timer_clear(f->timer);
    policy_ask(&f->box->policy, &pf, &v);
    f->by_name = v.by_name;
    if (v.action == POLICY_ALLOW && !v.by_name) {
        dial_allowed(f, &f->to, 1);
        return;
    }
    /* A rule with names and prefixes matches where the name leads, which the packets need not know. */
    bool may_lead = v.action == POLICY_ALLOW ||
                    (f->name[0] != '\0' && policy_may_lead(&f->box->policy, f->name, f->port, (enum policy_protocol)f->protocol));
    if (!may_lead) {
        flow_refuse(f, EGRESS_BY_RULE, &f->to, v.rule);
        return;
    }
    f->by_name = true;
    f->state = FLOW_RESOLVE;
    /* NULL: the answer was here already, and the flow may be gone with it. */
    struct lookup *l = names_find(f->box, f->name, on_name, f);
    if (l != NULL)
        f->lookup = l;
}

/* Said by the first bytes in more than one way, or not at all: where the name decides, that is refused. */
static void refuse_first(struct flow *f, enum egress_reason reason)
{
    flow_refuse(f, reason, &f->to, -1);
}

static bool read_hello(struct flow *f)
{
    struct hello h;

    switch (hello_parse(f->first, f->first_len, &h)) {
    case HELLO_MORE:
        return false;
    case HELLO_BAD:
        f->protocol = POLICY_TLS;
        refuse_first(f, EGRESS_MALFORMED);
        return true;
    case HELLO_OK:
        break;
    }
    f->protocol = POLICY_TLS;
    if (h.name_is_bad) {
        refuse_first(f, EGRESS_NAME);
        return true;
    }
    if (h.has_name)
        memcpy(f->name, h.name, sizeof f->name);
    if (h.has_ech && (f->box->policy.flags & POLICY_REFUSE_ECH) != 0) {
        refuse_first(f, EGRESS_ENCRYPTED);
        return true;
    }
    decide(f);
    return true;
}

static bool read_head(struct flow *f)
{
    static const char h2[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    struct head h;

    size_t n = f->first_len < sizeof h2 - 1 ? f->first_len : sizeof h2 - 1;
    bool is_h2 = n >= 3 && memcmp(f->first, h2, n) == 0;
    if (is_h2 && n < sizeof h2 - 1)
        return false;
    f->protocol = POLICY_HTTP;
    if (is_h2) {
        refuse_first(f, EGRESS_METHOD);
        return true;
    }
    switch (head_parse(f->first, f->first_len, &h)) {
    case HEAD_MORE:
        f->protocol = POLICY_TCP;
        return false;
    case HEAD_BAD:
        refuse_first(f, EGRESS_MALFORMED);
        return true;
    case HEAD_OK:
        break;
    }
    if (h.has_name)
        memcpy(f->name, h.name, sizeof f->name);
    if (h.is_mismatch) {
        refuse_first(f, EGRESS_MISMATCH);
        return true;
    }
    if (h.is_connect) {
        refuse_first(f, EGRESS_METHOD);
        return true;
    }
    decide(f);
    return true;
}

/* True once the flow is decided, and perhaps gone. */
static bool read_first(struct flow *f)
{
    if (f->first[0] == 22)
        return read_hello(f);
    int http = head_sniff(f->first, f->first_len);
    if (http == 1)
        return read_head(f);
    if (http == 0)
        return false;
    f->protocol = POLICY_TCP;
    decide(f);
    return true;
}

static void on_silence(void *arg)
{
    struct flow *f = arg;

    /* Half a greeting is no protocol of its own. */
    if (f->first_len > 0)
        refuse_first(f, EGRESS_MALFORMED);
    else
        decide(f);
}

/* True once the flow is decided, and perhaps gone. */
static bool take_first(struct flow *f)
{
    if (f->first == NULL)
        f->first = mem_alloc(FIRST_MAX);
    ssize_t n = recv(f->in, f->first + f->first_len, FIRST_MAX - f->first_len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (f->first_len == 0)
            free(take_ptr(&f->first));
        return false;
    }
    if (n < 0) {
        flow_free(f);
        return true;
    }
    if (n == 0 && f->first_len == 0) {
        decide(f);              /* its direction has ended; it may wait for what the server says */
        return true;
    }
    f->first_len += (size_t)(n > 0 ? n : 0);
    if (n > 0 && read_first(f))
        return true;
    if (n > 0 && f->first_len < FIRST_MAX && ++f->reads < READS_MAX)
        return false;
    refuse_first(f, EGRESS_MALFORMED);
    return true;
}

static void on_first(int fd, unsigned what, void *arg)
{
    struct flow *f = arg;

    if (f->state == FLOW_READ)
        (void)take_first(f);
    else if (f->state == FLOW_RELAY)
        relay_inside(f, what);
    else
        flow_want(f, 0, f->out_wants);      /* it speaks on before it is connected */
}

/* --- accept ---------------------------------------------------------------------------------- */

static bool destination(int fd, struct address *ret, uint16_t *ret_port)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } a;
    socklen_t n = sizeof a;

    if (getsockname(fd, &a.sa, &n) < 0)
        return false;
    *ret = (struct address){{[10] = 0xff, [11] = 0xff}};
    if (a.sa.sa_family == AF_INET) {
        memcpy(ret->b + 12, &a.four.sin_addr, 4);
        *ret_port = ntohs(a.four.sin_port);
    } else {
        memcpy(ret->b, &a.six.sin6_addr, 16);
        *ret_port = ntohs(a.six.sin6_port);
    }
    return true;
}

/* Connections to an address that the resolver gave for a name that a rule of kind "tcp" has. */
static bool pinned(struct flow *f)
{
    const struct name_entry *n = NULL;
    struct policy_verdict v;

    while ((n = names_of(f->box, &f->to, n)) != NULL) {
        const struct policy_flow pf = {.to = &f->to, .name = n->name, .port = f->port, .protocol = POLICY_TCP};
        policy_ask(&f->box->policy, &pf, &v);
        if (v.action != POLICY_ALLOW || !v.by_name)
            continue;
        (void)snprintf(f->name, sizeof f->name, "%s", n->name);
        f->by_name = true;
        dial_allowed(f, &f->to, 1);
        return true;
    }
    return false;
}

/* FTP, SSH, mail, news, MySQL, VNC, IRC: nothing would ever come. */
static bool server_speaks_first(uint16_t port)
{
    static const uint16_t ports[] = {21, 22, 25, 110, 119, 143, 587, 2222, 3306, 5900, 6667};

    for (size_t i = 0; i < array_len(ports); i++)
        if (ports[i] == port)
            return true;
    return false;
}

static void flow_begin(struct box *b, int fd)
{
    struct flow *f = mem_zalloc(sizeof *f);

    *f = (struct flow){.box = b, .next = b->flows, .in = fd, .out = -1, .protocol = POLICY_TCP, .rule = -1};
    if (b->flows != NULL)
        b->flows->prev = f;
    b->flows = f;
    b->nflows++;
    if (!destination(fd, &f->to, &f->port)) {
        flow_reset(f);
        return;
    }
    if (dns_is_resolver(&f->to, f->port)) {
        dns_tcp_start(b, take_fd(&f->in));
        flow_free(f);
        return;
    }
    if (b->nflows > LIMIT_FLOWS) {
        flow_refuse(f, EGRESS_LIMIT, &f->to, -1);
        return;
    }
    if (pinned(f))
        return;
    if (policy_needs(&b->policy, &f->to, f->port) == POLICY_NEEDS_NOTHING) {
        decide(f);
        return;
    }
    if (take_first(f))          /* often they are here already */
        return;
    f->in_io = loop_io_new(b->egress->loop, fd, LOOP_READ, on_first, f);
    f->in_wants = LOOP_READ;
    flow_timer(f, server_speaks_first(f->port) ? FIRST_SOON_MS : FIRST_MS, on_silence);
}

void flow_accept(struct box *b)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(b->tcp, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            flow_begin(b, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_warn("egress.accept", "sandbox=%s errno=%d", b->id, errno);
            loop_io_set(b->tcp_io, 0);
            loop_timer_set(b->pause, PAUSE_MS);
        } else if (errno == EINVAL) {
            box_detach(b);      /* its monitor has ended the socket: the sandbox is gone */
        }
        return;
    }
}

void flow_check(struct flow *f)
{
    enum egress_reason reason;
    bool opens;
    int rule;

    /* What a name leads to is looked at when that is known. */
    if (f->state == FLOW_READ || f->state == FLOW_RESOLVE || f->state == FLOW_REFUSED)
        return;
    if (f->state == FLOW_DIAL) {
        dial_cancel(f);
        if (f->by_name)
            dial_allowed(f, f->addresses, f->naddresses);
        else
            decide(f);          /* perhaps the name counts now: it is looked up then */
        return;
    }
    const struct address *to = &f->dialled;
    if (may_dial(f, to, &rule, &opens, &reason)) {
        f->rule = rule;
        /* What is not opened cannot be looked at any more. */
        if (f->opened == NULL ? !opens : !opened_is_denied(f))
            return;
        reason = EGRESS_BY_RULE;
    }
    box_deny(f->box, reason, f->protocol, to, f->port, name_or_null(f), rule);
    flow_reset(f);
}
