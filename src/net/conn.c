/*
 * conn.c - connections, see conn.h
 *
 * With TLS, `out` holds plain bytes until they are sent; OpenSSL reads from the socket itself and writes into a memory
 * BIO, whose content moves to `wire`. So encryption never blocks and many records leave by one system call.
 */
#include "net/conn.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/queue.h"
#include "net/tls.h"
#include "sys/fd.h"

#define READ_SIZE (64 * 1024)
#define READ_ROUNDS 4           /* reads of one connection in a turn of the loop */
#define SEND_ROUNDS 16          /* sends of one connection in a turn */
#define TLS_RECORD (16 * 1024)
#define LINGER_MS 2000
#define CONNECT_MS 10000
#define FINISH_MS 60000         /* last words that make no progress that long are given up */
#define KEEPALIVE_IDLE_S 60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_COUNT 4
#define USER_TIMEOUT_MS 120000

enum state {
    CONNECTING,
    OPEN,
    FINISHING,                  /* sends what is queued, then lingers */
    LINGERING,                  /* our direction is closed; input is thrown away */
    ENDED,                      /* on_end was called */
};

struct net_conn {
    struct loop *loop;
    struct event rd, wr;
    struct loop_job flush_job;
    struct loop_job read_job;       /* TLS: bytes that OpenSSL holds while the socket is quiet */
    struct loop_timer *timer;       /* connecting, finishing or lingering */
    const struct net_conn_ops *ops;
    void *ctx;
    struct net_tls *tls;            /* borrowed, until the first byte decides */
    SSL *ssl;
    BIO *ssl_out;                   /* owned by ssl */
    struct queue out;
    struct queue wire;
    int fd;
    int connect_errno;
    enum state state;
    int depth;                      /* callbacks running */
    bool is_freed;                  /* to be freed when depth is 0 */
    bool is_paused;
    bool is_patient;                /* a peer that closes while we are paused is read to its end first */
    bool peer_ended;
    bool write_failed;
    bool wr_armed;
    bool output_ends;               /* after what is queued */
    bool output_ended;
    bool is_secure;                 /* TLS stands */
};

/* One loop a process: what is read is handled before the next read. */
static uint8_t read_mem[READ_SIZE];

static void flush(struct net_conn *c);

void net_socket_tune(int fd)
{
    int family = 0, on = 1, idle_s = KEEPALIVE_IDLE_S, interval_s = KEEPALIVE_INTERVAL_S;
    int count = KEEPALIVE_COUNT, user_timeout_ms = USER_TIMEOUT_MS;
    socklen_t len = sizeof family;

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) < 0 ||
        (family != AF_INET && family != AF_INET6))
        return;
    /* All of these only make things better; a kernel that lacks one still serves. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof user_timeout_ms);
}

void net_conn_ack_now(struct net_conn *c)
{
    int on = 1;

    /* Not lasting: the kernel goes back to delaying by itself. Fails on unix sockets, which need it not. */
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

/* --- life ------------------------------------------------------------------------------------ */

static void stop_io(struct net_conn *c)
{
    (void)event_del(&c->rd);
    (void)event_del(&c->wr);
    c->wr_armed = false;
    loop_job_cancel(&c->flush_job);
    loop_job_cancel(&c->read_job);
    loop_timer_free(c->timer);
    c->timer = NULL;
}

static void enter(struct net_conn *c)
{
    c->depth++;
}

static void leave(struct net_conn *c)
{
    if (--c->depth > 0 || !c->is_freed)
        return;
    queue_done(&c->out);
    queue_done(&c->wire);
    SSL_free(c->ssl);
    free(c);
}

void net_conn_free(struct net_conn *c)
{
    if (c == NULL || c->is_freed)
        return;
    enter(c);
    stop_io(c);
    fd_close(&c->fd);
    c->state = ENDED;
    c->is_freed = true;
    leave(c);
}

/* The end of the connection for its owner. */
static void end(struct net_conn *c, int sys_errno)
{
    if (c->state == ENDED)
        return;
    c->state = ENDED;
    stop_io(c);
    c->ops->on_end(c, sys_errno, c->ctx);
}

