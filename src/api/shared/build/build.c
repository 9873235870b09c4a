/*
 * build.c - building an image out of a Dockerfile: stages and steps
 *
 * One step after the other, in the order of the file; stages that the target does not need are passed over. A step either
 * ends at once (instructions of the configuration) or calls build_step_done or build_failed later. While a build
 * runs no layer is removed from the node.
 */
#include "api/shared/build/build.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/shared/build/internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/image.h"
#include "core/image_config.h"
#include "core/network.h"
#include "core/policy_json.h"

static void next(struct build *b);

struct stage *build_stage(struct build *b)
{
    return &b->stages[b->stage];
}

/* --- the end -------------------------------------------------------------------------------------------------------------- */

static void stage_done(struct stage *s)
{
    free(s->name);
    json_decref(s->layers);
    json_decref(s->config);
    json_decref(s->env);
    json_decref(s->args);
    json_decref(s->onbuild);
    json_decref(s->shell);
}

static void build_free(struct build *b)
{
    for (size_t i = 0; i < b->nstages; i++)
        stage_done(&b->stages[i]);
    free(b->stages);
    df_done(&b->file);
    df_done(&b->trigger);
    json_decref(b->sizes);
    json_decref(b->temporary);
    json_decref(b->global_args);
    json_decref(b->given_args);
    json_decref(b->secrets);
    json_decref(b->bases);
    json_decref(b->labels);
    json_decref(b->network);
    json_decref(b->urls);
    free(b->name);
    free(b->source);
    registry_auth_done(&b->auth);
    free(b->key);
    free(b);
}

/* Whatever no image and no step names is removed from the node in a while. */
static void release_layers(struct build *b)
{
    struct err ignored;
    json_t *item;
    size_t i;

    (void)store_layer_release(core_store(b->core), b->context, &ignored);
    json_array_foreach(b->sizes, i, item)
    {
        const char *layer = json_string_value(json_object_get(item, "layer"));
        if (layer != NULL && *layer != '\0')
            (void)store_layer_release(core_store(b->core), layer, &ignored);
    }
    json_array_foreach(b->temporary, i, item)
        (void)store_layer_release(core_store(b->core), json_string_value(item), &ignored);
    image_release(b->core);
}

static void end_failed(struct build *b, const struct err *e)
{
    release_layers(b);
    operation_log(b->operation, "failed: %s", e->message);
    operation_fail(b->operation, e);
    build_free(b);
}

void build_failed(struct build *b, const struct err *e)
{
    struct err whole = *e;

    /* What names the line already needs no more. */
    if (b->current != NULL && strncmp(e->message, "line ", 5) != 0)
        (void)err_wrap(&whole, "line %d: %.100s", b->current->line, b->current->source);
    end_failed(b, &whole);
}

static int keep_image(struct build *b, char ret_id[ID_SIZE], struct err *e)
{
    struct store *s = core_store(b->core);
    struct stage *st = &b->stages[b->target];
    auto_image_row row = {.created_us = clock_wall_us()};
    auto_json *whole = json_object();
    json_t *list = json_array(), *value;
    const char *name;

    json_object_foreach(st->env, name, value)
    {
        auto_free char *text = mem_printf("%s=%s", name, json_string_value(value));
        (void)json_array_append_new(list, js_string_lossy(text));
    }
    (void)json_object_set_new(st->config, "Env", list);
    if (b->labels != NULL) {
        if (!json_is_object(json_object_get(st->config, "Labels")))
            (void)json_object_set_new(st->config, "Labels", json_object());
        (void)json_object_update(json_object_get(st->config, "Labels"), b->labels);
    }
    (void)json_object_set_new(whole, "architecture", json_string(build_machine()));
    (void)json_object_set_new(whole, "os", json_string("linux"));
    (void)json_object_set_new(whole, "builder", json_string("quicksand/" BUILD_VERSION));
    (void)json_object_set(whole, "config", st->config);
    if (image_config_apply(whole, &row, e) < 0)
        return -1;
    if (b->image[0] != '\0')
        memcpy(row.id, b->image, sizeof row.id);
    else
        id_make(row.id, "im-");
    row.layers = js_text(st->layers, false);
    row.source = mem_strdup("(built)");
    if (store_begin(s, STORE_DURABLE, e) < 0)
        return -1;
    if (store_image_insert(s, &row, e) < 0 || store_image_measure(s, row.id, e) < 0 ||
        (b->name != NULL && store_image_name(s, b->name, row.id, e) < 0) || store_commit(s, e) < 0) {
        store_rollback(s);
        return -1;
    }
    memcpy(ret_id, row.id, ID_SIZE);
    return 0;
}

