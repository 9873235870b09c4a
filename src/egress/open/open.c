/*
 * open.c - the life of an opened connection
 *
 * The server is greeted before the client is answered, so that the client is offered what the server takes. Bytes go from one
 * end to the protocol and on to the other end; who is slow holds the other back. Called by relay.c for a flow that is
 * connected.
 */
#include "egress/open/open.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sys/fd.h"

#define HANDSHAKE_MS 20000
#define PINNED_MS 2000              /* who looked at the certificate and did not like it leaves sooner */
#define CLOSING_MS 5000             /* the client has all, and does not leave */
#define HALF_MS (5 * 60 * 1000)     /* closed one way, and silent the other */
#define CHUNK (64 * 1024)
#define ROUNDS 8                    /* then other flows have their turn */

enum step { STEP_WAIT, STEP_AGAIN, STEP_END, STEP_BROKEN };

static uint8_t chunk[CHUNK];

void opened_free(struct flow *f)
{
    struct opened *o = take_ptr(&f->opened);

    if (o == NULL)
        return;
    loop_job_cancel(&o->again);
    h1_done(o);
    h2_free(o);
    end_done(&o->client);
    end_done(&o->server);
    free(o);
}

static void on_time(void *arg)
{
    flow_reset(arg);
}

/* Something that is allowed to last, as long as it moves. */
static void on_half(void *arg)
{
    struct flow *f = arg;
    struct opened *o = f->opened;

    if (o->moved == o->moved_before) {
        flow_reset(f);
        return;
    }
    o->moved_before = o->moved;
    loop_timer_set(f->timer, HALF_MS);
}

static void start_half(struct opened *o)
{
    o->moved_before = o->moved;
    flow_timer(o->flow, HALF_MS, on_half);
}

void opened_close(struct opened *o)
{
    if (o->state == OPENED_CLOSING)
        return;
    o->state = OPENED_CLOSING;
    /* A response that was cut off within TLS must not look whole to the client. */
    o->client.is_abrupt = o->server.is_unclean;
    (void)end_finish(&o->client);
    start_half(o);
}

bool opened_is_denied(struct flow *f)
{
    struct opened *o = f->opened;

    if (o->h2 != NULL) {
        h2_check(o);
        loop_job_soon(f->box->egress->loop, &o->again);
        return false;
    }
    /* A body may still go up when its response is through. */
    bool is_asking = o->h1.is_waiting || (o->state == OPENED_PASS && f->scan.state != SCAN_HEAD && !o->h1.collects);

    return is_asking && !judge_still(f, &o->h1.asked);
}

void opened_failure(const struct opened *o, char *out, size_t size)
{
    (void)snprintf(out, size, "quicksand: %s port %u: %s%s\n", o->flow->name, o->flow->port,
                   o->is_untrusted ? "its certificate cannot be relied on: " : "TLS with it failed: ", o->failure);
}

/* --- the beginning --------------------------------------------------------------------------- */

static void refuse(struct opened *o, enum egress_reason reason)
{
    const struct flow *f = o->flow;

    box_deny(f->box, reason, POLICY_TLS, &f->dialled, f->port, f->name, f->rule);
    o->is_refused = true;
}

static enum step hello(struct opened *o)
{
    if (end_handshake(&o->client) < 0) {
        o->flow->box->status.totals.failed++;
        return STEP_END;
    }
    if (!o->has_hello)
        return STEP_WAIT;
    /* A body that is signed has to be known first, which is done for one request at a time. */
    o->may_h2 = o->offers_h2 && !box_signs(o->flow->box);
    if (o->offers_h2 && !o->offers_h1 && !o->may_h2) {
        refuse(o, EGRESS_PROTOCOL);         /* and told so by TLS */
        o->state = OPENED_CLIENT;
        return STEP_AGAIN;
    }
    if (!end_tls(&o->server, open_tls_server(o->flow->box->egress->tls, o)))
        return STEP_BROKEN;
    o->state = OPENED_SERVER;
    return STEP_AGAIN;
}

