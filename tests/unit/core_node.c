/*
 * core_node.c - the played node
 */
#include "core_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/grpc.h"
#include "ipc/record.h"
#include "node.pb-c.h"

struct played_node node;

static struct http_server *server;
static struct loop *loop;

/* One call: unary, so the first message is all. */
struct played_call {
    struct grpc_call *grpc;         /* NULL once the client has left */
    void (*answer)(struct played_call *pc, const void *p, size_t n);
    struct loop_timer *later;
    char id[ID_SIZE];
    int64_t until_ms;               /* of a Get that waits */
};

struct played *node_find(const char *id)
{
    for (size_t i = 0; i < node.n; i++)
        if (strcmp(node.boxes[i].id, id) == 0)
            return &node.boxes[i];
    return NULL;
}

struct played *node_add(const char *id, uint32_t state)
{
    struct played *p = &node.boxes[node.n++];

    assert_true(node.n < array_len(node.boxes));
    *p = (struct played){.state = state};
    (void)snprintf(p->id, sizeof p->id, "%s", id);
    return p;
}

void node_drop(const char *id)
{
    struct played *p = node_find(id);

    if (p != NULL)
        *p = node.boxes[--node.n];
}

void node_end(const char *id, uint32_t reason, int32_t code)
{
    struct played *p = node_find(id);

    assert_non_null(p);
    p->state = 4;
    p->reason = reason;
    p->code = code;
}

static void reply(struct played_call *pc, const ProtobufCMessage *m)
{
    uint8_t space[65536];
    struct err e;

    assert_true(protobuf_c_message_get_packed_size(m) <= sizeof space);
    size_t n = protobuf_c_message_pack(m, space);
    struct grpc_call *c = take_ptr(&pc->grpc);
    if (c == NULL)
        return;
    if (node.any_error != ERR_OK) {
        (void)err_set(&e, node.any_error, "played failure");
        grpc_finish_err(c, &e);
    } else {
        grpc_reply(c, space, n);
    }
}

static void refuse(struct played_call *pc, enum err_code code)
{
    struct err e;
    struct grpc_call *c = take_ptr(&pc->grpc);

    (void)err_set(&e, code, "played failure");
    if (c != NULL)
        grpc_finish_err(c, &e);
}

static void fill(const struct played *p, Quicksand__Node__Sandbox *s, Quicksand__Node__Usage *u)
{
    *u = (Quicksand__Node__Usage)QUICKSAND__NODE__USAGE__INIT;
    u->has_cpu_us = true;
    u->cpu_us = 1500000;
    *s = (Quicksand__Node__Sandbox)QUICKSAND__NODE__SANDBOX__INIT;
    s->sandbox_id = (char *)(uintptr_t)p->id;
    s->has_state = s->has_started_ms = s->has_ended_ms = s->has_deadline_ms = s->has_idle_ms = true;
    s->state = p->state;
    s->started_ms = 1000;
    s->ended_ms = p->state == 4 ? 2000 : 0;
    s->deadline_ms = p->deadline_ms;
    s->idle_ms = p->idle_ms;
    s->has_reason = s->has_code = s->has_signal = true;
    s->reason = p->reason;
    s->code = p->code;
    s->signal = p->signal;
    s->last_activity = (char *)(uintptr_t)"exec";
    s->usage = u;
}

static void reply_box(struct played_call *pc, const char *id)
{
    Quicksand__Node__Sandbox s;
    Quicksand__Node__Usage u;
    const struct played *p = node_find(id);

    if (p == NULL) {
        refuse(pc, ERR_NOT_FOUND);
        return;
    }
    fill(p, &s, &u);
    reply(pc, &s.base);
}

static void on_later(void *arg)
{
    struct played_call *pc = arg;

    reply_box(pc, pc->id);
    loop_timer_free(pc->later);
    free(pc);
}

