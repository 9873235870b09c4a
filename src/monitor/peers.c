/*
 * peers.c - connections of the node, and the requests that wait for their reply
 *
 * Every request becomes a waiter; a waiter is answered when it is ready, overdue, or the end has come,
 * and as soon as the socket has room. A peer that reads nothing keeps its waiters, up to a cap, and is
 * then not read either; nothing of the sandbox waits for it. A peer that breaks the protocol is closed
 * at the end of the turn, so that no list changes under a loop.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "monitor/monitor.h"
#include "sys/fd.h"

#define BATCH 32            /* requests of one peer a turn */
#define REPLY_MAX (LIMIT_CHANNEL_INLINE - CHAN_HEADER)
#define RECORD_MAX 1024     /* bytes of any encoded exec record */
#define TYPE_MASK 0x7fffu   /* without the memfd flag of the channel */

static struct peer peers[PEERS_MAX];
static struct waiter waiters[WAITERS_MAX];
static unsigned waiters_high;   /* none is in use from here on */
static unsigned waiters_free;   /* of those below */
static unsigned lowest_free;    /* none is free below this */
static bool resume;

void peers_init(void)
{
    for (int i = 0; i < PEERS_MAX; i++)
        peers[i].fd = -1;
}

static void update_events(unsigned index)
{
    struct peer *p = &peers[index];
    uint32_t want = (p->paused ? 0 : (uint32_t)EPOLLIN) | (p->blocked ? (uint32_t)EPOLLOUT : 0);

    if (p->fd >= 0 && want != p->events) {
        p->events = want;
        watch_change(p->fd, want, SRC_PEER, index);
    }
}

int peer_add(int fd)
{
    auto_close int own = fd;

    for (unsigned i = 0; i < PEERS_MAX; i++) {
        if (peers[i].fd >= 0)
            continue;
        int r = watch_add(own, EPOLLIN, SRC_PEER, i);
        if (r < 0)
            return r;
        peers[i] = (struct peer){.fd = take_fd(&own), .events = EPOLLIN};
        return 0;
    }
    return -EMFILE;
}

