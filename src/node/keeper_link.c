/*
 * keeper_link.c - the one connection from the node to the keeper
 *
 * A request moves from `waiting` (not sent) to `sent` and is freed by its reply, its deadline, or
 * by KEEPER_WAIT_MS without a connection. A broken connection moves all of `sent` back to
 * `waiting`.
 */
#include "node/keeper_link.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/fd.h"

#define TICK_MS 50
#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 500

struct request {
    struct request *next;
    enum keeper_type type;
    uint32_t tag;
    int64_t deadline_ms;        /* of the whole request */
    int64_t connect_by_ms;      /* give up without a connection */
    keeper_cb cb;
    void *arg;
    size_t len;
    uint8_t payload[];
};

struct queue {
    struct request *head, **tail;
};

struct keeper_link {
    struct loop *loop;
    char *path;                 /* owned */
    int fd;
    struct loop_io *io;
    struct loop_timer *tick;    /* runs while a request is under way or there is no connection */
    bool ticking;
    struct queue waiting, sent;
    size_t count;
    uint32_t tag;
    int64_t connect_at_ms;
    int64_t backoff_ms;
    uint8_t space[LIMIT_CHANNEL_INLINE];
};

static void queue_init(struct queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_add(struct queue *q, struct request *r)
{
    r->next = NULL;
    *q->tail = r;
    q->tail = &r->next;
}

static void queue_unlink(struct queue *q, struct request **at)
{
    struct request *r = *at;

    *at = r->next;
    if (q->tail == &r->next)
        q->tail = at;
}

static void start_tick(struct keeper_link *k)
{
    if (!k->ticking)
        loop_timer_set(k->tick, TICK_MS);
    k->ticking = true;
}

/* Ends a request that is in no queue any more. */
static void finish(struct keeper_link *k, struct request *r, const struct err *e,
                   const uint8_t *payload, size_t len, int *fd)
{
    k->count--;
    r->cb(r->arg, e, payload, len, fd);
    free(r);
}

static void disconnect(struct keeper_link *k)
{
    struct queue again;

    loop_io_free(k->io);
    k->io = NULL;
    fd_close(&k->fd);
    /* What was under way goes first, in its order. */
    queue_init(&again);
    int64_t by = clock_boot_ms() + KEEPER_WAIT_MS;
    while (k->sent.head != NULL) {
        struct request *r = k->sent.head;
        queue_unlink(&k->sent, &k->sent.head);
        r->connect_by_ms = by;
        queue_add(&again, r);
    }
    if (again.head != NULL) {
        *again.tail = k->waiting.head;
        if (k->waiting.head == NULL)
            k->waiting.tail = again.tail;
        k->waiting.head = again.head;
    }
    k->connect_at_ms = clock_boot_ms() + k->backoff_ms;
    start_tick(k);
}

static void flush(struct keeper_link *k)
{
    while (k->fd >= 0 && k->waiting.head != NULL) {
        struct request *r = k->waiting.head;
        int rc = chan_send(k->fd, (uint16_t)r->type, r->tag, r->payload, r->len, NULL, 0);
        if (rc == -EAGAIN) {
            loop_io_set(k->io, LOOP_READ | LOOP_WRITE);
            return;
        }
        if (rc < 0) {
            disconnect(k);
            return;
        }
        queue_unlink(&k->waiting, &k->waiting.head);
        queue_add(&k->sent, r);
    }
    if (k->fd >= 0)
        loop_io_set(k->io, LOOP_READ);
}

static void on_reply(struct keeper_link *k, struct chan_msg *m)
{
    struct keeper_reply reply;
    struct err e;
    size_t used;
    int fd = -1;
    struct request **at = &k->sent.head;

    while (*at != NULL && (*at)->tag != m->tag)
        at = &(*at)->next;
    if (*at == NULL)
        return;                 /* its deadline has passed */
    struct request *r = *at;
    queue_unlink(&k->sent, at);
    if (m->type != KEEPER_REPLY || keeper_reply_decode(&reply, m->data, m->len, &used) < 0) {
        err_set(&e, ERR_INTERNAL, "the keeper's reply cannot be read");
        finish(k, r, &e, NULL, 0, &fd);
        return;
    }
    if (reply.code != ERR_OK) {
        err_param(&e, (enum err_code)reply.code < ERR_MAX_ ? (enum err_code)reply.code : ERR_INTERNAL,
                  reply.param, "%s", reply.message);
        e.sys_errno = reply.sys_errno;
        finish(k, r, &e, NULL, 0, &fd);
        return;
    }
    if (m->nfds > 0)
        fd = take_fd(&m->fds[0]);
    finish(k, r, NULL, m->data + used, m->len - used, &fd);
    fd_close(&fd);
}

static void on_io(int fd, unsigned what, void *arg)
{
    struct keeper_link *k = arg;
    struct chan_msg m;

    (void)fd;
    for (int i = 0; (what & LOOP_READ) != 0 && i < 64 && k->fd >= 0; i++) {
        int rc = chan_recv(k->fd, k->space, sizeof k->space, 0, &m);
        if (rc == -EAGAIN)
            break;
        if (rc <= 0) {
            log_warn("keeper-lost", "reason=%s", rc == 0 ? "closed" : strerror(-rc));
            disconnect(k);
            return;
        }
        on_reply(k, &m);
        chan_msg_done(&m);
    }
    if ((what & LOOP_WRITE) != 0)
        flush(k);
}

static void try_connect(struct keeper_link *k)
{
    if (chan_connect(k->path, &k->fd) < 0) {
        k->fd = -1;
        k->backoff_ms = k->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : k->backoff_ms * 2;
        k->connect_at_ms = clock_boot_ms() + k->backoff_ms;
        return;
    }
    k->backoff_ms = BACKOFF_MIN_MS;
    k->io = loop_io_new(k->loop, k->fd, LOOP_READ, on_io, k);
    log_info("keeper-connected", "path=%s", k->path);
    flush(k);
}

/* Fails what has waited too long. One at a time: a callback may make new requests. */
static struct request *take_late(struct queue *q, int64_t now, bool connected)
{
    for (struct request **at = &q->head; *at != NULL; at = &(*at)->next) {
        struct request *r = *at;
        if (r->deadline_ms <= now || (!connected && r->connect_by_ms <= now)) {
            queue_unlink(q, at);
            return r;
        }
    }
    return NULL;
}

static void expire(struct keeper_link *k)
{
    int64_t now = clock_boot_ms();
    struct request *r;
    struct err e;
    int fd = -1;

    while ((r = take_late(&k->waiting, now, k->fd >= 0)) != NULL) {
        err_set(&e, ERR_UNAVAILABLE, "the keeper cannot be reached");
        finish(k, r, &e, NULL, 0, &fd);
    }
    while ((r = take_late(&k->sent, now, true)) != NULL) {
        err_set(&e, ERR_TIMEOUT, "the keeper has not answered in time");
        finish(k, r, &e, NULL, 0, &fd);
    }
}

static void on_tick(void *arg)
{
    struct keeper_link *k = arg;

    k->ticking = false;
    if (k->fd < 0 && clock_boot_ms() >= k->connect_at_ms)
        try_connect(k);
    expire(k);
    if (k->fd < 0 || k->count > 0)
        start_tick(k);
}

struct keeper_link *keeper_link_new(struct loop *l, const char *socket_path)
{
    struct keeper_link *k = mem_zalloc(sizeof *k);

    k->loop = l;
    k->path = mem_strdup(socket_path);
    k->fd = -1;
    k->backoff_ms = BACKOFF_MIN_MS;
    queue_init(&k->waiting);
    queue_init(&k->sent);
    k->tick = loop_timer_new(l, on_tick, k);
    try_connect(k);
    if (k->fd < 0)
        start_tick(k);
    return k;
}

void keeper_call(struct keeper_link *k, enum keeper_type type, const void *p, size_t n,
                 uint64_t timeout_ms, keeper_cb cb, void *arg)
{
    struct request *r = mem_alloc(sizeof *r + n);
    int64_t now = clock_boot_ms();

    *r = (struct request){.type = type, .cb = cb, .arg = arg, .len = n};
    if (n > 0)
        memcpy(r->payload, p, n);
    if (++k->tag == 0)
        k->tag = 1;
    r->tag = k->tag;
    r->deadline_ms = now + (int64_t)timeout_ms;
    r->connect_by_ms = now + KEEPER_WAIT_MS;
    k->count++;
    queue_add(&k->waiting, r);
    start_tick(k);
    flush(k);
}

void keeper_link_free(struct keeper_link *k)
{
    struct queue *queues[] = {&k->waiting, &k->sent};

    for (size_t i = 0; i < array_len(queues); i++)
        while (queues[i]->head != NULL) {
            struct request *r = queues[i]->head;
            queue_unlink(queues[i], &queues[i]->head);
            free(r);
        }
    loop_io_free(k->io);
    loop_timer_free(k->tick);
    fd_close(&k->fd);
    free(k->path);
    free(k);
}