static void drop_server(struct opened *o)
{
    struct flow *f = o->flow;

    end_done(&o->server);
    o->is_server_ready = false;
    loop_io_free(take_ptr(&f->out_io));
    fd_close(&f->out);
}

static void server_failed(struct opened *o, const char *why)
{
    o->failure = why;
    o->state = OPENED_CLIENT;
    (void)end_flush(&o->server);        /* a goodbye */
    drop_server(o);
}

static enum step greet_server(struct opened *o)
{
    int r = end_handshake(&o->server);

    if (end_flush(&o->server) < 0)
        r = -1;
    if (r == 0)
        return STEP_WAIT;
    if (r == 1 && o->may_h2 && !o->offers_h1 && !open_tls_is_h2(&o->server)) {
        o->flow->box->status.totals.failed++;
        server_failed(o, "it does not speak HTTP/2, and the client nothing else");
        return STEP_AGAIN;
    }
    if (r == 1) {
        o->is_server_ready = true;
        o->state = OPENED_CLIENT;
        return STEP_AGAIN;
    }
    long result = SSL_get_verify_result(o->server.ssl);
    unsigned long error = ERR_peek_last_error();
    const char *why = ERR_reason_error_string(error);
    if (result != X509_V_OK) {
        o->is_untrusted = true;
        refuse(o, EGRESS_CERTIFICATE);
        server_failed(o, X509_verify_cert_error_string(result));
    } else {
        o->flow->box->status.totals.failed++;
        server_failed(o, error != 0 && why != NULL ? why : "the connection ended");
    }
    ERR_clear_error();
    return STEP_AGAIN;
}

static enum step greet_client(struct opened *o)
{
    int r = end_handshake(&o->client);

    if (r < 0) {
        /* Some say why, others just leave. */
        if (!o->is_refused && (open_tls_is_pinned() || o->client.eof))
            refuse(o, EGRESS_PINNED);
        else if (!o->is_refused)
            o->flow->box->status.totals.failed++;
        ERR_clear_error();
        (void)end_flush(&o->client);
        return STEP_END;
    }
    if (r == 0)
        return STEP_WAIT;
    o->greeted_ms = clock_boot_ms();
    o->state = OPENED_PASS;
    if (o->failure != NULL)
        start_half(o);
    else
        loop_timer_free(take_ptr(&o->flow->timer));
    return !open_tls_is_h2(&o->client) || h2_start(o) ? STEP_AGAIN : STEP_BROKEN;
}

/* --- both ways ------------------------------------------------------------------------------- */

static bool has_server(const struct opened *o)
{
    return o->flow->protocol != POLICY_TLS || o->is_server_ready;
}

static bool up(struct opened *o, const uint8_t *p, size_t n)
{
    return o->h2 != NULL ? h2_up(o, p, n) : h1_up(o, p, n);
}

static bool down(struct opened *o, const uint8_t *p, size_t n)
{
    return o->h2 != NULL ? h2_down(o, p, n) : h1_down(o, p, n);
}

static bool server_eof(struct opened *o)
{
    return o->h2 != NULL ? h2_server_eof(o) : h1_server_eof(o);
}

/* What HTTP/2 may send is bounded by its windows, and what opens them must be read. */
static bool wants_client(const struct opened *o)
{
    if (o->client.eof || o->flow->up.waits)
        return false;
    return o->h2 != NULL || (end_queued(&o->server) <= END_HIGH && h1_wants_client(o));
}

static bool wants_server(const struct opened *o)
{
    if (!has_server(o) || o->server.eof || o->flow->down.waits)
        return false;
    return o->h2 != NULL ? h2_wants_server(o) : end_queued(&o->client) <= END_HIGH;
}

/* As much as the sandbox's bandwidth has room for; without any the flow waits for its turn. */
static ssize_t read_some(struct opened *o, struct end *from, struct throttle *t)
{
    size_t room = throttle_room(t, o->flow, sizeof chunk);
    ssize_t n = room > 0 ? end_read(from, chunk, room) : -EAGAIN;

    if (n > 0) {
        o->moved += (uint64_t)n;
        throttle_use(t, (size_t)n);
    }
    return n;
}