static void end_built(struct build *b)
{
    char id[ID_SIZE];
    struct err e;

    b->current = NULL;
    if (keep_image(b, id, &e) < 0) {
        build_failed(b, &e);
        return;
    }
    release_layers(b);
    operation_log(b->operation, "built %s%s%s (%zu of %zu steps cached)", id, b->name != NULL ? " as " : "",
                  b->name != NULL ? b->name : "", b->cached, b->nsteps);
    json_t *result = json_pack("{s:s, s:I, s:I, s:O, s:s}", "image", id, "steps", (json_int_t)b->nsteps, "cached_steps",
                               (json_int_t)b->cached, "layers", b->sizes, "builder", BUILD_VERSION);
    if (b->name != NULL)
        (void)json_object_set_new(result, "name", json_string(b->name));
    operation_succeed(b->operation, id, result);
    build_free(b);
}

/* --- layers --------------------------------------------------------------------------------------------------------------- */

void build_keep_layer(struct build *b, const char *layer, uint64_t bytes, uint64_t files)
{
    struct err ignored;

    (void)store_layer_put(core_store(b->core), layer, (int64_t)bytes, (int64_t)files, clock_wall_us(), &ignored);
    (void)json_array_append_new(b->temporary, json_string(layer));
}

void build_add_layer(struct build *b, const char *layer, uint64_t bytes, uint64_t files, bool cached)
{
    json_t *layers = build_stage(b)->layers, *item;
    struct err ignored;
    size_t i;

    (void)json_array_append_new(b->sizes, json_pack("{s:I, s:s, s:I, s:b}", "step", (json_int_t)b->step, "layer", layer, "bytes",
                                                    (json_int_t)bytes, "cached", cached));
    if (*layer == '\0')
        return;
    if (!cached)
        (void)store_layer_put(core_store(b->core), layer, (int64_t)bytes, (int64_t)files, clock_wall_us(), &ignored);
    /* The same files again hide themselves further down. */
    json_array_foreach(layers, i, item)
        if (strcmp(json_string_value(item), layer) == 0) {
            (void)json_array_remove(layers, i);
            break;
        }
    (void)json_array_insert_new(layers, 0, json_string(layer));
}

/* --- steps ---------------------------------------------------------------------------------------------------------------- */

/* 0 = done, 1 = it goes on and reports itself, -1. */
static int begin_step(struct build *b, const struct df_instruction *in, struct err *e)
{
    switch (in->kind) {
    case DF_FROM:
        return build_from(b, in, e);
    case DF_RUN:
        return build_run(b, in, e);
    case DF_COPY:
    case DF_ADD:
        return build_copy(b, in, e);
    case DF_ARG:
    case DF_CMD:
    case DF_ENTRYPOINT:
    case DF_ENV:
    case DF_EXPOSE:
    case DF_HEALTHCHECK:
    case DF_LABEL:
    case DF_MAINTAINER:
    case DF_ONBUILD:
    case DF_SHELL:
    case DF_STOPSIGNAL:
    case DF_USER:
    case DF_VOLUME:
    case DF_WORKDIR:
        break;
    }
    return build_config(b, in, e);
}

