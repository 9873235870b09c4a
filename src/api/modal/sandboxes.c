/*
 * sandboxes.c - creating sandboxes and reaching what runs them
 *
 * Both generations of calls come down to the same functions; a generation differs by the form of the ids it is told.
 */
#include <stdio.h>
#include <string.h>

#include "api/modal/apps.h"
#include "api/modal/images.h"
#include "api/modal/sandbox_def.h"
#include "api/modal/sandbox_view.h"
#include "base/mem.h"

/* --- create -------------------------------------------------------------------------------------------------------- */

static void refuse_creation(struct mcall *c, const struct err *e)
{
    const M(Sandbox) *d = c->user;

    if (e->code == ERR_EXISTS)
        m_refuse(c, GRPC_ALREADY_EXISTS, "Sandbox with name '%.64s' already exists", m_text(d->name));
    else if (e->code == ERR_NOT_FOUND && strcmp(e->param, "image") == 0)
        m_refuse(c, GRPC_NOT_FOUND, "Could not find image with ID %.64s", m_text(d->image_id));
    else
        m_fail(c, e);
}

static void on_created(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct mcall *c = ctx;
    M(SandboxCreateResponse) rs = MODAL__CLIENT__SANDBOX_CREATE_RESPONSE__INIT;
    struct view_metadata meta;
    char id[ID_SIZE];

    if (e != NULL) {
        refuse_creation(c, e);
        return;
    }
    modal_sandbox_id(sb->row->id, MODAL_V1, id);
    (void)snprintf(c->target, sizeof c->target, "%s", id);
    view_metadata(c, sb->row, &meta);
    meta.m.result = NULL;
    rs.sandbox_id = id;
    rs.metadata = &meta.m;
    m_reply(c, &rs.base);
}

static void on_created_v2(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct mcall *c = ctx;
    M(SandboxCreateV2Response) rs = MODAL__CLIENT__SANDBOX_CREATE_V2_RESPONSE__INIT;
    M(CommandRouterAccess) access = MODAL__CLIENT__COMMAND_ROUTER_ACCESS__INIT;
    struct view_metadata meta;
    char id[ID_SIZE], task[ID_SIZE];
    auto_free char *url = NULL, *jwt = NULL;
    struct err local;

    if (e != NULL) {
        refuse_creation(c, e);
        return;
    }
    modal_sandbox_id(sb->row->id, MODAL_V2, id);
    modal_task_id(sb->row->id, MODAL_V2, task);
    (void)snprintf(c->target, sizeof c->target, "%s", id);
    view_metadata(c, sb->row, &meta);
    meta.m.result = NULL;
    rs.sandbox_id = id;
    rs.task_id = task;
    rs.metadata = &meta.m;
    if (view_access(c, sb->row->id, MODAL_V2, &url, &jwt, &local) == 0) {   /* else the client asks for it and is told why */
        access.url = url;
        access.jwt = jwt;
        rs.command_router_access = &access;
    }
    m_reply(c, &rs.base);
}

/* What a creation was asked for; it points into the request, which the call owns. */
struct creation {
    struct mcall *call;
    const char *app_id;
    const M(Sandbox) *definition;
    struct def_env env;
    M(SandboxTag) *const *tags;
    size_t ntags;
    enum modal_generation generation;
};

/* Of a creation without a command: Python's client says that the image's runs then, others that nothing does. */
static void use_images_command(struct mcall *c, struct sandbox_def *def)
{
    const char *type = c->grpc != NULL ? grpc_call_metadata(c->grpc, "x-modal-client-type") : NULL;

    if (def->command != NULL || type == NULL || strcmp(type, "1") != 0)
        return;
    def->command = images_command(c, def->spec.image);
    def->spec.command = def->command;
    def->spec.stdin_open = def->command != NULL;
}

