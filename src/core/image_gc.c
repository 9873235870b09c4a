/*
 * image_gc.c - images that nobody uses
 *
 * Called when a user asks. An image in use by a live sandbox stays whatever its age.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/image.h"
#include "core/internal.h"

#define PAGE 500

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

static void add_own(void *ctx, const struct layer_row *r)
{
    *(int64_t *)ctx += r->images == 1 ? r->bytes : 0;
}

static int remove_one(struct core *c, const struct candidate *cd, bool dry_run, bool *ret_gone, int64_t *freed, struct err *e)
{
    bool is_used = false;
    struct err local = {0};

    *ret_gone = false;
    if (store_image_is_used(c->store, cd->id, &is_used, e) < 0)
        return -1;
    if (is_used)
        return 0;
    if (store_image_layers(c->store, cd->id, add_own, freed, e) < 0)
        return -1;
    if (!dry_run && image_remove(c, cd->id, &local) < 0) {
        if (local.code == ERR_CONFLICT || local.code == ERR_NOT_FOUND)
            return 0;
        *e = local;
        return -1;
    }
    *ret_gone = true;
    return 0;
}

int image_gc(struct core *c, const struct image_gc_spec *spec, image_gc_fn fn, void *ctx, struct image_gc_result *ret,
             struct err *e)
{
    struct gc gc = {.spec = spec, .before_us = clock_wall_us() - spec->unused_ms * 1000};
    int r;

    *ret = (struct image_gc_result){0};
    r = find_candidates(c, &gc, e);
    for (size_t i = 0; i < gc.n; i++) {
        bool is_gone = false;
        if (r == 0)
            r = remove_one(c, &gc.list[i], spec->dry_run, &is_gone, &ret->freed_bytes, e);
        if (r == 0 && is_gone)
            fn(ctx, gc.list[i].id, gc.list[i].bytes, gc.list[i].source);
        free(gc.list[i].source);
    }
    free(gc.list);
    if (r == 0 && !spec->dry_run) {
        r = store_step_expire(c->store, gc.before_us, &ret->steps, e);
        images_sweep(c);
    }
    return r;
}
