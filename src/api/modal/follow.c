/*
 * follow.c - following output
 */
#include "api/modal/follow.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/modal/system_log.h"
#include "api/modal/utf8.h"
#include "api/shared/decision_reader.h"
#include "api/shared/exec_reader.h"
#include "base/clock.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"

#define TIMEOUT_MOST_S 300
#define TEXT_MAX (8 * 1024 * 1024)
#define LOOK_MS 1000
#define SOURCES_MAX 200                 /* of an app: the first ones */

struct source;

/* One stream of a sandbox. */
struct side {
    struct source *src;
    struct exec_reader *reader;         /* NULL: not asked for */
    uint64_t offset;                    /* after what was sent */
    char rest[4];                       /* the beginning of a character */
    size_t nrest;
    size_t held;                        /* bytes whose credit waits for the client */
    bool is_over;
};

struct source {
    struct follow *f;
    struct source *next;
    char id[ID_SIZE], sandbox[ID_SIZE], task[ID_SIZE];
    struct side side[2];
    struct decision_reader *system;     /* NULL: not asked for */
    uint64_t system_seq;                /* of the last line sent */
    bool system_ending, system_over;
    bool is_muted;                      /* output only tells when the sandbox ends */
};

struct follow {
    struct mcall *c;
    struct source *sources, **tail;
    size_t n;
    char *entry;                        /* owned: where the client was */
    struct loop_timer *timeout, *looker;
    void (*look)(struct follow *f, struct mcall *c);
    bool is_one_stream, is_closed, is_app;
};

static void follow_free(struct follow *f)
{
    for (struct source *s = f->sources; s != NULL;) {
        struct source *next = s->next;
        for (int i = 0; i < 2; i++)
            exec_reader_free(s->side[i].reader);
        decision_reader_free(s->system);
        free(s);
        s = next;
    }
    loop_timer_free(f->timeout);
    loop_timer_free(f->looker);
    free(f->entry);
    free(f);
}

/* --- batches ------------------------------------------------------------------------------------------------------- */

static void put_entry(const struct follow *f, struct buf *out)
{
    for (const struct source *s = f->sources; s != NULL; s = s->next) {
        if (f->is_one_stream)
            (void)buf_addf(out, "%" PRIu64, s->is_muted ? s->system_seq : s->side[s->side[0].reader == NULL].offset);
        else
            (void)buf_addf(out, "%s:%" PRIu64 ":%" PRIu64 ":%" PRIu64 ";", s->id + 3, s->side[0].offset, s->side[1].offset,
                           s->system_seq);
    }
}

static void send_batch(struct follow *f, const struct source *s, Modal__Client__FileDescriptor fd,
                       const struct buf *text, bool is_end)
{
    M(TaskLogsBatch) m = MODAL__CLIENT__TASK_LOGS_BATCH__INIT;
    M(TaskLogs) item, *items[] = {&item};
    auto_buf entry = {0};

    buf_init(&entry, 96 * SOURCES_MAX);
    put_entry(f, &entry);
    m.entry_id = STR(buf_str(&entry));
    if (s != NULL) {
        m.task_id = STR(s->task);
        m.sandbox_id = STR(s->sandbox);
    }
    if (text != NULL && text->len > 0) {
        int64_t now_ms = clock_wall_ms();
        modal__client__task_logs__init(&item);
        item.has_data = item.has_timestamp = item.has_file_descriptor = true;
        item.data = (ProtobufCBinaryData){text->len, (uint8_t *)text->data};
        item.timestamp = (double)now_ms / 1e3;     /* and no timestamp_ns: a client chokes on integers over 53 bits */
        item.file_descriptor = fd;
        m.items = items;
        m.n_items = 1;
    }
    m.has_eof = m.eof = is_end && !f->is_app;
    m.has_app_done = m.app_done = is_end && f->is_app;
    m_send(f->c, &m.base);
}

static void send_output(struct follow *f, const struct side *s, const struct buf *text)
{
    send_batch(f, s->src, s == &s->src->side[0] ? MODAL__CLIENT__FILE_DESCRIPTOR__FILE_DESCRIPTOR_STDOUT
                                                : MODAL__CLIENT__FILE_DESCRIPTOR__FILE_DESCRIPTOR_STDERR, text, false);
}