/* The peer will send no more. Unless we are only lingering, the owner may still have things to say. */
static void on_peer_end(struct net_conn *c)
{
    if (c->peer_ended)
        return;
    c->peer_ended = true;
    (void)event_del(&c->rd);
    loop_job_cancel(&c->read_job);
    if (c->state == LINGERING) {
        end(c, 0);
        return;
    }
    if (c->state == OPEN)
        c->ops->on_end(c, 0, c->ctx);
}

/* --- reading --------------------------------------------------------------------------------- */

static void deliver(struct net_conn *c, const uint8_t *p, size_t n)
{
    if (c->state == OPEN)
        c->ops->on_read(c, p, n, c->ctx);
}

static bool may_read(const struct net_conn *c)
{
    return !c->is_freed && c->state != ENDED && !c->is_paused && !c->peer_ended;
}

static void read_plain(struct net_conn *c)
{
    for (int round = 0; round < READ_ROUNDS && may_read(c); round++) {
        ssize_t n = recv(c->fd, read_mem, sizeof read_mem, 0);
        if (n > 0) {
            deliver(c, read_mem, (size_t)n);
            if ((size_t)n < sizeof read_mem)
                return;
        } else if (n == 0) {
            on_peer_end(c);
            return;
        } else {
            if (errno != EAGAIN && errno != EINTR)
                end(c, errno);
            return;
        }
    }
}

static void take_wire(struct net_conn *c)
{
    char *p;
    long n = BIO_get_mem_data(c->ssl_out, &p);

    if (n <= 0)
        return;
    queue_add(&c->wire, p, (size_t)n);
    (void)BIO_reset(c->ssl_out);
}

static void read_tls(struct net_conn *c)
{
    for (int round = 0; round < READ_ROUNDS * 4; round++) {
        if (!may_read(c))
            return;
        ERR_clear_error();
        bool is_new = !c->is_secure;
        int n = is_new ? SSL_do_handshake(c->ssl) : SSL_read(c->ssl, read_mem, sizeof read_mem);
        int why = n > 0 ? SSL_ERROR_NONE : SSL_get_error(c->ssl, n);
        take_wire(c);           /* handshake messages, or the alert that says why it failed */
        if (queue_len(&c->wire) > 0)
            net_conn_kick(c);
        if (is_new && n > 0) {
            c->is_secure = true;
            net_conn_kick(c);       /* what was written meanwhile */
            if (c->ops->on_secure != NULL && c->state == OPEN)
                c->ops->on_secure(c, c->ctx);
            continue;           /* unless it is paused now, or gone */
        }
        if (n > 0) {
            deliver(c, read_mem, (size_t)n);
            continue;
        }
        if (why == SSL_ERROR_WANT_READ)
            return;
        if (why == SSL_ERROR_ZERO_RETURN) {
            on_peer_end(c);
            return;
        }
        flush(c);
        if (!c->is_freed)
            end(c, EPROTO);
        return;
    }
    /* OpenSSL may hold more, of which the socket tells nothing. */
    loop_job_late(c->loop, &c->read_job);
}

/* The first byte tells TLS from all else. False: no byte yet, or the end. */
static bool sniff(struct net_conn *c)
{
    uint8_t first;
    ssize_t n = recv(c->fd, &first, 1, MSG_PEEK);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n == 1 && first == 0x16) {
        c->ssl = net_tls_accept(c->tls, c->fd);
        c->ssl_out = c->ssl != NULL ? SSL_get_wbio(c->ssl) : NULL;
        if (c->ssl == NULL) {
            end(c, ENOMEM);
            return false;
        }
    }
    c->tls = NULL;
    return true;
}

static void read_some(struct net_conn *c)
{
    enter(c);
    if (c->tls == NULL || sniff(c)) {
        if (c->ssl != NULL)
            read_tls(c);
        else
            read_plain(c);
    }
    /* What the input caused leaves at once. */
    if (!c->is_freed && loop_job_is_queued(&c->flush_job)) {
        loop_job_cancel(&c->flush_job);
        flush(c);
    }
    leave(c);
}

