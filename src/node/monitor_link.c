/*
 * monitor_link.c - connections to the monitors, one a sandbox, made when needed
 *
 * A request is in exactly one place: the queue of its link (not sent), a slot of its link (sent,
 * waiting for the reply; the slot's number is the tag), or the pool's `ended` list (its callback
 * comes from the next pass of the loop). A cancelled request keeps its slot, without a callback,
 * until the reply arrives, so that a tag is never used twice on one connection.
 */
#include "node/monitor_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "sys/fd.h"

#define TICK_MS 200
#define OPEN_MAX_IDLE \
    2048 /* connections above this number are closed when they have nothing to do */
#define SLOTS_MAX 16384         /* requests under way a sandbox */
#define ATTEMPTS_MAX 4          /* connections on which one request is tried */
#define CONNECT_RETRY_MS 2000   /* a full backlog is waited for as long as this */

struct monitor_req {
    struct monitor_req *next;   /* in queue or ended */
    uint64_t order;             /* requests of a link are sent in this order, also a second time */
    struct link *link;          /* NULL once it is in `ended` */
    monitor_cb cb;              /* NULL: cancelled */
    void *arg;
    int64_t deadline_ms;
    enum mon_type type;
    int attempts;
    enum monitor_result result; /* of a request in `ended` */
    struct err error;
    size_t len;
    uint8_t payload[];
};

struct link {
    struct monitor_pool *pool;
    struct link *prev, *next;   /* of all links, most recently used first */
    char sandbox[ID_SIZE];
    int fd;
    struct loop_io *io;
    unsigned wanted;            /* what io watches for */
    bool busy;                  /* its requests are being handled: it may not be freed */
    int64_t connect_since_ms;   /* of a connect that found the backlog full, else 0 */
    struct monitor_req *head, **tail;   /* not sent */
    struct monitor_req **slots;
    uint32_t *free_slots;       /* stack of free slot numbers */
    uint32_t nfree, nslots;
    uint64_t order;
};

struct monitor_pool {
    struct loop *loop;
    int run_fd;                 /* borrowed */
    struct map links;
    struct link *first, *last;
    size_t open;                /* links with a connection */
    struct monitor_req *ended, **ended_tail;
    struct loop_job soon;       /* delivers `ended` */
    struct loop_timer *tick;
    bool ticking;
    uint8_t space[LIMIT_CHANNEL_INLINE];
};

/* --- lists ----------------------------------------------------------------------------------- */

static void list_out(struct link *l)
{
    struct monitor_pool *p = l->pool;

    *(l->prev != NULL ? &l->prev->next : &p->first) = l->next;
    *(l->next != NULL ? &l->next->prev : &p->last) = l->prev;
}

static void list_in_front(struct link *l)
{
    struct monitor_pool *p = l->pool;

    l->prev = NULL;
    l->next = p->first;
    *(p->first != NULL ? &p->first->prev : &p->last) = l;
    p->first = l;
}

/* Nothing is under way. */
static bool is_quiet(const struct link *l)
{
    return l->head == NULL && l->nfree == l->nslots;
}

static bool is_idle(const struct link *l)
{
    return !l->busy && is_quiet(l);
}

static void queue_add(struct link *l, struct monitor_req *r)
{
    r->next = NULL;
    *l->tail = r;
    l->tail = &r->next;
}

static struct monitor_req *queue_pop(struct link *l)
{
    struct monitor_req *r = l->head;

    l->head = r->next;
    if (l->head == NULL)
        l->tail = &l->head;
    return r;
}

static void start_tick(struct monitor_pool *p)
{
    if (!p->ticking)
        loop_timer_set(p->tick, TICK_MS);
    p->ticking = true;
}

/* --- slots ----------------------------------------------------------------------------------- */

static bool grow_slots(struct link *l)
{
    uint32_t n = l->nslots == 0 ? 8 : l->nslots * 2;

    if (n > SLOTS_MAX)
        return false;
    l->slots = mem_realloc(l->slots, n * sizeof *l->slots);
    l->free_slots = mem_realloc(l->free_slots, n * sizeof *l->free_slots);
    for (uint32_t i = n; i > l->nslots; i--) {
        l->slots[i - 1] = NULL;
        l->free_slots[l->nfree++] = i - 1;
    }
    l->nslots = n;
    return true;
}

static struct monitor_req *clear_slot(struct link *l, uint32_t slot)
{
    struct monitor_req *r = l->slots[slot];

    l->slots[slot] = NULL;
    l->free_slots[l->nfree++] = slot;
    return r;
}

/* --- ends ------------------------------------------------------------------------------------ */