/* Gives the node credit while the client takes what comes. */
static void give_credit(struct follow *f)
{
    if (f->c->grpc == NULL || grpc_queued(f->c->grpc) > HTTP_HIGH)
        return;
    for (struct source *s = f->sources; s != NULL; s = s->next) {
        for (int i = 0; i < 2; i++) {
            size_t n = s->side[i].held;
            s->side[i].held = 0;
            if (n > 0)
                exec_reader_consumed(s->side[i].reader, n);
        }
    }
}

static bool is_all_over(const struct follow *f)
{
    for (const struct source *s = f->sources; s != NULL; s = s->next)
        for (int i = 0; i < 2; i++)
            if (s->side[i].reader != NULL && !s->side[i].is_over)
                return false;
    return true;
}

/* No more will happen in this sandbox: what its policy decided up to now is the rest. */
static void finish_system(struct source *s)
{
    if (s->system == NULL || s->system_ending)
        return;
    s->system_ending = true;
    if (!s->system_over)
        decision_reader_finish(s->system);
}

static void end_if_over(struct follow *f, const struct source *last)
{
    struct mcall *c = f->c;
    bool is_waiting = false;

    if (!f->is_closed || !is_all_over(f))
        return;
    for (struct source *s = f->sources; s != NULL; s = s->next) {
        finish_system(s);
        is_waiting = is_waiting || (s->system != NULL && !s->system_over);
    }
    if (is_waiting)
        return;
    send_batch(f, last, MODAL__CLIENT__FILE_DESCRIPTOR__FILE_DESCRIPTOR_UNSPECIFIED, NULL, true);
    follow_free(f);
    m_end(c);
}

static void on_decision(void *ctx, const Quicksand__Node__Decision *d)
{
    struct source *s = ctx;
    auto_buf text = {0};

    buf_init(&text, 4096);
    system_log_text(d, &text);
    s->system_seq = d->seq;
    send_batch(s->f, s, MODAL__CLIENT__FILE_DESCRIPTOR__FILE_DESCRIPTOR_INFO, &text, false);
}

static void on_decisions_end(void *ctx)
{
    struct source *s = ctx;

    s->system_over = true;
    end_if_over(s->f, s);
}

static void on_data(void *ctx, uint64_t offset, const void *p, size_t n)
{
    struct side *s = ctx;
    uint64_t expected = s->offset + s->nrest;
    auto_buf raw = {0}, text = {0};

    if (s->src->is_muted) {
        exec_reader_consumed(s->reader, n);
        return;
    }
    if (offset > expected) {            /* a reader that is too slow or too late must be told */
        m_warn(s->src->f->c, "%" PRIu64 " bytes of output of %s are not kept any more", offset - expected, s->src->sandbox);
        s->nrest = 0;
    }
    buf_init(&raw, TEXT_MAX);
    buf_init(&text, 4 * TEXT_MAX);
    (void)buf_add(&raw, s->rest, s->nrest);
    (void)buf_add(&raw, p, n);
    size_t used = utf8_take(raw.data, raw.len, false, &text);
    s->nrest = raw.len - used;
    memcpy(s->rest, raw.data + used, s->nrest);
    s->offset = offset + n - s->nrest;
    if (text.len > 0)
        send_output(s->src->f, s, &text);
    s->held += n;
    give_credit(s->src->f);
}