static enum step from_client(struct opened *o)
{
    struct box *b = o->flow->box;
    ssize_t n = wants_client(o) ? read_some(o, &o->client, &b->up) : -EAGAIN;

    if (n > 0) {
        o->has_asked = true;
        b->status.totals.sent += (uint64_t)n;
        return up(o, chunk, (size_t)n) ? STEP_AGAIN : STEP_BROKEN;
    }
    if (n < 0)
        return n == -EAGAIN ? STEP_WAIT : STEP_BROKEN;
    return STEP_AGAIN;
}

static enum step from_server(struct opened *o)
{
    struct box *b = o->flow->box;
    ssize_t n = wants_server(o) ? read_some(o, &o->server, &b->down) : -EAGAIN;

    if (n > 0) {
        b->status.totals.received += (uint64_t)n;
        return down(o, chunk, (size_t)n) ? STEP_AGAIN : STEP_BROKEN;
    }
    if (n == -EAGAIN)
        return STEP_WAIT;
    if (n < 0 && o->h2 == NULL)
        return STEP_BROKEN;
    if (n < 0)
        drop_server(o);
    return server_eof(o) ? STEP_AGAIN : STEP_BROKEN;
}

/* Of the requests of HTTP/2 some may have their responses already. */
static bool flush_server(struct opened *o)
{
    if (end_flush(&o->server) == 0)
        return true;
    if (o->h2 == NULL)
        return false;
    drop_server(o);
    return h2_server_eof(o);
}

/* Programs that compare the certificate themselves say nothing of it in TLS. */
static void note_pinned(struct opened *o)
{
    if (!o->has_asked && !o->is_refused && o->flow->protocol == POLICY_TLS && clock_boot_ms() - o->greeted_ms < PINNED_MS)
        refuse(o, EGRESS_PINNED);
}

/* The client has ended its direction, and everything before it went on. */
static enum step client_is_through(struct opened *o)
{
    const struct flow *f = o->flow;

    if (o->h2 != NULL) {
        note_pinned(o);
        return h2_client_eof(o) ? STEP_AGAIN : STEP_BROKEN;
    }
    if (!o->h1.is_waiting && f->scan.state == SCAN_HEAD && o->h1.in.len == 0) {
        note_pinned(o);
        if (has_server(o))
            (void)end_finish(&o->server);
        opened_close(o);
        return STEP_AGAIN;
    }
    if (o->passed_eof || o->h1.in.len > 0 || o->h1.collects)
        return o->h1.collects ? STEP_BROKEN : STEP_WAIT;
    o->passed_eof = true;
    start_half(o);
    return end_finish(&o->server) < 0 ? STEP_BROKEN : STEP_AGAIN;
}

static enum step pass(struct opened *o)
{
    enum step a = from_client(o), b = a > STEP_AGAIN || o->state != OPENED_PASS ? a : from_server(o);

    if (a > STEP_AGAIN || b > STEP_AGAIN || o->state != OPENED_PASS)
        return a > b ? a : b;
    /* What waited for a response, or for room. */
    if (!up(o, NULL, 0) || !flush_server(o) || end_flush(&o->client) < 0)
        return STEP_BROKEN;
    if (o->h2 != NULL && h2_has_more(o))
        a = STEP_AGAIN;
    enum step c = o->client.eof && o->state == OPENED_PASS ? client_is_through(o) : STEP_WAIT;
    if (o->h1.is_cut && c == STEP_WAIT)
        c = STEP_AGAIN;
    return a > b ? (a > c ? a : c) : (b > c ? b : c);
}

static enum step closing(struct opened *o)
{
    size_t before = end_queued(&o->client);

    if (end_flush(&o->client) < 0)
        return STEP_END;
    o->moved += before - end_queued(&o->client);
    if (end_queued(&o->client) == 0 && !o->is_drained) {
        o->is_drained = true;
        flow_timer(o->flow, CLOSING_MS, on_time);
    }
    /* What still comes is thrown away, so that the kernel does not take the last words back with a reset. */
    ssize_t n = o->client.eof ? 0 : end_read(&o->client, chunk, sizeof chunk);
    if (n > 0)
        return STEP_AGAIN;
    if (n == -EAGAIN)
        return STEP_WAIT;
    o->client.eof = true;
    return o->is_drained ? STEP_END : STEP_WAIT;
}