static void on_read_event(evutil_socket_t fd, short what, void *arg)
{
    struct net_conn *c = arg;

    if (what & EV_READ) {
        read_some(c);
        return;
    }
    /* EV_CLOSED while paused: nobody is left to wait for us, except for words that are on their way already. */
    enter(c);
    if (c->state == FINISHING) {
        c->peer_ended = true;
        (void)event_del(&c->rd);
    } else {
        end(c, ECONNRESET);
    }
    leave(c);
}

static void on_read_job(void *arg)
{
    struct net_conn *c = arg;

    if (may_read(c))
        read_some(c);
}

static void watch(struct net_conn *c)
{
    short what = c->is_paused ? EV_CLOSED : EV_READ;

    (void)event_del(&c->rd);
    if (c->is_paused && c->is_patient)
        return;
    (void)event_assign(&c->rd, loop_base(c->loop), c->fd, (short)(what | EV_PERSIST), on_read_event, c);
    (void)event_add(&c->rd, NULL);
}

void net_conn_pause(struct net_conn *c, bool paused)
{
    if (c->is_paused == paused)
        return;
    c->is_paused = paused;
    if (c->peer_ended || c->state == CONNECTING || c->state == ENDED)
        return;
    watch(c);
    if (!paused && c->ssl != NULL)
        loop_job_soon(c->loop, &c->read_job);
}

void net_conn_set_patient(struct net_conn *c)
{
    c->is_patient = true;
}

/* --- writing --------------------------------------------------------------------------------- */

static void encrypt(struct net_conn *c)
{
    while (queue_len(&c->out) > 0 && queue_len(&c->wire) < NET_CONN_FILL &&
           SSL_is_init_finished(c->ssl)) {
        size_t n = queue_len(&c->out) < TLS_RECORD ? queue_len(&c->out) : TLS_RECORD;
        ERR_clear_error();
        int r = SSL_write(c->ssl, queue_data(&c->out), (int)n);
        if (r <= 0) {
            c->write_failed = true;
            return;
        }
        queue_drop(&c->out, (size_t)r);
        take_wire(c);
    }
}

static void arm_write(struct net_conn *c, bool on)
{
    if (c->wr_armed == on)
        return;
    c->wr_armed = on;
    if (on)
        (void)event_add(&c->wr, NULL);
    else
        (void)event_del(&c->wr);
}

/* Sends from q. True: all of it left. */
static bool send_queue(struct net_conn *c, struct queue *q, bool *ret_sent)
{
    size_t len = queue_len(q);
    ssize_t n = send(c->fd, queue_data(q), len, MSG_NOSIGNAL);

    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) {
            arm_write(c, true);
            return false;
        }
        /* What the peer said before it left is still to be read; the end is found there. */
        int sys_errno = errno;
        c->write_failed = true;
        queue_done(&c->out);
        queue_done(&c->wire);
        if (c->is_paused || c->peer_ended || c->state != OPEN)
            end(c, sys_errno);
        return false;
    }
    queue_drop(q, (size_t)n);
    *ret_sent = true;
    if ((size_t)n < len) {
        arm_write(c, true);
        return false;
    }
    return true;
}

static void on_over(void *arg)
{
    struct net_conn *c = arg;

    enter(c);
    end(c, 0);
    leave(c);
}

static void linger(struct net_conn *c)
{
    if (c->ssl != NULL) {
        ERR_clear_error();
        (void)SSL_shutdown(c->ssl);     /* close_notify; the peer's own is not waited for */
        take_wire(c);
        if (queue_len(&c->wire) > 0)
            (void)send(c->fd, queue_data(&c->wire), queue_len(&c->wire), MSG_NOSIGNAL);
    }
    c->state = LINGERING;
    if (c->peer_ended || shutdown(c->fd, SHUT_WR) < 0) {
        end(c, 0);
        return;
    }
    SSL_free(c->ssl);           /* what comes now is thrown away as it is */
    c->ssl = NULL;
    c->tls = NULL;
    c->is_paused = false;
    watch(c);
    loop_timer_set(c->timer, LINGER_MS);
}

