/*
 * ops.h - the operations behind node.proto, one function a method (service.c has the table)
 */
#ifndef QS_NODE_OPS_H
#define QS_NODE_OPS_H

#include "node/node.h"

/* create.c */
void op_create(struct op *op);
/* sandbox.c */
void op_get(struct op *op);
void op_terminate(struct op *op);
void op_update(struct op *op);
void op_destroy(struct op *op);
/* list.c */
void op_list(struct op *op);
/* exec.c */
void op_exec_start(struct op *op);
void op_exec_get(struct op *op);
void op_exec_list(struct op *op);
void op_exec_signal(struct op *op);
void op_exec_resize(struct op *op);
void op_exec_kill(struct op *op);
void op_exec_forget(struct op *op);
/* read.c */
void op_exec_read(struct op *op);
/* run.c */
void op_exec_run(struct op *op);
/* stdin.c */
void op_stdin_message(struct op *op, const ProtobufCMessage *m, size_t size);
void op_stdin_end(struct op *op);
void op_stdin_status(struct op *op);
/* image.c */
void op_image_message(struct op *op, const ProtobufCMessage *m, size_t size);
void op_image_end(struct op *op);
void op_layer_delete(struct op *op);
/* health.c */
void op_health(struct op *op);

/* Shared by start and run: a checked request as a monitor message. `spec` keeps the block. */
struct mon_exec;
struct mon_ref;
struct buf;
int exec_request(struct node *n, const Quicksand__Node__ExecStartRequest *rq, struct mon_exec *ret,
                 struct buf *spec, struct err *e);
/* Why the exec of a record in state EXEC_FAILED did not start. */
struct exec_record;
void exec_failure(struct node *n, const char *sandbox, const Quicksand__Node__Command *c,
                  const struct exec_record *r, struct err *e);
/* A command's program as text for messages. */
void exec_program(const Quicksand__Node__Command *c, char *out, size_t size);

/* Reply with the sandbox as it is, once it has ended or wait_ms has passed. */
void sandbox_reply(struct op *op, const char *sandbox, uint64_t wait_ms);

#endif
