/*
 * network_log.c - decisions and totals of sandboxes on disk
 *
 * <id>.log is a row of lines: u32 length, u64 number, the line as egress sent it. Beyond FILE_MAX_BYTES it becomes <id>.old and
 * a new one begins, so the last FILE_MAX_BYTES at least are there. A line that was cut off by a crash ends what is read.
 */
#include "node/network_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "ipc/wire.h"
#include "sys/fd.h"

#define FILE_MAX_BYTES (256 * 1024)
#define HEAD 12
#define LINE_BYTES (HEAD + EGRESS_LINE_BYTES)
#define NAME_SIZE (ID_SIZE + 8)
#define LINES_MAX 1000          /* of an answer */

struct waiter {
    struct waiter *next, **link;
    struct op *op;
    struct network_log *log;
    struct loop_timer *timer;
};

/* A sandbox of which something was said or asked since the start. */
struct entry {
    uint64_t last;              /* number of the last line */
    size_t size;                /* of <id>.log */
    struct waiter *waiters;
};

struct network_log {
    int fd;
    struct map entries;
};

static void file_name(const char *sandbox, const char *end, char out[NAME_SIZE])
{
    (void)snprintf(out, NAME_SIZE, "%s.%s", sandbox, end);
}

static ssize_t load(const struct network_log *l, const char *sandbox, const char *end, uint8_t *out, size_t size)
{
    char name[NAME_SIZE];

    file_name(sandbox, end, name);
    auto_close int fd = openat(l->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd_read_all(fd, out, size);
}

/* --- lines ----------------------------------------------------------------------------------- */

/* The line at *at, or false at the end. */
static bool next_line(const uint8_t *p, size_t n, size_t *at, struct egress_decision *ret)
{
    char sandbox[ID_SIZE];
    struct wire_reader r;

    if (n - *at < HEAD)
        return false;
    wire_read(&r, p + *at, HEAD);
    size_t len = wire_get_u32(&r);
    uint64_t seq = wire_get_u64(&r);
    if (len > n - *at - HEAD || egress_decision_decode(sandbox, ret, p + *at + HEAD, len) < 0)
        return false;
    ret->about.seq = seq;
    *at += HEAD + len;
    return true;
}

static struct entry *entry_of(struct network_log *l, const char *sandbox)
{
    struct entry *x = map_get(&l->entries, sandbox);
    auto_free uint8_t *bytes = NULL;
    struct egress_decision d;
    size_t at = 0;

    if (x != NULL)
        return x;
    x = mem_zalloc(sizeof *x);
    (void)map_put(&l->entries, sandbox, x);
    bytes = mem_alloc(FILE_MAX_BYTES + LINE_BYTES);
    for (int i = 0; i < 2; i++) {
        ssize_t n = load(l, sandbox, i == 0 ? "old" : "log", bytes, FILE_MAX_BYTES + LINE_BYTES);
        at = 0;
        while (n > 0 && next_line(bytes, (size_t)n, &at, &d))
            x->last = d.about.seq;
        /* What follows a line that was cut off would be lost: such a file gets no more. */
        x->size = n > 0 && at < (size_t)n ? FILE_MAX_BYTES : n > 0 ? (size_t)n : 0;
    }
    return x;
}

static int append(struct network_log *l, const char *sandbox, struct entry *x, const uint8_t *p, size_t n)
{
    char name[NAME_SIZE], old[NAME_SIZE];

    file_name(sandbox, "log", name);
    if (x->size + n > FILE_MAX_BYTES) {
        file_name(sandbox, "old", old);
        if (renameat(l->fd, name, l->fd, old) < 0 && errno != ENOENT)
            return -errno;
        x->size = 0;
    }
    auto_close int fd = openat(l->fd, name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, p, n);
    x->size += n;
    return r;
}

/* --- answers --------------------------------------------------------------------------------- */

static const Quicksand__Node__NetworkLogRequest *request(const struct op *op)
{
    return (const Quicksand__Node__NetworkLogRequest *)op->rq;
}

struct lines {
    size_t n, max;
    Quicksand__Node__Decision *rows;
    Quicksand__Node__Decision **list;
    struct text {
        char address[ADDRESS_TEXT];
        struct egress_decision d;
    } *texts;
};

static void lines_done(struct lines *s)
{
    free(s->rows);
    free(s->list);
    free(s->texts);
}

static void lines_init(struct lines *s, size_t max)
{
    *s = (struct lines){.max = max, .rows = mem_array(max + 1, sizeof *s->rows), .list = mem_array(max + 1, sizeof *s->list),
                        .texts = mem_array(max + 1, sizeof *s->texts)};
}

static void lines_add(struct lines *s, const struct egress_decision *d)
{
    Quicksand__Node__Decision *m = &s->rows[s->n];
    struct text *t = &s->texts[s->n];

    t->d = *d;
    *m = (Quicksand__Node__Decision)QUICKSAND__NODE__DECISION__INIT;
    m->has_seq = m->has_when_ms = m->has_port = m->has_allowed = m->has_revision = m->has_count = m->has_missed = true;
    m->seq = d->about.seq;
    m->when_ms = d->about.when_ms;
    m->allowed = d->verdict == POLICY_ALLOW;
    m->reason = (char *)(uintptr_t)egress_reason_name(d->about.reason);
    m->protocol = (char *)(uintptr_t)egress_protocol_name(d->about.protocol);
    m->address = (char *)(uintptr_t)address_text(&t->d.about.to, t->address);
    m->port = d->about.port;
    m->rule = t->d.about.rule;
    m->name = t->d.about.name;
    m->method = t->d.method;
    m->path = t->d.path;
    m->secrets = t->d.secrets;
    m->revision = d->revision;
    m->count = d->count;
    m->missed = d->missed;
    s->list[s->n++] = m;
}

static void reply(struct op *op, const struct entry *x, struct lines *s)
{
    Quicksand__Node__NetworkLogResponse m = QUICKSAND__NODE__NETWORK_LOG_RESPONSE__INIT;

    m.has_last = true;
    m.last = x->last;
    m.n_decisions = s->n;
    m.decisions = s->list;
    op_reply(op, &m.base);
    lines_done(s);
}

static size_t limit_of(const struct op *op)
{
    const Quicksand__Node__NetworkLogRequest *rq = request(op);

    return rq->has_limit && rq->limit < LINES_MAX ? rq->limit : LINES_MAX;
}

static void reply_from_files(struct network_log *l, struct op *op, const struct entry *x)
{
    auto_free uint8_t *bytes = mem_alloc(FILE_MAX_BYTES + LINE_BYTES);
    struct egress_decision d;
    struct lines s;

    lines_init(&s, limit_of(op));
    for (int i = 0; i < 2; i++) {
        ssize_t n = load(l, request(op)->sandbox_id, i == 0 ? "old" : "log", bytes, FILE_MAX_BYTES + LINE_BYTES);
        size_t at = 0;
        while (n > 0 && s.n < s.max && next_line(bytes, (size_t)n, &at, &d))
            if (d.about.seq > request(op)->after)
                lines_add(&s, &d);
    }
    reply(op, x, &s);
}

static void waiter_free(struct waiter *w)
{
    *w->link = w->next;
    if (w->next != NULL)
        w->next->link = w->link;
    loop_timer_free(w->timer);
    free(w);
}

/* Whoever waits has everything up to the line before. */
static void wake(struct entry *x, const struct egress_decision *d)
{
    while (x->waiters != NULL) {
        struct op *op = x->waiters->op;
        struct lines s;
        op->on_free = NULL;
        waiter_free(x->waiters);
        lines_init(&s, 1);
        lines_add(&s, d);
        reply(op, x, &s);
    }
}

static void on_time(void *arg)
{
    struct waiter *w = arg;
    struct op *op = w->op;
    struct entry *x = entry_of(w->log, request(op)->sandbox_id);
    struct lines s;

    op->on_free = NULL;
    waiter_free(w);
    lines_init(&s, 0);
    reply(op, x, &s);
}

static void on_free(struct op *op)
{
    waiter_free(*(struct waiter **)op->state);
}

void network_log_answer(struct network_log *l, struct op *op)
{
    const Quicksand__Node__NetworkLogRequest *rq = request(op);
    struct entry *x = entry_of(l, rq->sandbox_id);

    if (!rq->has_wait_ms || rq->wait_ms == 0 || x->last > rq->after || limit_of(op) == 0) {
        reply_from_files(l, op, x);
        return;
    }
    struct waiter *w = mem_zalloc(sizeof *w);
    *w = (struct waiter){.next = x->waiters, .link = &x->waiters, .op = op, .log = l};
    if (w->next != NULL)
        w->next->link = &w->next;
    x->waiters = w;
    *(struct waiter **)op_state(op, sizeof w) = w;
    op->on_free = on_free;
    op->on_gone = op_drop;
    w->timer = loop_timer_new(op->node->loop, on_time, w);
    loop_timer_set(w->timer, rq->wait_ms < LIMIT_WAIT_MAX * 1000ULL ? rq->wait_ms : LIMIT_WAIT_MAX * 1000ULL);
}

/* --- what egress tells ----------------------------------------------------------------------- */

void network_log_add(struct network_log *l, const char *sandbox, struct egress_decision *d)
{
    struct entry *x = entry_of(l, sandbox);
    uint8_t line[LINE_BYTES];
    struct wire_writer w;

    d->about.seq = x->last + 1;
    size_t n = egress_decision_encode(sandbox, d, line + HEAD, sizeof line - HEAD);
    wire_init(&w, line, HEAD);
    wire_put_u32(&w, (uint32_t)n);
    wire_put_u64(&w, d->about.seq);
    int r = append(l, sandbox, x, line, HEAD + n);
    if (r < 0)
        log_warn("network-log", "sandbox=%s error=%s", sandbox, strerror(-r));
    x->last++;
    wake(x, d);
}

void network_log_totals(struct network_log *l, const char *sandbox, const struct egress_totals *t)
{
    char name[NAME_SIZE];
    uint8_t out[256];
    size_t n = egress_totals_encode(sandbox, t, out, sizeof out);

    file_name(sandbox, "totals", name);
    int r = fd_replace_file(l->fd, name, out, n, 0600, false);
    if (r < 0)
        log_warn("network-totals", "sandbox=%s error=%s", sandbox, strerror(-r));
}

void network_log_get_totals(struct network_log *l, const char *sandbox, struct egress_totals *ret)
{
    char whose[ID_SIZE];
    uint8_t bytes[256];
    ssize_t n = load(l, sandbox, "totals", bytes, sizeof bytes);

    if (n < 0 || egress_totals_decode(whose, ret, bytes, (size_t)n) < 0)
        *ret = (struct egress_totals){0};
}

/* --- life ------------------------------------------------------------------------------------ */

struct network_log *network_log_new(int dir_fd)
{
    struct network_log *l = mem_zalloc(sizeof *l);

    l->fd = dir_fd;
    map_init(&l->entries);
    return l;
}

void network_log_remove(struct network_log *l, const char *sandbox)
{
    static const char *const ends[] = {"log", "old", "totals"};
    struct entry *x = map_get(&l->entries, sandbox);
    char name[NAME_SIZE];

    if (x != NULL) {
        while (x->waiters != NULL)
            on_time(x->waiters);
        (void)map_del(&l->entries, sandbox);
        free(x);
    }
    for (size_t i = 0; i < array_len(ends); i++) {
        file_name(sandbox, ends[i], name);
        if (unlinkat(l->fd, name, 0) < 0 && errno != ENOENT)
            log_warn("network-log-not-removed", "sandbox=%s error=%s", sandbox, strerror(errno));
    }
}

void network_log_free(struct network_log *l)
{
    struct map_iter it = MAP_ITER;
    const char *id;
    void *value;

    if (l == NULL)
        return;
    while (map_next(&l->entries, &it, &id, &value)) {
        struct entry *x = value;
        while (x->waiters != NULL) {        /* the server has gone, and with it who would be answered */
            x->waiters->op->on_free = NULL;
            waiter_free(x->waiters);
        }
        free(x);
    }
    map_done(&l->entries);
    free(l);
}
