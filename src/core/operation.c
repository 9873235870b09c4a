/*
 * operation.c - work that goes on without its caller
 */
#include "core/operation.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/internal.h"

#define LOG_BYTES_MAX (64LL << 20)
#define LINE_MAX_BYTES 8192
#define TAIL_LINES 200

struct operation {
    struct core *core;
    struct operation *next;
    struct operation_row row;
    json_t *progress;                   /* owned */
    int64_t lines, log_bytes;
    json_t *tail;                       /* beyond that the last lines, which are written at the end; NULL = none; owned */
    int64_t left_out;
    void (*on_cancel)(void *ctx);
    void *cancel_ctx;
    bool is_cancelled;
};

struct operation_wait {
    struct core *core;
    struct operation_wait *next;
    char id[ID_SIZE];
    int64_t after;
    struct loop_timer *timer;           /* NULL: it was answered at once */
    operation_fn fn;
    void *ctx;
};

static struct operation *find(struct core *c, const char *id)
{
    for (struct operation *op = c->operations; op != NULL; op = op->next)
        if (strcmp(op->row.id, id) == 0)
            return op;
    return NULL;
}

/* --- waiting -------------------------------------------------------------------------------------------------------------- */

static void wait_free(struct operation_wait *w)
{
    for (struct operation_wait **at = &w->core->operation_waits; *at != NULL; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    loop_timer_free(w->timer);
    free(w);
}

/* The view of a running or an ended one, to the caller. */
static void show(struct core *c, const char *id, operation_fn fn, void *ctx)
{
    const struct operation *op = find(c, id);
    struct operation_view view = {0};
    struct err e;

    if (op != NULL) {
        view.row = op->row;
        view.progress = op->progress;
        view.last_line = op->lines;
        fn(ctx, &view, NULL);
        return;
    }
    if (store_operation_get(c->store, id, &view.row, &e) < 0) {
        fn(ctx, NULL, &e);
        return;
    }
    fn(ctx, &view, NULL);
    operation_row_done(&view.row);
}

static void wait_answer(struct operation_wait *w)
{
    struct core *c = w->core;
    operation_fn fn = w->fn;
    void *ctx = w->ctx;
    char id[ID_SIZE];

    memcpy(id, w->id, sizeof id);
    wait_free(w);
    show(c, id, fn, ctx);
}

static void on_wait_over(void *arg)
{
    wait_answer(arg);
}

static bool is_due(const struct operation_wait *w)
{
    const struct operation *op = find(w->core, w->id);

    return op == NULL || (w->after >= 0 && op->lines > w->after);
}

/* Answers whoever waits for what just happened; an answer may begin another wait. */
static void wake(struct core *c, const char *id)
{
    for (struct operation_wait *w = c->operation_waits; w != NULL;) {
        if (strcmp(w->id, id) != 0 || !is_due(w)) {
            w = w->next;
            continue;
        }
        wait_answer(w);
        w = c->operation_waits;
    }
}

struct operation_wait *operation_get(struct core *c, const char *id, int64_t after, uint64_t wait_ms, operation_fn fn, void *ctx)
{
    struct operation_wait probe = {.core = c, .after = after};

    (void)snprintf(probe.id, sizeof probe.id, "%s", id);
    if (wait_ms == 0 || c->is_stopping || is_due(&probe)) {
        show(c, id, fn, ctx);
        return NULL;
    }
    struct operation_wait *w = mem_dup(&probe, sizeof probe);
    w->fn = fn;
    w->ctx = ctx;
    w->timer = loop_timer_new(c->loop, on_wait_over, w);
    loop_timer_set(w->timer, wait_ms);
    w->next = c->operation_waits;
    c->operation_waits = w;
    return w;
}

void operation_wait_cancel(struct operation_wait *w)
{
    if (w != NULL)
        wait_free(w);
}

/* --- the operation -------------------------------------------------------------------------------------------------------- */

static void operation_free(struct operation *op)
{
    operation_row_done(&op->row);
    json_decref(op->progress);
    json_decref(op->tail);
    free(op);
}

struct operation *operation_begin(struct core *c, const char *kind, const char *target, const json_t *request, struct err *e)
{
    struct operation *op = mem_zalloc(sizeof *op);

    op->core = c;
    id_make(op->row.id, "op-");
    (void)snprintf(op->row.kind, sizeof op->row.kind, "%s", kind);
    (void)snprintf(op->row.target, sizeof op->row.target, "%s", target);
    op->row.request = js_text(request, false);
    op->row.created_us = clock_wall_us();
    if (store_operation_insert(c->store, &op->row, e) < 0) {
        operation_free(op);
        return NULL;
    }
    op->next = c->operations;
    c->operations = op;
    log_info("operation.begin", "id=%s kind=%s", op->row.id, kind);
    return op;
}

const char *operation_id(const struct operation *op)
{
    return op->row.id;
}

struct operation *operation_running(struct core *c, const char *kind, const char *target)
{
    for (struct operation *op = c->operations; op != NULL; op = op->next)
        if (strcmp(op->row.kind, kind) == 0 && strcmp(op->row.target, target) == 0 && !op->is_cancelled)
            return op;
    return NULL;
}

void operation_on_cancel(struct operation *op, void (*fn)(void *ctx), void *ctx)
{
    op->on_cancel = fn;
    op->cancel_ctx = ctx;
}

bool operation_is_cancelled(const struct operation *op)
{
    return op->is_cancelled;
}

static void add_line(struct operation *op, const char *text)
{
    struct err e;

    op->log_bytes += (int64_t)strlen(text);
    if (store_operation_line(op->core->store, op->row.id, op->lines + 1, clock_wall_ms(), text, &e) < 0)
        core_log(LOG_L_WARN, "operation.log", op->row.id, &e);
    else
        op->lines++;
}

static void add_tail(struct operation *op, json_t *line)
{
    if (op->tail == NULL)
        op->tail = json_array();
    if (json_array_size(op->tail) == TAIL_LINES) {
        (void)json_array_remove(op->tail, 0);
        op->left_out++;
    }
    (void)json_array_append(op->tail, line);
}

static void write_tail(struct operation *op)
{
    auto_free char *text = mem_printf("(%lld lines are left out)", (long long)op->left_out);
    json_t *line;
    size_t i;

    if (op->left_out > 0)
        add_line(op, text);
    json_array_foreach(op->tail, i, line)
        add_line(op, json_string_value(line));
}

void operation_log_text(struct operation *op, const char *text, size_t n)
{
    auto_free char *line = mem_strndup(text, n < LINE_MAX_BYTES ? n : LINE_MAX_BYTES);
    auto_json *clean = js_string_lossy(line);
    char id[ID_SIZE];

    if (op->log_bytes > LOG_BYTES_MAX) {
        add_tail(op, clean);
        return;
    }
    add_line(op, json_string_value(clean));
    if (op->log_bytes > LOG_BYTES_MAX)
        add_line(op, "(the log is over 64 MiB: of what follows the last lines are kept)");
    memcpy(id, op->row.id, sizeof id);
    wake(op->core, id);
}

void operation_log(struct operation *op, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    operation_log_text(op, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

void operation_progress(struct operation *op, json_t *progress)
{
    json_decref(op->progress);
    op->progress = progress;
}

static void end(struct operation *op)
{
    struct core *c = op->core;
    char id[ID_SIZE];
    struct err e;

    write_tail(op);
    op->row.ended_us = clock_wall_us();
    if (store_operation_end(c->store, &op->row, &e) < 0)
        core_log(LOG_L_ERROR, "operation.end", op->row.id, &e);
    log_info("operation.end", "id=%s kind=%s state=%s code=%s", op->row.id, op->row.kind, operation_state_name(op->row.state),
             op->row.error_code[0] != '\0' ? op->row.error_code : "-");
    for (struct operation **at = &c->operations; *at != NULL; at = &(*at)->next)
        if (*at == op) {
            *at = op->next;
            break;
        }
    memcpy(id, op->row.id, sizeof id);
    operation_free(op);
    wake(c, id);
}

void operation_succeed(struct operation *op, const char *image, json_t *result)
{
    op->row.state = OPERATION_SUCCEEDED;
    (void)snprintf(op->row.image, sizeof op->row.image, "%s", image);
    op->row.result = js_text(result, false);
    json_decref(result);
    end(op);
}

void operation_fail(struct operation *op, const struct err *e)
{
    op->row.state = op->is_cancelled ? OPERATION_CANCELLED : OPERATION_FAILED;
    (void)snprintf(op->row.error_code, sizeof op->row.error_code, "%s", err_row(e->code)->name);
    auto_json *text = js_string_lossy(op->is_cancelled ? "it was cancelled" : e->message);
    op->row.error = mem_strdup(json_string_value(text));
    end(op);
}

int operation_cancel(struct core *c, const char *id, struct err *e)
{
    auto_operation_row row = {0};
    struct operation *op = find(c, id);

    if (op == NULL) {
        if (store_operation_get(c->store, id, &row, e) < 0)
            return -1;
        return err_set(e, ERR_CONFLICT, "the operation has %s already", operation_state_name(row.state));
    }
    if (op->is_cancelled)
        return 0;
    op->is_cancelled = true;
    if (op->on_cancel != NULL)
        op->on_cancel(op->cancel_ctx);
    return 0;
}

const char *operation_state_name(uint8_t state)
{
    static const char *const names[] = {"running", "succeeded", "failed", "cancelled"};

    return state < array_len(names) ? names[state] : "unknown";
}

int operations_open(struct core *c, struct err *e)
{
    return store_operation_fail_running(c->store, clock_wall_us(), err_row(ERR_UNAVAILABLE)->name,
                                        "the service was restarted while it ran: begin it again, what was complete is used", e);
}

void operations_stop(struct core *c)
{
    while (c->operation_waits != NULL)
        wait_answer(c->operation_waits);
}

void operations_close(struct core *c)
{
    while (c->operations != NULL) {
        struct operation *op = c->operations;
        c->operations = op->next;
        operation_free(op);
    }
}
