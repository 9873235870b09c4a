/*
 * exec_follow.c - two readers and a wait
 */
#include "api/rest/exec_follow.h"

#include <stdio.h>

#include "api/rest/exec_model.h"
#include "api/shared/exec_reader.h"
#include "api/rest/node_ask.h"
#include "base/mem.h"

#define WAIT_PIECE_MS 30000

struct side {
    struct exec_follow *follow;
    int stream;
    struct exec_reader *reader;
    size_t held;
    bool ended;
};

struct exec_follow {
    struct core *core;              /* borrowed */
    char sandbox[LIMIT_ID], exec_id[LIMIT_ID];
    struct side sides[2];
    struct node_call *wait;
    const struct exec_follow_ops *ops;
    void *ctx;
    bool busy, dead;
};

static void wait_exit(struct exec_follow *f);

/* The user's on_exit may free the object. */
static void finish(struct exec_follow *f, json_t *exec, const struct err *e)
{
    f->busy = true;
    f->ops->on_exit(f->ctx, exec, e);
    f->busy = false;
    if (f->dead)
        free(f);
}

static void on_exit_record(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__Exec *x = (const Quicksand__Node__Exec *)reply;
    struct exec_follow *f = ctx;

    f->wait = NULL;
    if (reply == NULL) {
        finish(f, NULL, e);
    } else if (!exec_has_ended(x)) {
        wait_exit(f);
    } else {
        json_t *o = exec_json(x, f->sandbox);
        finish(f, o, NULL);
        json_decref(o);
    }
}

static void wait_exit(struct exec_follow *f)
{
    Quicksand__Node__ExecGetRequest rq = QUICKSAND__NODE__EXEC_GET_REQUEST__INIT;
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;

    ref.sandbox_id = f->sandbox;
    ref.exec_id = f->exec_id;
    rq.ref = &ref;
    rq.has_wait_ms = true;
    rq.wait_ms = WAIT_PIECE_MS;
    f->wait = node_unary(f->core, "ExecGet", &rq.base, &quicksand__node__exec__descriptor,
                         WAIT_PIECE_MS + NODE_ASK_MS, true, on_exit_record, f);
}

static void on_data(void *ctx, uint64_t offset, const void *p, size_t n)
{
    struct side *s = ctx;

    s->held += n;
    s->follow->ops->on_data(s->follow->ctx, s->stream, offset, p, n);
}

static void on_end(void *ctx, const struct err *e)
{
    struct side *s = ctx;
    struct exec_follow *f = s->follow;

    s->ended = true;
    if (e != NULL) {
        for (int i = 0; i < 2; i++) {
            exec_reader_free(f->sides[i].reader);
            f->sides[i].reader = NULL;
        }
        finish(f, NULL, e);
    } else if (f->sides[0].ended && f->sides[1].ended) {
        wait_exit(f);
    }
}

struct exec_follow *exec_follow_new(struct core *c, const char *sandbox, const char *exec_id, uint64_t stdout_offset,
                                    uint64_t stderr_offset, const struct exec_follow_ops *ops, void *ctx)
{
    static const struct exec_reader_ops reader_ops = {.on_data = on_data, .on_end = on_end};
    struct exec_follow *f = mem_zalloc(sizeof *f);

    f->core = c;
    (void)snprintf(f->sandbox, sizeof f->sandbox, "%s", sandbox);
    (void)snprintf(f->exec_id, sizeof f->exec_id, "%s", exec_id);
    f->ops = ops;
    f->ctx = ctx;
    for (int i = 0; i < 2; i++) {
        struct side *s = &f->sides[i];
        s->follow = f;
        s->stream = i == 0 ? STREAM_STDOUT : STREAM_STDERR;
        s->reader = exec_reader_new(c, sandbox, exec_id, s->stream, i == 0 ? stdout_offset : stderr_offset, true,
                                    &reader_ops, s);
    }
    return f;
}

void exec_follow_consumed(struct exec_follow *f)
{
    for (int i = 0; i < 2; i++) {
        struct side *s = &f->sides[i];
        if (s->reader != NULL)
            exec_reader_consumed(s->reader, s->held);
        s->held = 0;
    }
}

void exec_follow_free(struct exec_follow *f)
{
    if (f == NULL || f->dead)
        return;
    f->dead = true;
    for (int i = 0; i < 2; i++)
        exec_reader_free(f->sides[i].reader);
    if (f->wait != NULL)
        node_call_cancel(f->wait);
    if (!f->busy)
        free(f);
}