static void note_create(const Quicksand__Node__CreateRequest *rq)
{
    size_t n = 0;

    node.last_env[0] = node.last_argv[0] = '\0';
    for (size_t i = 0; i < rq->defaults->n_env; i++)
        n += (size_t)snprintf(node.last_env + n, sizeof node.last_env - n, "%s ", rq->defaults->env[i]);
    for (size_t i = 0, at = 0; rq->entry != NULL && i < rq->entry->n_argv; i++)
        at += (size_t)snprintf(node.last_argv + at, sizeof node.last_argv - at, "%.*s ", (int)rq->entry->argv[i].len,
                               (const char *)rq->entry->argv[i].data);
    (void)snprintf(node.last_hostname, sizeof node.last_hostname, "%s", rq->hostname);
    (void)snprintf(node.last_user, sizeof node.last_user, "%s", rq->defaults->user);
}

static void answer_create(struct played_call *pc, const void *p, size_t n)
{
    Quicksand__Node__CreateRequest *rq = quicksand__node__create_request__unpack(NULL, n, p);

    assert_non_null(rq);
    node.creates++;
    note_create(rq);
    (void)snprintf(pc->id, sizeof pc->id, "%s", rq->sandbox_id);
    if (node.create_error != ERR_OK) {
        refuse(pc, node.create_error);
    } else {
        struct played *b = node_find(pc->id);
        if (b == NULL)
            b = node_add(pc->id, 2);
        b->deadline_ms = rq->deadline_ms;
        b->idle_ms = rq->idle_ms;
        if (node.create_delay_ms > 0) {
            pc->later = loop_timer_new(loop, on_later, pc);
            loop_timer_set(pc->later, node.create_delay_ms);
        } else {
            reply_box(pc, pc->id);
        }
    }
    quicksand__node__create_request__free_unpacked(rq, NULL);
}

/* With a wait it answers when the sandbox has ended, which is looked at every few milliseconds. */
static void on_look(void *arg)
{
    struct played_call *pc = arg;
    const struct played *p = node_find(pc->id);

    if (pc->grpc != NULL && p != NULL && p->state != 4 && clock_boot_ms() < pc->until_ms) {
        loop_timer_set(pc->later, 5);
        return;
    }
    on_later(pc);
}

static void answer_get(struct played_call *pc, const void *p, size_t n)
{
    Quicksand__Node__GetRequest *rq = quicksand__node__get_request__unpack(NULL, n, p);

    node.gets++;
    (void)snprintf(pc->id, sizeof pc->id, "%s", rq->sandbox_id);
    if (rq->wait_ms > 0) {
        pc->until_ms = clock_boot_ms() + rq->wait_ms;
        pc->later = loop_timer_new(loop, on_look, pc);
        loop_timer_set(pc->later, 1);
    } else {
        reply_box(pc, pc->id);
    }
    quicksand__node__get_request__free_unpacked(rq, NULL);
}

static void answer_terminate(struct played_call *pc, const void *p, size_t n)
{
    Quicksand__Node__TerminateRequest *rq = quicksand__node__terminate_request__unpack(NULL, n, p);
    struct played *b = node_find(rq->sandbox_id);

    node.terminates++;
    (void)snprintf(node.last_actor, sizeof node.last_actor, "%s", rq->actor);
    if (b != NULL && b->state != 4 && !b->ignores_terminate)
        node_end(b->id, rq->reason, -1);
    reply_box(pc, rq->sandbox_id);
    quicksand__node__terminate_request__free_unpacked(rq, NULL);
}

static void answer_update(struct played_call *pc, const void *p, size_t n)
{
    Quicksand__Node__UpdateRequest *rq = quicksand__node__update_request__unpack(NULL, n, p);
    struct played *b = node_find(rq->sandbox_id);

    node.updates++;
    if (b != NULL) {
        b->deadline_ms = rq->deadline_ms;
        b->idle_ms = rq->idle_ms;
    }
    reply_box(pc, rq->sandbox_id);
    quicksand__node__update_request__free_unpacked(rq, NULL);
}

