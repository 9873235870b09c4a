/*
 * history.c - output that was kept: AppFetchLogs, AppCountLogs
 *
 * The output of a sandbox is kept without times, so every line has the time at which the sandbox started; lines of stdout come
 * before lines of stderr. Those of the system stream, what the network policy decided, have their own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/modal/apps.h"
#include "api/modal/images.h"
#include "api/modal/sandbox_view.h"
#include "api/modal/system_log.h"
#include "api/modal/utf8.h"
#include "api/shared/decision_reader.h"
#include "api/shared/exec_reader.h"
#include "base/clock.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"

#define SANDBOXES_MAX 50            /* of an app, the newest */
#define LINES_MAX 20000
#define BYTES_MAX (16 * 1024 * 1024)        /* of one stream, its end */
#define ENTRY_MAX (32 * 1024)       /* a longer line is cut into entries */

#define SYSTEM 3                    /* FILE_DESCRIPTOR_INFO */

struct entry {
    char *text;                     /* owned */
    size_t n;
    int fd;
    int64_t at_ms;
    size_t sandbox;
    size_t nth;                     /* as it was read */
};

struct history {
    struct mcall *c;
    struct {
        char id[ID_SIZE], task[ID_SIZE], visible[ID_SIZE];
        int64_t at_ms;
        bool is_in_range;           /* its output is; of the system stream each line is looked at */
    } sandbox[SANDBOXES_MAX];
    size_t nsandboxes, at;          /* the one that is read */
    int fd;                         /* of the stream that is read: 1, 2, 3 */
    struct exec_reader *reader;
    struct decision_reader *system;
    struct buf bytes;
    struct entry *entries;          /* owned; a ring would be no gain: the oldest are dropped at the end */
    size_t n, size;
    int64_t since_ms, until_ms;     /* 0 = unbounded */
    size_t limit;
    int source;                     /* 0 = all */
    const char *search;             /* "" = all */
    uint32_t bucket_s;              /* AppCountLogs */
};

static void history_free(struct history *h)
{
    exec_reader_free(h->reader);
    decision_reader_free(h->system);
    buf_done(&h->bytes);
    for (size_t i = 0; i < h->n; i++)
        free(h->entries[i].text);
    free(h->entries);
    free(h);
}

static int by_time(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;

    if (a->at_ms != b->at_ms)
        return a->at_ms < b->at_ms ? -1 : 1;
    return a->nth < b->nth ? -1 : 1;
}

/* --- answers ------------------------------------------------------------------------------------------------------- */

static void reply_entries(struct history *h)
{
    M(AppFetchLogsResponse) rs = MODAL__CLIENT__APP_FETCH_LOGS_RESPONSE__INIT;
    size_t first = h->n > h->limit ? h->n - h->limit : 0, count = h->n - first, nbatches = 0;
    auto_free M(TaskLogs) *items = mem_array(count + 1, sizeof *items);
    auto_free M(TaskLogs) **list = mem_array(count + 1, sizeof *list);
    auto_free M(TaskLogsBatch) *batches = mem_array(count + 1, sizeof *batches);
    auto_free M(TaskLogsBatch) **blist = mem_array(count + 1, sizeof *blist);

    for (size_t i = 0; i < count; i++) {
        const struct entry *en = &h->entries[first + i];
        modal__client__task_logs__init(&items[i]);
        items[i].has_data = items[i].has_timestamp = items[i].has_file_descriptor = true;
        items[i].data = (ProtobufCBinaryData){en->n, (uint8_t *)en->text};
        items[i].timestamp = (double)en->at_ms / 1e3;
        items[i].file_descriptor = (Modal__Client__FileDescriptor)en->fd;
        list[i] = &items[i];
        if (i == 0 || en->sandbox != h->entries[first + i - 1].sandbox) {
            M(TaskLogsBatch) *b = &batches[nbatches];
            modal__client__task_logs_batch__init(b);
            b->task_id = h->sandbox[en->sandbox].task;
            b->sandbox_id = h->sandbox[en->sandbox].visible;
            b->items = &list[i];
            blist[nbatches++] = b;
        }
        blist[nbatches - 1]->n_items++;
    }
    rs.batches = blist;
    rs.n_batches = nbatches;
    m_reply(h->c, &rs.base);
}

