/*
 * exec_reader.c - following one output stream
 */
#include "api/shared/exec_reader.h"

#include <stdio.h>
#include <string.h>

#include "api/shared/node_retry.h"
#include "api/shared/node_stream.h"
#include "base/mem.h"
#include "node.pb-c.h"

struct exec_reader {
    struct core *core;                  /* borrowed */
    char sandbox[LIMIT_ID], exec_id[LIMIT_ID];
    uint32_t stream;
    uint64_t offset;                    /* of the next byte */
    bool follow;
    const struct exec_reader_ops *ops;
    void *ctx;
    struct grpc_call *call;             /* NULL between attempts and after the end */
    size_t outstanding;                 /* payload bytes of this call not yet given back */
    bool complete;                      /* the last message has come */
    bool busy;                          /* inside on_end of the user */
    bool dead;                          /* freed by the user; goes when nothing points here any more */
    struct node_retry retry;
};

static void destroy(struct exec_reader *r)
{
    node_retry_done(&r->retry);
    free(r);
}

static void finish(struct exec_reader *r, const struct err *e)
{
    r->busy = true;
    r->ops->on_end(r->ctx, e);
    r->busy = false;
    if (r->dead)
        destroy(r);
}

static void take(struct exec_reader *r, struct grpc_call *call, const Quicksand__Node__ExecReadResponse *m)
{
    size_t len = m->has_data ? m->data.len : 0;

    node_retry_progress(&r->retry);
    if (m->has_total || m->eof)
        r->complete = true;
    if (len == 0)
        return;
    if (m->offset < r->offset) {        /* not what was asked for: take nothing twice */
        grpc_cancel(call);
        return;
    }
    r->outstanding += len;
    r->offset = m->offset + len;
    r->ops->on_data(r->ctx, m->offset, m->data.data, len);
}

static void on_message(struct grpc_call *call, const void *p, size_t n, void *ctx)
{
    struct exec_reader *r = ctx;

    if (r->dead)
        return;
    Quicksand__Node__ExecReadResponse *m = quicksand__node__exec_read_response__unpack(NULL, n, p);
    if (m == NULL) {
        grpc_cancel(call);
        return;
    }
    grpc_call_consumed(call, n - (m->has_data ? m->data.len : 0));
    take(r, call, m);
    quicksand__node__exec_read_response__free_unpacked(m, NULL);
}

static void on_end(struct grpc_call *call, enum grpc_status status, const struct err *e, void *ctx)
{
    struct exec_reader *r = ctx;
    struct err lost = {0};

    r->call = NULL;
    r->outstanding = 0;
    if (r->dead) {
        destroy(r);
        return;
    }
    if (status == GRPC_OK && r->complete) {
        finish(r, NULL);
        return;
    }
    if (status == GRPC_OK || status == GRPC_CANCELLED) {
        (void)err_set(&lost, ERR_UNAVAILABLE, "the node ended the stream early");
        e = &lost;
    }
    if (!node_retry_schedule(&r->retry, e))
        finish(r, e);
}

static void start(void *ctx)
{
    static const struct grpc_ops grpc_ops = {.on_message = on_message, .on_end = on_end};
    struct exec_reader *r = ctx;
    Quicksand__Node__ExecReadRequest rq = QUICKSAND__NODE__EXEC_READ_REQUEST__INIT;
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;

    ref.sandbox_id = r->sandbox;
    ref.exec_id = r->exec_id;
    rq.ref = &ref;
    rq.has_stream = rq.has_offset = rq.has_follow = true;
    rq.stream = r->stream;
    rq.offset = r->offset;
    rq.follow = r->follow;
    r->complete = false;
    r->call = node_stream_new(r->core, "ExecRead", &rq.base, &grpc_ops, r);
    grpc_send_end(r->call);
}

struct exec_reader *exec_reader_new(struct core *c, const char *sandbox, const char *exec_id, int stream,
                                    uint64_t offset, bool follow, const struct exec_reader_ops *ops, void *ctx)
{
    struct exec_reader *r = mem_zalloc(sizeof *r);

    r->core = c;
    (void)snprintf(r->sandbox, sizeof r->sandbox, "%s", sandbox);
    (void)snprintf(r->exec_id, sizeof r->exec_id, "%s", exec_id);
    r->stream = (uint32_t)stream;
    r->offset = offset;
    r->follow = follow;
    r->ops = ops;
    r->ctx = ctx;
    node_retry_init(&r->retry, core_loop(c), start, r);
    start(r);
    return r;
}

void exec_reader_consumed(struct exec_reader *r, size_t n)
{
    if (n > r->outstanding)
        n = r->outstanding;             /* the rest belonged to a call that is gone */
    r->outstanding -= n;
    if (r->call != NULL && n > 0)
        grpc_call_consumed(r->call, n);
}

void exec_reader_free(struct exec_reader *r)
{
    if (r == NULL || r->dead)
        return;
    r->dead = true;
    loop_timer_clear(r->retry.timer);
    if (r->call != NULL)
        grpc_cancel(r->call);
    else if (!r->busy)
        destroy(r);
}
