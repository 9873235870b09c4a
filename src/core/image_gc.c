/*
 * image_gc.c - images, build steps, uploaded contexts and layers that nobody uses
 *
 * Called when a user asks; for contexts, and what pulls and builds that broke off left, by the sweep. An image in use by a
 * live sandbox stays whatever its age.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/image.h"
#include "core/internal.h"

#define PAGE 500
#define LAYER_KEEP_US (24LL * 3600 * 1000000)   /* of pulls and builds that broke off: the next one goes on with them */

struct candidate {
    char id[ID_SIZE];
    int64_t bytes;
    char *source;                           /* owned */
};

struct gc {
    const struct image_gc_spec *spec;
    int64_t before_us;
    struct candidate *list;                 /* owned */
    size_t n, size;
    int64_t cursor_us;
    char cursor_id[ID_SIZE];
    size_t seen;
};

static void look_at(void *ctx, const struct image_row *r)
{
    struct gc *gc = ctx;

    gc->seen++;
    gc->cursor_us = r->created_us;
    memcpy(gc->cursor_id, r->id, sizeof gc->cursor_id);
    if (r->created_us >= gc->before_us || r->used_us >= gc->before_us)
        return;
    if (!gc->spec->named_too && strcmp(r->names, "[]") != 0)
        return;
    if (gc->n == gc->size) {
        gc->size = gc->size > 0 ? gc->size * 2 : 64;
        gc->list = mem_realloc(gc->list, gc->size * sizeof *gc->list);
    }
    struct candidate *cd = &gc->list[gc->n++];
    memcpy(cd->id, r->id, sizeof cd->id);
    cd->bytes = r->size_bytes;
    cd->source = r->source != NULL && r->source[0] != '\0' ? mem_strdup(r->source) : NULL;
}

static int find_candidates(struct core *c, struct gc *gc, struct err *e)
{
    do {
        gc->seen = 0;
        if (store_image_list(c->store, gc->cursor_us, gc->cursor_id, PAGE, look_at, gc, e) < 0)
            return -1;
    } while (gc->seen == PAGE);
    return 0;
}

static int remove_one(struct core *c, const struct candidate *cd, bool *ret_gone, struct err *e)
{
    bool is_used = false;

    *ret_gone = false;
    if (store_image_is_used(c->store, cd->id, &is_used, e) < 0)
        return -1;
    if (is_used)
        return 0;
    if (store_image_remove(c->store, cd->id, e) < 0)
        return -1;
    *ret_gone = true;
    return 0;
}

/* In a transaction, which a dry run takes back. */
static int collect(struct core *c, struct gc *gc, image_gc_fn fn, void *ctx, struct image_gc_result *ret, struct err *e)
{
    int64_t before = 0, after = 0;

    if (store_garbage_bytes(c->store, &before, e) < 0)
        return -1;
    for (size_t i = 0; i < gc->n; i++) {
        bool is_gone = false;
        if (remove_one(c, &gc->list[i], &is_gone, e) < 0)
            return -1;
        if (is_gone)
            fn(ctx, gc->list[i].id, gc->list[i].bytes, gc->list[i].source);
    }
    if (store_step_expire(c->store, "", gc->before_us, &ret->steps, e) < 0 ||
        store_layer_release_unnamed(c->store, gc->before_us, e) < 0 || store_garbage_bytes(c->store, &after, e) < 0)
        return -1;
    ret->freed_bytes = after - before;
    return 0;
}

int image_gc(struct core *c, const struct image_gc_spec *spec, image_gc_fn fn, void *ctx, struct image_gc_result *ret,
             struct err *e)
{
    struct gc gc = {.spec = spec, .before_us = clock_wall_us() - spec->unused_ms * 1000};
    int r;

    *ret = (struct image_gc_result){0};
    r = find_candidates(c, &gc, e);
    if (r == 0 && (r = store_begin(c->store, STORE_FAST, e)) == 0) {
        r = collect(c, &gc, fn, ctx, ret, e);
        if (r == 0 && !spec->dry_run)
            r = store_commit(c->store, e);
        else
            store_rollback(c->store);
    }
    for (size_t i = 0; i < gc.n; i++)
        free(gc.list[i].source);
    free(gc.list);
    if (r == 0 && !spec->dry_run)
        images_sweep(c);
    return r;
}

void layers_expire(struct core *c, int64_t now_us)
{
    int64_t forgotten = 0;
    struct err e;

    if (store_begin(c->store, STORE_FAST, &e) == 0) {
        if (store_step_expire(c->store, IMAGE_CONTEXT_KEY, now_us - IMAGE_CONTEXT_KEEP_US, &forgotten, &e) == 0 &&
            store_layer_release_unnamed(c->store, now_us - LAYER_KEEP_US, &e) == 0 && store_commit(c->store, &e) == 0) {
            if (forgotten > 0)
                log_info("context.expired", "n=%lld", (long long)forgotten);
            return;
        }
        store_rollback(c->store);
    }
    core_log(LOG_L_ERROR, "layer.expire", "-", &e);
}
