/*
 * tasks.c - tasks: every sandbox is run by one, whose id is made of the sandbox's
 */
#include <string.h>

#include "api/modal/apps.h"
#include "api/modal/sandbox_view.h"
#include "base/mem.h"

#define TASKS_MAX 1000

struct task {
    M(TaskStats) m;
    char id[ID_SIZE];
    struct app_info app;
};

struct task_list {
    struct mcall *c;
    const char *environment;            /* key */
    struct task *items[TASKS_MAX];
    M(TaskStats) *out[TASKS_MAX];
    size_t n;
};

static void add_task(void *ctx, const struct sandbox *sb)
{
    struct task_list *l = ctx;
    struct task *t = mem_zalloc(sizeof *t);

    if (l->n == TASKS_MAX || store_app_by_name(m_store(l->c), sb->row->app, &t->app, NULL) < 0
        || strcmp(t->app.environment, l->environment) != 0) {
        free(t);
        return;
    }
    modal_task_id(sb->row->id, view_generation(sb->row), t->id);
    modal__client__task_stats__init(&t->m);
    t->m.task_id = t->id;
    t->m.app_id = t->app.id;
    t->m.app_description = t->app.text;
    t->m.has_started_at = t->m.has_enqueued_at = true;
    t->m.started_at = (double)sb->row->started_ms / 1e3;
    t->m.enqueued_at = (double)sb->row->created_us / 1e6;
    l->items[l->n] = t;
    l->out[l->n++] = &t->m;
}

static int list(struct mcall *c, struct task_list *l, struct environment_row *env, struct err *e)
{
    const M(TaskListRequest) *rq = REQ(c, TaskListRequest);
    struct sandbox_filter f = {.states = STORE_LIVE_STATES, .limit = TASKS_MAX};
    struct app_info app;

    if (m_environment(c, rq->environment_name, env, e) < 0)
        return -1;
    l->c = c;
    l->environment = m_env_key(env);
    if (m_text(rq->app_id)[0] != '\0') {
        if (app_get(c, rq->app_id, &app, e) < 0)
            return -1;
        f.app = app.name;
    }
    return sandbox_list(c->m->core, &f, add_task, l, e);
}

static void list_now(void *ctx)
{
    struct mcall *c = ctx;
    M(TaskListResponse) rs = MODAL__CLIENT__TASK_LIST_RESPONSE__INIT;
    auto_free struct task_list *l = mem_zalloc(sizeof *l);
    struct environment_row env;
    struct err e;
    int r = list(c, l, &env, &e);

    rs.tasks = l->out;
    rs.n_tasks = l->n;
    if (r < 0)
        m_fail(c, &e);
    else
        m_reply(c, &rs.base);
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i]);
}

void rpc_task_list(struct mcall *c)
{
    sandbox_refresh(c->m->core, list_now, c);
}

void rpc_task_get_info(struct mcall *c)
{
    M(TaskGetInfoResponse) rs = MODAL__CLIENT__TASK_GET_INFO_RESPONSE__INIT;
    M(TaskInfo) info = MODAL__CLIENT__TASK_INFO__INIT;
    struct view_metadata meta;
    auto_sandbox_row row = {0};
    enum modal_generation g;
    char id[ID_SIZE], task[ID_SIZE], visible[ID_SIZE];
    struct err e;

    if (view_task(c, REQ(c, TaskGetInfoRequest)->task_id, id, &g, &e) < 0 || view_row(c, id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    modal_task_id(id, g, task);
    modal_sandbox_id(id, g, visible);
    view_metadata(c, &row, &meta);
    info.id = task;
    info.sandbox_id = visible;
    info.has_started_at = info.has_finished_at = info.has_enqueued_at = true;
    info.started_at = (double)row.started_ms / 1e3;
    info.finished_at = (double)row.ended_ms / 1e3;
    info.enqueued_at = (double)row.created_us / 1e6;
    info.result = meta.m.result;
    rs.app_id = meta.app_id;
    rs.info = &info;
    m_reply(c, &rs.base);
}

static void on_stopped(void *ctx, const struct sandbox *sb, const struct err *e)
{
    M(ContainerStopResponse) rs = MODAL__CLIENT__CONTAINER_STOP_RESPONSE__INIT;

    if (e != NULL)
        m_fail(ctx, e);
    else
        m_reply(ctx, &rs.base);
}

void rpc_container_stop(struct mcall *c)
{
    const struct sandbox_end_how how = {.actor = c->token.id, .grace_ms = -1, .wait_ms = 0};
    char id[ID_SIZE];
    struct err e;

    if (view_task(c, REQ(c, ContainerStopRequest)->task_id, id, NULL, &e) < 0)
        m_fail(c, &e);
    else
        sandbox_terminate(c->m->core, id, &how, on_stopped, c);
}
