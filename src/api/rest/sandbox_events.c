/*
 * sandbox_events.c - what happens to a sandbox as server-sent events
 *
 * `sandbox` with the object at first and whenever state, name, deadline or tags have changed; `expiring` NOTICE_MS before the
 * deadline (again, if that was moved and comes near once more); `network` with each line of the network log that comes from
 * now on; `exit` with the object at the end, which ends the stream.
 */
#include <string.h>

#include "api/rest/handlers.h"
#include "api/rest/sandbox_json.h"
#include "api/shared/decision_reader.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/sandbox.h"
#include "json/json.h"

#define NOTICE_MS 60000
/* Changes by others are seen after this at the latest; the end is seen at once. */
#define LOOK_MS 5000
/* Between two looks, so that no answer that comes at once makes a busy loop. */
#define PAUSE_MS 100

struct events {
    struct call *call;
    struct sandbox_wait *wait;
    struct decision_reader *decisions;  /* from the first answer on */
    json_t *exit;               /* the end, once it was seen; waits for the last lines */
    struct loop_timer *pause;
    uint64_t wait_ms;           /* of the next look */
    bool started;
    uint8_t state;              /* as in the last `sandbox` */
    int64_t tags_revision, expires_ms;
    char name[LIMIT_NAME + 1];
    int64_t noticed_ms;         /* the deadline that was announced; 0 = none */
};

static struct call *release(struct events *ev)
{
    struct call *c = ev->call;

    sandbox_wait_cancel(ev->wait);
    loop_timer_free(ev->pause);
    decision_reader_free(ev->decisions);
    json_decref(ev->exit);
    free(ev);
    c->user = NULL;
    c->on_gone = NULL;
    return c;
}

static void on_gone(struct call *c)
{
    call_done(release(c->user), CALL_CLIENT_GONE);
}

/* `o` is consumed. */
static void send_event(struct events *ev, const char *name, json_t *o)
{
    auto_free char *text = js_text(o, false);

    sse_send(ev->call->stream, name, NULL, text, strlen(text));
    json_decref(o);
}

static void send_if_changed(struct events *ev, const struct sandbox *sb)
{
    const struct sandbox_row *r = sb->row;

    if (ev->state == r->state && ev->tags_revision == r->tags_revision && ev->expires_ms == r->expires_ms &&
        strcmp(ev->name, r->name) == 0)
        return;
    ev->state = r->state;
    ev->tags_revision = r->tags_revision;
    ev->expires_ms = r->expires_ms;
    memcpy(ev->name, r->name, sizeof ev->name);
    send_event(ev, "sandbox", sandbox_json(sb));
}

/* Says that the deadline is near, and answers how long the next look may wait. */
static uint64_t notice(struct events *ev)
{
    if (ev->expires_ms == 0 || ev->noticed_ms == ev->expires_ms)
        return LOOK_MS;
    int64_t left_ms = ev->expires_ms - clock_wall_ms();
    if (left_ms > NOTICE_MS) {
        ev->noticed_ms = 0;
        return left_ms - NOTICE_MS < LOOK_MS ? (uint64_t)(left_ms - NOTICE_MS) : LOOK_MS;
    }
    json_t *o = json_object();
    json_object_set_new(o, "expires_at", js_time_ms(ev->expires_ms));
    json_object_set_new(o, "in_s", json_real(left_ms > 0 ? (double)left_ms / 1000 : 0));
    send_event(ev, "expiring", o);
    ev->noticed_ms = ev->expires_ms;
    return LOOK_MS;
}

static void on_decision(void *ctx, const Quicksand__Node__Decision *d)
{
    send_event(ctx, "network", decision_json(d));
}

/* Without a network at once, else when the sandbox has ended and all was told. */
static void on_decisions_end(void *ctx)
{
    struct events *ev = ctx;

    if (ev->exit == NULL)
        return;
    send_event(ev, "exit", json_incref(ev->exit));
    http_stream_end(ev->call->stream, NULL, 0);
    call_done(release(ev), 200);
}

static void on_seen(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct events *ev = ctx;
    struct http_header h[4];

    ev->wait = NULL;
    if (e != NULL && !ev->started) {
        call_fail(release(ev), e);
        return;
    }
    if (e != NULL) {
        /* It was removed, or its node does not answer: the stream breaks, and says no end that was not seen. */
        http_stream_cancel(ev->call->stream);
        call_done(release(ev), err_row(e->code)->http_status);
        return;
    }
    if (!ev->started) {
        static const struct decision_reader_ops ops = {.on_decision = on_decision, .on_end = on_decisions_end};
        sse_start(ev->call->stream, h, call_headers(ev->call, h));
        ev->decisions = decision_reader_new(ev->call->core, call_param(ev->call, "id"), DECISIONS_FROM_NOW, true, &ops, ev);
    }
    ev->started = true;
    send_if_changed(ev, sb);
    if (sb->row->state == STORE_ENDED) {
        ev->exit = sandbox_json(sb);
        decision_reader_finish(ev->decisions);
        return;
    }
    ev->wait_ms = notice(ev);
    loop_timer_set(ev->pause, PAUSE_MS);
}

static void look(void *ctx)
{
    struct events *ev = ctx;
    struct sandbox_wait *w = sandbox_get(ev->call->core, call_param(ev->call, "id"), ev->wait_ms, on_seen, ev);

    if (w != NULL)              /* else it was answered already, and ev may be gone */
        ev->wait = w;
}

void sandbox_events(struct call *c)
{
    struct events *ev = mem_zalloc(sizeof *ev);

    ev->call = c;
    c->user = ev;
    c->on_gone = on_gone;
    ev->pause = loop_timer_new(core_loop(c->core), look, ev);
    look(ev);
}
