/*
 * exec_runner.c - ExecRun with resumption
 */
#include "api/rest/exec_runner.h"

#include <string.h>

#include "api/rest/exec_model.h"
#include "api/shared/exec_reader.h"
#include "api/shared/node_retry.h"
#include "api/shared/node_stream.h"
#include "base/mem.h"
#include "ipc/record.h"

struct exec_runner {
    struct core *core;                              /* borrowed */
    Quicksand__Node__ExecRunRequest *request;       /* owned; its offsets are where the streams go on */
    const struct exec_runner_ops *ops;
    void *ctx;
    struct grpc_call *call;
    size_t outstanding;
    bool started, busy, dead;
    Quicksand__Node__ExecRunResponse *last;         /* owned; has `exited`, or a failed `started` */
    struct node_retry retry;
};

static void destroy(struct exec_runner *r)
{
    node_retry_done(&r->retry);
    if (r->last != NULL)
        quicksand__node__exec_run_response__free_unpacked(r->last, NULL);
    quicksand__node__exec_run_request__free_unpacked(r->request, NULL);
    free(r);
}

static void finish(struct exec_runner *r, const Quicksand__Node__Exec *x, const struct err *e)
{
    r->busy = true;
    r->ops->on_end(r->ctx, x, e);
    r->busy = false;
    if (r->dead)
        destroy(r);
}

static void take_data(struct exec_runner *r, const Quicksand__Node__ExecRunResponse *m)
{
    uint64_t *at = m->stream == STREAM_STDOUT ? &r->request->stdout_offset : &r->request->stderr_offset;

    if (m->offset < *at) {              /* not what was asked for: take nothing twice */
        grpc_call_consumed(r->call, m->data.len);
        return;
    }
    *at = m->offset + m->data.len;
    r->outstanding += m->data.len;
    r->ops->on_data(r->ctx, (int)m->stream, m->data.data, m->data.len);
}

static void on_message(struct grpc_call *call, const void *p, size_t n, void *ctx)
{
    struct exec_runner *r = ctx;

    if (r->dead || r->last != NULL)
        return;
    Quicksand__Node__ExecRunResponse *m = quicksand__node__exec_run_response__unpack(NULL, n, p);
    if (m == NULL) {
        grpc_cancel(call);
        return;
    }
    grpc_call_consumed(call, n - (m->has_data ? m->data.len : 0));
    node_retry_progress(&r->retry);
    if (m->exited != NULL || (m->started != NULL && m->started->state == EXEC_FAILED)) {
        r->last = m;
        return;
    }
    if (m->started != NULL && !r->started) {
        r->started = true;
        if (r->ops->on_started != NULL)
            r->ops->on_started(r->ctx, m->started);
    }
    if (m->has_data && m->data.len > 0 && !r->dead)
        take_data(r, m);
    quicksand__node__exec_run_response__free_unpacked(m, NULL);
}

static void on_end(struct grpc_call *call, enum grpc_status status, const struct err *e, void *ctx)
{
    struct exec_runner *r = ctx;
    struct err local = {0};

    r->call = NULL;
    r->outstanding = 0;
    if (r->dead) {
        destroy(r);
        return;
    }
    if (r->last != NULL) {
        const Quicksand__Node__Exec *x = r->last->exited != NULL ? r->last->exited : r->last->started;
        if (exec_start_error(x, &local) < 0)
            finish(r, NULL, &local);
        else
            finish(r, x, NULL);
        return;
    }
    if (status == GRPC_OK || status == GRPC_CANCELLED) {
        (void)err_set(&local, ERR_UNAVAILABLE, "the node ended the stream early");
        e = &local;
    }
    if (!node_retry_schedule(&r->retry, e))
        finish(r, NULL, e);
}

static void start(void *ctx)
{
    static const struct grpc_ops grpc_ops = {.on_message = on_message, .on_end = on_end};
    struct exec_runner *r = ctx;

    r->call = node_stream_new(r->core, "ExecRun", &r->request->base, &grpc_ops, r);
    grpc_send_end(r->call);
}

/* A deep copy, by way of its bytes. */
static Quicksand__Node__ExecRunRequest *copy_request(const Quicksand__Node__ExecStartRequest *start_rq,
                                                     bool lazy)
{
    Quicksand__Node__ExecRunRequest rq = QUICKSAND__NODE__EXEC_RUN_REQUEST__INIT;

    rq.start = (Quicksand__Node__ExecStartRequest *)(uintptr_t)start_rq;
    rq.has_stdout_offset = rq.has_stderr_offset = rq.has_lazy = true;
    rq.lazy = lazy;
    size_t n = quicksand__node__exec_run_request__get_packed_size(&rq);
    auto_free uint8_t *packed = mem_alloc(n + 1);
    (void)quicksand__node__exec_run_request__pack(&rq, packed);
    return quicksand__node__exec_run_request__unpack(NULL, n, packed);
}

struct exec_runner *exec_runner_new(struct core *c, const Quicksand__Node__ExecStartRequest *start_rq, bool lazy,
                                    const struct exec_runner_ops *ops, void *ctx)
{
    struct exec_runner *r = mem_zalloc(sizeof *r);

    r->core = c;
    r->request = copy_request(start_rq, lazy);
    r->ops = ops;
    r->ctx = ctx;
    node_retry_init(&r->retry, core_loop(c), start, r);
    start(r);
    return r;
}

void exec_runner_consumed(struct exec_runner *r, size_t n)
{
    if (n > r->outstanding)
        n = r->outstanding;             /* the rest belonged to a call that is gone */
    r->outstanding -= n;
    if (r->call != NULL && n > 0)
        grpc_call_consumed(r->call, n);
}

void exec_runner_free(struct exec_runner *r)
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