static enum step step(struct opened *o)
{
    switch (o->state) {
    case OPENED_HELLO:
        return hello(o);
    case OPENED_SERVER:
        return greet_server(o);
    case OPENED_CLIENT:
        return greet_client(o);
    case OPENED_PASS:
        return pass(o);
    case OPENED_CLOSING:
        return closing(o);
    }
    return STEP_BROKEN;
}

static void set_wants(struct opened *o)
{
    bool server = o->state == OPENED_SERVER || (o->state == OPENED_PASS && wants_server(o));
    bool client = o->state == OPENED_HELLO || o->state == OPENED_CLIENT || (o->state == OPENED_CLOSING && !o->client.eof) ||
                  (o->state == OPENED_PASS && wants_client(o));

    flow_want(o->flow, (client ? (unsigned)LOOP_READ : 0) | (end_queued(&o->client) > 0 ? (unsigned)LOOP_WRITE : 0),
              (server ? (unsigned)LOOP_READ : 0) | (end_queued(&o->server) > 0 ? (unsigned)LOOP_WRITE : 0));
}

/* What a client or server sent before may be in OpenSSL's memory, and its socket has nothing to say about that. */
static bool made_room(struct opened *o)
{
    bool made = o->client.made_room || o->server.made_room;

    o->client.made_room = o->server.made_room = false;
    return made;
}

static void run(void *arg)
{
    struct flow *f = arg;
    struct opened *o = f->opened;
    enum step s = STEP_AGAIN;

    for (int i = 0; i < ROUNDS && s == STEP_AGAIN; i++) {
        s = step(o);
        if (s <= STEP_AGAIN && (end_flush(&o->client) < 0 || !flush_server(o)))
            s = STEP_BROKEN;
        if (s == STEP_WAIT && made_room(o))
            s = STEP_AGAIN;
    }
    if (s == STEP_END) {
        (void)end_finish(&o->client);
        flow_free(f);
    } else if (s == STEP_BROKEN) {
        (void)end_flush(&o->client);
        flow_reset(f);
    } else {
        if (s == STEP_AGAIN)
            loop_job_soon(f->box->egress->loop, &o->again);
        set_wants(o);
    }
}

/* The server is given up; the client, which has waited for it, is told. */
static void on_handshake(void *arg)
{
    struct flow *f = arg;
    struct opened *o = f->opened;

    if (o->state != OPENED_SERVER) {
        flow_reset(f);
        return;
    }
    f->box->status.totals.failed++;
    server_failed(o, "there was no answer");
    loop_timer_set(f->timer, HANDSHAKE_MS);
    run(f);
}

static void on_io(int fd, unsigned what, void *arg)
{
    run(arg);
}

void opened_go_on(struct flow *f)
{
    run(f);
}

void opened_start(struct flow *f)
{
    struct opened *o = mem_zalloc(sizeof *o);
    struct loop *l = f->box->egress->loop;
    auto_free uint8_t *first = take_ptr(&f->first);

    f->opened = o;
    o->flow = f;
    o->again = (struct loop_job){.cb = run, .arg = f};
    end_init(&o->client, f->in, first, f->first_len);
    end_init(&o->server, f->out, NULL, 0);
    f->first_len = 0;
    h1_init(o);
    relay_keep_alive(f->out);
    loop_io_free(f->in_io);     /* flow.c had it */
    f->in_io = loop_io_new(l, f->in, 0, on_io, f);
    f->out_io = loop_io_new(l, f->out, 0, on_io, f);
    f->in_wants = f->out_wants = 0;
    o->state = OPENED_PASS;
    if (f->protocol == POLICY_TLS) {
        o->state = OPENED_HELLO;
        if (!end_tls(&o->client, open_tls_client(f->box->egress->tls, o))) {
            flow_reset(f);
            return;
        }
        flow_timer(f, HANDSHAKE_MS, on_handshake);
    }
    loop_job_soon(l, &o->again);
}
