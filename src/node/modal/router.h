/*
 * router.h - the Modal dialect of the node: modal.task_command_router.TaskCommandRouter
 *
 * Called by anyone who can reach router_listen. Every call brings a token for one sandbox (keys.h); the task it names must be
 * of that sandbox. The operations are those of node.proto with other messages: files of this folder translate, the folder
 * above does.
 */
#ifndef QS_NODE_MODAL_ROUTER_H
#define QS_NODE_MODAL_ROUTER_H

#include "http/http.h"
#include "ipc/monitor_proto.h"
#include "modal/task_command_router.pb-c.h"
#include "node/modal/keys.h"
#include "node/modal/secrets.h"
#include "node/node.h"

struct router {
    struct router_keys *keys;
    struct router_secrets *secrets;
    struct map streams;         /* "sandbox/exec" -> the newest open stdin stream (stdin.c) */
};

/* n->state_fd is open. Listens on conf.router_listen unless that is empty. */
int router_open(struct node *n, struct err *e);
void router_close(struct node *n);
/* http_request_cb; arg is the struct node. */
void router_request(struct http_stream *st, const struct http_request *rq, void *arg);

/* --- for the operations ---------------------------------------------------------------------- */

/* The sandbox of a task id, which must be the token's, and the container, which must be the main one (NULL: none named). */
int router_sandbox(const struct op *op, const char *task_id, const char *container_id,
                   char ret_sandbox[ID_SIZE], struct err *e);
/* The same with an exec of it. */
int router_exec(const struct op *op, const char *task_id, const char *exec_id,
                char ret_sandbox[ID_SIZE], struct mon_ref *ret_ref, struct err *e);
/* op_fail with what these clients go by: a sandbox that has ended is one that is not there. */
void router_fail(struct op *op, const struct err *e);

/* start.c */
void router_exec_start(struct op *op);
/* read.c */
void router_exec_stdio_read(struct op *op);
void router_sandbox_stdio_read(struct op *op);
/* stdin.c */
void router_exec_stdin_write(struct op *op);
void router_sandbox_stdin_write(struct op *op);
void router_stream_message(struct op *op, const ProtobufCMessage *m, size_t size);
void router_stream_end(struct op *op);
void router_exec_stdin_status(struct op *op);
/* wait.c */
void router_exec_wait(struct op *op);
void router_exec_poll(struct op *op);
/* ready.c */
void router_wait_until_ready(struct op *op);
/* absent.c: what this server does not do, each with its reason */
void router_container_create(struct op *op);
void router_container_get(struct op *op);
void router_container_list(struct op *op);
void router_container_wait(struct op *op);
void router_container_terminate(struct op *op);
void router_reload_volumes(struct op *op);
void router_mount_directory(struct op *op);
void router_unmount_directory(struct op *op);
void router_snapshot_directory(struct op *op);
void router_snapshot_filesystem(struct op *op);
void router_snapshot_memory(struct op *op);
void router_set_network_access(struct op *op);
void router_set_outbound_policy(struct op *op);

#endif