void peers_on_listener(void)
{
    for (int i = 0; i < PEERS_MAX; i++) {
        uint32_t uid = 0;
        int32_t pid = 0;
        auto_close int fd = accept4(mon.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        /* The mode of the socket keeps others out; who is in its group may still not be the node. */
        if (chan_peer(fd, &uid, &pid) < 0 || (uid != mon.node_uid && uid != 0))
            continue;
        (void)peer_add(take_fd(&fd));   /* too many: closed */
    }
}

static unsigned waiter_index(const struct waiter *w)
{
    return (unsigned)(w - waiters);
}

static bool may_read(const struct peer *p)
{
    return p->waiters < WAITERS_PEER && (waiters_free > 0 || waiters_high < WAITERS_MAX);
}

struct waiter *waiter_new(unsigned peer, uint32_t tag, enum waiter_kind kind, struct exec *e)
{
    unsigned i = waiters_high;

    if (waiters_free > 0) {
        for (i = lowest_free; waiters[i].kind != FOR_FREE; i++)
            continue;
        waiters_free--;
        lowest_free = i + 1;
    } else {
        waiters_high++;         /* may_read() was true before the request was read */
    }
    struct waiter *w = &waiters[i];
    *w = (struct waiter){.kind = (uint8_t)kind, .peer = (uint8_t)peer, .tag = tag};
    peers[peer].waiters++;
    if (e != NULL) {
        w->exec = (uint16_t)(exec_index(e) + 1);
        w->next = e->waiters;
        e->waiters = (uint16_t)(i + 1);
    }
    return w;
}

static void waiter_done(struct waiter *w)
{
    if (w->kind == FOR_DIAL)
        fd_close(&w->fd);
    struct exec *e = w->exec != 0 ? exec_by_index(w->exec - 1u) : NULL;

    if (e != NULL) {
        uint16_t *link = &e->waiters;
        while (*link != waiter_index(w) + 1)
            link = &waiters[*link - 1].next;
        *link = w->next;
    }
    struct peer *p = &peers[w->peer];
    p->waiters--;
    if (p->paused)
        resume = true;
    w->kind = FOR_FREE;
    waiters_free++;
    if (waiter_index(w) < lowest_free)
        lowest_free = waiter_index(w);
    while (waiters_high > 0 && waiters[waiters_high - 1].kind == FOR_FREE) {
        waiters_high--;
        waiters_free--;
    }
}

void waiter_error(unsigned peer, uint32_t tag, enum err_code code, const char *param, const char *message)
{
    struct waiter *w = waiter_new(peer, tag, FOR_ERROR, NULL);

    w->code = (uint16_t)code;
    w->param = param;
    w->message = message;
    waiter_try(w);
}

static void put_text(char *out, size_t size, const char *text)
{
    size_t n = 0;

    for (; text != NULL && text[n] != '\0' && n < size - 1; n++)
        out[n] = text[n];
    out[n] = '\0';
}

static size_t reply_error(uint16_t *ret_type, uint16_t code, int32_t sys_errno, const char *param,
                          const char *message)
{
    struct mon_error m = {.code = code, .sys_errno = sys_errno};

    put_text(m.param, sizeof m.param, param);
    put_text(m.message, sizeof m.message, message);
    *ret_type = MON_ERROR;
    return mon_error_encode(&m, tx_buffer, REPLY_MAX);
}

static size_t reply_exec(const struct waiter *w, const struct exec *e, uint16_t *ret_type)
{
    struct exec_record r;

    exec_fill(e, &r);
    if (w->created)
        r.flags |= MON_EXEC_CREATED;
    *ret_type = MON_EXEC_R;
    return exec_record_encode(&r, tx_buffer, REPLY_MAX);
}

static size_t reply_read(struct waiter *w, struct exec *e, uint16_t *ret_type)
{
    const struct stream *s = &e->s[w->stream];
    struct mon_read_r m = {.offset = w->offset};

    if (m.offset < s->first)
        m.offset = s->first;
    m.total = s->total;
    m.data = io_buffer;
    /* Much of it: the node reads the file itself, and says how far it came when it asks again. */
    if (w->file_ok && s->in_file && m.offset < s->total && s->total - m.offset > w->max)
        m.file_seq = e->r.seq;
    else
        m.len = spool_read(e, w->stream, m.offset, io_buffer, w->max);
    m.eof = s->eof && m.offset + m.len == s->total;
    m.exited = !e->live;
    *ret_type = MON_READ_R;
    w->offset = m.offset + m.len;       /* what is taken once it is sent */
    return mon_read_r_encode(&m, tx_buffer, REPLY_MAX);
}

static size_t reply_list(const struct waiter *w, uint16_t *ret_type)
{
    struct wire_writer out;
    uint32_t count = 0;
    uint32_t next = 0;

    wire_init(&out, tx_buffer, REPLY_MAX);
    wire_put_u32(&out, 0);
    for (const struct exec *e = exec_oldest(); e != NULL; e = exec_newer(e)) {
        struct exec_record r;
        if (e->hidden || e->r.seq < w->max)
            continue;
        if (out.size - out.len < RECORD_MAX + sizeof next) {
            next = e->r.seq;
            break;
        }
        exec_fill(e, &r);
        exec_record_put(&out, &r);
        count++;
    }
    wire_put_u32(&out, next);

    struct wire_writer head;
    wire_init(&head, tx_buffer, sizeof count);
    wire_put_u32(&head, count);
    *ret_type = MON_LIST_R;
    return out.failed ? 0 : out.len;
}

/* NOLINTBEGIN(clang-analyzer-core.NullDereference): only FOR_STATUS waits without an exec */

/* A lazy request is kept while this holds. Half of what may lie unread is early enough not to end the exec. */
static bool is_quiet(const struct exec *e)
{
    uint64_t most = e->keep / 2 < MON_LAZY_BYTES ? e->keep / 2 : MON_LAZY_BYTES;

    return e->live && e->s[OUT].total - e->s[OUT].taken < most && e->s[ERR].total - e->s[ERR].taken < most;
}

/* Whether the time has come to answer, apart from what the peer allows. */
static bool is_ready(const struct waiter *w, const struct exec *e)
{
    if (mon.phase == PHASE_DEAD)
        return true;
    if (w->lazy && mon.now_ms < w->until_ms && is_quiet(e))
        return false;
    switch ((enum waiter_kind)w->kind) {
    case FOR_EXEC:
        return e->r.state != EXEC_STARTING;
    case FOR_WAIT:
        return !e->live || mon.now_ms >= w->until_ms;
    case FOR_READ:
        return w->offset < e->s[w->stream].total || e->s[w->stream].eof || mon.now_ms >= w->until_ms;
    case FOR_STDIN:
        return e->stdin_buffer < 0;
    case FOR_STATUS:
        return mon.now_ms >= w->until_ms;
    case FOR_FREE:
    case FOR_OK:
    case FOR_ERROR:
    case FOR_STDIN_NOW:
    case FOR_LIST:
    case FOR_DIAL:
    case FOR_NETWORK:
        break;
    }
    return true;
}

static size_t reply(struct waiter *w, struct exec *e, uint16_t *ret_type)
{
    struct mon_stdin_r in;
    struct sandbox_record record;

    switch ((enum waiter_kind)w->kind) {
    case FOR_EXEC:
        if (e->r.state == EXEC_FAILED && e->r.reason == END_KILLED)
            return reply_error(ret_type, ERR_GONE, 0, NULL, "the sandbox ended before the exec started");
        return reply_exec(w, e, ret_type);
    case FOR_WAIT:
        return reply_exec(w, e, ret_type);
    case FOR_READ:
        return reply_read(w, e, ret_type);
    case FOR_STDIN:
    case FOR_STDIN_NOW:
        in = (struct mon_stdin_r){.taken = e->r.stdin_taken, .closed = e->r.stdin_closed};
        *ret_type = MON_STDIN_R;
        return mon_stdin_r_encode(&in, tx_buffer, REPLY_MAX);
    case FOR_LIST:
        return reply_list(w, ret_type);
    case FOR_STATUS:
        record = mon.r;
        record.execs_live = execs_shown();
        usage_fill(&record);
        *ret_type = MON_STATUS_R;
        return sandbox_record_encode(&record, tx_buffer, REPLY_MAX);
    case FOR_ERROR:
        return reply_error(ret_type, w->code, w->sys_errno, w->param, w->message);
    case FOR_DIAL:
        *ret_type = MON_DIAL_R;
        return 0;
    case FOR_NETWORK:
        *ret_type = MON_NETWORK_R;
        return 0;
    case FOR_OK:
    case FOR_FREE:
        break;
    }
    *ret_type = MON_OK;
    return 0;
}

void waiter_try(struct waiter *w)
{
    static const int network[] = {MON_FD_TCP, MON_FD_UDP, MON_FD_RAW4, MON_FD_RAW6};
    struct peer *p = &peers[w->peer];
    struct exec *e = w->exec != 0 ? exec_by_index(w->exec - 1u) : NULL;
    uint64_t offset = w->offset;
    uint16_t type = MON_OK;

    if (p->broken || p->blocked)
        return;
    if (!is_ready(w, e)) {
        if (w->until_ms > mon.now_ms)
            due_at(w->until_ms);
        return;
    }
    size_t n = reply(w, e, &type);
    buffers_used(n);
    const int *fds = type == MON_NETWORK_R ? network : &w->fd;
    int nfds = type == MON_NETWORK_R ? (int)array_len(network) : type == MON_DIAL_R ? 1 : 0;
    int r = chan_send(p->fd, type, w->tag, tx_buffer, n, fds, nfds);
    if (r == -EAGAIN) {
        w->offset = offset;
        p->blocked = true;
        update_events(w->peer);
        return;
    }
    if (r < 0)
        p->broken = true;
    else if (type == MON_READ_R && e->s[w->stream].taken < w->offset)
        e->s[w->stream].taken = w->offset;
    waiter_done(w);
}

/* NOLINTEND(clang-analyzer-core.NullDereference) */

void waiters_wake(struct exec *e)
{
    unsigned next;

    for (unsigned i = e->waiters; i != 0; i = next) {
        next = waiters[i - 1].next;
        waiter_try(&waiters[i - 1]);
    }
}

void waiters_abandon(struct exec *e)
{
    while (e->waiters != 0) {
        struct waiter *w = &waiters[e->waiters - 1];
        e->waiters = w->next;
        w->exec = 0;
        w->next = 0;
        w->kind = FOR_ERROR;
        w->lazy = false;
        w->code = ERR_NOT_FOUND;
        w->param = "exec_id";
        w->message = "the exec was forgotten";
        waiter_try(w);
    }
}

void peers_run_timers(void)
{
    for (unsigned i = 0; i < waiters_high; i++) {
        struct waiter *w = &waiters[i];
        if (w->kind == FOR_FREE || w->until_ms == 0)
            continue;
        if (mon.now_ms >= w->until_ms)
            waiter_try(w);
        else
            due_at(w->until_ms);
    }
}

void peers_resume(void)
{
    resume = true;
}

/* An EXEC must wait in the socket while init cannot take it; all else is served meanwhile. */
static bool must_wait(int fd)
{
    uint8_t head[2];

    if (mon.phase != PHASE_SETUP && !mon.init_full)
        return false;
    if (recv(fd, head, sizeof head, MSG_PEEK) != sizeof head)
        return false;
    return ((head[0] | (unsigned)head[1] << 8) & TYPE_MASK) == MON_EXEC;
}

static void peer_read(unsigned index)
{
    struct peer *p = &peers[index];

    for (int i = 0; i < BATCH && !p->broken; i++) {
        struct chan_msg m;
        if (!may_read(p) || must_wait(p->fd)) {
            p->paused = true;
            return;
        }
        int r = chan_recv(p->fd, rx_buffer, sizeof rx_buffer, 0, &m);
        if (r == -EAGAIN)
            return;
        if (r <= 0) {
            p->broken = true;
            return;
        }
        buffers_used(m.len);
        if (request_handle(index, &m) < 0)
            p->broken = true;
        chan_msg_done(&m);
    }
}

void peer_on_event(unsigned index, uint32_t events)
{
    struct peer *p = &peers[index];

    if (p->fd < 0 || p->broken)
        return;
    if (p->blocked && (events & (uint32_t)EPOLLOUT) != 0) {
        p->blocked = false;
        for (unsigned i = 0; i < waiters_high && !p->blocked; i++)
            if (waiters[i].kind != FOR_FREE && waiters[i].peer == index)
                waiter_try(&waiters[i]);
    }
    if (!p->paused)
        peer_read(index);
    else if ((events & (uint32_t)(EPOLLHUP | EPOLLERR)) != 0)
        p->broken = true;
    update_events(index);
}

static void peer_close(unsigned index)
{
    for (unsigned i = 0; i < waiters_high; i++) {
        struct waiter *w = &waiters[i];
        if (w->kind == FOR_FREE || w->peer != index)
            continue;
        if (w->kind == FOR_STDIN)
            input_cancel(exec_by_index(w->exec - 1u));
        waiter_done(w);
    }
    watch_remove(peers[index].fd);
    fd_close(&peers[index].fd);
}

void peers_settle(void)
{
    if (resume) {
        resume = false;
        for (unsigned i = 0; i < PEERS_MAX; i++) {
            if (peers[i].fd < 0 || !peers[i].paused)
                continue;
            peers[i].paused = false;
            peer_read(i);
            update_events(i);
        }
    }
    for (unsigned i = 0; i < PEERS_MAX; i++)
        if (peers[i].fd >= 0 && peers[i].broken)
            peer_close(i);
}

void peers_finish(void)
{
    /* Requests that are still in the sockets get their answer too. */
    for (unsigned i = 0; i < PEERS_MAX; i++)
        if (peers[i].fd >= 0 && !peers[i].broken)
            peer_read(i);
    for (unsigned i = 0; i < waiters_high; i++)
        if (waiters[i].kind != FOR_FREE)
            waiter_try(&waiters[i]);
}