static void reply_counts(struct history *h)
{
    M(AppCountLogsResponse) rs = MODAL__CLIENT__APP_COUNT_LOGS_RESPONSE__INIT;
    auto_free M(AppCountLogsResponse__LogBucket) *buckets = mem_array(h->n + 1, sizeof *buckets);
    auto_free M(AppCountLogsResponse__LogBucket) **list = mem_array(h->n + 1, sizeof *list);
    auto_free M(Timestamp) *times = mem_array(h->n + 1, sizeof *times);
    size_t n = 0;

    for (size_t i = 0; i < h->n; i++) {
        int64_t begin_s = h->entries[i].at_ms / 1000 / h->bucket_s * h->bucket_s;
        if (n == 0 || times[n - 1].seconds != begin_s) {
            modal__client__timestamp__init(&times[n]);
            times[n].has_seconds = true;
            times[n].seconds = begin_s;
            modal__client__app_count_logs_response__log_bucket__init(&buckets[n]);
            buckets[n].bucket_start_at = &times[n];
            buckets[n].has_stdout_logs = buckets[n].has_stderr_logs = buckets[n].has_system_logs = true;
            list[n] = &buckets[n];
            n++;
        }
        if (h->entries[i].fd == STREAM_STDOUT)
            buckets[n - 1].stdout_logs++;
        else if (h->entries[i].fd == SYSTEM)
            buckets[n - 1].system_logs++;
        else
            buckets[n - 1].stderr_logs++;
    }
    rs.app_id = STR(REQ(h->c, AppCountLogsRequest)->app_id);
    rs.buckets = list;
    rs.n_buckets = n;
    m_reply(h->c, &rs.base);
}

/* --- reading ------------------------------------------------------------------------------------------------------- */

static void add_entry(struct history *h, int64_t at_ms, const char *p, size_t n)
{
    auto_buf text = {0};

    buf_init(&text, 4 * n + 4);
    (void)utf8_take(p, n, true, &text);
    if (h->search[0] != '\0' && memmem(text.data, text.len, h->search, strlen(h->search)) == NULL)
        return;
    if (h->n == h->size) {
        h->size = h->size != 0 ? 2 * h->size : 64;
        h->entries = mem_realloc(h->entries, h->size * sizeof *h->entries);
    }
    struct entry *en = &h->entries[h->n];
    en->nth = h->n++;
    en->fd = h->fd;
    en->at_ms = at_ms;
    en->sandbox = h->at;
    en->text = buf_take(&text, &en->n);
}

static void add_lines(struct history *h)
{
    for (size_t at = 0; at < h->bytes.len;) {
        const char *p = h->bytes.data + at, *nl = memchr(p, '\n', h->bytes.len - at);
        size_t n = nl != NULL ? (size_t)(nl - p) + 1 : h->bytes.len - at;
        n = n < ENTRY_MAX ? n : ENTRY_MAX;
        add_entry(h, h->sandbox[h->at].at_ms, p, n);
        at += n;
    }
    buf_clear(&h->bytes);
}

static void read_next(struct history *h);

static void on_data(void *ctx, uint64_t offset, const void *p, size_t n)
{
    struct history *h = ctx;

    if (h->bytes.len + n > BYTES_MAX)
        buf_drop(&h->bytes, h->bytes.len < n ? h->bytes.len : n);       /* the newest count */
    (void)buf_add(&h->bytes, p, n);
    exec_reader_consumed(h->reader, n);
}

static void on_end(void *ctx, const struct err *e)
{
    struct history *h = ctx;

    exec_reader_free(h->reader);
    h->reader = NULL;
    if (e != NULL && e->code != ERR_NOT_FOUND && e->code != ERR_GONE) {
        struct mcall *c = h->c;
        struct err copy = *e;
        history_free(h);
        m_fail(c, &copy);
        return;
    }
    add_lines(h);
    h->fd++;
    read_next(h);
}

