/*
 * start.c - TaskExecStart
 *
 * The environment of an exec is the sandbox's, then the terminal's names, then secrets in the order they are named, then `env`;
 * the last value of a name wins. Values of named secrets come from control ahead of time (secrets.h).
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"
#include "node/call.h"
#include "node/modal/router.h"
#include "node/ops.h"
#include "node/query.h"

typedef Modal__TaskCommandRouter__TaskExecStartRequest Request;
typedef Quicksand__Node__Secret Secret;

/* A command of node.proto made of a request, whose texts it borrows but for the environment. */
struct command {
    ProtobufCBinaryData *argv, *env;    /* owned arrays */
    size_t nenv, size;
};

struct start {
    char sandbox[ID_SIZE];
    struct mon_ref ref;
    struct err why;             /* the request could not be met; an exec that runs already is fine all the same */
};

static void command_done(struct command *c)
{
    for (size_t i = 0; i < c->nenv; i++) {
        explicit_bzero(c->env[i].data, c->env[i].len);
        free(c->env[i].data);
    }
    free(c->env);
    free(c->argv);
}

static void add_env(struct command *c, uint8_t *owned, size_t len)
{
    if (c->nenv == c->size) {
        c->size = c->size == 0 ? 16 : c->size * 2;
        c->env = mem_realloc(c->env, c->size * sizeof *c->env);
    }
    c->env[c->nenv++] = (ProtobufCBinaryData){.len = len, .data = owned};
}

static void add_pair(struct command *c, const char *name, const char *value)
{
    if (name == NULL)
        name = "";
    if (value == NULL)
        value = "";
    char *text = mem_printf("%s=%s", name, value);
    add_env(c, (uint8_t *)text, strlen(text));
}

static int add_secret(struct op *op, struct command *c, const char *id, struct err *e)
{
    const Secret *s = router_secrets_get(op->node->router->secrets, id);

    if (s == NULL && !router_secrets_are_told(op->node->router->secrets))
        return err_param(e, ERR_UNAVAILABLE, "secret_ids", "the node has begun and is not told of secrets yet");
    if (s == NULL)
        return err_param(e, ERR_PRECONDITION, "secret_ids", "secret %.64s is not known to this node", id);
    for (size_t i = 0; i < s->n_env; i++)
        add_env(c, mem_dup(s->env[i].data, s->env[i].len), s->env[i].len);
    return 0;
}

static int add_source(struct op *op, struct command *c, const Modal__Client__SecretSource *s,
                      struct err *e)
{
    switch (s->source_case) {
    case MODAL__CLIENT__SECRET_SOURCE__SOURCE_SECRET_ID:
        return add_secret(op, c, s->secret_id, e);
    case MODAL__CLIENT__SECRET_SOURCE__SOURCE_ENV:
        for (size_t i = 0; i < s->env->n_contents; i++)
            add_pair(c, s->env->contents[i]->key, s->env->contents[i]->value);
        return 0;
    case MODAL__CLIENT__SECRET_SOURCE__SOURCE__NOT_SET:
    case _MODAL__CLIENT__SECRET_SOURCE__SOURCE__CASE_IS_INT_SIZE:
        break;
    }
    return err_param(e, ERR_UNSUPPORTED, "secret_sources", "a source of secrets is of an unknown kind");
}

static int make_env(struct op *op, const Request *rq, struct command *c, struct err *e)
{
    const Modal__Client__PTYInfo *pty = rq->pty_info;

    if (pty != NULL && pty->enabled) {
        if (pty->env_term != NULL && pty->env_term[0] != '\0')
            add_pair(c, "TERM", pty->env_term);
        if (pty->env_colorterm != NULL && pty->env_colorterm[0] != '\0')
            add_pair(c, "COLORTERM", pty->env_colorterm);
        if (pty->env_term_program != NULL && pty->env_term_program[0] != '\0')
            add_pair(c, "TERM_PROGRAM", pty->env_term_program);
    }
    for (size_t i = 0; i < rq->n_secret_ids; i++)
        if (add_secret(op, c, rq->secret_ids[i], e) < 0)
            return -1;
    for (size_t i = 0; i < rq->n_secret_sources; i++)
        if (add_source(op, c, rq->secret_sources[i], e) < 0)
            return -1;
    for (size_t i = 0; i < rq->n_env; i++)
        add_pair(c, rq->env[i]->key, rq->env[i]->value);
    return 0;
}

