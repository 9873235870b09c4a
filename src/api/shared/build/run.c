/*
 * run.c - RUN: a sandbox runs the command; what it wrote becomes a layer
 *
 * In order: mounts that the key needs, the key, what is known under it, the other mounts, the sandbox, its layer, what
 * its caches hold now. Whatever happens, sandbox and row are removed before the step is over.
 */
#include "api/shared/build/run.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/image.h"

#define FOLD_RETRY_MS 100
#define FOLD_TRIES 300                  /* dying processes may hold the groups for a while */

/* --- the end -------------------------------------------------------------------------------------------------------------- */

static void run_free(struct run *r)
{
    box_free(r);
    loop_timer_free(r->timer);
    for (size_t i = 0; i < r->nmounts; i++)
        mount_done(&r->mounts[i]);
    json_decref(r->argv);
    json_decref(r->env);
    free(r);
}

static void finish(struct run *r)
{
    struct build *b = r->build;
    struct err failure = r->failure, ignored;

    if (r->image[0] != '\0')
        (void)image_remove(b->core, r->image, &ignored);
    if (failure.code == ERR_OK && !r->is_known &&
        store_step_put(core_store(b->core), b->key, r->layer, clock_wall_us(), &ignored) < 0)
        log_warn("build.step", "key=%.12s could not be kept", b->key);
    if (failure.code == ERR_OK)
        build_add_layer(b, r->layer, r->bytes, r->files, r->is_known);
    b->run = NULL;
    cache_unlock_all(r);
    run_free(r);
    if (failure.code != ERR_OK)
        build_failed(b, &failure);
    else
        build_step_done(b);
}

static void on_deleted(void *ctx, const struct sandbox *sb, const struct err *e)
{
    (void)sb;
    (void)e;                            /* core goes on removing it */
    finish(ctx);
}

void run_end(struct run *r)
{
    if (r->sandbox[0] != '\0')
        sandbox_delete(r->build->core, r->sandbox, on_deleted, r);
    else
        finish(r);
}

/* --- the layer ------------------------------------------------------------------------------------------------------------ */

static void on_folded(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct run *r = ctx;
    const Quicksand__Node__Layer *l = (const Quicksand__Node__Layer *)reply;

    r->build->call = NULL;
    if (e != NULL && e->code == ERR_CONFLICT && ++r->tries < FOLD_TRIES && !r->is_cancelled) {
        loop_timer_set(r->timer, FOLD_RETRY_MS);
        return;
    }
    if (e != NULL) {
        r->failure = *e;
        run_end(r);
        return;
    }
    (void)snprintf(r->layer, sizeof r->layer, "%s", l->layer);
    r->bytes = l->bytes;
    r->files = l->files;
    caches_keep(r, run_end);
}

static void fold(void *arg)
{
    mounts_fold(arg, NULL, on_folded);
}

static void judge(struct run *r)
{
    if (r->is_cancelled)
        (void)err_set(&r->failure, ERR_CONFLICT, "it was cancelled");
    else if (r->failure.code != ERR_OK)
        ;                               /* of the sandbox, not of the command */
    else if (strcmp(r->reason, "timeout") == 0 || strcmp(r->reason, "deadline") == 0)
        (void)err_set(&r->failure, ERR_TIMEOUT, "the command did not end within %lld s",
                      (long long)(r->build->step_timeout_ms / 1000));
    else if (r->signal != 0)
        (void)err_set(&r->failure, ERR_CONFLICT, "the command was killed by signal %d (%s)", r->signal, r->reason);
    else if (r->code != 0)
        (void)err_set(&r->failure, ERR_CONFLICT, "the command ended with exit code %d (%s)", r->code, r->reason);
    if (r->failure.code != ERR_OK)
        run_end(r);
    else
        fold(r);
}

/* --- begin ---------------------------------------------------------------------------------------------------------------- */

static int insert_row(struct run *r, struct err *e)
{
    auto_image_row row = {.created_us = clock_wall_us()};
    auto_json *layers = mounts_layers(r);

    id_make(row.id, "im-");
    row.layers = js_text(layers, false);
    row.env = mem_strdup("{}");
    row.source = mem_strdup(BUILD_STEP_SOURCE);
    if (store_image_insert(core_store(r->build->core), &row, e) < 0)
        return -1;
    memcpy(r->image, row.id, sizeof r->image);
    return 0;
}

static void start(struct run *r)
{
    run_add_unkeyed(r);
    if (insert_row(r, &r->failure) < 0)
        run_end(r);
    else
        box_run(r, judge);
}

/* Known under its key, or to be run. */
static void look_up(struct run *r)
{
    struct build *b = r->build;

    b->key = run_key(r);
    if (!b->no_cache && store_step_get(core_store(b->core), b->key, clock_wall_us(), &r->is_known, r->layer, &r->failure) < 0) {
        run_end(r);
        return;
    }
    if (!r->is_known) {
        mounts_make(r, start);
        return;
    }
    b->cached++;
    operation_log(b->operation, "CACHED");
    run_end(r);
}

int build_run(struct build *b, const struct df_instruction *in, struct err *e)
{
    if (json_array_size(build_stage(b)->layers) == 0)
        return df_fail(in, e, "there is nothing in the image that could run");
    struct run *r = mem_zalloc(sizeof *r);
    r->build = b;
    r->in = in;
    if (run_read(r, e) < 0) {
        run_free(r);
        return -1;
    }
    r->timer = loop_timer_new(core_loop(b->core), fold, r);
    b->run = r;
    mounts_make(r, look_up);
    return 1;
}

void build_run_cancel(struct build *b)
{
    struct run *r = b->run;

    r->is_cancelled = true;
    if (cache_stop_waiting(r)) {
        (void)err_set(&r->failure, ERR_CONFLICT, "it was cancelled");
        run_end(r);
    } else {
        box_cancel(r);
    }
}
