/*
 * queues.c - queues: partitions of opaque values, first in, first out
 *
 * A get that finds nothing waits for a put; waiters of a queue are served in the order they came.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/modal/objects.h"
#include "base/clock.h"
#include "base/mem.h"

#define ITEMS_MAX 5000              /* of a partition */
#define ITEM_BYTES_MAX (1024 * 1024)
#define KEY_MAX 64
#define TTL_DEFAULT_S (24 * 3600)
#define WAIT_MOST_S 55
#define ANSWER_BYTES_MAX (16 * 1024 * 1024)

/* One call that waits for a value. */
struct waiter {
    struct waiter *next, *prev;
    struct modal *m;
    struct mcall *c;
    struct loop_timer *timer;
    bool is_next_items;
    char queue[ID_SIZE];
};

struct queue_waiters {
    struct waiter *first, *last;
};

/* --- objects ------------------------------------------------------------------------------------------------------- */

void rpc_queue_get_or_create(struct mcall *c)
{
    const M(QueueGetOrCreateRequest) *rq = REQ(c, QueueGetOrCreateRequest);
    M(QueueGetOrCreateResponse) rs = MODAL__CLIENT__QUEUE_GET_OR_CREATE_RESPONSE__INIT;
    M(QueueMetadata) meta = MODAL__CLIENT__QUEUE_METADATA__INIT;
    struct object_row row;
    bool is_new;
    struct err e;

    if (object_get_or_create(c, OBJECT_QUEUE, rq->environment_name, m_text(rq->deployment_name), (int)rq->object_creation_type,
                             &row, &is_new, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    M(CreationInfo) creation = m_creation(row.created_us);
    meta.name = row.name;
    meta.creation_info = &creation;
    rs.queue_id = row.id;
    rs.metadata = &meta;
    m_reply(c, &rs.base);
}

void rpc_queue_get_by_id(struct mcall *c)
{
    M(QueueGetByIdResponse) rs = MODAL__CLIENT__QUEUE_GET_BY_ID_RESPONSE__INIT;
    M(QueueMetadata) meta = MODAL__CLIENT__QUEUE_METADATA__INIT;
    struct object_row row;
    struct err e;

    if (object_get(c, OBJECT_QUEUE, REQ(c, QueueGetByIdRequest)->queue_id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    M(CreationInfo) creation = m_creation(row.created_us);
    meta.name = row.name;
    meta.creation_info = &creation;
    rs.queue_id = row.id;
    rs.metadata = &meta;
    m_reply(c, &rs.base);
}

void rpc_queue_heartbeat(struct mcall *c)
{
    object_heartbeat(c, OBJECT_QUEUE, REQ(c, QueueHeartbeatRequest)->queue_id);
}

void rpc_queue_delete(struct mcall *c)
{
    object_delete(c, OBJECT_QUEUE, REQ(c, QueueDeleteRequest)->queue_id);
}

void rpc_queue_list(struct mcall *c)
{
    const M(QueueListRequest) *rq = REQ(c, QueueListRequest);
    M(QueueListResponse) rs = MODAL__CLIENT__QUEUE_LIST_RESPONSE__INIT;
    auto_free struct object_list *l = mem_zalloc(sizeof *l);
    struct err e;

    if (object_list(c, OBJECT_QUEUE, rq->environment_name, rq->pagination, l, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    auto_free M(QueueListResponse__QueueInfo) *items = mem_array(l->n + 1, sizeof *items);
    auto_free M(QueueListResponse__QueueInfo) **list = mem_array(l->n + 1, sizeof *list);
    auto_free M(QueueMetadata) *metas = mem_array(l->n + 1, sizeof *metas);
    auto_free M(CreationInfo) *creations = mem_array(l->n + 1, sizeof *creations);
    for (size_t i = 0; i < l->n; i++) {
        int64_t total = 0, parts = 0;
        (void)store_queue_len(m_store(c), l->rows[i].id, NULL, clock_wall_ms(), &total, &parts, NULL);
        modal__client__queue_metadata__init(&metas[i]);
        creations[i] = m_creation(l->rows[i].created_us);
        metas[i].name = l->rows[i].name;
        metas[i].creation_info = &creations[i];
        modal__client__queue_list_response__queue_info__init(&items[i]);
        items[i].name = l->rows[i].name;
        items[i].queue_id = l->rows[i].id;
        items[i].has_created_at = items[i].has_num_partitions = items[i].has_total_size = true;
        items[i].created_at = (double)l->rows[i].created_us / 1e6;
        items[i].num_partitions = (int32_t)parts;
        items[i].total_size = rq->total_size_limit > 0 && total > rq->total_size_limit ? rq->total_size_limit : (int32_t)total;
        items[i].metadata = &metas[i];
        list[i] = &items[i];
    }
    rs.queues = list;
    rs.n_queues = l->n;
    rs.environment_name = l->env.name;
    m_reply(c, &rs.base);
}

static int check_part(struct blob part, struct err *e)
{
    return part.n <= KEY_MAX ? 0 : err_param(e, ERR_INVALID, "partition_key", "a partition key has at most %d bytes", KEY_MAX);
}

/* --- values -------------------------------------------------------------------------------------------------------- */

struct values {
    ProtobufCBinaryData *list;          /* owned, with its bytes */
    int64_t *seqs;
    size_t n, size, bytes;
};

static void values_done(struct values *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->list[i].data);
    free(v->list);
    free(v->seqs);
}

static void add_value(void *ctx, int64_t seq, struct blob b)
{
    struct values *v = ctx;

    if (v->n == v->size || (v->n > 0 && v->bytes + b.n > ANSWER_BYTES_MAX)) {
        v->size = v->n;                 /* the rest stays for the next call */
        return;
    }
    v->list[v->n] = (ProtobufCBinaryData){b.n, mem_dup(b.p, b.n)};
    v->seqs[v->n++] = seq;
    v->bytes += b.n;
}

static int read_values(struct mcall *c, const char *queue, struct blob part, int64_t after, size_t limit, struct values *v,
                       struct err *e)
{
    v->size = limit < ITEMS_MAX ? limit : ITEMS_MAX;
    v->list = mem_array(v->size + 1, sizeof *v->list);
    v->seqs = mem_array(v->size + 1, sizeof *v->seqs);
    return store_queue_peek(m_store(c), queue, part, clock_wall_ms(), after, v->size, add_value, v, e);
}

/* 1: answered; 0: nothing there. */
static int try_get(struct mcall *c, bool must_answer)
{
    const M(QueueGetRequest) *rq = REQ(c, QueueGetRequest);
    M(QueueGetResponse) rs = MODAL__CLIENT__QUEUE_GET_RESPONSE__INIT;
    struct blob part = blob_of(rq->has_partition_key, rq->partition_key);
    struct values v = {0};
    struct err e = {0};
    size_t limit = rq->has_n_values ? (rq->n_values > 0 ? (size_t)rq->n_values : 0) : 1;
    int r = read_values(c, m_text(rq->queue_id), part, 0, limit, &v, &e);

    if (r == 0 && v.n > 0)
        r = store_queue_drop(m_store(c), rq->queue_id, part, v.seqs[v.n - 1], &e);
    bool is_answer = r < 0 || v.n > 0 || must_answer;
    rs.values = v.list;
    rs.n_values = v.n;
    if (r < 0)
        m_fail(c, &e);
    else if (is_answer)
        m_reply(c, &rs.base);
    values_done(&v);
    return is_answer;
}

static int try_next_items(struct mcall *c, bool must_answer)
{
    const M(QueueNextItemsRequest) *rq = REQ(c, QueueNextItemsRequest);
    M(QueueNextItemsResponse) rs = MODAL__CLIENT__QUEUE_NEXT_ITEMS_RESPONSE__INIT;
    struct blob part = blob_of(rq->has_partition_key, rq->partition_key);
    struct values v = {0};
    struct err e = {0};
    int64_t after = strtoll(m_text(rq->last_entry_id), NULL, 10);
    int r = read_values(c, m_text(rq->queue_id), part, after, ITEMS_MAX, &v, &e);
    bool is_answer = r < 0 || v.n > 0 || must_answer;

    if (r < 0) {
        m_fail(c, &e);
    } else if (is_answer) {
        auto_free M(QueueItem) *items = mem_array(v.n + 1, sizeof *items);
        auto_free M(QueueItem) **list = mem_array(v.n + 1, sizeof *list);
        auto_free char (*ids)[24] = mem_array(v.n + 1, sizeof *ids);
        for (size_t i = 0; i < v.n; i++) {
            modal__client__queue_item__init(&items[i]);
            (void)snprintf(ids[i], sizeof ids[i], "%" PRId64, v.seqs[i]);
            items[i].has_value = true;
            items[i].value = v.list[i];
            items[i].entry_id = ids[i];
            list[i] = &items[i];
        }
        rs.items = list;
        rs.n_items = v.n;
        m_reply(c, &rs.base);
    }
    values_done(&v);
    return is_answer;
}

/* --- waiting ------------------------------------------------------------------------------------------------------- */

static void waiter_free(struct waiter *w)
{
    struct queue_waiters *q = map_get(&w->m->waiting, w->queue);

    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        q->first = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    else
        q->last = w->prev;
    if (q->first == NULL)
        free(map_del(&w->m->waiting, w->queue));
    loop_timer_free(w->timer);
    free(w);
}

static void on_timeout(void *arg)
{
    struct waiter *w = arg;
    struct mcall *c = w->c;
    bool is_next_items = w->is_next_items;

    waiter_free(w);
    (void)(is_next_items ? try_next_items(c, true) : try_get(c, true));
}

static void on_gone(struct mcall *c)
{
    waiter_free(c->user);
    m_end(c);
}

static void wait_for_put(struct mcall *c, const char *queue, uint64_t ms, bool is_next_items)
{
    struct queue_waiters *q = map_get(&c->m->waiting, queue);
    struct waiter *w = mem_zalloc(sizeof *w);

    if (q == NULL) {
        q = mem_zalloc(sizeof *q);
        (void)map_put(&c->m->waiting, queue, q);
    }
    w->m = c->m;
    w->c = c;
    w->is_next_items = is_next_items;
    (void)snprintf(w->queue, sizeof w->queue, "%s", queue);
    w->prev = q->last;
    if (q->last != NULL)
        q->last->next = w;
    else
        q->first = w;
    q->last = w;
    c->user = w;
    c->on_gone = on_gone;
    w->timer = loop_timer_new(core_loop(c->m->core), on_timeout, w);
    loop_timer_set(w->timer, ms);
}

static void serve_waiters(struct modal *m, const char *queue)
{
    struct queue_waiters *q = map_get(&m->waiting, queue);

    for (struct waiter *w = q != NULL ? q->first : NULL; w != NULL;) {
        struct waiter *next = w->next;
        struct mcall *c = w->c;
        c->on_gone = NULL;
        if (w->is_next_items ? try_next_items(c, false) : try_get(c, false))
            waiter_free(w);             /* the call is gone already */
        else
            c->on_gone = on_gone;
        w = next;
    }
}

void rpc_queue_get(struct mcall *c)
{
    const M(QueueGetRequest) *rq = REQ(c, QueueGetRequest);
    uint64_t ms = m_poll_ms(rq->timeout, WAIT_MOST_S);
    struct object_row row;
    struct err e;

    if (object_get(c, OBJECT_QUEUE, rq->queue_id, &row, &e) < 0)
        m_fail(c, &e);
    else if (!try_get(c, ms == 0))
        wait_for_put(c, row.id, ms, false);
}

void rpc_queue_next_items(struct mcall *c)
{
    const M(QueueNextItemsRequest) *rq = REQ(c, QueueNextItemsRequest);
    uint64_t ms = m_poll_ms(rq->item_poll_timeout, WAIT_MOST_S);
    struct object_row row;
    struct err e;

    if (object_get(c, OBJECT_QUEUE, rq->queue_id, &row, &e) < 0)
        m_fail(c, &e);
    else if (!try_next_items(c, ms == 0))
        wait_for_put(c, row.id, ms, true);
}

/* --- put ----------------------------------------------------------------------------------------------------------- */

static int check_put(struct mcall *c, const M(QueuePutRequest) *rq, struct blob part, struct err *e)
{
    int64_t n = 0;

    if (check_part(part, e) < 0 || store_queue_len(m_store(c), rq->queue_id, &part, clock_wall_ms(), &n, NULL, e) < 0)
        return -1;
    for (size_t i = 0; i < rq->n_values; i++)
        if (rq->values[i].len > ITEM_BYTES_MAX)
            return err_param(e, ERR_INVALID, "values", "an item of a queue has at most %d bytes", ITEM_BYTES_MAX);
    if (n + (int64_t)rq->n_values > ITEMS_MAX)
        return err_set(e, ERR_LIMIT, "the queue is full: a partition holds at most %d items", ITEMS_MAX);
    return 0;
}

static int put(struct mcall *c, const M(QueuePutRequest) *rq, struct blob part, struct err *e)
{
    struct store *s = m_store(c);
    int32_t ttl_s = rq->has_partition_ttl_seconds && rq->partition_ttl_seconds > 0 ? rq->partition_ttl_seconds : TTL_DEFAULT_S;
    int64_t expires_ms = clock_wall_ms() + ttl_s * 1000LL;
    enum idem_result how;
    char object[IDEM_OBJECT_SIZE];

    if (store_begin(s, STORE_FAST, e) < 0)
        return -1;
    if (m_idem(c, rq->queue_id, &how, object, e) < 0)
        goto fail;
    if (how == IDEM_REPLAY) {           /* these values are in it */
        store_rollback(s);
        return 0;
    }
    if (check_put(c, rq, part, e) < 0 || store_queue_touch(s, rq->queue_id, part, expires_ms, e) < 0)
        goto fail;
    for (size_t i = 0; i < rq->n_values; i++)
        if (store_queue_put(s, rq->queue_id, part, expires_ms, (struct blob){rq->values[i].data, rq->values[i].len}, e) < 0)
            goto fail;
    if (store_commit(s, e) == 0)
        return 0;
fail:
    store_rollback(s);
    return -1;
}

void rpc_queue_put(struct mcall *c)
{
    const M(QueuePutRequest) *rq = REQ(c, QueuePutRequest);
    struct modal *m = c->m;
    struct object_row row;
    struct err e;

    if (object_get(c, OBJECT_QUEUE, rq->queue_id, &row, &e) < 0
        || put(c, rq, blob_of(rq->has_partition_key, rq->partition_key), &e) < 0) {
        m_fail(c, &e);
        return;
    }
    m_reply_empty(c);
    serve_waiters(m, row.id);
}

void rpc_queue_len(struct mcall *c)
{
    const M(QueueLenRequest) *rq = REQ(c, QueueLenRequest);
    M(QueueLenResponse) rs = MODAL__CLIENT__QUEUE_LEN_RESPONSE__INIT;
    struct blob part = blob_of(rq->has_partition_key, rq->partition_key);
    struct object_row row;
    int64_t n = 0;
    struct err e;

    if (object_get(c, OBJECT_QUEUE, rq->queue_id, &row, &e) < 0
        || store_queue_len(m_store(c), row.id, rq->total ? NULL : &part, clock_wall_ms(), &n, NULL, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.has_len = true;
    rs.len = (int32_t)n;
    m_reply(c, &rs.base);
}

void rpc_queue_clear(struct mcall *c)
{
    const M(QueueClearRequest) *rq = REQ(c, QueueClearRequest);
    struct blob part = blob_of(rq->has_partition_key, rq->partition_key);
    struct object_row row;
    struct err e;

    if (object_get(c, OBJECT_QUEUE, rq->queue_id, &row, &e) < 0
        || store_queue_clear(m_store(c), row.id, rq->all_partitions ? NULL : &part, &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}
