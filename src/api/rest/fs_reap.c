/*
 * fs_reap.c - close its stdin, wait, kill if need be, wait, forget
 *
 * Failures end the chain: the sandbox has ended, and everything with it, or the node stays away and the helper ends by
 * itself for want of a sign of life.
 */
#include "api/rest/fs_reap.h"

#include <stdio.h>

#include "api/rest/exec_model.h"
#include "api/rest/node_ask.h"
#include "base/mem.h"
#include "ipc/record.h"

#define LEAVE_MS 5000           /* for a helper to undo what it has begun */

struct reap {
    struct core *core;
    char sandbox[LIMIT_ID], exec_id[LIMIT_ID];
    Quicksand__Node__ExecRef ref;
    bool killed;
};

static void on_forgotten(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    free(ctx);
}

static void forget(struct reap *r)
{
    (void)node_unary(r->core, "ExecForget", &r->ref.base, &quicksand__node__empty__descriptor, NODE_ASK_MS, true,
                     on_forgotten, r);
}

static void wait_end(struct reap *r);

static void on_killed(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct reap *r = ctx;

    r->killed = true;
    wait_end(r);
}

static void on_waited(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    Quicksand__Node__ExecKillRequest rq = QUICKSAND__NODE__EXEC_KILL_REQUEST__INIT;
    struct reap *r = ctx;

    if (reply == NULL) {
        free(r);
    } else if (exec_has_ended((const Quicksand__Node__Exec *)reply)) {
        forget(r);
    } else if (r->killed) {
        free(r);
    } else {
        rq.ref = &r->ref;
        rq.has_reason = true;
        rq.reason = END_KILLED;
        (void)node_unary(r->core, "ExecKill", &rq.base, &quicksand__node__empty__descriptor, NODE_ASK_MS, true,
                         on_killed, r);
    }
}

static void wait_end(struct reap *r)
{
    Quicksand__Node__ExecGetRequest rq = QUICKSAND__NODE__EXEC_GET_REQUEST__INIT;

    rq.ref = &r->ref;
    rq.has_wait_ms = true;
    rq.wait_ms = LEAVE_MS;
    (void)node_unary(r->core, "ExecGet", &rq.base, &quicksand__node__exec__descriptor, LEAVE_MS + NODE_ASK_MS, true,
                     on_waited, r);
}

/* Its answer does not matter: a helper without stdin is only waited for. */
static void on_closed(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    wait_end(ctx);
}

void fs_reap(struct core *c, const char *sandbox, const char *exec_id, bool ended)
{
    Quicksand__Node__StdinWriteRequest rq = QUICKSAND__NODE__STDIN_WRITE_REQUEST__INIT;
    struct reap *r = mem_zalloc(sizeof *r);

    r->core = c;
    (void)snprintf(r->sandbox, sizeof r->sandbox, "%s", sandbox);
    (void)snprintf(r->exec_id, sizeof r->exec_id, "%s", exec_id);
    quicksand__node__exec_ref__init(&r->ref);
    r->ref.sandbox_id = r->sandbox;
    r->ref.exec_id = r->exec_id;
    if (ended) {
        forget(r);
        return;
    }
    rq.ref = &r->ref;
    rq.has_eof = true;
    rq.eof = true;
    (void)node_unary(c, "StdinWrite", &rq.base, &quicksand__node__stdin_response__descriptor, NODE_ASK_MS, true,
                     on_closed, r);
}
