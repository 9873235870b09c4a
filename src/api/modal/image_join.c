/*
 * image_join.c - following the build of an image: its log, then how it ended
 *
 * Entry ids are numbers of log lines, so a client that comes back gets each line once. Of a finished image the log is shown
 * if it is asked for.
 */
#include <stdio.h>
#include <string.h>

#include "api/modal/images.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/operation.h"

#define STATUS(name) MODAL__CLIENT__GENERIC_RESULT__GENERIC_STATUS__GENERIC_STATUS_##name
#define JOIN_MOST_S 120
#define TAIL_LINES 30

struct join {
    struct mcall *call;
    struct operation_wait *wait;
    char operation[ID_SIZE], image[ID_SIZE];
    int64_t after, until_ms;
    struct buf tail;                    /* the last lines, for the text of a failure */
};

static void join_free(struct join *j)
{
    operation_wait_cancel(j->wait);
    buf_done(&j->tail);
    free(j);
}

static void on_join_gone(struct mcall *c)
{
    join_free(c->user);
    c->user = NULL;
    m_end(c);
}

static void send_line(void *ctx, int64_t seq, int64_t at_ms, const char *text)
{
    M(ImageJoinStreamingResponse) rs = MODAL__CLIENT__IMAGE_JOIN_STREAMING_RESPONSE__INIT;
    M(TaskLogs) log = MODAL__CLIENT__TASK_LOGS__INIT, *logs[] = {&log};
    struct join *j = ctx;
    auto_free char *line = mem_printf("%s\n", text);
    char entry[24];

    (void)snprintf(entry, sizeof entry, "%lld", (long long)seq);
    log.has_data = log.has_timestamp = true;
    log.data = (ProtobufCBinaryData){strlen(line), (uint8_t *)line};
    log.timestamp = (double)at_ms / 1000;
    log.has_file_descriptor = true;
    log.file_descriptor = MODAL__CLIENT__FILE_DESCRIPTOR__FILE_DESCRIPTOR_STDOUT;
    rs.task_logs = logs;
    rs.n_task_logs = 1;
    rs.entry_id = entry;
    j->after = seq;
    m_send(j->call, &rs.base);
}

static void add_tail(void *ctx, int64_t seq, int64_t at_ms, const char *text)
{
    (void)seq;
    (void)at_ms;
    (void)buf_addf(ctx, "%s\n", text);
}

static void send_result(struct join *j, const struct operation_row *operation)
{
    struct mcall *c = j->call;
    M(ImageJoinStreamingResponse) rs = MODAL__CLIENT__IMAGE_JOIN_STREAMING_RESPONSE__INIT;
    M(GenericResult) result;
    M(ImageMetadata) meta;
    auto_image_row row = {0};
    char entry[24];
    struct err e;

    modal__client__generic_result__init(&result);
    result.has_status = true;
    if (images_find_id(c, j->image, &row) == 0) {
        result.status = STATUS(SUCCESS);
        images_fill_metadata(&row, &meta);
        rs.metadata = &meta;
    } else {
        bool cancelled = operation->state == OPERATION_CANCELLED;
        result.status = cancelled ? STATUS(TERMINATED) : STATUS(FAILURE);
        (void)store_operation_lines(m_store(c), operation->id,
                                    j->after > TAIL_LINES ? j->after - TAIL_LINES : 0, TAIL_LINES,
                                    add_tail, &j->tail, &e);
        (void)buf_adds(&j->tail, operation->error != NULL && operation->error[0] != '\0'
                                     ? operation->error
                                     : "the image was removed");
        result.exception = STR(buf_str(&j->tail));
    }
    (void)snprintf(entry, sizeof entry, "%lld", (long long)j->after + 1);
    rs.entry_id = entry;
    rs.result = &result;
    rs.has_eof = rs.eof = true;
    m_send(c, &rs.base);
    c->user = NULL;
    c->on_gone = NULL;
    join_free(j);
    m_end(c);
}

static void follow(struct join *j);

static void on_news(void *ctx, const struct operation_view *view, const struct err *e)
{
    struct join *j = ctx;
    struct mcall *c = j->call;
    struct err local;

    j->wait = NULL;
    if (e == NULL && store_operation_lines(m_store(c), j->operation, j->after, 1000, send_line, j, &local) < 0)
        e = &local;
    if (e != NULL) {
        c->user = NULL;
        c->on_gone = NULL;
        join_free(j);
        m_fail(c, e);
        return;
    }
    if (view->row.state != OPERATION_RUNNING) {
        send_result(j, &view->row);
        return;
    }
    if (clock_boot_ms() >= j->until_ms) {
        c->user = NULL;
        c->on_gone = NULL;
        join_free(j);
        m_end(c);                       /* the client comes again with its entry id */
        return;
    }
    follow(j);
}

static void on_turn(void *arg)
{
    struct mcall *c = arg;
    struct join *j = c->user;
    int64_t left = j->until_ms - clock_boot_ms();
    struct operation_wait *w = operation_get(c->m->core, j->operation, j->after, left > 0 ? (uint64_t)left : 0, on_news, j);

    if (w != NULL)
        j->wait = w;
}

static void follow(struct join *j)
{
    on_turn(j->call);
}

void rpc_image_join_streaming(struct mcall *c)
{
    const M(ImageJoinStreamingRequest) *rq = REQ(c, ImageJoinStreamingRequest);
    const char *id = m_text(rq->image_id);
    struct operation_row none = {0};
    struct definition_row row = {{0}};
    auto_image_row image = {0};
    struct err e;

    bool is_here = images_find_id(c, id, &image) == 0;
    if (store_definition_get(m_store(c), NULL, id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    if (!is_here && row.image[0] == '\0') {
        m_refuse(c, GRPC_NOT_FOUND, "Could not find image with ID %.40s", id);
        return;
    }
    struct join *j = mem_zalloc(sizeof *j);
    j->call = c;
    buf_init(&j->tail, 64 * 1024);
    (void)snprintf(j->image, sizeof j->image, "%s", id);
    memcpy(j->operation, row.operation, sizeof j->operation);
    j->after = strtoll(m_text(rq->last_entry_id), NULL, 10);
    j->until_ms = clock_boot_ms() + (int64_t)m_poll_ms(rq->timeout, JOIN_MOST_S);
    c->user = j;
    c->on_gone = on_join_gone;
    if (row.operation[0] == '\0' || (is_here && !rq->include_logs_for_finished))
        send_result(j, &none);
    else
        follow(j);
}
