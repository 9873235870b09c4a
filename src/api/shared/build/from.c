/*
 * from.c - FROM: another stage, nothing, an image that is here, or one that is pulled; images that COPY and mounts take
 * files from
 */
#include <string.h>

#include "api/shared/build/internal.h"
#include "base/mem.h"
#include "core/image.h"
#include "core/image_config.h"

#define SOURCE_MISSING "from names neither a stage before it nor an image that is here: "
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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
    const json_t *own = json_object_get(whole, "config");
    if (image_config_kinds(own, e) < 0) {
        json_decref(env);
        json_decref(layers);
        return err_wrap(e, "image %s", row.id);
    }
    json_t *config = json_is_object(own) ? json_deep_copy(own) : json_object();
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
    const struct image_pull_spec spec = {.ref = ref, .refresh = b->refresh, .auth = &b->auth};

    operation_log(b->operation, "pulling %s", ref);
    b->pull = image_pull_begin(b->core, &spec, on_pull_line, on_pulled, b, e);
    return b->pull != NULL ? 1 : -1;
}

int build_from(struct build *b, const struct df_instruction *in, struct err *e)
{
    static const char *const names[] = {"platform"};
    auto_json *words = build_from_words(b, in, e);
    auto_image_row row = {0};
    struct err ignored;

    if (words == NULL || df_check_flags(in, names, array_len(names), e) < 0)
        return -1;
    auto_free char *name = build_expand(b, json_string_value(json_array_get(words, 0)), e);
    if (name == NULL)
        return -1;
    if (*name == '\0')
        return df_fail(in, e, "the name of the image is empty");
    const struct stage *s = build_find_stage(b, name, true);
    if (s != NULL && s->is_done) {
        if (build_charge(b, json_dumpb(s->config, NULL, 0, 0) + json_dumpb(s->env, NULL, 0, 0), e) < 0)
            return -1;
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

/* --- images that files are taken from ------------------------------------------------------------------------------------- */

/* From here on the name stands for it; the instruction is begun again. */
static void on_source_pulled(void *ctx, const char *image, const struct err *e)
{
    struct build *b = ctx;

    b->pull = NULL;
    if (e != NULL) {
        struct err why;
        (void)df_fail(b->current, &why, SOURCE_MISSING "'%.80s' cannot be pulled: %.160s", b->source, e->message);
        build_failed(b, &why);
        return;
    }
    (void)json_object_set_new(b->bases, b->source, json_string(image));
    b->is_again = true;
    build_step_done(b);
}

/* 1 = it is being pulled, 0 = it is here or cannot be one. */
static int fetch(struct build *b, const char *from, struct err *e)
{
    auto_free char *name = build_expand(b, from, e);
    auto_image_row row = {0};
    struct err ignored;

    if (name == NULL)
        return -1;
    if (*name == '\0' || build_find_stage(b, name, true) != NULL || json_object_get(b->bases, name) != NULL ||
        image_get(b->core, name, &row, &ignored) == 0 || id_is(name, "im-"))
        return 0;
    /* The password is for the registry of FROM, and no other one is to see it; what was given by registries is not shown to
     * a wrong one. */
    const struct registry_auth by_registry = {.auths = b->auth.auths};
    const struct image_pull_spec spec = {.ref = name, .auth = &by_registry};
    operation_log(b->operation, "pulling %s", name);
    b->pull = image_pull_begin(b->core, &spec, on_pull_line, on_source_pulled, b, e);
    free(b->source);
    b->source = take_ptr(&name);
    return b->pull != NULL ? 1 : -1;
}

int build_fetch_sources(struct build *b, const struct df_instruction *in, struct err *e)
{
    const char *copied = in->kind == DF_COPY ? df_flag(in, "from") : NULL;
    int r = copied != NULL ? fetch(b, copied, e) : 0;

    for (size_t i = 0; r == 0 && in->kind == DF_RUN && i < in->nflags; i++) {
        auto_free char *from = strcmp(in->flags[i].name, "mount") == 0 ? build_mount_from(in->flags[i].value) : NULL;
        r = from != NULL ? fetch(b, from, e) : 0;
    }
    if (r >= 0)
        return r;
    const struct err why = *e;
    return df_fail(in, e, SOURCE_MISSING "%.200s", why.message);
}