static void on_end(void *ctx, const struct err *e)
{
    struct side *s = ctx;
    struct follow *f = s->src->f;
    struct mcall *c = f->c;
    auto_buf text = {0};

    /* Without an entry point, or when its output is gone, nothing will come. */
    if (e != NULL && e->code != ERR_NOT_FOUND && e->code != ERR_GONE) {
        struct err copy = *e;
        follow_free(f);
        m_fail(c, &copy);
        return;
    }
    s->is_over = true;
    buf_init(&text, 64);
    (void)utf8_take(s->rest, s->nrest, true, &text);
    s->offset += s->nrest;
    s->nrest = 0;
    if (text.len > 0)
        send_output(f, s, &text);
    /* Where there is no entry point, the sandbox may live on. */
    const struct side *other = &s->src->side[s == &s->src->side[0]];
    if ((e == NULL || e->code != ERR_NOT_FOUND) && (other->reader == NULL || other->is_over))
        finish_system(s->src);
    end_if_over(f, s->src);
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

static void on_timeout(void *arg)
{
    struct follow *f = arg;
    struct mcall *c = f->c;

    follow_free(f);
    m_end(c);
}

static void on_gone(struct mcall *c)
{
    follow_free(c->user);
    m_end(c);
}

static void on_writable(struct mcall *c)
{
    give_credit(c->user);
}

static uint64_t timeout_ms(double timeout_s)
{
    return m_poll_ms(timeout_s, TIMEOUT_MOST_S);
}

struct follow *follow_new(struct mcall *c, double timeout_s, bool is_one_stream, const char *entry)
{
    struct follow *f = mem_zalloc(sizeof *f);

    f->c = c;
    f->tail = &f->sources;
    f->is_one_stream = is_one_stream;
    f->entry = mem_strdup(entry);
    f->timeout = loop_timer_new(core_loop(c->m->core), on_timeout, f);
    loop_timer_set(f->timeout, timeout_ms(timeout_s));
    c->user = f;
    c->on_gone = on_gone;
    c->on_writable = on_writable;
    return f;
}

/* Where the client was in the output of a sandbox: 0 if it saw nothing of it. "0-0" is the beginning, too. */
static void read_entry(const struct follow *f, const char *id, uint64_t ret[3])
{
    const char *at = f->is_one_stream ? f->entry : strstr(f->entry, id + 3);
    char *end;

    ret[0] = ret[1] = ret[2] = 0;
    if (at == NULL)
        return;
    if (f->is_one_stream) {
        ret[0] = ret[1] = ret[2] = strtoull(at, NULL, 10);
        return;
    }
    at += ID_SUFFIX;
    if (*at != ':')
        return;
    ret[0] = strtoull(at + 1, &end, 10);
    if (*end == ':')
        ret[1] = strtoull(end + 1, &end, 10);
    if (*end == ':')
        ret[2] = strtoull(end + 1, NULL, 10);
}

bool follow_has_seen(const struct follow *f, const char *id)
{
    return !f->is_one_stream && strstr(f->entry, id + 3) != NULL;
}

void follow_add(struct follow *f, const char *id, enum modal_generation g, unsigned streams)
{
    static const struct exec_reader_ops ops = {.on_data = on_data, .on_end = on_end};
    static const struct decision_reader_ops system_ops = {.on_decision = on_decision, .on_end = on_decisions_end};
    uint64_t offset[3];

    for (const struct source *s = f->sources; s != NULL; s = s->next)
        if (strcmp(s->id, id) == 0)
            return;
    if (f->n == SOURCES_MAX)
        return;
    struct source *s = mem_zalloc(sizeof *s);
    s->f = f;
    (void)snprintf(s->id, sizeof s->id, "%s", id);
    modal_sandbox_id(id, g, s->sandbox);
    modal_task_id(id, g, s->task);
    read_entry(f, id, offset);
    s->is_muted = streams == FOLLOW_SYSTEM;
    s->system_seq = offset[2];
    if (s->is_muted) {
        streams |= FOLLOW_STDOUT;
        offset[0] = 0;
    }
    if ((streams & FOLLOW_SYSTEM) != 0)
        s->system = decision_reader_new(f->c->m->core, id, s->system_seq, true, &system_ops, s);
    *f->tail = s;
    f->tail = &s->next;
    f->n++;
    for (int i = 0; i < 2; i++) {
        s->side[i].src = s;
        s->side[i].offset = offset[i];
        if ((streams & (i == 0 ? FOLLOW_STDOUT : FOLLOW_STDERR)) != 0)
            s->side[i].reader = exec_reader_new(f->c->m->core, id, ENTRY_EXEC_ID, i == 0 ? STREAM_STDOUT : STREAM_STDERR,
                                                offset[i], true, &ops, &s->side[i]);
    }
}

void follow_close(struct follow *f, bool is_app)
{
    f->is_closed = true;
    f->is_app = is_app;
    end_if_over(f, f->sources);
}

static void on_look(void *arg)
{
    struct follow *f = arg;

    loop_timer_set(f->looker, LOOK_MS);
    f->look(f, f->c);                   /* may end it */
}

void follow_watch(struct follow *f, void (*look)(struct follow *f, struct mcall *c))
{
    f->look = look;
    f->looker = loop_timer_new(core_loop(f->c->m->core), on_look, f);
    on_look(f);
}