/* The callback comes from the next pass of the loop. */
static void end_later(struct monitor_pool *p, struct monitor_req *r, enum monitor_result result,
                      const struct err *e)
{
    if (r->cb == NULL) {
        free(r);
        return;
    }
    r->link = NULL;
    r->result = result;
    if (e != NULL)
        r->error = *e;
    r->next = NULL;
    *p->ended_tail = r;
    p->ended_tail = &r->next;
    loop_job_soon(p->loop, &p->soon);
}

static void on_soon(void *arg)
{
    struct monitor_pool *p = arg;

    while (p->ended != NULL) {
        struct monitor_req *r = p->ended;
        p->ended = r->next;
        if (p->ended == NULL)
            p->ended_tail = &p->ended;
        if (r->cb != NULL)
            r->cb(r->arg, r->result, NULL, r->result == MONITOR_ERROR ? &r->error : NULL);
        free(r);
    }
}

static void close_link(struct link *l)
{
    if (l->fd >= 0)
        l->pool->open--;
    loop_io_free(l->io);
    l->io = NULL;
    fd_close(&l->fd);
}

static void free_link(struct link *l)
{
    close_link(l);
    list_out(l);
    (void)map_del(&l->pool->links, l->sandbox);
    free(l->slots);
    free(l->free_slots);
    free(l);
}

/* Ends everything the link has under way. */
static void end_all(struct link *l, enum monitor_result result, const struct err *e)
{
    for (uint32_t i = 0; i < l->nslots; i++)
        if (l->slots[i] != NULL)
            end_later(l->pool, clear_slot(l, i), result, e);
    while (l->head != NULL)
        end_later(l->pool, queue_pop(l), result, e);
}

/* --- connection ------------------------------------------------------------------------------ */

static void on_io(int fd, unsigned what, void *arg);

static void close_idle(struct monitor_pool *p, size_t keep)
{
    struct link *l = p->last;

    while (l != NULL && p->open > keep) {
        struct link *prev = l->prev;
        if (l->fd >= 0 && is_idle(l))
            close_link(l);          /* freed by the next tick */
        l = prev;
    }
    start_tick(p);
}

/* data_dir may be longer than sun_path, so the socket is named below its directory's descriptor. */
static int dial(struct monitor_pool *p, const char *sandbox, int *ret_fd)
{
    char path[64];
    auto_close int dir = openat(p->run_fd, sandbox, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0)
        return -errno;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/monitor.sock", dir);
    return chan_connect(path, ret_fd);
}

static void want(struct link *l, unsigned what)
{
    if (l->wanted != what)
        loop_io_set(l->io, what);
    l->wanted = what;
}

static void use_connection(struct link *l, int fd)
{
    l->fd = fd;
    l->wanted = LOOP_READ;
    l->io = loop_io_new(l->pool->loop, fd, LOOP_READ, on_io, l);
    l->connect_since_ms = 0;
    if (++l->pool->open > OPEN_MAX_IDLE)
        close_idle(l->pool, OPEN_MAX_IDLE);
}

static void connect_link(struct link *l)
{
    struct monitor_pool *p = l->pool;
    int64_t now = clock_boot_ms();
    struct err e;
    int fd;

    int rc = dial(p, l->sandbox, &fd);
    if (rc == -EMFILE || rc == -ENFILE) {
        l->busy = true;
        close_idle(p, p->open / 2);
        l->busy = false;
        rc = dial(p, l->sandbox, &fd);
    }
    if (rc == 0) {
        use_connection(l, fd);
        return;
    }
    /* EACCES: a run directory that the keeper has not handed to us yet. */
    if (rc == -ENOENT || rc == -ECONNREFUSED || rc == -EACCES) {
        end_all(l, MONITOR_GONE, NULL);
        return;
    }
    if (l->connect_since_ms == 0)
        l->connect_since_ms = now;
    if (rc == -EAGAIN && now - l->connect_since_ms < CONNECT_RETRY_MS) {
        start_tick(p);
        return;
    }
    l->connect_since_ms = 0;
    err_sys(&e, -rc, "reach the monitor of %s", l->sandbox);
    end_all(l, MONITOR_ERROR, &e);
}

/* A signal sent twice is two signals. */
static bool may_repeat(const struct monitor_req *r)
{
    return r->type != MON_SIGNAL && r->attempts < ATTEMPTS_MAX;
}

static int by_order(const void *a, const void *b)
{
    const struct monitor_req *x = *(struct monitor_req *const *)a;
    const struct monitor_req *y = *(struct monitor_req *const *)b;

    return x->order < y->order ? -1 : x->order > y->order;
}

