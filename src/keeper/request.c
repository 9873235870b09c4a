/*
 * request.c - keeper.sock: messages of the node in, replies out
 *
 * Nothing with a descriptor or a mapping is accepted, and every value is checked before it is used.
 */
#include "keeper/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "ipc/channel.h"
#include "ipc/keeper_proto.h"
#include "keeper/keeper.h"
#include "keeper/runtime/pool.h"
#include "keeper/sandbox.h"
#include "keeper/spawner.h"
#include "keeper/trees.h"
#include "keeper/validate.h"
#include "sys/fd.h"

#define CONNECTIONS_MAX 16 /* the node needs one; its successor overlaps with it */
#define REPLY_HEAD 512     /* room for an encoded keeper_reply */

/* A reply that found the socket full. */
struct queued {
    struct queued *next;
    uint32_t tag;
    int fd; /* owned, -1 = none */
    size_t len;
    uint8_t bytes[];
};

struct connection {
    uint32_t serial;
    struct watch watch;
    int fd;
    struct queued *queue, **queue_end; /* while there is one, no request is read */
    struct connection *next;
};

static struct connection *connections;
static uint32_t nconnections, last_serial;
static struct watch listener;
static uint8_t space[LIMIT_CHANNEL_INLINE];
static uint8_t out[LIMIT_CHANNEL_MESSAGE];

static void drop_queued(struct connection *c)
{
    struct queued *q = c->queue;

    c->queue = q->next;
    if (c->queue == NULL)
        c->queue_end = &c->queue;
    fd_close(&q->fd);
    free(q);
}

static void hang_up(struct connection *c)
{
    for (struct connection **at = &connections; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    nconnections--;
    while (c->queue != NULL)
        drop_queued(c);
    evloop_unwatch(&keeper.loop, &c->watch);
    fd_close(&c->fd);
    free(c);
}

/* Watches for requests, or with a queue for room. 0 or -errno. */
static int watch(struct connection *c)
{
    evloop_unwatch(&keeper.loop, &c->watch);
    return evloop_watch(&keeper.loop, &c->watch, c->fd, c->queue != NULL ? EPOLLOUT : EPOLLIN);
}

static int enqueue(struct connection *c, uint32_t tag, const void *p, size_t len, int fd)
{
    struct queued *q = mem_alloc(sizeof *q + len);

    *q = (struct queued){.tag = tag, .len = len, .fd = -1};
    memcpy(q->bytes, p, len);
    if (fd >= 0)
        q->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd >= 0 && q->fd < 0) {
        free(q);
        return -EMFILE;
    }
    bool was_empty = c->queue == NULL;
    *c->queue_end = q;
    c->queue_end = &q->next;
    return was_empty ? watch(c) : 0;
}

static void drain(struct connection *c)
{
    while (c->queue != NULL) {
        const struct queued *q = c->queue;
        int r = chan_send(c->fd, KEEPER_REPLY, q->tag, q->bytes, q->len, &q->fd, q->fd >= 0);
        if (r == -EAGAIN)
            return;
        if (r < 0) {
            hang_up(c);
            return;
        }
        drop_queued(c);
    }
    if (watch(c) < 0)
        hang_up(c);
}

void request_reply(struct reply_to to, const struct err *e, const void *payload, size_t len, int fd)
{
    struct connection *c = connections;
    struct keeper_reply reply = {0};

    while (c != NULL && c->serial != to.connection)
        c = c->next;
    if (c == NULL || to.tag == 0)
        return;
    if (e != NULL) {
        reply.code = (uint16_t)(e->code == ERR_OK ? ERR_INTERNAL : e->code);
        reply.sys_errno = e->sys_errno;
        snprintf(reply.param, sizeof reply.param, "%.*s", (int)sizeof reply.param - 1, e->param);
        snprintf(reply.message, sizeof reply.message, "%.*s", (int)sizeof reply.message - 1,
                 e->message);
    }
    size_t n = keeper_reply_encode(&reply, out, sizeof out);
    if (len > 0)
        memmove(out + n, payload, len); /* the payload may lie in `out` itself */
    int r = -EAGAIN;
    if (c->queue == NULL)
        r = chan_send(c->fd, KEEPER_REPLY, to.tag, out, n + len, &fd, fd >= 0);
    if (r == -EAGAIN)
        r = enqueue(c, to.tag, out, n + len, fd);
    if (r < 0) {
        log_warn("request", "reply failed: errno=%d, closing the connection", -r);
        hang_up(c);
    }
}