static bool is_within(const struct history *h, int64_t at_ms)
{
    return (h->since_ms == 0 || at_ms >= h->since_ms) && (h->until_ms == 0 || at_ms < h->until_ms);
}

static void on_decision(void *ctx, const Quicksand__Node__Decision *d)
{
    struct history *h = ctx;
    auto_buf text = {0};

    if (!is_within(h, d->when_ms))
        return;
    buf_init(&text, 4096);
    system_log_text(d, &text);
    add_entry(h, d->when_ms, buf_str(&text), text.len);
}

static void on_decisions_end(void *ctx)
{
    struct history *h = ctx;

    decision_reader_free(h->system);
    h->system = NULL;
    h->fd = STREAM_STDOUT;
    h->at++;
    read_next(h);
}

/* Whether something is to be read of the stream h->fd of the sandbox h->at. */
static bool is_wanted(const struct history *h)
{
    return (h->source == 0 || h->source == h->fd) && (h->fd == SYSTEM || h->sandbox[h->at].is_in_range);
}

static void read_next(struct history *h)
{
    static const struct exec_reader_ops ops = {.on_data = on_data, .on_end = on_end};
    static const struct decision_reader_ops system_ops = {.on_decision = on_decision, .on_end = on_decisions_end};

    while (h->at < h->nsandboxes && !is_wanted(h)) {
        h->at += h->fd == SYSTEM;
        h->fd = h->fd == SYSTEM ? STREAM_STDOUT : h->fd + 1;
    }
    if (h->at < h->nsandboxes && h->fd == SYSTEM) {
        h->system = decision_reader_new(h->c->m->core, h->sandbox[h->at].id, 0, false, &system_ops, h);
        return;
    }
    if (h->at < h->nsandboxes) {
        h->reader = exec_reader_new(h->c->m->core, h->sandbox[h->at].id, ENTRY_EXEC_ID, h->fd, 0, false, &ops, h);
        return;
    }
    if (h->n > 0)
        qsort(h->entries, h->n, sizeof *h->entries, by_time);
    if (h->bucket_s != 0)
        reply_counts(h);
    else
        reply_entries(h);
    history_free(h);
}

static void on_gone(struct mcall *c)
{
    history_free(c->user);
    m_end(c);
}

/* --- which sandboxes ----------------------------------------------------------------------------------------------- */

static void add_row(struct history *h, const struct sandbox_row *row, enum modal_generation g)
{
    int64_t at_ms = row->started_ms != 0 ? row->started_ms : row->created_us / 1000;

    if (h->nsandboxes == SANDBOXES_MAX || (h->until_ms != 0 && at_ms >= h->until_ms))
        return;
    memcpy(h->sandbox[h->nsandboxes].id, row->id, ID_SIZE);
    modal_task_id(row->id, g, h->sandbox[h->nsandboxes].task);
    modal_sandbox_id(row->id, g, h->sandbox[h->nsandboxes].visible);
    h->sandbox[h->nsandboxes].is_in_range = h->since_ms == 0 || at_ms >= h->since_ms;
    h->sandbox[h->nsandboxes++].at_ms = at_ms;
}

static void add_listed(void *ctx, const struct sandbox *sb)
{
    add_row(ctx, sb->row, view_generation(sb->row));
}

/* --- logs of builds ------------------------------------------------------------------------------------------------- */

static void add_build_line(void *ctx, int64_t seq, int64_t at_ms, const char *text)
{
    struct history *h = ctx;
    auto_free char *line = mem_printf("%s\n", text);

    if ((h->since_ms != 0 && at_ms < h->since_ms) || (h->until_ms != 0 && at_ms >= h->until_ms))
        return;
    add_entry(h, at_ms, line, strlen(line));
}

