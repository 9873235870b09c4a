/*
 * tcp.c - queries of a sandbox that come by TCP
 *
 * For answers that no datagram takes, and for clients that like it better. Several queries may be under way on a connection;
 * who does not read the answers, or is silent, is cut off.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "egress/dns/wire.h"
#include "egress/egress.h"
#include "sys/fd.h"

#define IDLE_MS 10000
#define QUERIES_A_TURN 16
#define UNREAD_MAX (16 * 1024)

struct dns_connection {
    struct dns_connection *prev, *next;     /* of the box */
    struct box *box;
    int fd;                         /* owned */
    struct loop_io *io;
    struct loop_timer *idle;
    uint8_t in[2 + DNS_QUERY_MAX];
    size_t in_len;
    uint8_t *out;                   /* owned; what the client has not taken yet */
    size_t out_len;
    bool busy;                      /* in a call that goes on using it */
    bool broken;
};

static void end(struct dns_connection *c)
{
    struct box *b = c->box;

    c->broken = true;
    if (c->busy)
        return;
    dns_forget(b, c);
    *(c->prev != NULL ? &c->prev->next : &b->dns_connections) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    b->ndns_connections--;
    loop_io_free(c->io);
    loop_timer_free(c->idle);
    fd_close(&c->fd);
    free(c->out);
    free(c);
}

static void on_idle(void *arg)
{
    end(arg);
}

static void flush(struct dns_connection *c)
{
    ssize_t n = c->out_len > 0 ? send(c->fd, c->out, c->out_len, MSG_NOSIGNAL) : 0;

    if (n < 0 && errno != EAGAIN && errno != EINTR)
        c->broken = true;
    if (n > 0) {
        c->out_len -= (size_t)n;
        memmove(c->out, c->out + n, c->out_len);
    }
    loop_io_set(c->io, LOOP_READ | (c->out_len > 0 ? (unsigned)LOOP_WRITE : 0));
}

void dns_tcp_answer(struct dns_connection *c, const uint8_t *p, size_t n)
{
    if (c->out_len + 2 + n > UNREAD_MAX) {
        end(c);
        return;
    }
    c->out = mem_realloc(c->out, c->out_len + 2 + n);
    c->out[c->out_len] = (uint8_t)(n >> 8);
    c->out[c->out_len + 1] = (uint8_t)n;
    memcpy(c->out + c->out_len + 2, p, n);
    c->out_len += 2 + n;
    flush(c);
    loop_timer_set(c->idle, IDLE_MS);
    if (c->broken)
        end(c);
}

/* The queries that are whole; false: one is too long, or what came is none. */
static bool take_queries(struct dns_connection *c)
{
    size_t at = 0;

    while (!c->broken && c->in_len - at >= 2) {
        size_t n = (size_t)c->in[at] << 8 | c->in[at + 1];
        if (n == 0 || n > DNS_QUERY_MAX)
            return false;
        if (c->in_len - at - 2 < n)
            break;
        dns_query(c->box, NULL, c, c->in + at + 2, n);
        at += 2 + n;
    }
    c->in_len -= at;
    memmove(c->in, c->in + at, c->in_len);
    return !c->broken;
}

static void on_ready(int fd, unsigned what, void *arg)
{
    struct dns_connection *c = arg;

    if ((what & LOOP_WRITE) != 0)
        flush(c);
    c->busy = true;
    for (int i = 0; !c->broken && (what & LOOP_READ) != 0 && i < QUERIES_A_TURN; i++) {
        ssize_t n = recv(fd, c->in + c->in_len, sizeof c->in - c->in_len, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) {
            /* Who asks and ends its direction gets no answers; nobody does that. */
            c->broken = true;
            break;
        }
        c->in_len += (size_t)n;
        loop_timer_set(c->idle, IDLE_MS);
        if (!take_queries(c))
            c->broken = true;
    }
    c->busy = false;
    if (c->broken)
        end(c);
}

void dns_tcp_start(struct box *b, int fd)
{
    if (b->ndns_connections >= LIMIT_DNS_CONNECTIONS) {
        box_deny(b, EGRESS_LIMIT, EGRESS_QUERY, NULL, 53, NULL, -1);
        fd_close(&fd);
        return;
    }
    struct dns_connection *c = mem_zalloc(sizeof *c);
    c->box = b;
    c->fd = fd;
    c->next = b->dns_connections;
    if (c->next != NULL)
        c->next->prev = c;
    b->dns_connections = c;
    b->ndns_connections++;
    c->io = loop_io_new(b->egress->loop, fd, LOOP_READ, on_ready, c);
    c->idle = loop_timer_new(b->egress->loop, on_idle, c);
    loop_timer_set(c->idle, IDLE_MS);
}

void dns_tcp_free(struct box *b)
{
    while (b->dns_connections != NULL)
        end(b->dns_connections);
}
