/*
 * life.h - private to core: the table of sandboxes that have not ended, and the one function that
 * changes a state
 *
 * Every row in a state other than ended has a box. A box is busy while it is created or removed:
 * who wants something else of the sandbox waits for that (life_wait), so these two never overlap
 * with anything.
 */
#ifndef QS_CORE_LIFE_H
#define QS_CORE_LIFE_H

#include "core/internal.h"
#include "core/sandbox.h"

struct life_waiter {
    struct life_waiter *next, **link;   /* link NULL = not in a list */
    void (*fn)(void *ctx);              /* may free the waiter */
    void *ctx;
};

struct box {
    char id[ID_SIZE];
    uint8_t state;                      /* as in the row */
    bool is_busy;
    bool is_asked;                      /* a Get, Terminate or Update of the poll is under way */
    bool is_update_due;                 /* an Update failed: the node has other times than the row */
    int64_t since_ms;                   /* CLOCK_BOOTTIME at the last change of state */
    int64_t retry_at_ms;                /* CLOCK_BOOTTIME: not driven again before */
    int64_t expires_ms;                 /* as in the row: what the node must have */
    uint64_t idle_ms;
    struct sandbox_seen seen;
    struct life_waiter *waiters;
};

struct box *life_box(struct core *c, const char *id);           /* NULL = ended, or no such sandbox */
struct box *life_add(struct core *c, const struct sandbox_row *row);
/* Changes the state in row, store and box, and logs it. Into ended: with the exit fields of
 * *row; the box is gone then. A change that the table forbids is ERR_CONFLICT. */
int life_move(struct core *c, struct sandbox_row *row, enum store_state to, struct err *e);
/* The two halves of it, for a change that is one of several in a transaction: store, commit,
 * then apply. */
int life_store(struct core *c, const struct sandbox_row *row, enum store_state to, struct err *e);
void life_apply(struct core *c, struct sandbox_row *row, enum store_state to);
/* The row has been removed: frees the box and wakes who waits. */
void life_drop(struct core *c, struct box *b);
void life_set_busy(struct core *c, struct box *b, bool is_busy);
/* Calls w->fn once the box is not busy or gone; at once if it is not busy now. */
void life_wait(struct core *c, const char *id, struct life_waiter *w);
void life_wait_cancel(struct life_waiter *w);
void life_wake_all(struct core *c);             /* at the end: nobody is left waiting */

/* The row for callers: ERR_NOT_FOUND also when it is being removed. */
int life_row(struct core *c, const char *id, struct sandbox_row *ret, struct err *e);
/* What a node said: updates what was seen, and records the end if it has ended. */
int life_observe(struct core *c, const Quicksand__Node__Sandbox *s, struct err *e);
/* The node knows nothing of a sandbox that should live there. */
int life_lost(struct core *c, const char *id, struct err *e);
/* Answers fn with the sandbox as the store and the box have it. */
void life_answer(struct core *c, const char *id, sandbox_fn fn, void *ctx);
void life_view(struct core *c, const struct sandbox_row *row, struct sandbox *ret);

/* Asks the node to remove a sandbox whose row is in state deleting, then removes the row. `fn`
 * (may be NULL) gets NULL or the error; after an error the poll tries again. */
typedef void (*life_removed_fn)(void *ctx, const struct err *e);
void life_remove(struct core *c, struct box *b, life_removed_fn fn, void *ctx);

/* sandbox_create.c: goes on with a row in state creating, with a box; `fn` may be NULL. */
void create_resume(struct core *c, const struct sandbox_row *row);
/* sandbox_poll.c: makes sure that the poll runs. */
void poll_wake(struct core *c);

/* sandbox_spec.c */
int spec_check(const struct sandbox_spec *s, struct err *e);
int spec_check_name(const char *name, const char *param, struct err *e);
int spec_check_tags(const json_t *tags, bool null_is_allowed, struct err *e);
int limits_check(const struct core *c, const struct sandbox_limits *l, struct err *e);
/* The form that limits have in the row's spec. */
void limits_put(json_t *o, const struct sandbox_limits *l);
bool limits_are_patched(const struct sandbox_patch *p);
/* Of a running sandbox; fn gets NULL once they are in force and in the row. The box is busy meanwhile. */
typedef void (*limits_changed_fn)(void *ctx, const struct err *e);
void limits_change(struct core *c, const struct sandbox_row *row, const struct sandbox_patch *p, limits_changed_fn fn,
                   void *ctx);
/* The text kept in the row: what does not change, with the image's defaults merged in. The
 * caller frees. */
char *spec_text(const struct sandbox_spec *s, const struct image_row *image, struct err *e);
/* Calls fn with the node's request for a row. */
int spec_with_request(struct core *c, const struct sandbox_row *row, const struct image_row *image,
                      void (*fn)(void *ctx, const Quicksand__Node__CreateRequest *rq), void *ctx, struct err *e);

#endif