/* All is sent that ever will be, and reading goes on. */
static void tell_end(struct net_conn *c)
{
    if (c->ssl != NULL) {
        ERR_clear_error();
        (void)SSL_shutdown(c->ssl);
        take_wire(c);
        if (queue_len(&c->wire) > 0)
            (void)send(c->fd, queue_data(&c->wire), queue_len(&c->wire), MSG_NOSIGNAL);
        queue_done(&c->wire);
    }
    (void)shutdown(c->fd, SHUT_WR);     /* fails only if the peer is gone, which reading tells */
    c->output_ended = true;
    if (c->ops->on_sent != NULL && c->state == OPEN)
        c->ops->on_sent(c, c->ctx);
}

/* Sends what there is. The caller has entered. */
static void flush(struct net_conn *c)
{
    bool sent = false, all = true, is_done = false;

    if (c->state == CONNECTING || c->state >= LINGERING)
        return;
    /* Whether the peer speaks TLS is not known yet: what a server says first must not go out in the clear. */
    if (c->tls != NULL && c->state == OPEN)
        return;
    if (c->write_failed) {
        if (c->state == FINISHING)
            end(c, EPIPE);
        return;
    }
    for (int round = 0; round < SEND_ROUNDS; round++) {
        if (c->ops->on_fill != NULL && c->state == OPEN)
            c->ops->on_fill(c, c->ctx);
        if (c->is_freed || c->state == ENDED)
            break;
        if (c->ssl != NULL)
            encrypt(c);
        if (c->write_failed) {
            end(c, EPROTO);
            break;
        }
        struct queue *q = c->ssl != NULL ? &c->wire : &c->out;
        is_done = queue_len(q) == 0;    /* or TLS is not ready for more */
        if (is_done)
            break;
        all = send_queue(c, q, &sent);
        if (!all)
            break;
    }
    if (!c->is_freed && c->state != ENDED) {
        if (all) {
            arm_write(c, false);
            if (!is_done)       /* there may be more: after the others had their turn */
                loop_job_late(c->loop, &c->flush_job);
        }
        if (sent && c->state == FINISHING)
            loop_timer_set(c->timer, FINISH_MS);
        if (sent && c->ops->on_sent != NULL && c->state == OPEN)
            c->ops->on_sent(c, c->ctx);
        if (!c->is_freed && c->state == FINISHING && net_conn_queued(c) == 0)
            linger(c);
        else if (!c->is_freed && c->state == OPEN && c->output_ends && !c->output_ended && net_conn_queued(c) == 0 &&
                 (c->ssl == NULL || c->is_secure))
            tell_end(c);
    }
}

static void on_flush_job(void *arg)
{
    struct net_conn *c = arg;

    if (c->wr_armed)
        return;
    enter(c);
    flush(c);
    leave(c);
}

static void on_write_event(evutil_socket_t fd, short what, void *arg)
{
    struct net_conn *c = arg;

    enter(c);
    if (c->state == CONNECTING) {
        int sys_errno = 0;
        socklen_t len = sizeof sys_errno;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys_errno, &len) < 0)
            sys_errno = errno;
        arm_write(c, false);
        loop_timer_free(c->timer);
        c->timer = NULL;
        if (sys_errno != 0) {
            end(c, sys_errno);
        } else {
            c->state = OPEN;
            watch(c);
        }
    }
    if (!c->is_freed)
        flush(c);
    leave(c);
}

uint8_t *net_conn_reserve(struct net_conn *c, size_t n)
{
    return queue_reserve(&c->out, n);
}

void net_conn_wrote(struct net_conn *c, size_t n)
{
    queue_grew(&c->out, n);
    if (c->write_failed)
        queue_done(&c->out);
    net_conn_kick(c);
}

void net_conn_write(struct net_conn *c, const void *p, size_t n)
{
    if (c->write_failed || c->state == ENDED)
        return;
    queue_add(&c->out, p, n);
    net_conn_kick(c);
}

size_t net_conn_queued(const struct net_conn *c)
{
    return queue_len(&c->out) + queue_len(&c->wire);
}

