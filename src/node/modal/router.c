/*
 * router.c - the methods of the command router, its listener, and who may call what
 */
#include "node/modal/router.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/modal_ids.h"
#include "http/grpc.h"
#include "net/tls.h"
#include "node/call.h"
#include "node/certificate.h"
#include "node/ops.h"
#include "sys/fd.h"

#define ROUTER_LISTEN_FD 4       /* from the keeper, if it could have the address */

#define SERVICE "/modal.task_command_router.TaskCommandRouter/"
#define TYPE(name) &modal__task_command_router__##name##__descriptor

/* ONE: one request of at most `max` bytes (0 = the usual). STREAM: the operation sees every message. */
#define METHODS(ONE, STREAM)                                                                          \
    ONE(SandboxStdinWriteV2, sandbox_stdin_write_v2_request, LIMIT_GRPC_MESSAGE, router_sandbox_stdin_write) \
    ONE(SandboxStdioReadV2, sandbox_stdio_read_v2_request, 0, router_sandbox_stdio_read)              \
    ONE(SandboxWaitUntilReady, sandbox_wait_until_ready_tcr_request, 0, router_wait_until_ready)      \
    ONE(TaskContainerCreate, task_container_create_request, 0, router_container_create)               \
    ONE(TaskContainerGet, task_container_get_request, 0, router_container_get)                        \
    ONE(TaskContainerList, task_container_list_request, 0, router_container_list)                     \
    ONE(TaskContainerTerminate, task_container_terminate_request, 0, router_container_terminate)      \
    ONE(TaskContainerWait, task_container_wait_request, 0, router_container_wait)                     \
    ONE(TaskExecPoll, task_exec_poll_request, 0, router_exec_poll)                                    \
    ONE(TaskExecStart, task_exec_start_request, 0, router_exec_start)                                 \
    ONE(TaskExecStdinStatus, task_exec_stdin_status_request, 0, router_exec_stdin_status)             \
    ONE(TaskExecStdinWrite, task_exec_stdin_write_request, LIMIT_GRPC_MESSAGE, router_exec_stdin_write) \
    STREAM(TaskExecStdinWriteStream, task_exec_stdin_write_stream_request, LIMIT_GRPC_MESSAGE,        \
           router_stream_message, router_stream_end)                                                  \
    ONE(TaskExecStdioRead, task_exec_stdio_read_request, 0, router_exec_stdio_read)                   \
    ONE(TaskExecWait, task_exec_wait_request, 0, router_exec_wait)                                    \
    ONE(TaskMountDirectory, task_mount_directory_request, 0, router_mount_directory)                  \
    ONE(TaskReloadVolumes, task_reload_volumes_request, 0, router_reload_volumes)                     \
    ONE(TaskSetNetworkAccess, task_set_network_access_request, 0, router_set_network_access)          \
    ONE(TaskSetOutboundPolicy, task_set_experimental_outbound_policy_request, 0,                      \
        router_set_outbound_policy)                                                                   \
    ONE(TaskSnapshotDirectory, task_snapshot_directory_request, 0, router_snapshot_directory)         \
    ONE(TaskSnapshotFilesystem, task_snapshot_filesystem_request, 0, router_snapshot_filesystem)      \
    ONE(TaskSnapshotMemory, task_snapshot_memory_request, 0, router_snapshot_memory)                  \
    ONE(TaskUnmountDirectory, task_unmount_directory_request, 0, router_unmount_directory)

/* The token is checked before anything of the request is read. */
static void begin(struct grpc_call *c, struct node *n, const struct method *m)
{
    char sandbox[ID_SIZE];
    struct err e;

    if (router_keys_check(n->router->keys, grpc_call_metadata(c, "authorization"), sandbox, &e) < 0) {
        grpc_finish_err(c, &e);
        return;
    }
    struct op *op = call_begin(c, n, m);
    memcpy(op->granted, sandbox, sizeof op->granted);
}

#define BEGIN(name)                                                 \
    static void begin_##name(struct grpc_call *c, void *arg)        \
    {                                                               \
        begin(c, arg, &method_##name);                              \
    }
#define DEFINE_ONE(name, type, max, fn)                             \
    static const struct method method_##name = {                    \
        .path = SERVICE #name, .request = TYPE(type), .request_max = max, .start = fn}; \
    BEGIN(name)
#define DEFINE_STREAM(name, type, max, on_message, on_end)          \
    static const struct method method_##name = {                    \
        .path = SERVICE #name, .request = TYPE(type), .request_max = max, .message = on_message, \
        .end = on_end};                                             \
    BEGIN(name)
