/*
 * service.c - the methods of quicksand.node.Node: one table
 */
#include "node/service.h"

#include "base/mem.h"
#include "http/grpc.h"
#include "node/call.h"
#include "node/ops.h"

#define SERVICE "/quicksand.node.Node/"

/* ONE: one request message, then the operation runs. STREAM: the operation sees every message. */
#define METHODS(ONE, STREAM)                                                            \
    ONE(Create, create_request, op_create)                                              \
    ONE(Get, get_request, op_get)                                                       \
    ONE(List, list_request, op_list)                                                    \
    ONE(Terminate, terminate_request, op_terminate)                                     \
    ONE(Update, update_request, op_update)                                              \
    ONE(SetNetwork, set_network_request, op_set_network)                                \
    ONE(GetNetwork, get_network_request, op_get_network)                                \
    ONE(NetworkLog, network_log_request, op_network_log)                                \
    ONE(Destroy, destroy_request, op_destroy)                                           \
    ONE(ExecStart, exec_start_request, op_exec_start)                                   \
    ONE(ExecGet, exec_get_request, op_exec_get)                                         \
    ONE(ExecList, exec_list_request, op_exec_list)                                      \
    ONE(ExecRead, exec_read_request, op_exec_read)                                      \
    ONE(ExecRun, exec_run_request, op_exec_run)                                         \
    STREAM(StdinWrite, stdin_write_request, op_stdin_message, op_stdin_end)             \
    ONE(StdinStatus, exec_ref, op_stdin_status)                                         \
    ONE(ExecSignal, exec_signal_request, op_exec_signal)                                \
    ONE(ExecResize, exec_resize_request, op_exec_resize)                                \
    ONE(ExecKill, exec_kill_request, op_exec_kill)                                      \
    ONE(ExecForget, exec_ref, op_exec_forget)                                           \
    ONE(WaitReady, ready_request, op_wait_ready)                                        \
    ONE(PortOpen, port_request, op_port_open)                                           \
    ONE(PortClose, port_request, op_port_close)                                         \
    ONE(PortList, port_request, op_port_list)                                           \
    ONE(PassMake, pass_request, op_pass_make)                                           \
    ONE(PassRevoke, pass_request, op_pass_revoke)                                       \
    ONE(PassList, pass_request, op_pass_list)                                           \
    STREAM(ImageImport, image_import_request, op_image_message, op_image_end)           \
    ONE(ImagePull, image_pull_request, op_image_pull)                                   \
    ONE(ImageFold, image_fold_request, op_image_fold)                                   \
    ONE(ImageCopy, image_copy_request, op_image_copy)                                   \
    ONE(ImageFetch, image_fetch_request, op_image_fetch)                                 \
    ONE(ImageVerify, image_verify_request, op_image_verify)                             \
    ONE(ImageExport, image_export_request, op_image_export)                             \
    ONE(LayerDelete, layer_ref, op_layer_delete)                                        \
    ONE(LayerList, layer_list_request, op_layer_list)                                   \
    ONE(Health, empty, op_health)                                                       \
    ONE(SetKeys, set_keys_request, op_set_keys)                                         \
    ONE(PutSecrets, put_secrets_request, op_put_secrets)                                \
    ONE(Attend, empty, op_attend)

#define BEGIN(name)                                                 \
    static void begin_##name(struct grpc_call *c, void *arg)        \
    {                                                               \
        (void)call_begin(c, arg, &method_##name);                   \
    }
#define DEFINE_ONE(name, type, fn)                                                      \
    static const struct method method_##name = {                                        \
        .path = SERVICE #name, .request = &quicksand__node__##type##__descriptor, .start = fn}; \
    BEGIN(name)
#define DEFINE_STREAM(name, type, on_message, on_end)                                   \
    static const struct method method_##name = {                                        \
        .path = SERVICE #name, .request = &quicksand__node__##type##__descriptor,       \
        .message = on_message, .end = on_end};                                          \
    BEGIN(name)
METHODS(DEFINE_ONE, DEFINE_STREAM)

#define ROW_ONE(name, type, fn) {SERVICE #name, begin_##name},
#define ROW_STREAM(name, type, on_message, on_end) {SERVICE #name, begin_##name},
static const struct grpc_method table[] = {METHODS(ROW_ONE, ROW_STREAM)};

void service_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    if (!grpc_is_request(rq)) {
        http_respond_all(st, 404, "text/plain", "not found\n", 10);
        return;
    }
    grpc_serve(st, rq, table, array_len(table), arg);
}