void net_conn_kick(struct net_conn *c)
{
    if (c->state != ENDED)
        loop_job_late(c->loop, &c->flush_job);
}

void net_conn_send_now(struct net_conn *c)
{
    if (c->state == CONNECTING || c->state >= LINGERING || c->write_failed)
        return;
    if (c->ssl != NULL)
        encrypt(c);
    struct queue *q = c->ssl != NULL ? &c->wire : &c->out;
    if (queue_len(q) > 0)
        (void)send(c->fd, queue_data(q), queue_len(q), MSG_NOSIGNAL);   /* best effort by contract */
}

void net_conn_end_output(struct net_conn *c)
{
    c->output_ends = true;
    net_conn_kick(c);
}

bool net_conn_has_ended_output(const struct net_conn *c)
{
    return c->output_ended;
}

void net_conn_finish(struct net_conn *c)
{
    if (c->state >= FINISHING)
        return;
    c->state = FINISHING;
    loop_timer_free(c->timer);
    c->timer = loop_timer_new(c->loop, on_over, c);
    loop_timer_set(c->timer, FINISH_MS);
    if (c->ssl != NULL && !SSL_is_init_finished(c->ssl))
        queue_done(&c->out);    /* without a handshake there is nothing to say it in */
    net_conn_kick(c);
}

/* --- making ---------------------------------------------------------------------------------- */

static struct net_conn *conn_new(struct loop *l, int fd, const struct net_conn_ops *ops, void *ctx)
{
    struct net_conn *c = mem_zalloc(sizeof *c);

    c->loop = l;
    c->fd = fd;
    c->ops = ops;
    c->ctx = ctx;
    c->state = OPEN;
    c->flush_job.cb = on_flush_job;
    c->flush_job.arg = c;
    c->read_job.cb = on_read_job;
    c->read_job.arg = c;
    (void)event_assign(&c->rd, loop_base(l), fd, EV_READ | EV_PERSIST, on_read_event, c);
    (void)event_assign(&c->wr, loop_base(l), fd, EV_WRITE | EV_PERSIST, on_write_event, c);
    return c;
}

struct net_conn *net_conn_new(struct loop *l, int fd, struct net_tls *tls,
                              const struct net_conn_ops *ops, void *ctx)
{
    struct net_conn *c = conn_new(l, fd, ops, ctx);

    c->tls = tls;
    (void)event_add(&c->rd, NULL);
    return c;
}

static void on_connect_over(void *arg)
{
    struct net_conn *c = arg;

    enter(c);
    end(c, c->connect_errno != 0 ? c->connect_errno : ETIMEDOUT);
    leave(c);
}

struct net_conn *net_conn_connect(struct loop *l, const struct net_addr *a,
                                  const struct net_conn_ops *ops, void *ctx)
{
    int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct net_conn *c = conn_new(l, fd, ops, ctx);

    if (fd >= 0) {
        net_socket_tune(fd);
        if (connect(fd, (const struct sockaddr *)&a->sa, a->len) == 0) {
            (void)event_add(&c->rd, NULL);
            return c;
        }
    }
    if (errno != EINPROGRESS)
        c->connect_errno = errno;
    c->state = CONNECTING;
    c->timer = loop_timer_new(l, on_connect_over, c);
    if (c->connect_errno == 0)
        arm_write(c, true);
    loop_timer_set(c->timer, c->connect_errno == 0 ? CONNECT_MS : 0);   /* on_end comes from the loop only */
    return c;
}

void net_conn_set(struct net_conn *c, const struct net_conn_ops *ops, void *ctx)
{
    c->ops = ops;
    c->ctx = ctx;
}

void net_conn_set_tls(struct net_conn *c, struct net_tls *tls)
{
    if (c->tls != NULL)
        c->tls = tls;
}

bool net_conn_is_tls(const struct net_conn *c)
{
    return c->ssl != NULL;
}

void net_conn_server_name(const struct net_conn *c, char out[NET_TLS_NAME])
{
    const char *name = c->ssl != NULL ? SSL_get_servername(c->ssl, TLSEXT_NAMETYPE_host_name) : NULL;

    net_tls_name(name != NULL ? name : "", out);
}