static void answer_destroy(struct played_call *pc, const void *p, size_t n)
{
    Quicksand__Node__DestroyRequest *rq = quicksand__node__destroy_request__unpack(NULL, n, p);
    Quicksand__Node__Empty empty = QUICKSAND__NODE__EMPTY__INIT;

    node.destroys++;
    if (node.any_error == ERR_OK)
        node_drop(rq->sandbox_id);
    reply(pc, &empty.base);
    quicksand__node__destroy_request__free_unpacked(rq, NULL);
}

static void answer_layer_delete(struct played_call *pc, const void *p, size_t n)
{
    Quicksand__Node__Empty empty = QUICKSAND__NODE__EMPTY__INIT;

    node.layer_deletes++;
    reply(pc, &empty.base);
}

static void answer_list(struct played_call *pc, const void *p, size_t n)
{
    static Quicksand__Node__Sandbox boxes[array_len(node.boxes)], *list[array_len(node.boxes)];
    static Quicksand__Node__Usage usages[array_len(node.boxes)];
    Quicksand__Node__ListRequest *rq = quicksand__node__list_request__unpack(NULL, n, p);
    Quicksand__Node__ListResponse rs = QUICKSAND__NODE__LIST_RESPONSE__INIT;

    node.lists++;
    for (size_t i = 0; i < node.n && rq->n_ended_of == 0; i++) {
        fill(&node.boxes[i], &boxes[i], &usages[i]);
        list[rs.n_sandboxes++] = &boxes[i];
    }
    for (size_t i = 0; i < rq->n_ended_of; i++) {
        static struct played lost[array_len(node.boxes)];
        const struct played *box = node_find(rq->ended_of[i]);
        if (box != NULL && box->state != 4)
            continue;
        lost[i] = (struct played){.state = 4, .reason = END_NODE_LOST, .code = -1};
        (void)snprintf(lost[i].id, sizeof lost[i].id, "%s", rq->ended_of[i]);
        fill(box != NULL ? box : &lost[i], &boxes[i], &usages[i]);
        list[rs.n_sandboxes++] = &boxes[i];
    }
    rs.sandboxes = list;
    reply(pc, &rs.base);
    quicksand__node__list_request__free_unpacked(rq, NULL);
}

static void on_message(struct grpc_call *c, const void *p, size_t n, void *ctx)
{
    struct played_call *pc = ctx;

    grpc_call_consumed(c, n);
    pc->answer(pc, p, n);
    if (pc->later == NULL)
        free(pc);
}

static void on_end(struct grpc_call *c, enum grpc_status status, const struct err *e, void *ctx)
{
    ((struct played_call *)ctx)->grpc = NULL;
}

static const struct grpc_ops ops = {.on_message = on_message, .on_end = on_end};

static void accept(struct grpc_call *c, void (*answer)(struct played_call *, const void *, size_t))
{
    struct played_call *pc = mem_zalloc(sizeof *pc);

    pc->grpc = c;
    pc->answer = answer;
    grpc_call_set(c, &ops, pc);
}

#define METHOD(name)                                            \
    static void on_##name(struct grpc_call *c, void *arg)       \
    {                                                           \
        accept(c, answer_##name);                               \
    }

METHOD(create)
METHOD(get)
METHOD(list)
METHOD(terminate)
METHOD(update)
METHOD(destroy)
METHOD(layer_delete)

static const struct grpc_method methods[] = {
    {"/quicksand.node.Node/Create", on_create},       {"/quicksand.node.Node/Get", on_get},
    {"/quicksand.node.Node/List", on_list},           {"/quicksand.node.Node/Terminate", on_terminate},
    {"/quicksand.node.Node/Update", on_update},       {"/quicksand.node.Node/Destroy", on_destroy},
    {"/quicksand.node.Node/LayerDelete", on_layer_delete},
};

static void on_request(struct http_stream *st, const struct http_request *rq, void *arg)
{
    grpc_serve(st, rq, methods, array_len(methods), NULL);
}

void node_start(struct loop *l, const char *address)
{
    struct err e;

    loop = l;
    server = http_server_new(l, on_request, NULL);
    assert_int_equal(http_server_listen(server, address, &e), 0);
}

void node_stop(void)
{
    http_server_free(server);
    server = NULL;
}