/* Puts what was sent back in front of what was not, in the order in which it was asked. */
static void requeue(struct link *l)
{
    auto_free struct monitor_req **sent = mem_array(l->nslots + 1, sizeof *sent);
    struct monitor_req *rest = l->head;
    size_t n = 0;
    struct err e;

    err_set(&e, ERR_UNAVAILABLE, "the connection to the monitor of %s broke", l->sandbox);
    for (uint32_t i = 0; i < l->nslots; i++) {
        if (l->slots[i] == NULL)
            continue;
        struct monitor_req *r = clear_slot(l, i);
        if (r->cb != NULL && may_repeat(r))
            sent[n++] = r;
        else
            end_later(l->pool, r, MONITOR_ERROR, &e);
    }
    qsort(sent, n, sizeof *sent, by_order);
    l->head = NULL;
    l->tail = &l->head;
    for (size_t i = 0; i < n; i++)
        queue_add(l, sent[i]);
    while (rest != NULL) {
        struct monitor_req *next = rest->next;
        queue_add(l, rest);
        rest = next;
    }
}

/* The connection broke: connect again if anything is under way. */
static void lose_link(struct link *l)
{
    close_link(l);
    requeue(l);
    if (l->head != NULL)
        connect_link(l);
}

static void flush(struct link *l)
{
    while (l->fd >= 0 && l->head != NULL) {
        struct monitor_req *r = l->head;
        if (r->cb == NULL) {
            free(queue_pop(l));
            continue;
        }
        if (l->nfree == 0 && !grow_slots(l))
            return;                 /* a reply makes room */
        uint32_t slot = l->free_slots[l->nfree - 1];
        int rc = chan_send(l->fd, (uint16_t)r->type, slot + 1, r->payload, r->len, NULL, 0);
        if (rc == -EAGAIN) {
            want(l, LOOP_READ | LOOP_WRITE);
            return;
        }
        r->attempts++;
        if (rc == -EPIPE || rc == -ECONNRESET) {
            lose_link(l);
            continue;
        }
        (void)queue_pop(l);
        if (rc < 0) {
            struct err e;
            err_sys(&e, -rc, "ask the monitor of %s", l->sandbox);
            end_later(l->pool, r, MONITOR_ERROR, &e);
            continue;
        }
        l->nfree--;
        l->slots[slot] = r;
    }
}

static void on_reply(struct link *l, const struct chan_msg *m)
{
    struct mon_error me;
    struct err e;

    if (m->tag == 0 || m->tag > l->nslots || l->slots[m->tag - 1] == NULL)
        return;
    struct monitor_req *r = clear_slot(l, m->tag - 1);
    if (r->cb == NULL) {
        free(r);
        return;
    }
    if (m->type != MON_ERROR) {
        r->cb(r->arg, MONITOR_REPLY, m, NULL);
    } else if (mon_error_decode(&me, m->data, m->len) < 0) {
        err_set(&e, ERR_INTERNAL, "the monitor's reply cannot be read");
        r->cb(r->arg, MONITOR_ERROR, NULL, &e);
    } else {
        enum err_code code = me.code != ERR_OK && me.code < ERR_MAX_ ? (enum err_code)me.code
                                                                    : ERR_INTERNAL;
        err_param(&e, code, me.param, "%s", me.message);
        e.sys_errno = me.sys_errno;
        r->cb(r->arg, MONITOR_ERROR, NULL, &e);
    }
    free(r);
}

static void on_io(int fd, unsigned what, void *arg)
{
    struct link *l = arg;
    struct chan_msg m;

    (void)fd;
    l->busy = true;
    for (int i = 0; (what & LOOP_READ) != 0 && i < 32 && l->fd >= 0; i++) {
        int rc = chan_recv(l->fd, l->pool->space, sizeof l->pool->space, 0, &m);
        if (rc == -EAGAIN)
            break;
        if (rc <= 0) {
            lose_link(l);
            break;
        }
        on_reply(l, &m);
        chan_msg_done(&m);
        if (is_quiet(l))        /* nothing more is due: spare the call that would say so */
            break;
    }
    if (l->head != NULL)
        flush(l);
    /* A queue that waits for a slot is moved by a reply, not by room in the socket. */
    if (l->fd >= 0 && (l->head == NULL || l->nfree == 0))
        want(l, LOOP_READ);
    l->busy = false;
}

/* --- time ------------------------------------------------------------------------------------ */

