/*
 * operation.h - work that goes on without its caller: pulls and builds of images
 *
 * A row in the store from its begin on; who wants to know asks again or waits. What was running when the process ended is
 * failed, and says so. Called by image_pull.c, the builder and the dialects.
 */
#ifndef QS_CORE_OPERATION_H
#define QS_CORE_OPERATION_H

#include "core/core.h"
#include "json/json.h"
#include "store/store.h"

struct operation;

/* `request` is borrowed. NULL with the error. It ends itself by one of succeed and fail. */
struct operation *operation_begin(struct core *c, const char *kind, const char *target, const json_t *request, struct err *e);
const char *operation_id(const struct operation *op);
/* The running one that works at `target`, NULL if there is none. */
struct operation *operation_running(struct core *c, const char *kind, const char *target);
/* Called when somebody wants it to end early; `fn` sees to that it fails soon. */
void operation_on_cancel(struct operation *op, void (*fn)(void *ctx), void *ctx);
bool operation_is_cancelled(const struct operation *op);
/* A line of its log; bytes that are not UTF-8 are replaced. */
void operation_log(struct operation *op, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void operation_log_text(struct operation *op, const char *text, size_t n);
/* What is shown while it runs; takes the object. */
void operation_progress(struct operation *op, json_t *progress);
/* Takes `result`. The operation is gone afterwards. */
void operation_succeed(struct operation *op, const char *image, json_t *result);
void operation_fail(struct operation *op, const struct err *e);

/* --- for dialects ----------------------------------------------------------------------------------------------------- */

struct operation_view {
    struct operation_row row;
    json_t *progress;                   /* borrowed until the callback returns; NULL = none */
    int64_t last_line;                  /* of the log, 0 = none; of a running one */
};

int operation_cancel(struct core *c, const char *id, struct err *e);    /* ERR_CONFLICT when it has ended */
const char *operation_state_name(uint8_t state);

/*
 * Calls `fn` once, perhaps at once: when the operation has ended, when its log has lines after `after` (-1 = lines are of no
 * interest), or when wait_ms have passed.
 */
typedef void (*operation_fn)(void *ctx, const struct operation_view *view, const struct err *e);
struct operation_wait;
struct operation_wait *operation_get(struct core *c, const char *id, int64_t after, uint64_t wait_ms, operation_fn fn, void *ctx);
void operation_wait_cancel(struct operation_wait *w);   /* NULL (answered already) is accepted */

#endif
