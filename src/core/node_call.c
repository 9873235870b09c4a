/*
 * node_call.c - unary calls of the node
 *
 * Called by everything in core and by the dialects. A call whose transport failed is repeated with
 * growing pauses when the caller says that repeating is harmless. The deadline of a try starts
 * anew; the time for repeating begins with the first failure.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/internal.h"

#define RETRY_FOR_MS 5000
#define RETRY_FIRST_MS 20
#define RETRY_MOST_MS 500

struct node_call {
    struct core *core;
    struct node_call *next, **link; /* core->calls */
    char path[64];
    void *request; /* packed; owned */
    size_t request_len;
    const ProtobufCMessageDescriptor *reply_type;
    uint64_t timeout_ms;
    bool retry;
    int64_t retry_until_ms; /* CLOCK_BOOTTIME; 0 = it has not failed yet */
    uint64_t pause_ms;
    struct loop_timer *timer; /* the pause before the next try; NULL when none is wanted */
    struct grpc_call *grpc;   /* the try under way, NULL in a pause */
    ProtobufCMessage *reply;  /* owned */
    bool is_bad_reply;
    node_reply_fn fn; /* NULL once cancelled */
    void *ctx;
};

static void call_free(struct node_call *nc)
{
    *nc->link = nc->next;
    if (nc->next != NULL)
        nc->next->link = nc->link;
    loop_timer_free(nc->timer);
    if (nc->reply != NULL)
        protobuf_c_message_free_unpacked(nc->reply, NULL);
    free(nc->request);
    free(nc);
}

static void answer(struct node_call *nc, const struct err *e)
{
    node_reply_fn fn = nc->fn;

    nc->fn = NULL;
    if (fn != NULL)
        fn(nc->ctx, e == NULL ? nc->reply : NULL, e);
    call_free(nc);
}

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    struct node_call *nc = ctx;

    if (nc->reply != NULL)
        nc->is_bad_reply = true;
    else
        nc->reply = protobuf_c_message_unpack(nc->reply_type, NULL, n, p);
    if (nc->reply == NULL)
        nc->is_bad_reply = true;
    grpc_call_consumed(c, n);
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    struct node_call *nc = ctx;
    struct err local = {0};

    nc->grpc = NULL;
    if (nc->fn == NULL) { /* cancelled */
        call_free(nc);
        return;
    }
    if (status == GRPC_OK) {
        if (nc->reply != NULL && !nc->is_bad_reply) {
            answer(nc, NULL);
            return;
        }
        err_set(&local, ERR_INTERNAL, "the node's answer to %s could not be read", nc->path);
        answer(nc, &local);
        return;
    }
    if (e == NULL) {
        err_set(&local, ERR_UNAVAILABLE, "the node did not answer");
        e = &local;
    }
    int64_t now = clock_boot_ms();
    if (nc->retry_until_ms == 0)
        nc->retry_until_ms = now + RETRY_FOR_MS;
    if (e->code == ERR_UNAVAILABLE && nc->retry && now < nc->retry_until_ms &&
        !nc->core->is_stopping) {
        loop_timer_set(nc->timer, nc->pause_ms);
        nc->pause_ms = nc->pause_ms * 2 < RETRY_MOST_MS ? nc->pause_ms * 2 : RETRY_MOST_MS;
        return;
    }
    answer(nc, e);
}

static const struct grpc_ops ops = {.on_message = on_message, .on_end = on_end};

static void start(void *arg)
{
    struct node_call *nc = arg;

    if (nc->reply != NULL)
        protobuf_c_message_free_unpacked(nc->reply, NULL);
    nc->reply = NULL;
    nc->is_bad_reply = false;
    if (nc->core->is_stopping)
        return; /* node_calls_fail_all answers it */
    nc->grpc = grpc_client_call(nc->core->node, nc->path, NULL, 0, nc->timeout_ms, &ops, nc);
    grpc_send(nc->grpc, nc->request, nc->request_len);
    grpc_send_end(nc->grpc);
}

struct node_call *node_unary(struct core *c, const char *method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, uint64_t timeout_ms,
                             bool retry, node_reply_fn fn, void *ctx)
{
    struct node_call *nc = mem_zalloc(sizeof *nc);

    nc->core = c;
    nc->next = c->calls;
    nc->link = &c->calls;
    if (nc->next != NULL)
        nc->next->link = &nc->next;
    c->calls = nc;
    (void)snprintf(nc->path, sizeof nc->path, "/quicksand.node.Node/%s", method);
    nc->request_len = protobuf_c_message_get_packed_size(request);
    nc->request = mem_alloc(nc->request_len > 0 ? nc->request_len : 1);
    (void)protobuf_c_message_pack(request, nc->request);
    nc->reply_type = reply_type;
    nc->timeout_ms = timeout_ms;
    nc->retry = retry;
    nc->fn = fn;
    nc->ctx = ctx;
    nc->pause_ms = RETRY_FIRST_MS;
    if (retry)
        nc->timer = loop_timer_new(c->loop, start, nc);
    start(nc);
    return nc;
}

void node_call_cancel(struct node_call *nc)
{
    nc->fn = NULL;
    if (nc->core->is_stopping)
        return; /* the list is being walked; freed with the core */
    if (nc->grpc != NULL)
        grpc_cancel(nc->grpc); /* freed when its end is reported */
    else
        call_free(nc);
}

void node_calls_fail_all(struct core *c)
{
    struct err e;

    err_set(&e, ERR_UNAVAILABLE, "the service is stopping");
    /* An answer may start another call, at the head of the list: from there until none is left. */
    for (struct node_call *nc = c->calls; nc != NULL;) {
        node_reply_fn fn = nc->fn;
        nc->fn = NULL;
        if (fn != NULL)
            fn(nc->ctx, NULL, &e);
        nc = fn != NULL ? c->calls : nc->next;
    }
}

void node_calls_free_all(struct core *c)
{
    while (c->calls != NULL)
        call_free(c->calls); /* NOLINT(clang-analyzer-unix.Malloc): takes it off the list */
}
