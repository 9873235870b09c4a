/*
 * wait.c - TaskExecWait and TaskExecPoll
 */
#include <stdint.h>

#include "node/modal/router.h"
#include "node/ops.h"

#define EXIT_NOT_EXECUTABLE 126 /* what a shell says of a program that could not be started */

typedef Modal__TaskCommandRouter__TaskExecWaitResponse WaitResponse;
typedef Modal__TaskCommandRouter__TaskExecPollResponse PollResponse;

static void reply_wait(struct op *op, const struct exec_record *r, const struct err *e)
{
    WaitResponse m = MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_WAIT_RESPONSE__INIT;

    if (e != NULL) {
        router_fail(op, e);
        return;
    }
    if (r->signal > 0) {
        m.exit_status_case = MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_WAIT_RESPONSE__EXIT_STATUS_SIGNAL;
        m.signal = r->signal;
    } else {
        m.exit_status_case = MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_WAIT_RESPONSE__EXIT_STATUS_CODE;
        m.code = r->state == EXEC_FAILED ? EXIT_NOT_EXECUTABLE : r->code;
    }
    op_reply(op, &m.base);
}

static void reply_poll(struct op *op, const struct exec_record *r, const struct err *e)
{
    PollResponse m = MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_POLL_RESPONSE__INIT;

    if (e != NULL) {
        router_fail(op, e);
        return;
    }
    if (r->state >= EXEC_EXITED && r->signal > 0) {
        m.exit_status_case = MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_POLL_RESPONSE__EXIT_STATUS_SIGNAL;
        m.signal = r->signal;
    } else if (r->state >= EXEC_EXITED) {
        m.exit_status_case = MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_POLL_RESPONSE__EXIT_STATUS_CODE;
        m.code = r->state == EXEC_FAILED ? EXIT_NOT_EXECUTABLE : r->code;
    }
    op_reply(op, &m.base);
}

static void begin(struct op *op, const char *task_id, const char *exec_id, int64_t until_ms,
                  void (*done)(struct op *op, const struct exec_record *r, const struct err *e))
{
    struct exec_wait *w = op_state(op, sizeof *w);
    struct err e;

    if (router_exec(op, task_id, exec_id, w->sandbox, &w->ref, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    w->op = op;
    w->until_ms = until_ms;
    w->done = done;
    exec_wait(w);
}

void router_exec_wait(struct op *op)
{
    const Modal__TaskCommandRouter__TaskExecWaitRequest *rq =
        (const Modal__TaskCommandRouter__TaskExecWaitRequest *)op->rq;

    begin(op, rq->task_id, rq->exec_id, INT64_MAX, reply_wait);
}

void router_exec_poll(struct op *op)
{
    const Modal__TaskCommandRouter__TaskExecPollRequest *rq =
        (const Modal__TaskCommandRouter__TaskExecPollRequest *)op->rq;

    begin(op, rq->task_id, rq->exec_id, 0, reply_poll);
}