static void make_argv(const Request *rq, struct command *c, Quicksand__Node__Command *ret)
{
    c->argv = mem_array(rq->n_command_args + 1, sizeof *c->argv);
    for (size_t i = 0; i < rq->n_command_args; i++)
        c->argv[i] = (ProtobufCBinaryData){.len = strlen(rq->command_args[i]),
                                           .data = (uint8_t *)rq->command_args[i]};
    ret->n_argv = rq->n_command_args;
    ret->argv = c->argv;
    ret->n_env = c->nenv;
    ret->env = c->env;
    if (rq->workdir != NULL && rq->workdir[0] != '\0') {
        ret->has_cwd = 1;
        ret->cwd = (ProtobufCBinaryData){.len = strlen(rq->workdir), .data = (uint8_t *)rq->workdir};
    }
}

static int make_request(const Request *rq, const struct start *s, Quicksand__Node__ExecRef *ref,
                        Quicksand__Node__Command *command, Quicksand__Node__ExecStartRequest *ret,
                        struct err *e)
{
    const Modal__Client__PTYInfo *pty = rq->pty_info;

    ref->sandbox_id = (char *)(uintptr_t)s->sandbox;
    ref->exec_id = rq->exec_id;
    ret->ref = ref;
    ret->command = command;
    ret->stdin = 1;
    ret->drop_stdout = rq->stdout_config == MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDOUT_CONFIG__TASK_EXEC_STDOUT_CONFIG_DEVNULL;
    ret->drop_stderr = rq->stderr_config == MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDERR_CONFIG__TASK_EXEC_STDERR_CONFIG_DEVNULL;
    ret->merge_stderr = rq->stderr_config == MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_STDERR_CONFIG__TASK_EXEC_STDERR_CONFIG_STDOUT;
    ret->timeout_ms = rq->timeout_secs * 1000ULL;
    ret->output_limit = LIMIT_ROUTER_OUTPUT_BYTES;
    if (pty == NULL || !pty->enabled)
        return 0;
    if (ret->drop_stdout)
        return err_param(e, ERR_UNSUPPORTED, "stdout_config", "a terminal's output cannot be discarded");
    ret->tty = 1;
    ret->drop_stderr = ret->merge_stderr = 0;
    ret->rows = pty->winsz_rows;
    ret->cols = pty->winsz_cols;
    return 0;
}

static void reply(struct op *op)
{
    Modal__TaskCommandRouter__TaskExecStartResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_EXEC_START_RESPONSE__INIT;

    op_reply(op, &m.base);
}

static void answer(struct op *op, const struct exec_record *r)
{
    const Request *rq = (const Request *)op->rq;
    const struct start *s = op->state;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    struct command c = {0};
    struct err e;

    if (r->state != EXEC_FAILED) {
        reply(op);
        return;
    }
    make_argv(rq, &c, &command);
    exec_failure(op->node, s->sandbox, &command, r, &e);
    command_done(&c);
    router_fail(op, &e);
}

static void on_known(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;
    const struct start *s = op->state;

    if (e != NULL)
        router_fail(op, e->code == ERR_NOT_FOUND ? &s->why : e);
    else
        answer(op, r);
}

/* The id may be known: then this is a repeated call, and what it would start today does not matter. */
static void look(struct op *op, const struct err *why)
{
    struct start *s = op->state;

    s->why = *why;
    query_exec(op->node, &op->q[0], s->sandbox, &s->ref, 0, on_known, op);
}

static void on_started(void *arg, const struct exec_record *r, const struct err *e)
{
    struct op *op = arg;

    if (e == NULL)
        answer(op, r);
    else if (e->code == ERR_CONFLICT)
        look(op, e);
    else
        router_fail(op, e);
}

void router_exec_start(struct op *op)
{
    const Request *rq = (const Request *)op->rq;
    struct start *s = op_state(op, sizeof *s);
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    Quicksand__Node__ExecStartRequest m = QUICKSAND__NODE__EXEC_START_REQUEST__INIT;
    struct command c = {0};
    struct mon_exec exec;
    struct err e;
    auto_buf spec = {0};

    buf_init(&spec, LIMIT_CHANNEL_MESSAGE);
    if (router_sandbox(op, rq->task_id, rq->container_id, s->sandbox, &e) < 0) {
        op_fail(op, &e);
        return;
    }
    if (rq->exec_id != NULL && exec_id_is_valid(rq->exec_id))
        (void)snprintf(s->ref.exec_id, sizeof s->ref.exec_id, "%s", rq->exec_id);
    int r = make_env(op, rq, &c, &e);
    bool is_secret = r < 0;
    if (r == 0) {
        make_argv(rq, &c, &command);
        r = make_request(rq, s, &ref, &command, &m, &e);
    }
    if (r == 0)
        r = exec_request(op->node, &m, &exec, &spec, &e);
    command_done(&c);
    if (r == 0)
        query_start(op->node, &op->q[0], s->sandbox, &exec, on_started, op);
    else if (is_secret && s->ref.exec_id[0] != '\0')
        look(op, &e);
    else
        router_fail(op, &e);
    if (spec.data != NULL)
        explicit_bzero(spec.data, spec.len);
}
