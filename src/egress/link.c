/*
 * link.c - what the node asks of egress
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "egress/egress.h"
#include "ipc/channel.h"
#include "ipc/wire.h"
#include "sys/fd.h"

#define LINKS_MAX 16
#define BATCH 64                /* messages of one link a turn */
#define ANSWER_MAX (LIMIT_CHANNEL_INLINE - CHAN_HEADER)

struct link {
    struct link_server *server;
    int fd;                     /* -1 = free */
    struct loop_io *io;
};

struct link_server {
    struct egress *egress;
    uint32_t node_uid;          /* who may speak to us besides root */
    struct loop_io *io;
    struct link links[LINKS_MAX];
    uint8_t space[LIMIT_CHANNEL_INLINE];
    uint8_t answer[ANSWER_MAX];
};

static void close_link(struct link *l)
{
    loop_io_free(l->io);
    l->io = NULL;
    fd_close(&l->fd);
}

/* The node reads all the time; who does not is cut off. */
static int send_it(const struct link *l, uint16_t type, uint32_t tag, const void *p, size_t n)
{
    return chan_send(l->fd, type, tag, p, n, NULL, 0);
}

static int answer_error(struct link *l, uint32_t tag, const struct err *e)
{
    struct egress_error m = {.code = (uint16_t)e->code};
    size_t n = strnlen(e->message, sizeof m.message - 1);

    memcpy(m.message, e->message, n);
    return send_it(l, EGRESS_ERROR, tag, l->server->answer, egress_error_encode(&m, l->server->answer, ANSWER_MAX));
}

static int on_hello(struct link *l, const struct chan_msg *m)
{
    struct wire_writer w;

    if (m->len != 0)
        return -EBADMSG;
    wire_init(&w, l->server->answer, ANSWER_MAX);
    wire_put_u32(&w, (uint32_t)l->server->egress->boxes.count);
    wire_put_str(&w, QS_VERSION);
    return send_it(l, EGRESS_HELLO_R, m->tag, l->server->answer, w.len);
}

static int on_policy(struct link *l, struct chan_msg *m)
{
    struct egress *g = l->server->egress;
    struct egress_policy p;
    struct err e;
    bool attach = m->type == EGRESS_ATTACH;

    /* One sandbox's message that cannot be read is no reason to forget all others. */
    if (egress_policy_decode(&p, m->data, m->len) < 0 || m->nfds != (attach ? EGRESS_SOCKETS : 0)) {
        err_set(&e, ERR_INVALID, "the message cannot be read");
        return answer_error(l, m->tag, &e);
    }
    bool ok = attach ? box_attach(g, &p, m->fds, &e) != NULL : box_policy(g, &p, &e) == 0;
    /* Values of secrets were in it. What came by a memfd is gone with that. */
    if (m->map_ == NULL)
        explicit_bzero(l->server->space, sizeof l->server->space);
    return ok ? send_it(l, EGRESS_OK, m->tag, NULL, 0) : answer_error(l, m->tag, &e);
}

static int on_detach(struct link *l, const struct chan_msg *m)
{
    char sandbox[ID_SIZE];

    if (egress_ref_decode(sandbox, m->data, m->len) < 0)
        return -EBADMSG;
    struct box *b = map_get(&l->server->egress->boxes, sandbox);
    if (b != NULL)
        box_detach(b);
    return send_it(l, EGRESS_OK, m->tag, NULL, 0);
}

static int on_status(struct link *l, const struct chan_msg *m)
{
    char sandbox[ID_SIZE];
    struct err e;

    if (egress_ref_decode(sandbox, m->data, m->len) < 0)
        return -EBADMSG;
    struct box *b = map_get(&l->server->egress->boxes, sandbox);
    if (b == NULL) {
        err_set(&e, ERR_NOT_FOUND, "no sandbox %s here", sandbox);
        return answer_error(l, m->tag, &e);
    }
    b->status.revision = b->revision;
    b->status.flows_now = b->nflows + udp_flows_count(b);
    return send_it(l, EGRESS_STATUS_R, m->tag, l->server->answer,
                   egress_status_encode(&b->status, l->server->answer, ANSWER_MAX));
}

static int handle(struct link *l, struct chan_msg *m)
{
    switch (m->type) {
    case EGRESS_HELLO:
        return on_hello(l, m);
    case EGRESS_ATTACH:
    case EGRESS_POLICY:
        return on_policy(l, m);
    case EGRESS_DETACH:
        return on_detach(l, m);
    case EGRESS_STATUS:
        return on_status(l, m);
    default:
        return -EBADMSG;
    }
}

static void on_message(int fd, unsigned what, void *arg)
{
    struct link *l = arg;
    struct chan_msg m;

    for (int i = 0; i < BATCH; i++) {
        int r = chan_recv(fd, l->server->space, sizeof l->server->space, 0, &m);
        if (r == -EAGAIN)
            return;
        if (r == 1) {
            r = handle(l, &m);
            chan_msg_done(&m);
            if (r == 0)
                continue;
        }
        if (r < 0)
            log_warn("egress.link", "error=%d", -r);
        close_link(l);
        return;
    }
}

static void on_connection(int listener, unsigned what, void *arg)
{
    struct link_server *s = arg;
    uint32_t uid;
    int32_t pid;
    auto_close int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (chan_peer(fd, &uid, &pid) < 0 || (uid != 0 && uid != s->node_uid)) {
        log_warn("egress.refused", "uid=%u", uid);
        return;
    }
    for (size_t i = 0; i < LINKS_MAX; i++) {
        struct link *l = &s->links[i];
        if (l->fd >= 0)
            continue;
        l->fd = take_fd(&fd);
        l->io = loop_io_new(s->egress->loop, l->fd, LOOP_READ, on_message, l);
        return;
    }
    log_warn("egress.refused", "links=%d", LINKS_MAX);
}

bool links_tell(struct egress *g, uint16_t type, const void *p, size_t n)
{
    struct link_server *s = g->links;
    bool told = false;

    for (size_t i = 0; s != NULL && n > 0 && i < LINKS_MAX; i++)
        if (s->links[i].fd >= 0)
            told = send_it(&s->links[i], type, 0, p, n) == 0 || told;
    return told;
}

struct link_server *links_new(struct egress *g, int listener, uint32_t node_uid)
{
    struct link_server *s = mem_zalloc(sizeof *s);

    s->egress = g;
    s->node_uid = node_uid;
    for (size_t i = 0; i < LINKS_MAX; i++)
        s->links[i] = (struct link){.server = s, .fd = -1};
    s->io = loop_io_new(g->loop, listener, LOOP_READ, on_connection, s);
    return s;
}

void links_free(struct link_server *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < LINKS_MAX; i++)
        close_link(&s->links[i]);
    loop_io_free(s->io);
    free(s);
}