/* The tasks of builds are their operations; an image that was not built has none. */
static void reply_build(struct history *h, const char *operation)
{
    struct mcall *c = h->c;
    struct err e;

    h->fd = STREAM_STDOUT;
    h->nsandboxes = 1;
    (void)snprintf(h->sandbox[0].task, sizeof h->sandbox[0].task, "%s", operation);
    if (operation[0] != '\0' && h->source != STREAM_STDERR &&
        store_operation_lines(m_store(c), operation, 0, LINES_MAX, add_build_line, h, &e) < 0)
        m_fail(c, &e);
    else if (h->bucket_s != 0)
        reply_counts(h);
    else
        reply_entries(h);
    history_free(h);
}

static int choose(struct history *h, const char *app_id, const char *task, const char *sandbox, struct err *e)
{
    auto_sandbox_row row = {0};
    enum modal_generation g;
    struct app_info app;
    char id[ID_SIZE];

    if (task[0] != '\0' || sandbox[0] != '\0') {
        if ((task[0] != '\0' ? view_task(h->c, task, id, &g, e) : view_id(h->c, sandbox, id, &g, e)) < 0
            || view_row(h->c, id, &row, e) < 0)
            return -1;
        add_row(h, &row, g);
        return 0;
    }
    if (app_get(h->c, app_id, &app, e) < 0)
        return -1;
    const struct sandbox_filter f = {.app = app.name, .states = STORE_LIVE_STATES | 1u << STORE_ENDED, .limit = SANDBOXES_MAX};
    if (sandbox_list(h->c->m->core, &f, add_listed, h, e) < 0)
        return -1;
    for (size_t i = 0; i < h->nsandboxes / 2; i++) {    /* oldest first */
        __auto_type other = h->sandbox[h->nsandboxes - 1 - i];
        h->sandbox[h->nsandboxes - 1 - i] = h->sandbox[i];
        h->sandbox[i] = other;
    }
    return 0;
}

static int64_t ms_of(const M(Timestamp) *t)
{
    return t != NULL ? t->seconds * 1000 + t->nanos / 1000000 : 0;
}

static void begin(struct history *h, const char *app_id, const char *task, const char *sandbox)
{
    struct mcall *c = h->c;
    struct err e;

    if (id_is(m_text(task), "op-") || (m_text(task)[0] == '\0' && strcmp(m_text(app_id), IMAGES_APP) == 0)) {
        reply_build(h, m_text(task));
        return;
    }
    buf_init(&h->bytes, BYTES_MAX + ENTRY_MAX);
    h->fd = STREAM_STDOUT;
    if (choose(h, m_text(app_id), m_text(task), m_text(sandbox), &e) < 0) {
        history_free(h);
        m_fail(c, &e);
        return;
    }
    c->user = h;
    c->on_gone = on_gone;
    read_next(h);
}

void rpc_app_fetch_logs(struct mcall *c)
{
    const M(AppFetchLogsRequest) *rq = REQ(c, AppFetchLogsRequest);
    struct history *h = mem_zalloc(sizeof *h);

    h->c = c;
    h->since_ms = ms_of(rq->since);
    h->until_ms = ms_of(rq->until);
    h->limit = rq->limit > 0 && rq->limit < LINES_MAX ? rq->limit : LINES_MAX;
    h->source = (int)rq->source;
    h->search = m_text(rq->search_text);
    begin(h, rq->app_id, rq->task_id, rq->sandbox_id);
}

void rpc_app_count_logs(struct mcall *c)
{
    const M(AppCountLogsRequest) *rq = REQ(c, AppCountLogsRequest);
    struct history *h = mem_zalloc(sizeof *h);

    h->c = c;
    h->since_ms = ms_of(rq->since);
    h->until_ms = ms_of(rq->until);
    h->limit = LINES_MAX;
    h->source = (int)rq->source;
    h->search = m_text(rq->search_text);
    h->bucket_s = rq->bucket_secs > 0 ? rq->bucket_secs : 60;
    begin(h, rq->app_id, rq->task_id, rq->sandbox_id);
}
