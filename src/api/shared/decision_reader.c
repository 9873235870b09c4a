/*
 * decision_reader.c - long polls for lines of the network log
 */
#include "api/shared/decision_reader.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/network.h"

#define WAIT_MS 60000
#define PAUSE_MS 1000
#define LINES 500

struct decision_reader {
    struct core *core;
    char id[ID_SIZE];
    uint64_t after;
    bool follow, from_now, is_over;
    const struct decision_reader_ops *ops;
    void *ctx;
    struct node_call *call;
    struct loop_timer *timer;   /* the next question, which is never asked from within a callback */
};

static void end(struct decision_reader *r)
{
    r->is_over = true;
    r->ops->on_end(r->ctx);
}

static void on_reply(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__NetworkLogResponse *m = (const Quicksand__Node__NetworkLogResponse *)reply;
    struct decision_reader *r = ctx;

    r->call = NULL;
    if (e != NULL && e->code == ERR_UNAVAILABLE && r->follow) {
        loop_timer_set(r->timer, PAUSE_MS);
        return;
    }
    if (e != NULL) {
        end(r);
        return;
    }
    bool was_asked_for_lines = !r->from_now;
    if (r->from_now)
        r->after = m->last;
    r->from_now = false;
    for (size_t i = 0; i < m->n_decisions; i++) {
        r->after = m->decisions[i]->seq;
        r->ops->on_decision(r->ctx, m->decisions[i]);
    }
    if (!r->follow && m->n_decisions == 0 && was_asked_for_lines)
        end(r);
    else
        loop_timer_set(r->timer, 0);
}

static void ask(void *arg)
{
    struct decision_reader *r = arg;
    struct node_call *call = network_log(r->core, r->id, r->from_now ? 0 : r->after, r->from_now ? 0 : LINES,
                                         r->follow && !r->from_now ? WAIT_MS : 0, on_reply, r);

    if (call != NULL)           /* else it was answered, and r may be gone */
        r->call = call;
}

struct decision_reader *decision_reader_new(struct core *c, const char *id, uint64_t after, bool follow,
                                            const struct decision_reader_ops *ops, void *ctx)
{
    struct decision_reader *r = mem_zalloc(sizeof *r);

    *r = (struct decision_reader){
        .core = c, .after = after, .from_now = after == DECISIONS_FROM_NOW, .follow = follow, .ops = ops, .ctx = ctx};
    (void)snprintf(r->id, sizeof r->id, "%s", id);
    r->timer = loop_timer_new(core_loop(c), ask, r);
    loop_timer_set(r->timer, 0);
    return r;
}

void decision_reader_finish(struct decision_reader *r)
{
    if (r->is_over) {
        r->ops->on_end(r->ctx);
        return;
    }
    r->follow = false;
    if (r->call != NULL)
        node_call_cancel(r->call);
    r->call = NULL;
    loop_timer_set(r->timer, 0);
}

void decision_reader_free(struct decision_reader *r)
{
    if (r == NULL)
        return;
    if (r->call != NULL)
        node_call_cancel(r->call);
    loop_timer_free(r->timer);
    free(r);
}

static json_t *text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? js_string_lossy(text) : json_null();
}

static json_t *names(const char *text)
{
    json_t *list = json_array();

    for (const char *at = text; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, ",");
        (void)json_array_append_new(list, json_stringn(at, n));
        at += at[n] == ',' ? n + 1 : n;
    }
    return list;
}

json_t *decision_json(const Quicksand__Node__Decision *d)
{
    json_t *o = json_object();
    bool has_address = d->address != NULL && strcmp(d->address, "::") != 0;

    (void)json_object_set_new(o, "seq", json_integer((json_int_t)d->seq));
    (void)json_object_set_new(o, "at", js_time_ms(d->when_ms));
    (void)json_object_set_new(o, "verdict", json_string(d->allowed ? "allow" : "deny"));
    (void)json_object_set_new(o, "reason", js_string_lossy(d->reason));
    (void)json_object_set_new(o, "rule", d->rule[0] != '\0' ? js_string_lossy(d->rule) : json_null());
    (void)json_object_set_new(o, "protocol", json_string(d->protocol));
    (void)json_object_set_new(o, "name", d->name[0] != '\0' ? js_string_lossy(d->name) : json_null());
    (void)json_object_set_new(o, "address", has_address ? js_string_lossy(d->address) : json_null());
    (void)json_object_set_new(o, "port", json_integer(d->port));
    (void)json_object_set_new(o, "method", text_or_null(d->method));
    (void)json_object_set_new(o, "path", text_or_null(d->path));
    (void)json_object_set_new(o, "secrets", names(d->secrets));
    (void)json_object_set_new(o, "count", json_integer(d->count));
    (void)json_object_set_new(o, "missed", json_integer((json_int_t)d->missed));
    (void)json_object_set_new(o, "revision", json_integer((json_int_t)d->revision));
    return o;
}
