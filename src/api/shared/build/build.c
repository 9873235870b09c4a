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

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static void next(struct build *b);

struct stage *build_stage(struct build *b)
{
    return &b->stages[b->stage];
}

/* --- variables -------------------------------------------------------------------------------------------------------------- */

static const char *machine(void)
{
#if defined(__aarch64__)
    return "arm64";
#else
    return "amd64";
#endif
}

static const char *predefined(const char *name)
{
    if (strcmp(name, "TARGETPLATFORM") == 0 || strcmp(name, "BUILDPLATFORM") == 0)
        return strcmp(machine(), "arm64") == 0 ? "linux/arm64" : "linux/amd64";
    if (strcmp(name, "TARGETOS") == 0 || strcmp(name, "BUILDOS") == 0)
        return "linux";
    if (strcmp(name, "TARGETARCH") == 0 || strcmp(name, "BUILDARCH") == 0)
        return machine();
    return NULL;
}

const char *build_lookup(void *ctx, const char *text, size_t n)
{
    struct build *b = ctx;
    const struct stage *s = b->stage < b->nstages ? build_stage(b) : NULL;
    auto_free char *name = mem_strndup(text, n);
    const json_t *v = NULL;

    if (s != NULL && s->env != NULL) {
        v = json_object_get(s->env, name);
        if (v == NULL)
            v = json_object_get(s->args, name);
    } else {
        v = json_object_get(b->global_args, name);      /* in FROM */
        if (v == NULL)
            return predefined(name);
    }
    return json_string_value(v);
}

char *build_expand(struct build *b, const char *text, struct err *e)
{
    const struct df_shell sh = {.escape = b->file.escape, .lookup = build_lookup, .ctx = b};

    return df_expand(&sh, text, e);
}

char *build_path(const struct stage *s, const char *path)
{
    const char *dir = json_string_value(json_object_get(s->config, "WorkingDir"));

    if (*path == '/')
        return mem_strdup(path);
    return mem_printf("%s%s%s", dir != NULL ? dir : "/", dir != NULL && dir[strlen(dir) - 1] == '/' ? "" : dir != NULL ? "/" : "", path);
}

/* --- the end ------------------------------------------------------------------------------------------------------------------ */

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
    json_decref(b->global_args);
    json_decref(b->given_args);
    json_decref(b->secrets);
    json_decref(b->bases);
    json_decref(b->labels);
    free(b->name);
    free(b->user);
    if (b->password != NULL)
        explicit_bzero(b->password, strlen(b->password));
    free(b->password);
    free(b->key);
    free(b);
}

/* Whatever no image and no step names is removed from the node in a while. */
static void release_layers(struct build *b)
{
    struct err ignored;
    json_t *item;
    size_t i;

    if (b->context[0] != '\0') {
        auto_free char *key = mem_printf(IMAGE_CONTEXT_KEY "%s", b->context);
        (void)store_step_remove(core_store(b->core), key, &ignored);
        (void)store_layer_release(core_store(b->core), b->context, &ignored);
    }
    json_array_foreach(b->sizes, i, item)
    {
        const char *layer = json_string_value(json_object_get(item, "layer"));
        if (layer != NULL && *layer != '\0')
            (void)store_layer_release(core_store(b->core), layer, &ignored);
    }
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
        if (json_object_get(st->config, "Labels") == NULL)
            (void)json_object_set_new(st->config, "Labels", json_object());
        (void)json_object_update(json_object_get(st->config, "Labels"), b->labels);
    }
    (void)json_object_set_new(whole, "architecture", json_string(machine()));
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

/* --- layers ------------------------------------------------------------------------------------------------------------------ */

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

/* --- FROM ---------------------------------------------------------------------------------------------------------------------- */

struct stage *build_find_stage(struct build *b, const char *name, bool before_only)
{
    size_t end = before_only ? b->stage : b->nstages;
    char *rest;

    for (size_t i = 0; i < end; i++)
        if (b->stages[i].name[0] != '\0' && strcasecmp(b->stages[i].name, name) == 0)
            return &b->stages[i];
    unsigned long n = strtoul(name, &rest, 10);
    return *name >= '0' && *name <= '9' && *rest == '\0' && n < end ? &b->stages[n] : NULL;
}

static void start_stage(struct stage *s, json_t *layers, json_t *config, json_t *env)
{
    json_t *shell = json_object_get(config, "Shell");

    s->layers = layers;
    s->config = config;
    s->env = env;
    s->args = json_object();
    s->shell = json_array_size(shell) > 0 ? json_incref(shell) : json_pack("[s, s]", "/bin/sh", "-c");
    json_t *triggers = json_object_get(config, "OnBuild");
    if (json_array_size(triggers) > 0)
        s->onbuild = json_incref(triggers);
    (void)json_object_del(config, "OnBuild");   /* they are for one generation */
}