static void expire(struct link *l, int64_t now, bool *ret_waiting)
{
    struct err e;

    err_set(&e, ERR_TIMEOUT, "the monitor of %s has not answered in time", l->sandbox);
    for (uint32_t i = 0; i < l->nslots; i++) {
        struct monitor_req *r = l->slots[i];
        if (r == NULL || r->cb == NULL)
            continue;
        if (r->deadline_ms > now) {
            *ret_waiting = true;
            continue;
        }
        /* The slot stays taken; a twin without callback holds it. */
        struct monitor_req *twin = mem_zalloc(sizeof *twin);
        twin->link = l;
        l->slots[i] = twin;
        end_later(l->pool, r, MONITOR_ERROR, &e);
    }
    struct monitor_req *r = l->head;
    l->head = NULL;
    l->tail = &l->head;
    while (r != NULL) {
        struct monitor_req *next = r->next;
        if (r->cb != NULL && r->deadline_ms > now) {
            *ret_waiting = true;
            queue_add(l, r);
        } else {
            end_later(l->pool, r, MONITOR_ERROR, &e);
        }
        r = next;
    }
}

static void on_tick(void *arg)
{
    struct monitor_pool *p = arg;
    int64_t now = clock_boot_ms();
    bool waiting = false;

    p->ticking = false;
    for (struct link *l = p->first, *next; l != NULL; l = next) {
        next = l->next;
        expire(l, now, &waiting);
        if (l->fd < 0 && l->head != NULL) {
            connect_link(l);
            flush(l);
        }
        if (l->fd < 0 && is_idle(l))
            free_link(l);
    }
    if (waiting)
        start_tick(p);
}

/* --- interface ------------------------------------------------------------------------------- */

static struct link *get_link(struct monitor_pool *p, const char *sandbox)
{
    struct link *l = map_get(&p->links, sandbox);

    if (l != NULL) {
        list_out(l);
    } else {
        l = mem_zalloc(sizeof *l);
        l->pool = p;
        l->fd = -1;
        l->tail = &l->head;
        (void)snprintf(l->sandbox, sizeof l->sandbox, "%s", sandbox);
        (void)map_put(&p->links, sandbox, l);
    }
    list_in_front(l);
    return l;
}

void monitor_attach(struct monitor_pool *p, const char *sandbox, int *fd)
{
    struct link *l = get_link(p, sandbox);

    if (l->fd >= 0 || fd_set_nonblock(*fd, true) < 0) {
        fd_close(fd);           /* connected by path meanwhile */
        return;
    }
    l->busy = true;
    use_connection(l, take_fd(fd));
    flush(l);
    l->busy = false;
}

void monitor_forget(struct monitor_pool *p, const char *sandbox)
{
    struct link *l = map_get(&p->links, sandbox);

    if (l == NULL)
        return;
    end_all(l, MONITOR_GONE, NULL);
    close_link(l);
    if (!l->busy)
        free_link(l);
    else
        start_tick(p);          /* freed there */
}

struct monitor_req *monitor_call(struct monitor_pool *p, const char *sandbox, enum mon_type type,
                                 const void *payload, size_t n, uint64_t timeout_ms, monitor_cb cb,
                                 void *arg)
{
    struct monitor_req *r = mem_alloc(sizeof *r + n);
    struct link *l = get_link(p, sandbox);
    bool was_busy = l->busy;

    *r = (struct monitor_req){.link = l, .cb = cb, .arg = arg, .type = type, .len = n};
    r->order = ++l->order;
    r->deadline_ms = clock_boot_ms() + (int64_t)timeout_ms;
    if (n > 0)
        memcpy(r->payload, payload, n);
    queue_add(l, r);
    l->busy = true;
    if (l->fd < 0 && l->connect_since_ms == 0)
        connect_link(l);
    flush(l);
    l->busy = was_busy;
    start_tick(p);
    return r;
}

void monitor_cancel(struct monitor_req *r)
{
    r->cb = NULL;
}

struct monitor_pool *monitor_pool_new(struct loop *l, int run_fd)
{
    struct monitor_pool *p = mem_zalloc(sizeof *p);

    p->loop = l;
    p->run_fd = run_fd;
    p->ended_tail = &p->ended;
    map_init(&p->links);
    p->soon = (struct loop_job){.cb = on_soon, .arg = p};
    p->tick = loop_timer_new(l, on_tick, p);
    return p;
}

void monitor_pool_free(struct monitor_pool *p)
{
    while (p->first != NULL) {
        struct link *l = p->first;
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): free_link takes it off the list */
        for (uint32_t i = 0; i < l->nslots; i++)
            free(l->slots[i]);
        while (l->head != NULL)
            free(queue_pop(l));
        free_link(l);
    }
    while (p->ended != NULL) {
        struct monitor_req *r = p->ended;
        p->ended = r->next;
        free(r);
    }
    loop_job_cancel(&p->soon);
    loop_timer_free(p->tick);
    map_done(&p->links);
    free(p);
}
