/*
 * layer_survey.c - layers that lie on the node and that no row knows
 *
 * What comes with an image or a build step gets its row together with it, and what a pull is about to bring before. But an
 * import that fails at its third layer has brought two, and a daemon may be killed between a layer and its row. So once a
 * day, and after the start, the node tells what has lain there for a day, and what is unknown becomes garbage. No layer is
 * removed meanwhile: one that has just gone would be noted again.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/internal.h"

#define AGE_S (24LL * 3600)
#define EVERY_MS (24LL * 3600 * 1000)
#define AGAIN_MS (600LL * 1000)         /* after one that failed */
#define ASK_TIMEOUT_MS 60000

struct survey {
    struct core *core;
    char after[72];                     /* the last name that was looked at */
    int64_t unknown;
};

static void ask(struct survey *s);

static void finish(struct survey *s, const struct err *e)
{
    struct core *c = s->core;

    c->imports--;
    c->is_surveying = false;
    c->next_survey_ms = clock_boot_ms() + (e == NULL ? EVERY_MS : AGAIN_MS);
    if (e != NULL)
        core_log(LOG_L_WARN, "layer.survey", "-", e);
    else if (s->unknown > 0)
        log_info("layer.unknown", "n=%lld", (long long)s->unknown);
    free(s);
    images_sweep(c);
}

/* Those without a row get one as old as they are at least, and are released with it. */
static int note(struct survey *s, const Quicksand__Node__LayerListResponse *page, struct err *e)
{
    struct store *st = s->core->store;
    int64_t came_us = clock_wall_us() - AGE_S * 1000000;

    if (store_begin(st, STORE_FAST, e) < 0)
        return -1;
    for (size_t i = 0; i < page->n_layers; i++) {
        const Quicksand__Node__Layer *l = page->layers[i];
        bool is_new = false;
        if (l->layer == NULL || strlen(l->layer) >= sizeof s->after) {
            store_rollback(st);
            return err_set(e, ERR_INTERNAL, "the node's list of layers cannot be read");
        }
        (void)snprintf(s->after, sizeof s->after, "%s", l->layer);
        if (store_layer_note(st, l->layer, (int64_t)l->bytes, (int64_t)l->files, came_us, &is_new, e) < 0 ||
            (is_new && store_layer_release(st, l->layer, e) < 0)) {
            store_rollback(st);
            return -1;
        }
        s->unknown += is_new;
    }
    if (store_commit(st, e) < 0) {
        store_rollback(st);
        return -1;
    }
    return 0;
}

static void on_page(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct survey *s = ctx;
    const Quicksand__Node__LayerListResponse *page = (const Quicksand__Node__LayerListResponse *)reply;
    struct err local;

    if (e == NULL && page->n_layers > 0) {
        if (note(s, page, &local) == 0) {
            ask(s);
            return;
        }
        e = &local;
    }
    finish(s, e);
}

static void ask(struct survey *s)
{
    Quicksand__Node__LayerListRequest rq = QUICKSAND__NODE__LAYER_LIST_REQUEST__INIT;

    rq.after = s->after;
    rq.has_age_s = 1;
    rq.age_s = AGE_S;
    (void)node_unary(s->core, "LayerList", &rq.base, &quicksand__node__layer_list_response__descriptor, ASK_TIMEOUT_MS, true,
                     on_page, s);
}

void layers_survey(struct core *c)
{
    if (c->is_surveying || c->is_stopping || c->removing[0] != '\0' || clock_boot_ms() < c->next_survey_ms)
        return;
    struct survey *s = mem_zalloc(sizeof *s);
    s->core = c;
    c->is_surveying = true;
    c->imports++;
    ask(s);
}