METHODS(DEFINE_ONE, DEFINE_STREAM)

#define ROW_ONE(name, type, max, fn) {SERVICE #name, begin_##name},
#define ROW_STREAM(name, type, max, on_message, on_end) {SERVICE #name, begin_##name},
static const struct grpc_method table[] = {METHODS(ROW_ONE, ROW_STREAM)};

void router_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    if (!grpc_is_request(rq)) {
        http_respond_all(st, 404, "text/plain", "not found\n", 10);
        return;
    }
    grpc_serve(st, rq, table, array_len(table), arg);
}

/* --- who and what ---------------------------------------------------------------------------- */

int router_sandbox(const struct op *op, const char *task_id, const char *container_id,
                   char ret_sandbox[ID_SIZE], struct err *e)
{
    char sandbox[ID_SIZE];

    if (task_id == NULL || task_id[0] == '\0')
        return err_param(e, ERR_INVALID, "task_id", "no task id given");
    if (!modal_task_parse(task_id, sandbox, NULL) && !modal_sandbox_parse(task_id, sandbox, NULL))
        return err_param(e, ERR_NOT_FOUND, "task_id", "no task has such an id");
    if (strcmp(sandbox, op->granted) != 0)
        return err_param(e, ERR_DENIED, "task_id", "the token is for another sandbox");
    if (container_id != NULL && container_id[0] != '\0' && strcmp(container_id, "main") != 0)
        return err_param(e, ERR_NOT_FOUND, "container_id", "the sandbox has no such container");
    memcpy(ret_sandbox, sandbox, sizeof sandbox);
    return 0;
}

int router_exec(const struct op *op, const char *task_id, const char *exec_id,
                char ret_sandbox[ID_SIZE], struct mon_ref *ret_ref, struct err *e)
{
    struct mon_ref ref = {0};

    if (router_sandbox(op, task_id, NULL, ret_sandbox, e) < 0)
        return -1;
    if (exec_id == NULL || exec_id[0] == '\0')
        return err_param(e, ERR_INVALID, "exec_id", "no exec id given");
    if (!exec_id_is_valid(exec_id))
        return err_param(e, ERR_NOT_FOUND, "exec_id", "no exec has such an id");
    (void)snprintf(ref.exec_id, sizeof ref.exec_id, "%s", exec_id);
    *ret_ref = ref;
    return 0;
}

void router_fail(struct op *op, const struct err *e)
{
    struct err changed = *e;

    if (changed.code == ERR_GONE)
        changed.code = ERR_NOT_FOUND;
    op_fail(op, &changed);
}

/* --- what control sends ---------------------------------------------------------------------- */

void op_set_keys(struct op *op)
{
    struct err e;

    if (router_keys_set(op->node->router->keys, (Quicksand__Node__SetKeysRequest *)op->rq, &e) < 0)
        op_fail(op, &e);
    else
        op_reply_empty(op);
}

/* Stands until either side goes: that is all control wants to know. */
void op_attend(struct op *op)
{
    op->on_gone = op_drop;
}

/* --- the listener ---------------------------------------------------------------------------- */

static int use_tls(struct node *n, struct err *e)
{
    char cert[512], key[512];

    if (certificate_files(n, cert, key, sizeof cert, e) < 0)
        return -1;
    return http_server_tls(n->router_server, cert, key, e);
}

int router_open(struct node *n, struct err *e)
{
    struct router *r = mem_zalloc(sizeof *r);

    r->keys = router_keys_new(n->state_fd);
    r->secrets = router_secrets_new();
    map_init(&r->streams);
    n->router = r;
    if (n->conf.router_listen[0] == '\0')
        return 0;
    n->router_server = http_server_new(n->loop, router_request, n);
    if (use_tls(n, e) < 0)
        return -1;
    if (fd_is_listener(ROUTER_LISTEN_FD))
        return http_server_listen_fd(n->router_server, ROUTER_LISTEN_FD, e);
    return http_server_listen(n->router_server, n->conf.router_listen, e);
}

void router_close(struct node *n)
{
    struct router *r = n->router;

    if (n->router_server != NULL)
        http_server_free(n->router_server);
    router_keys_free(r->keys);
    router_secrets_free(r->secrets);
    map_done(&r->streams);
    free(r);
}
