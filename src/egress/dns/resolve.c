/*
 * resolve.c - both families of a name from the host's resolvers (c-ares)
 *
 * The resolvers' configuration is read at start, before the role gives up opening files.
 */
#include <ares.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "egress/egress.h"

#define SOCKETS_MAX 64
#define DATAGRAM_BYTES 1232     /* what every path takes in one piece */
#define TIMEOUT_MS 2000
#define TRIES 2
#define TICK_MS 250             /* how often overdue answers are looked for */
#define TTL_MAX 300

struct resolver {
    struct loop *loop;
    ares_channel channel;
    struct socket_watch {
        struct resolver *resolver;
        int fd;                 /* -1 = free */
        struct loop_io *io;
    } sockets[SOCKETS_MAX];
    struct loop_timer *tick;
    size_t open;                /* questions */
};

struct question {
    struct resolver *resolver;
    resolve_cb cb;              /* NULL: cancelled */
    void *arg;
    enum names_result result;
    struct address addresses[NAME_ADDRESSES_MAX];
    size_t n;
    uint32_t ttl;
    bool done;                  /* c-ares has answered; the callback comes from the loop */
    struct loop_job job;
};

static void on_socket(int fd, unsigned what, void *arg)
{
    struct socket_watch *w = arg;

    ares_process_fd(w->resolver->channel, (what & LOOP_READ) != 0 ? fd : ARES_SOCKET_BAD,
                    (what & LOOP_WRITE) != 0 ? fd : ARES_SOCKET_BAD);
}

static void on_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct resolver *r = arg;
    struct socket_watch *w = NULL;
    unsigned what = (readable != 0 ? (unsigned)LOOP_READ : 0) | (writable != 0 ? (unsigned)LOOP_WRITE : 0);

    for (size_t i = 0; i < SOCKETS_MAX; i++)
        if (r->sockets[i].fd == fd)
            w = &r->sockets[i];
    for (size_t i = 0; w == NULL && what != 0 && i < SOCKETS_MAX; i++)
        if (r->sockets[i].fd < 0)
            w = &r->sockets[i];
    if (w == NULL)
        return;                 /* none left: the question times out */
    if (what == 0) {
        loop_io_free(w->io);
        *w = (struct socket_watch){.resolver = r, .fd = -1};
    } else if (w->fd < 0) {
        w->fd = fd;
        w->io = loop_io_new(r->loop, fd, what, on_socket, w);
    } else {
        loop_io_set(w->io, what);
    }
}

static void on_tick(void *arg)
{
    struct resolver *r = arg;

    ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    if (r->open > 0)
        loop_timer_set(r->tick, TICK_MS);
}

struct resolver *resolver_new(struct loop *l, const char *servers, struct err *e)
{
    struct resolver *r = mem_zalloc(sizeof *r);
    struct ares_options o = {
        /* Most large answers come in one datagram then; the others by TCP. */
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS,
        .ednspsz = DATAGRAM_BYTES,
        .timeout = TIMEOUT_MS,
        .tries = TRIES,
        .sock_state_cb = on_state,
        .sock_state_cb_data = r,
        /* Not the host's own file of names: what is in it is the host's. */
        .lookups = (char[]){"b"},
    };

    r->loop = l;
    for (size_t i = 0; i < SOCKETS_MAX; i++)
        r->sockets[i] = (struct socket_watch){.resolver = r, .fd = -1};
    r->tick = loop_timer_new(l, on_tick, r);
    int rc = ares_library_init(ARES_LIB_INIT_ALL);
    if (rc == ARES_SUCCESS)
        rc = ares_init_options(&r->channel, &o,
                               ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB |
                                   ARES_OPT_LOOKUPS);
    if (rc == ARES_SUCCESS && servers[0] != '\0')
        rc = ares_set_servers_ports_csv(r->channel, servers);
    if (rc != ARES_SUCCESS) {
        err_set(e, ERR_INVALID, "set up the resolver: %s", ares_strerror(rc));
        loop_timer_free(r->tick);
        free(r);
        return NULL;
    }
    return r;
}

void resolver_free(struct resolver *r)
{
    if (r == NULL)
        return;
    ares_destroy(r->channel);   /* its questions end with an error */
    loop_timer_free(r->tick);
    free(r);
}

static void deliver(void *arg)
{
    struct question *q = arg;

    if (q->cb != NULL)
        q->cb(q->arg, q->result, q->addresses, q->n, q->ttl);
    free(q);
}

static void add(struct question *q, const struct ares_addrinfo_node *n)
{
    struct address a = {{[10] = 0xff, [11] = 0xff}};

    if (q->n == NAME_ADDRESSES_MAX)
        return;
    if (n->ai_family == AF_INET)
        memcpy(a.b + 12, &((const struct sockaddr_in *)(const void *)n->ai_addr)->sin_addr, 4);
    else if (n->ai_family == AF_INET6)
        memcpy(a.b, &((const struct sockaddr_in6 *)(const void *)n->ai_addr)->sin6_addr, 16);
    else
        return;
    if (n->ai_ttl >= 0 && (uint32_t)n->ai_ttl < q->ttl)
        q->ttl = (uint32_t)n->ai_ttl;
    q->addresses[q->n++] = a;
}

/* Most of the world is reached by IPv4: those come first, and what of half of the room the others leave. */
static void add_all(struct question *q, const struct ares_addrinfo_node *nodes)
{
    size_t others = 0;

    for (const struct ares_addrinfo_node *n = nodes; n != NULL; n = n->ai_next)
        others += n->ai_family != AF_INET;
    if (others > NAME_ADDRESSES_MAX / 2)
        others = NAME_ADDRESSES_MAX / 2;
    for (int pass = 0; pass < 2; pass++)
        for (const struct ares_addrinfo_node *n = nodes; n != NULL; n = n->ai_next)
            if ((n->ai_family == AF_INET) == (pass == 0) && (pass == 1 || q->n < NAME_ADDRESSES_MAX - others))
                add(q, n);
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
    struct question *q = arg;

    (void)timeouts;
    q->resolver->open--;
    q->ttl = TTL_MAX;
    if (status == ARES_SUCCESS) {
        add_all(q, info->nodes);
        ares_freeaddrinfo(info);
    }
    q->result = q->n > 0 ? NAMES_FOUND : status == ARES_SUCCESS || status == ARES_ENODATA ? NAMES_EMPTY
                                       : status == ARES_ENOTFOUND                         ? NAMES_NOWHERE
                                                                                          : NAMES_FAILED;
    q->done = true;
    if (status == ARES_EDESTRUCTION)
        free(q);
    else
        loop_job_soon(q->resolver->loop, &q->job);
}

struct question *resolver_ask(struct resolver *r, const char *name, resolve_cb cb, void *arg)
{
    struct question *q = mem_zalloc(sizeof *q);
    const struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC, .ai_flags = ARES_AI_NOSORT,
                                              .ai_socktype = SOCK_STREAM};
    char absolute[POLICY_DOMAIN_MAX + 2];

    *q = (struct question){.resolver = r, .cb = cb, .arg = arg, .job = {.cb = deliver, .arg = q}};
    r->open++;
    loop_timer_set(r->tick, TICK_MS);
    (void)snprintf(absolute, sizeof absolute, "%s.", name);
    ares_getaddrinfo(r->channel, absolute, NULL, &hints, on_answer, q);
    return q;
}

void resolver_cancel(struct question *q)
{
    q->cb = NULL;
    if (q->done) {
        loop_job_cancel(&q->job);
        free(q);
    }
}
