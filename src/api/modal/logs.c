/*
 * logs.c - live logs of sandboxes and of apps
 */
#include <string.h>

#include "api/modal/apps.h"
#include "api/modal/follow.h"
#include "api/modal/sandbox_view.h"
#include "base/clock.h"
#include "base/mem.h"

#define SANDBOXES_MAX 200
#define AWAY_S 10

static unsigned streams_of(protobuf_c_boolean has, int fd)
{
    if (has && fd == MODAL__CLIENT__FILE_DESCRIPTOR__FILE_DESCRIPTOR_STDOUT)
        return FOLLOW_STDOUT;
    if (has && fd == MODAL__CLIENT__FILE_DESCRIPTOR__FILE_DESCRIPTOR_STDERR)
        return FOLLOW_STDERR;
    if (has && fd == MODAL__CLIENT__FILE_DESCRIPTOR__FILE_DESCRIPTOR_INFO)
        return FOLLOW_SYSTEM;
    return FOLLOW_STDOUT | FOLLOW_STDERR | FOLLOW_SYSTEM;
}

void rpc_sandbox_get_logs(struct mcall *c)
{
    const M(SandboxGetLogsRequest) *rq = REQ(c, SandboxGetLogsRequest);
    unsigned streams = streams_of(rq->has_file_descriptor, (int)rq->file_descriptor);
    auto_sandbox_row row = {0};
    enum modal_generation g;
    char id[ID_SIZE];
    struct err e;

    if (view_id(c, rq->sandbox_id, id, &g, &e) < 0 || view_row(c, id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    bool is_one = streams == FOLLOW_STDOUT || streams == FOLLOW_STDERR || streams == FOLLOW_SYSTEM;
    struct follow *f = follow_new(c, rq->timeout, is_one, m_text(rq->last_entry_id));
    follow_add(f, id, g, streams);
    follow_close(f, false);
}

/* What a list gives: those that live, those that the client has begun to read, and those that came and went meanwhile. */
struct found {
    struct follow *f;
    int64_t since_us;
    bool any_ended;
    struct {
        char id[ID_SIZE];
        enum modal_generation g;
    } list[SANDBOXES_MAX];
    size_t n;
};

static void add_found(void *ctx, const struct sandbox *sb)
{
    struct found *l = ctx;

    bool is_wanted = sb->row->state != STORE_ENDED || l->any_ended || sb->row->created_us >= l->since_us
                     || follow_has_seen(l->f, sb->row->id);

    if (l->n == SANDBOXES_MAX || !is_wanted)
        return;
    memcpy(l->list[l->n].id, sb->row->id, ID_SIZE);
    l->list[l->n++].g = view_generation(sb->row);
}

/* The app is looked at every second: for sandboxes that are new, and for its end. */
static void look_at_app(struct follow *f, struct mcall *c)
{
    const M(AppGetLogsRequest) *rq = REQ(c, AppGetLogsRequest);
    auto_free struct found *l = mem_zalloc(sizeof *l);
    struct app_info app;
    struct err e;

    if (app_get(c, rq->app_id, &app, &e) < 0) {
        follow_close(f, true);          /* it is gone, and was there at the beginning */
        return;
    }
    struct sandbox_filter filter = {.app = app.name, .states = STORE_LIVE_STATES | 1u << STORE_ENDED, .limit = SANDBOXES_MAX};
    l->f = f;
    l->any_ended = app.stopped_us != 0;
    l->since_us = clock_wall_us() - (clock_boot_ms() - c->begin_ms) * 1000;
    if (m_text(rq->last_entry_id)[0] != '\0')
        l->since_us -= AWAY_S * 1000000LL;      /* made while the client was coming back */
    (void)sandbox_list(c->m->core, &filter, add_found, l, &e);  /* the next look tries again */
    for (size_t i = l->n; i > 0; i--)   /* oldest first */
        follow_add(f, l->list[i - 1].id, l->list[i - 1].g, streams_of(rq->has_file_descriptor, (int)rq->file_descriptor));
    if (app.stopped_us != 0)
        follow_close(f, true);
}

void rpc_app_get_logs(struct mcall *c)
{
    const M(AppGetLogsRequest) *rq = REQ(c, AppGetLogsRequest);
    const char *task = m_text(rq->task_id), *sandbox = m_text(rq->sandbox_id);
    unsigned streams = streams_of(rq->has_file_descriptor, (int)rq->file_descriptor);
    auto_sandbox_row row = {0};
    enum modal_generation g = MODAL_V1;
    struct app_info app;
    char id[ID_SIZE];
    struct err e;

    if (m_text(rq->search_text)[0] != '\0' || m_text(rq->function_id)[0] != '\0')
        m_warn(c, "live logs are not filtered by text or function");
    if (task[0] == '\0' && sandbox[0] == '\0') {
        if (app_get(c, rq->app_id, &app, &e) < 0)
            m_fail(c, &e);
        else
            follow_watch(follow_new(c, rq->timeout, false, m_text(rq->last_entry_id)), look_at_app);
        return;
    }
    if ((task[0] != '\0' ? view_task(c, task, id, &g, &e) : view_id(c, sandbox, id, &g, &e)) < 0
        || view_row(c, id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    struct follow *f = follow_new(c, rq->timeout, false, m_text(rq->last_entry_id));
    follow_add(f, id, g, streams);
    follow_close(f, true);
}