/* The stage begins with the image. */
static int take_base(struct build *b, const char *id_or_name, struct err *e)
{
    auto_image_row row = {0};

    if (image_get(b->core, id_or_name, &row, e) < 0)
        return -1;
    auto_json *whole = js_parse(row.config, strlen(row.config), 4 * LIMIT_JSON_BODY, e);
    json_t *env = js_parse(row.env, strlen(row.env), 4 * LIMIT_JSON_BODY, e);
    json_t *layers = js_parse(row.layers, strlen(row.layers), LIMIT_JSON_BODY, e);
    if (whole == NULL || env == NULL || layers == NULL) {
        json_decref(env);
        json_decref(layers);
        return err_wrap(e, "image %s", row.id);
    }
    json_t *config = json_is_object(json_object_get(whole, "config")) ? json_deep_copy(json_object_get(whole, "config")) : json_object();
    if (row.workdir != NULL)
        (void)json_object_set_new(config, "WorkingDir", json_string(row.workdir));
    if (row.user != NULL)
        (void)json_object_set_new(config, "User", json_string(row.user));
    (void)json_object_del(config, "Env");
    if (json_object_get(env, "PATH") == NULL)
        (void)json_object_set_new(env, "PATH", json_string(DEFAULT_PATH));
    start_stage(build_stage(b), layers, config, env);
    return 0;
}

static void on_pull_line(void *ctx, const char *text)
{
    struct build *b = ctx;

    operation_log_text(b->operation, text, strlen(text));
}

static void on_pulled(void *ctx, const char *image, const struct err *e)
{
    struct build *b = ctx;
    struct err local;

    b->pull = NULL;
    if (e == NULL && take_base(b, image, &local) < 0)
        e = &local;
    if (e != NULL)
        build_failed(b, e);
    else
        build_step_done(b);
}

static int pull_base(struct build *b, const char *ref, struct err *e)
{
    const struct image_pull_spec spec = {.ref = ref, .refresh = b->refresh, .user = b->user, .password = b->password};

    operation_log(b->operation, "pulling %s", ref);
    b->pull = image_pull_begin(b->core, &spec, on_pull_line, on_pulled, b, e);
    return b->pull != NULL ? 1 : -1;
}

static int from(struct build *b, const struct df_instruction *in, const json_t *words, struct err *e)
{
    static const char *const names[] = {"platform"};
    auto_free char *name = build_expand(b, json_string_value(json_array_get(words, 0)), e);
    auto_image_row row = {0};
    struct err ignored;

    if (df_check_flags(in, names, array_len(names), e) < 0 || name == NULL)
        return -1;
    if (*name == '\0')
        return df_fail(in, e, "the name of the image is empty");
    const struct stage *s = build_find_stage(b, name, true);
    if (s != NULL && s->is_done) {
        start_stage(build_stage(b), json_deep_copy(s->layers), json_deep_copy(s->config), json_deep_copy(s->env));
        return 0;
    }
    if (strcmp(name, "scratch") == 0) {
        start_stage(build_stage(b), json_array(), json_object(), json_pack("{s:s}", "PATH", DEFAULT_PATH));
        return 0;
    }
    const char *mapped = json_string_value(json_object_get(b->bases, name));
    if (mapped != NULL)
        return take_base(b, mapped, e);
    if (!b->refresh && image_get(b->core, name, &row, &ignored) == 0)
        return take_base(b, row.id, e);
    return pull_base(b, name, e);
}

/* --- stages ------------------------------------------------------------------------------------------------------------------- */

static json_t *from_words(struct build *b, const struct df_instruction *in, struct err *e)
{
    const struct df_shell sh = {.escape = b->file.escape};
    auto_json *words = df_words(&sh, in->text, e);

    if (words == NULL)
        return NULL;
    size_t n = json_array_size(words);
    if (n != 1 && !(n == 3 && strcasecmp(json_string_value(json_array_get(words, 1)), "as") == 0)) {
        (void)df_fail(in, e, "it is: FROM image [AS name]");
        return NULL;
    }
    return take_ptr(&words);
}

static int global_arg(struct build *b, const struct df_instruction *in, struct err *e)
{
    const struct df_shell sh = {.escape = b->file.escape, .lookup = build_lookup, .ctx = b};
    auto_json *words = df_words(&sh, in->text, e);
    json_t *word;
    size_t i;

    if (words == NULL)
        return -1;
    json_array_foreach(words, i, word)
    {
        const char *text = json_string_value(word), *eq = strchr(text, '=');
        auto_free char *name = mem_strndup(text, eq != NULL ? (size_t)(eq - text) : strlen(text));
        json_t *given = json_object_get(b->given_args, name);
        if (given != NULL)
            (void)json_object_set(b->global_args, name, given);
        else if (eq != NULL)
            (void)json_object_set_new(b->global_args, name, json_string(eq + 1));
    }
    return 0;
}

static int add_stage(struct build *b, size_t at, struct err *e)
{
    auto_json *words = from_words(b, &b->file.list[at], e);

    if (words == NULL)
        return -1;
    const char *name = json_array_size(words) == 3 ? json_string_value(json_array_get(words, 2)) : "";
    b->stages = mem_realloc(b->stages, (b->nstages + 1) * sizeof *b->stages);
    memset(&b->stages[b->nstages], 0, sizeof *b->stages);
    b->stages[b->nstages].name = mem_strdup(name);
    b->stages[b->nstages].from = at;
    b->nstages++;
    return 0;
}