/* The instruction that comes next: of the base's ONBUILD ones first. NULL at the end of the stage. */
static const struct df_instruction *take_next(struct build *b, struct err *e)
{
    struct stage *s = build_stage(b);

    if (json_array_size(s->onbuild) > 0) {
        df_done(&b->trigger);
        int r = df_parse_one(json_string_value(json_array_get(s->onbuild, 0)), b->file.escape, &b->trigger, e);
        (void)json_array_remove(s->onbuild, 0);
        if (r < 0 || b->trigger.n != 1 || b->trigger.list[0].kind == DF_FROM || b->trigger.list[0].kind == DF_ONBUILD) {
            if (r == 0)
                (void)err_set(e, ERR_INVALID, "an ONBUILD instruction of the base image cannot be used");
            return NULL;
        }
        b->trigger.list[0].line = b->file.list[s->from].line;
        return &b->trigger.list[0];
    }
    if (b->at == s->end)
        return NULL;
    b->step++;
    return &b->file.list[b->at++];
}

/* To the next stage that is needed; false if there is none. */
static bool next_stage(struct build *b)
{
    if (b->stage < b->nstages) {
        build_stage(b)->is_done = true;
        if (b->stage == b->target)
            return false;
        b->stage++;
    }
    while (!b->stages[b->stage].is_needed)
        b->stage++;
    b->at = b->stages[b->stage].from;
    return true;
}

static void next_deferred(void *arg)
{
    next(arg);
}

void build_step_done(struct build *b)
{
    free(b->key);
    b->key = NULL;
    loop_defer(core_loop(b->core), next_deferred, b);
}

static void announce(struct build *b)
{
    const struct stage *s = build_stage(b);

    operation_log(b->operation, "step %zu/%zu%s%s: %.300s", b->step, b->nsteps, s->name[0] != '\0' ? " " : "", s->name,
                  b->current->source);
    operation_progress(b->operation, json_pack("{s:I, s:I, s:I}", "step", (json_int_t)b->step, "steps", (json_int_t)b->nsteps,
                                               "cached_steps", (json_int_t)b->cached));
}

static void next(struct build *b)
{
    struct err e = {0};

    for (;;) {
        int r;
        if (operation_is_cancelled(b->operation)) {
            (void)err_set(&e, ERR_CONFLICT, "it was cancelled");
            build_failed(b, &e);
            return;
        }
        struct stage *s = build_stage(b);
        if (s->layers != NULL && json_array_size(s->layers) > BUILD_LAYERS_MAX) {
            if (build_flatten(b, &e) < 0)
                build_failed(b, &e);
            return;
        }
        bool is_again = b->is_again;
        b->is_again = false;
        if (!is_again) {
            b->current = take_next(b, &e);
            b->is_half_copied = false;
            (void)json_object_clear(b->urls);
        }
        if (b->current == NULL && e.code != ERR_OK) {
            build_failed(b, &e);
            return;
        }
        if (b->current == NULL) {
            if (next_stage(b))
                continue;
            if (json_array_size(b->stages[b->target].layers) > 0)
                break;
            /* An image must have a layer, if only one with its root. */
            (void)build_make_dir(b, "/", NULL, &e);
            return;
        }
        if (!is_again)
            announce(b);
        r = build_fetch_sources(b, b->current, &e);
        if (r == 0)
            r = begin_step(b, b->current, &e);
        if (r < 0) {
            build_failed(b, &e);
            return;
        }
        if (r == 0)                     /* others have their turn between two steps of a long file */
            build_step_done(b);
        return;
    }
    end_built(b);
}

/* --- begin ---------------------------------------------------------------------------------------------------------------- */

static void on_cancel(void *ctx)
{
    struct build *b = ctx;

    if (b->pull != NULL)
        image_pull_cancel(b->pull);
    else if (b->run != NULL)
        build_run_cancel(b);
    else if (b->fetch != NULL)
        build_fetch_cancel(b);
    else if (b->call != NULL)
        build_copy_cancel(b);
}

