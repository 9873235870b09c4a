/*
 * ops.h - the operations behind node.proto, one function a method (service.c has the table)
 */
#ifndef QS_NODE_OPS_H
#define QS_NODE_OPS_H

#include "ipc/monitor_proto.h"
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
/* network.c */
void op_set_network(struct op *op);
void op_get_network(struct op *op);
void op_network_log(struct op *op);
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
/* image_pull.c */
void op_image_pull(struct op *op);
/* tunnel/calls.c */
void op_port_open(struct op *op);
void op_port_close(struct op *op);
void op_port_list(struct op *op);
void op_pass_make(struct op *op);
void op_pass_revoke(struct op *op);
void op_pass_list(struct op *op);
/* ready.c */
void op_wait_ready(struct op *op);
/* image_build.c */
void op_image_fold(struct op *op);
void op_image_copy(struct op *op);
void op_image_fetch(struct op *op);
/* image_export.c */
void op_image_export(struct op *op);
/* layer_list.c */
void op_layer_list(struct op *op);
/* image_verify.c */
void op_image_verify(struct op *op);
/* health.c */
void op_health(struct op *op);
/* modal/router.c */
void op_set_keys(struct op *op);
void op_put_secrets(struct op *op);
void op_attend(struct op *op);

/* Shared by start and run: a checked request as a monitor message. `spec` keeps the block. */
struct buf;
int exec_request(struct node *n, const Quicksand__Node__ExecStartRequest *rq, struct mon_exec *ret,
                 struct buf *spec, struct err *e);
/* Why the exec of a record in state EXEC_FAILED did not start. */
void exec_failure(struct node *n, const char *sandbox, const Quicksand__Node__Command *c,
                  const struct exec_record *r, struct err *e);
/* A command's program as text for messages. */
void exec_program(const Quicksand__Node__Command *c, char *out, size_t size);

/*
 * exec.c: the record of an exec once it has ended or until_ms (CLOCK_BOOTTIME; 0 = do not wait) has passed. Uses q[0]; the
 * object lives as long as the op. `done` is called once; exactly one of r and e is not NULL.
 */
struct exec_wait {
    struct op *op;
    char sandbox[ID_SIZE];
    struct mon_ref ref;
    int64_t until_ms;
    void (*done)(struct op *op, const struct exec_record *r, const struct err *e);
};
void exec_wait(struct exec_wait *w);

/*
 * read.c: the output of an exec from an offset on, to its end or, without `follow`, to what is there. Uses q[0]; asks for
 * more while the client takes it. `data` is called for every piece, with `last` for the one that ends it (which may be
 * empty), and sends it; `fail` ends the op.
 */
struct exec_reader {
    struct op *op;
    char sandbox[ID_SIZE];
    struct mon_read m;
    bool follow;
    bool has_file;              /* much is there: read from the spool file, without the monitor */
    int file;
    uint64_t file_end;          /* what is known to be in it */
    void (*data)(struct op *op, const struct mon_read_r *r, bool last);
    void (*fail)(struct op *op, const struct err *e);
};
/* exec_id, container, stream and offset of rd->m are set; the op's state begins with rd. Sets on_gone and on_writable. */
void exec_read(struct exec_reader *rd);
void exec_read_done(struct exec_reader *rd);    /* when the op is freed */

/* Reply with the sandbox as it is, once it has ended or wait_ms has passed. */
void sandbox_reply(struct op *op, const char *sandbox, uint64_t wait_ms);

#endif