static void create_of(const struct creation *cr, const char *image)
{
    struct mcall *c = cr->call;
    struct app_info app;
    struct sandbox_def def = {0};
    struct err e = {0};

    if (app_get(c, cr->app_id, &app, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    if (app.stopped_us != 0) {
        m_refuse(c, GRPC_FAILED_PRECONDITION, "App '%.80s' is stopped", app.text);
        return;
    }
    if (sandbox_def_read(c, cr->definition, &cr->env, cr->tags, cr->ntags, app.name, cr->generation, &def, &e) < 0) {
        m_fail(c, &e);
    } else {
        if (image != NULL)
            def.spec.image = image;
        use_images_command(c, &def);
        sandbox_create(c->m->core, &def.spec, c->token.id, m_idem_key(c), c->hash,
                       cr->generation == MODAL_V2 ? on_created_v2 : on_created, c);
    }
    sandbox_def_done(&def);
}

static void on_mounted(void *ctx, const char *image, const struct err *e)
{
    struct creation *cr = ctx;

    if (e != NULL)
        refuse_creation(cr->call, e);
    else
        create_of(cr, image);
    free(cr);
}

static void create(const struct creation *cr)
{
    const M(Sandbox) *d = cr->definition;

    if (d == NULL) {
        m_refuse(cr->call, GRPC_INVALID_ARGUMENT, "the request has no definition");
        return;
    }
    cr->call->user = (void *)(uintptr_t)d;
    if (d->n_mount_ids > 0)
        mounted_image(cr->call->m, m_text(d->image_id), d->mount_ids, d->n_mount_ids, on_mounted, mem_dup(cr, sizeof *cr));
    else
        create_of(cr, NULL);
}

void rpc_sandbox_create(struct mcall *c)
{
    const M(SandboxCreateRequest) *rq = REQ(c, SandboxCreateRequest);
    const struct creation cr = {c, rq->app_id, rq->definition, {0}, rq->tags, rq->n_tags, MODAL_V1};

    create(&cr);
}

void rpc_sandbox_create_v2(struct mcall *c)
{
    const M(SandboxCreateV2Request) *rq = REQ(c, SandboxCreateV2Request);
    const struct def_env env = {rq->ephemeral_secrets, rq->secret_sources, rq->n_secret_sources};
    const struct creation cr = {c, rq->app_id, rq->definition, env, rq->tags, rq->n_tags, MODAL_V2};

    create(&cr);
}

/* --- access -------------------------------------------------------------------------------------------------------- */

/* V1 of one that another dialect made may be asked for as V2 too: both ids name it. */
void rpc_sandbox_get_task_id(struct mcall *c)
{
    M(SandboxGetTaskIdResponse) rs = MODAL__CLIENT__SANDBOX_GET_TASK_ID_RESPONSE__INIT;
    M(GenericResult) result;
    auto_sandbox_row row = {0};
    enum modal_generation g;
    char id[ID_SIZE], task[ID_SIZE];
    struct err e;

    if (view_id(c, REQ(c, SandboxGetTaskIdRequest)->sandbox_id, id, &g, &e) < 0 || view_row(c, id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    modal_task_id(id, g, task);
    rs.task_id = task;
    if (row.state == STORE_ENDED) {
        view_result(&row, &result);
        rs.task_result = &result;
    }
    m_reply(c, &rs.base);
}

static int access_by_id(struct mcall *c, const char *text, bool is_task, char **ret_url, char **ret_jwt, struct err *e)
{
    auto_sandbox_row row = {0};
    enum modal_generation g;
    char id[ID_SIZE];

    if ((is_task ? view_task(c, text, id, &g, e) : view_id(c, text, id, &g, e)) < 0 || view_row(c, id, &row, e) < 0)
        return -1;
    return view_access(c, id, g, ret_url, ret_jwt, e);
}

void rpc_sandbox_get_command_router_access(struct mcall *c)
{
    const M(SandboxGetCommandRouterAccessRequest) *rq = REQ(c, SandboxGetCommandRouterAccessRequest);
    M(SandboxGetCommandRouterAccessResponse) rs = MODAL__CLIENT__SANDBOX_GET_COMMAND_ROUTER_ACCESS_RESPONSE__INIT;
    bool is_task = rq->target_case == MODAL__CLIENT__SANDBOX_GET_COMMAND_ROUTER_ACCESS_REQUEST__TARGET_TASK_ID;
    bool is_none = rq->target_case == MODAL__CLIENT__SANDBOX_GET_COMMAND_ROUTER_ACCESS_REQUEST__TARGET__NOT_SET;
    auto_free char *url = NULL, *jwt = NULL;
    struct err e;

    if (access_by_id(c, is_none ? "" : is_task ? rq->task_id : rq->sandbox_id, is_task, &url, &jwt, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.url = url;
    rs.jwt = jwt;
    m_reply(c, &rs.base);
}

void rpc_task_get_command_router_access(struct mcall *c)
{
    M(TaskGetCommandRouterAccessResponse) rs = MODAL__CLIENT__TASK_GET_COMMAND_ROUTER_ACCESS_RESPONSE__INIT;
    auto_free char *url = NULL, *jwt = NULL;
    struct err e;

    if (access_by_id(c, REQ(c, TaskGetCommandRouterAccessRequest)->task_id, true, &url, &jwt, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.url = url;
    rs.jwt = jwt;
    m_reply(c, &rs.base);
}
