/*
 * call.c - gRPC calls to operations: decode, dispatch, answer
 */
#include "node/call.h"

#include <stdio.h>
#include <string.h>

#include "base/ids.h"
#include "base/limits.h"
#include "base/mem.h"
#include "http/proto_nul.h"
#include "ipc/monitor_proto.h"
#include "node/query.h"

#define SMALL 2048

void *op_state(struct op *op, size_t size)
{
    op->state = mem_zalloc(size);
    return op->state;
}

static void op_free(struct op *op)
{
    for (size_t i = 0; i < OP_QUERIES; i++)
        query_cancel(&op->q[i]);
    if (op->on_free != NULL)
        op->on_free(op);
    if (op->rq != NULL)
        protobuf_c_message_free_unpacked(op->rq, NULL);
    free(op->state);
    free(op);
}

void op_drop(struct op *op)
{
    op_free(op);
}

static void send_packed(struct op *op, const ProtobufCMessage *m,
                        void (*send)(struct grpc_call *c, const void *p, size_t n))
{
    uint8_t small[SMALL];
    size_t n = protobuf_c_message_get_packed_size(m);
    auto_free uint8_t *big = n > sizeof small ? mem_alloc(n) : NULL;
    uint8_t *p = big != NULL ? big : small;

    (void)protobuf_c_message_pack(m, p);
    send(op->call, p, n);
}

void op_send(struct op *op, const ProtobufCMessage *m)
{
    if (op->call != NULL)
        send_packed(op, m, grpc_send);
}

bool op_is_full(const struct op *op)
{
    return op->call != NULL && grpc_queued(op->call) >= HTTP_HIGH;
}

void op_reply(struct op *op, const ProtobufCMessage *m)
{
    if (op->call != NULL)
        send_packed(op, m, grpc_reply);
    op_free(op);
}

void op_reply_empty(struct op *op)
{
    Quicksand__Node__Empty empty = QUICKSAND__NODE__EMPTY__INIT;

    op_reply(op, &empty.base);
}

void op_finish(struct op *op)
{
    if (op->call != NULL)
        grpc_finish(op->call, GRPC_OK, "");
    op_free(op);
}

void op_fail(struct op *op, const struct err *e)
{
    if (op->call != NULL)
        grpc_finish_err(op->call, e);
    op_free(op);
}

static void refuse(struct op *op, enum err_code code, const char *why)
{
    struct err e;

    err_set(&e, code, "%s", why);
    op_fail(op, &e);
}

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    struct op *op = ctx;

    if (op->rq != NULL) {
        refuse(op, ERR_MALFORMED, "more than one message in a unary call");
        return;
    }
    size_t max = op->method->request_max != 0 ? op->method->request_max : REQUEST_MAX;
    if (n > max) {
        refuse(op, ERR_TOO_LARGE, "the request is over the limit of its method");
        return;
    }
    ProtobufCMessage *m = protobuf_c_message_unpack(op->method->request, NULL, n, p);
    if (op->method->message == NULL)        /* a stream's operation says when bytes are consumed */
        grpc_call_consumed(c, n);
    if (m == NULL) {
        refuse(op, ERR_MALFORMED, "the request is not a message of this method");
        return;
    }
    const char *field = proto_nul_field(op->method->request, p, n);
    if (field != NULL) {
        struct err e;
        err_param(&e, ERR_INVALID, field, "there is a NUL in the field %s", field);
        protobuf_c_message_free_unpacked(m, NULL);
        op_fail(op, &e);
        return;
    }
    if (op->method->message != NULL) {
        op->method->message(op, m, n);
        protobuf_c_message_free_unpacked(m, NULL);
        return;
    }
    op->rq = m;
    op->method->start(op);
}

static void on_half_close(struct grpc_call *c, void *ctx)
{
    struct op *op = ctx;

    (void)c;
    if (op->method->end != NULL)
        op->method->end(op);
    else if (op->rq == NULL)
        refuse(op, ERR_MALFORMED, "the call has no request message");
}

static void on_writable(struct grpc_call *c, void *ctx)
{
    struct op *op = ctx;

    (void)c;
    if (op->on_writable != NULL)
        op->on_writable(op);
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    struct op *op = ctx;

    (void)c;
    (void)status;
    (void)e;
    op->call = NULL;
    if (op->on_gone != NULL)
        op->on_gone(op);
    else if (op->rq == NULL)
        op_free(op);                /* nothing was begun */
}

static const struct grpc_ops ops = {
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_writable = on_writable,
    .on_end = on_end,
};

struct op *call_begin(struct grpc_call *c, struct node *n, const struct method *m)
{
    struct op *op = mem_zalloc(sizeof *op);

    op->node = n;
    op->call = c;
    op->method = m;
    grpc_call_set(c, &ops, op);
    return op;
}

int call_sandbox(const char *id, struct err *e)
{
    if (id == NULL || id[0] == '\0')
        return err_param(e, ERR_INVALID, "sandbox_id", "no sandbox id given");
    if (!id_is(id, "sb-"))
        return err_param(e, ERR_NOT_FOUND, "sandbox_id", "no sandbox has such an id");
    return 0;
}

int call_ref(const Quicksand__Node__ExecRef *ref, bool empty_ok, struct mon_ref *ret, struct err *e)
{
    struct mon_ref r = {0};

    if (ref == NULL)
        return err_param(e, ERR_INVALID, "ref", "no exec named");
    if (call_sandbox(ref->sandbox_id, e) < 0)
        return -1;
    if (ref->container != NULL && ref->container[0] != '\0')
        return err_param(e, ERR_NOT_FOUND, "container", "the sandbox has no such container");
    const char *id = ref->exec_id != NULL ? ref->exec_id : "";
    if (id[0] == '\0' && !empty_ok)
        return err_param(e, ERR_INVALID, "exec_id", "no exec id given");
    if (id[0] != '\0' && !exec_id_is_valid(id))
        return err_param(e, ERR_INVALID, "exec_id", "an exec id is 1 to 63 of [A-Za-z0-9._-]");
    (void)snprintf(r.exec_id, sizeof r.exec_id, "%s", id);
    *ret = r;
    return 0;
}