static struct build *build_new(struct core *c, const struct build_spec *spec)
{
    struct build *b = mem_zalloc(sizeof *b);

    b->core = c;
    b->sizes = json_array();
    b->temporary = json_array();
    b->global_args = json_object();
    b->urls = json_object();
    b->given_args = spec->args != NULL ? json_deep_copy(spec->args) : json_object();
    b->secrets = spec->secrets != NULL ? json_deep_copy(spec->secrets) : json_object();
    b->bases = spec->bases != NULL ? json_deep_copy(spec->bases) : json_object();
    b->labels = spec->labels != NULL ? json_deep_copy(spec->labels) : NULL;
    (void)snprintf(b->context, sizeof b->context, "%s", spec->context != NULL ? spec->context : "");
    (void)snprintf(b->image, sizeof b->image, "%s", spec->image != NULL ? spec->image : "");
    b->network = json_deep_copy(spec->network != NULL ? spec->network : core_build_network(c));
    registry_auth_copy(&b->auth, spec->auth);
    b->secret_env = spec->secret_env;
    b->no_cache = spec->no_cache;
    b->refresh = spec->refresh;
    b->whole_context = spec->whole_context;
    b->step_timeout_ms = spec->step_timeout_ms != 0 ? spec->step_timeout_ms : BUILD_STEP_TIMEOUT_S * 1000LL;
    b->memory_mb = spec->memory_mb;
    b->disk_mb = spec->disk_mb;
    b->cpu_milli = spec->cpu_milli;
    return b;
}

static int prepare(struct build *b, const struct build_spec *spec, struct err *e)
{
    char name[IMAGE_REF_SIZE];

    if (spec->name != NULL) {
        if (image_name_normalize(spec->name, name, e) < 0)
            return -1;
        b->name = mem_strdup(name);
    }
    if (!network_is_blocked(b->network)) {
        struct policy policy;
        if (policy_from_json(b->network, &policy, e) < 0)
            return -1;
        policy_done(&policy);
    }
    if (df_parse(spec->dockerfile, spec->dockerfile_len, &b->file, e) < 0)
        return -1;
    b->stage = SIZE_MAX;                /* no stage yet: variables are the global ones */
    if (build_find_stages(b, e) < 0 || build_choose_target(b, spec->target, e) < 0)
        return -1;
    b->stage = 0;
    while (!b->stages[b->stage].is_needed)
        b->stage++;
    b->at = b->stages[b->stage].from;
    return 0;
}

int build_begin(struct core *c, const struct build_spec *spec, char ret_operation[ID_SIZE], struct err *e)
{
    struct build *b = build_new(c, spec);

    if (prepare(b, spec, e) < 0 || (b->context[0] != '\0' && image_context_take(c, b->context, e) < 0)) {
        build_free(b);
        return -1;
    }
    auto_json *request = json_object();
    (void)json_object_set_new(request, "name", js_string_or_null(b->name));
    (void)json_object_set_new(request, "target", js_string_or_null(spec->target));
    (void)json_object_set_new(request, "steps", json_integer((json_int_t)b->nsteps));
    b->operation = operation_begin(c, spec->kind, spec->image != NULL ? spec->image : "", request, e);
    if (b->operation == NULL) {
        struct err ignored;
        (void)store_layer_release(core_store(c), b->context, &ignored);
        build_free(b);
        return -1;
    }
    memcpy(ret_operation, operation_id(b->operation), ID_SIZE);
    operation_on_cancel(b->operation, on_cancel, b);
    image_hold(c);
    loop_defer(core_loop(c), next_deferred, b);
    return 0;
}

int build_check(const char *dockerfile, size_t n, struct err *e)
{
    struct df_file f;

    if (df_parse(dockerfile, n, &f, e) < 0)
        return -1;
    df_done(&f);
    return 0;
}