static int find_stages(struct build *b, struct err *e)
{
    for (size_t i = 0; i < b->file.n; i++) {
        const struct df_instruction *in = &b->file.list[i];
        if (in->kind == DF_FROM && add_stage(b, i, e) < 0)
            return -1;
        if (b->nstages == 0 && in->kind != DF_ARG)
            return df_fail(in, e, "the first instruction must be FROM (or ARG)");
        if (b->nstages == 0 && global_arg(b, in, e) < 0)
            return -1;
        if (b->nstages > 0)
            b->stages[b->nstages - 1].end = i + 1;
    }
    if (b->nstages == 0)
        return err_set(e, ERR_INVALID, "line 1: there is no FROM");
    return 0;
}

/* The stages that a stage is made of, marked with itself. */
static void mark(struct build *b, size_t at)
{
    struct stage *s = &b->stages[at];
    struct err ignored;

    if (s->is_needed)
        return;
    s->is_needed = true;
    b->stage = at;
    for (size_t i = s->from; i < s->end; i++) {
        const struct df_instruction *in = &b->file.list[i];
        auto_json *words = in->kind == DF_FROM ? from_words(b, in, &ignored) : NULL;
        const char *name = words != NULL ? json_string_value(json_array_get(words, 0)) : df_flag(in, "from");
        b->stage = at;
        const struct stage *other = name != NULL ? build_find_stage(b, name, true) : NULL;
        if (other != NULL)
            mark(b, (size_t)(other - b->stages));
    }
    b->nsteps += s->end - s->from;
}

static int choose_target(struct build *b, const char *target, struct err *e)
{
    b->target = b->nstages - 1;
    if (target != NULL) {
        const struct stage *s = build_find_stage(b, target, false);
        if (s == NULL)
            return err_param(e, ERR_NOT_FOUND, "target", "the Dockerfile has no stage '%.60s'", target);
        b->target = (size_t)(s - b->stages);
    }
    mark(b, b->target);
    return 0;
}

/* --- steps -------------------------------------------------------------------------------------------------------------------- */

/* 0 = done, 1 = it goes on and reports itself, -1. */
static int begin_step(struct build *b, const struct df_instruction *in, struct err *e)
{
    switch (in->kind) {
    case DF_FROM: {
        auto_json *words = from_words(b, in, e);
        return words != NULL ? from(b, in, words, e) : -1;
    }
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
        b->current = take_next(b, &e);
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
        announce(b);
        r = begin_step(b, b->current, &e);
        if (r < 0) {
            build_failed(b, &e);
            return;
        }
        if (r > 0)
            return;
        free(b->key);
        b->key = NULL;
    }
    end_built(b);
}

/* --- begin -------------------------------------------------------------------------------------------------------------------- */

static void on_cancel(void *ctx)
{
    struct build *b = ctx;

    if (b->pull != NULL)
        image_pull_cancel(b->pull);
    else if (b->run != NULL)
        build_run_cancel(b);
    /* A copy is short; the next step is not begun. */
}

static struct build *build_new(struct core *c, const struct build_spec *spec)
{
    struct build *b = mem_zalloc(sizeof *b);

    b->core = c;
    b->sizes = json_array();
    b->global_args = json_object();
    b->given_args = spec->args != NULL ? json_deep_copy(spec->args) : json_object();
    b->secrets = spec->secrets != NULL ? json_deep_copy(spec->secrets) : json_object();
    b->bases = spec->bases != NULL ? json_deep_copy(spec->bases) : json_object();
    b->labels = spec->labels != NULL ? json_deep_copy(spec->labels) : NULL;
    (void)snprintf(b->context, sizeof b->context, "%s", spec->context != NULL ? spec->context : "");
    (void)snprintf(b->image, sizeof b->image, "%s", spec->image != NULL ? spec->image : "");
    b->user = spec->user != NULL ? mem_strdup(spec->user) : NULL;
    b->password = spec->password != NULL ? mem_strdup(spec->password) : NULL;
    b->no_cache = spec->no_cache;
    b->refresh = spec->refresh;
    b->step_timeout_ms = spec->step_timeout_ms != 0 ? spec->step_timeout_ms : BUILD_STEP_TIMEOUT_S * 1000LL;
    b->memory_mb = spec->memory_mb;
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
    if (df_parse(spec->dockerfile, spec->dockerfile_len, &b->file, e) < 0)
        return -1;
    b->stage = SIZE_MAX;                /* no stage yet: variables are the global ones */
    if (find_stages(b, e) < 0 || choose_target(b, spec->target, e) < 0)
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

    if (prepare(b, spec, e) < 0) {
        build_free(b);
        return -1;
    }
    auto_json *request = json_object();
    (void)json_object_set_new(request, "name", js_string_or_null(b->name));
    (void)json_object_set_new(request, "target", js_string_or_null(spec->target));
    (void)json_object_set_new(request, "steps", json_integer((json_int_t)b->nsteps));
    b->operation = operation_begin(c, spec->kind, spec->image != NULL ? spec->image : "", request, e);
    if (b->operation == NULL) {
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