static void reply_result(struct reply_to to, int r, const struct err *e)
{
    request_reply(to, r < 0 ? e : NULL, NULL, 0, -1);
}

/* ---- the messages ---- */

static int on_create(const struct chan_msg *m, struct reply_to to, struct err *e)
{
    static struct keeper_create create;

    if (keeper_create_decode(&create, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "malformed create");
    if (validate_create(&create, e) < 0)
        return -1;
    if (keeper.stopping)
        return err_set(e, ERR_UNAVAILABLE, "the keeper is stopping");
    sandbox_create(&create, to);
    return 0;
}

static int on_destroy(const struct chan_msg *m, struct reply_to to, struct err *e)
{
    struct keeper_destroy destroy;

    if (keeper_destroy_decode(&destroy, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "malformed destroy");
    if (validate_destroy(&destroy, e) < 0)
        return -1;
    sandbox_destroy(destroy.sandbox, to);
    return 0;
}

static int on_tree(const struct chan_msg *m, struct reply_to to, struct err *e)
{
    struct keeper_tree tree;
    auto_close int fd = -1;

    if (keeper_tree_decode(&tree, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "malformed tree");
    if (validate_tree(&tree, e) < 0 || sandbox_tree(tree.sandbox, &fd, e) < 0)
        return -1;
    request_reply(to, NULL, NULL, 0, fd);
    return 0;
}

static int on_limits(const struct chan_msg *m, struct reply_to to, struct err *e)
{
    struct keeper_limits limits;
    uint8_t cpus[KEEPER_CPUS];

    if (keeper_limits_decode(&limits, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "malformed limits");
    if (validate_limits(&limits, e) < 0 || sandbox_set_limits(&limits, cpus, e) < 0)
        return -1;
    request_reply(to, NULL, cpus, sizeof cpus, -1);
    return 0;
}

static int on_list(const struct chan_msg *m, struct reply_to to, struct err *e)
{
    if (m->len != 0)
        return err_set(e, ERR_MALFORMED, "malformed list");
    size_t n = sandbox_list(out + REPLY_HEAD, sizeof out - REPLY_HEAD);
    if (n == 0)
        return err_set(e, ERR_INTERNAL, "the list does not fit into a message");
    request_reply(to, NULL, out + REPLY_HEAD, n, -1);
    return 0;
}

/* Renamed out of sight at once; the spawner removes it at leisure. */
static int on_layer_delete(const struct chan_msg *m, struct reply_to to, struct err *e)
{
    struct keeper_layer layer;
    char trash[160];
    uint64_t nonce;

    if (keeper_layer_decode(&layer, m->data, m->len) < 0)
        return err_set(e, ERR_MALFORMED, "malformed layer delete");
    if (validate_layer(&layer, e) < 0)
        return -1;
    if (sandbox_uses_layer(layer.layer))
        return err_set(e, ERR_CONFLICT, "layer %s is used by a sandbox", layer.layer);
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        return err_sys(e, errno, "get random bytes");
    snprintf(trash, sizeof trash, ".trash/%s.%016llx", layer.layer, (unsigned long long)nonce);
    if (renameat(keeper.layers_fd, layer.layer, keeper.layers_fd, trash) < 0) {
        if (errno == ENOENT)
            return err_set(e, ERR_NOT_FOUND, "layer %s is not on this node", layer.layer);
        return err_sys(e, errno, "remove layer %s", layer.layer);
    }
    (void)spawner_empty_trash(); /* else the next deletion or the next start does it */
    reply_result(to, 0, NULL);
    return 0;
}

static uint64_t meminfo_bytes(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10) * 1024;
}

static int on_stats(const struct chan_msg *m, struct reply_to to, struct err *e)
{
    struct keeper_stats s = {.pool_ready = pool_ready(), .sandboxes = sandbox_alive()};
    struct statvfs fs;
    char text[512];

    if (m->len != 0)
        return err_set(e, ERR_MALFORMED, "malformed stats");
    ssize_t n = pread(keeper.meminfo_fd, text, sizeof text - 1, 0);
    if (n < 0)
        return err_sys(e, errno, "read /proc/meminfo");
    text[n] = '\0';
    s.memory_total = meminfo_bytes(text, "MemTotal:");
    s.memory_available = meminfo_bytes(text, "MemAvailable:");
    if (fstatvfs(keeper.trees_fd, &fs) < 0)
        return err_sys(e, errno, "read the size of trees");
    s.trees_total = (uint64_t)fs.f_blocks * fs.f_frsize + trees_growable();
    s.trees_free = (uint64_t)fs.f_bavail * fs.f_frsize + trees_growable();
    size_t len = keeper_stats_encode(&s, out + REPLY_HEAD, sizeof out - REPLY_HEAD);
    request_reply(to, NULL, out + REPLY_HEAD, len, -1);
    return 0;
}

static void dispatch(struct connection *c, const struct chan_msg *m)
{
    struct reply_to to = {c->serial, m->tag};
    struct err e = {0};
    int r;

    switch (m->type) {
    case KEEPER_CREATE:
        r = on_create(m, to, &e);
        break;
    case KEEPER_DESTROY:
        r = on_destroy(m, to, &e);
        break;
    case KEEPER_LIST:
        r = on_list(m, to, &e);
        break;
    case KEEPER_TREE:
        r = on_tree(m, to, &e);
        break;
    case KEEPER_LIMITS:
        r = on_limits(m, to, &e);
        break;
    case KEEPER_LAYER_DELETE:
        r = on_layer_delete(m, to, &e);
        break;
    case KEEPER_STATS:
        r = on_stats(m, to, &e);
        break;
    default:
        r = err_set(&e, ERR_UNSUPPORTED, "the keeper knows no message of type %u",
                    (unsigned)m->type);
        break;
    }
    if (r < 0)
        request_reply(to, &e, NULL, 0, -1);
}

/* ---- connections ---- */

static void readable(struct watch *w, uint32_t events)
{
    struct connection *c = container_of(w, struct connection, watch);
    struct chan_msg m;

    if (c->queue != NULL) {
        drain(c);
        return;
    }
    int r = chan_recv(c->fd, space, sizeof space, CHAN_NO_FDS, &m);
    if (r == -EAGAIN)
        return;
    if (r <= 0) {
        if (r < 0)
            log_warn("request", "connection closed: errno=%d", -r);
        hang_up(c);
        return;
    }
    dispatch(c, &m);
    chan_msg_done(&m);
}

static void incoming(struct watch *w, uint32_t events)
{
    uint32_t uid;
    int32_t pid;
    auto_close int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    int r = chan_peer(fd, &uid, &pid);
    if (r < 0 || (uid != 0 && uid != keeper.users[ROLE_NODE].uid)) {
        log_warn("request", "refused a connection of uid=%u pid=%d", uid, pid);
        return;
    }
    if (nconnections == CONNECTIONS_MAX) {
        log_warn("request", "refused a connection: %d are open", CONNECTIONS_MAX);
        return;
    }
    struct connection *c = mem_zalloc(sizeof *c);
    c->watch = (struct watch){.ready = readable, .fd = -1};
    c->queue_end = &c->queue;
    if (evloop_watch(&keeper.loop, &c->watch, fd, EPOLLIN) < 0) {
        free(c);
        return;
    }
    c->fd = take_fd(&fd);
    if (++last_serial == 0)
        last_serial = 1;
    c->serial = last_serial;
    c->next = connections;
    connections = c;
    nconnections++;
}

int request_listen(struct err *e)
{
    listener = (struct watch){.ready = incoming, .fd = -1};
    int r = evloop_watch(&keeper.loop, &listener, keeper.keeper_sock, EPOLLIN);
    return r < 0 ? err_sys(e, -r, "watch keeper.sock") : 0;
}
