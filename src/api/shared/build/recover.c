/*
 * recover.c - what builds of an earlier process left: sandboxes and image rows of their steps
 *
 * Their operations are failed already and say so (core/operation.c). Results of steps that had ended are known under
 * their keys, so the same build goes on where the other broke off. Layers that nothing names go when they are old
 * (core/image_gc.c).
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/internal.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/image.h"
#include "core/sandbox.h"

#define PAGE 500

struct left {
    struct core *core;
    char image[ID_SIZE];
    size_t sandboxes;                   /* of the image, that are still there */
};

struct page {
    json_t *images;                     /* ids of rows for steps */
    size_t seen;
    int64_t cursor_us;
    char cursor_id[ID_SIZE];
};

static void look_at(void *ctx, const struct image_row *r)
{
    struct page *p = ctx;

    p->seen++;
    p->cursor_us = r->created_us;
    memcpy(p->cursor_id, r->id, sizeof p->cursor_id);
    if (r->source != NULL && strcmp(r->source, BUILD_STEP_SOURCE) == 0 && strcmp(r->names, "[]") == 0)
        (void)json_array_append_new(p->images, json_string(r->id));
}

static void add_id(void *ctx, const struct sandbox_row *r)
{
    (void)json_array_append_new(ctx, json_string(r->id));
}

static void remove_image(struct left *l)
{
    struct err e;

    if (image_remove(l->core, l->image, &e) < 0)
        log_warn("build.left", "image=%s error=\"%s\"", l->image, e.message);
    free(l);
}

static void on_deleted(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct left *l = ctx;

    (void)sb;
    (void)e;                            /* core goes on removing it */
    if (--l->sandboxes == 0)
        remove_image(l);
}

static void clear(struct core *c, const char *image)
{
    const struct sandbox_filter f = {.image = image, .states = ~0U, .limit = LIMIT_LIST};
    auto_json *ids = json_array();
    struct left *l = mem_zalloc(sizeof *l);
    struct err e;
    json_t *id;
    size_t i;

    l->core = c;
    (void)snprintf(l->image, sizeof l->image, "%s", image);
    if (store_sandbox_list(core_store(c), &f, add_id, ids, &e) < 0)
        log_warn("build.left", "image=%s error=\"%s\"", image, e.message);
    l->sandboxes = json_array_size(ids);
    if (l->sandboxes == 0) {
        remove_image(l);
        return;
    }
    json_array_foreach(ids, i, id)
        sandbox_delete(c, json_string_value(id), on_deleted, l);
}

int build_recover(struct core *c, struct err *e)
{
    struct page p = {0};
    auto_json *images = json_array();
    json_t *id;
    size_t i;

    p.images = images;
    do {
        p.seen = 0;
        if (store_image_list(core_store(c), p.cursor_us, p.cursor_id, PAGE, look_at, &p, e) < 0)
            return -1;
    } while (p.seen == PAGE);
    json_array_foreach(images, i, id)
        clear(c, json_string_value(id));
    return 0;
}
