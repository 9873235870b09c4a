/*
 * sandbox_view.c - ids, results and router access
 */
#include "api/modal/sandbox_view.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/ports.h"
#include "ipc/record.h"

#define ACCESS_S (12 * 3600)
#define ACCESS_SCOPES "exec:read exec:write files:read files:write sandbox:read sandbox:write"

int64_t view_number(const struct sandbox_row *row, const char *key)
{
    auto_json *spec = json_loads(row->spec, 0, NULL);

    return json_integer_value(json_object_get(json_object_get(spec, "dialect"), key));
}

enum modal_generation view_generation(const struct sandbox_row *row)
{
    return view_number(row, "generation") == 2 ? MODAL_V2 : MODAL_V1;
}

/* --- the end ------------------------------------------------------------------------------------------------------- */

#define STATUS(name) MODAL__CLIENT__GENERIC_RESULT__GENERIC_STATUS__GENERIC_STATUS_##name

static const struct {
    enum end_reason reason;
    int status;
    int code;                           /* when the record has none */
} ends[] = {
    {END_TIMEOUT, STATUS(TIMEOUT), 124},
    {END_IDLE_TIMEOUT, STATUS(IDLE_TIMEOUT), 0},
    {END_TERMINATED, STATUS(TERMINATED), 137},
    {END_EVICTED, STATUS(MEMORY_MANAGER_EVICTION), 137},
    {END_NODE_LOST, STATUS(INTERNAL_FAILURE), 1},
    {END_CREATE_FAILED, STATUS(INIT_FAILURE), 1},
    {END_START_FAILED, STATUS(INIT_FAILURE), 1},
    {END_POLICY, STATUS(TERMINATED), 137},
};

void view_result(const struct sandbox_row *row, M(GenericResult) *ret)
{
    int code = row->signal != 0 ? 128 + row->signal : row->code >= 0 ? row->code : 137;

    modal__client__generic_result__init(ret);
    ret->has_status = ret->has_exitcode = true;
    ret->status = code == 0 ? STATUS(SUCCESS) : STATUS(FAILURE);
    ret->exitcode = code;
    ret->exception = STR(row->message);
    for (size_t i = 0; i < array_len(ends); i++) {
        if (strcmp(row->reason, end_reason_name((uint8_t)ends[i].reason)) != 0)
            continue;
        ret->status = (Modal__Client__GenericResult__GenericStatus)ends[i].status;
        ret->exitcode = ends[i].code;
    }
}

void view_metadata(struct mcall *c, const struct sandbox_row *row, struct view_metadata *ret)
{
    struct app_info a;

    modal__client__sandbox_handle_metadata__init(&ret->m);
    ret->app_id[0] = '\0';
    if (store_app_by_name(m_store(c), row->app, &a, NULL) == 0)
        memcpy(ret->app_id, a.id, sizeof ret->app_id);
    ret->m.app_id = ret->app_id;
    if (row->state == STORE_ENDED) {
        view_result(row, &ret->result);
        ret->m.result = &ret->result;
    }
}

/* --- ids ----------------------------------------------------------------------------------------------------------- */

int view_id(struct mcall *c, const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g, struct err *e)
{
    (void)snprintf(c->target, sizeof c->target, "%.40s", m_text(text));
    if (modal_sandbox_parse(m_text(text), ret_id, ret_g))
        return 0;
    return err_set(e, ERR_NOT_FOUND, "Sandbox with ID '%.40s' not found", m_text(text));
}

int view_task(struct mcall *c, const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g, struct err *e)
{
    (void)snprintf(c->target, sizeof c->target, "%.40s", m_text(text));
    if (modal_task_parse(m_text(text), ret_id, ret_g))
        return 0;
    return err_set(e, ERR_NOT_FOUND, "Task with ID '%.40s' not found", m_text(text));
}

int view_row(struct mcall *c, const char *id, struct sandbox_row *ret, struct err *e)
{
    struct err local = {0};

    if (store_sandbox_get(m_store(c), id, ret, &local) == 0 && ret->state != STORE_DELETING)
        return 0;
    if (local.code == 0 || local.code == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "Sandbox with ID '%s' not found", id);
    *e = local;
    return -1;
}

/* --- the router ---------------------------------------------------------------------------------------------------- */

char *view_router_url(const char *authority, const char *host, int port)
{
    auto_free char *own = authority_host(authority);

    return mem_printf("https://%s:%d", host[0] != '\0' ? host : own, port);
}

int view_access(struct mcall *c, const char *id, enum modal_generation g, char **ret_url, char **ret_jwt, struct err *e)
{
    char task[ID_SIZE];
    json_int_t now_s = clock_wall_ms() / 1000, end_s = now_s + ACCESS_S;

    if (c->m->router_port == 0)
        return err_set(e, ERR_CONFLICT, "command router access is not available: router_listen is empty");
    modal_task_id(id, g, task);
    auto_json *claims = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "iss", "quicksand", "task_id", task, "sandbox_id", id,
                                  "container", "", "scopes", ACCESS_SCOPES, "iat", now_s, "exp",
                                  end_s);
    *ret_jwt = vault_sign(c->m->vault, claims, e);
    if (*ret_jwt == NULL)
        return -1;
    *ret_url = view_router_url(c->grpc != NULL ? grpc_call_authority(c->grpc) : "", c->m->router_host, c->m->router_port);
    return 0;
}
