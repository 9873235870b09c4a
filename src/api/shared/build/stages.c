/*
 * stages.c - stages of a Dockerfile: which there are, which the target needs, and the variables they see
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/shared/build/internal.h"
#include "base/mem.h"

/* --- variables ------------------------------------------------------------------------------------------------------------ */

const char *build_machine(void)
{
#if defined(__aarch64__)
    return "arm64";
#else
    return "amd64";
#endif
}

const char *build_predefined(const char *name)
{
    if (strcmp(name, "TARGETPLATFORM") == 0 || strcmp(name, "BUILDPLATFORM") == 0)
        return strcmp(build_machine(), "arm64") == 0 ? "linux/arm64" : "linux/amd64";
    if (strcmp(name, "TARGETOS") == 0 || strcmp(name, "BUILDOS") == 0)
        return "linux";
    if (strcmp(name, "TARGETARCH") == 0 || strcmp(name, "BUILDARCH") == 0)
        return build_machine();
    if (strcmp(name, "TARGETVARIANT") == 0 || strcmp(name, "BUILDVARIANT") == 0)
        return "";
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
            return build_predefined(name);
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
    if (dir == NULL || *dir == '\0')
        dir = "/";
    return mem_printf("%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", path);
}

/* --- stages --------------------------------------------------------------------------------------------------------------- */

struct stage *build_find_stage(struct build *b, const char *name, bool before_only)
{
    size_t end = before_only ? b->stage : b->nstages;
    char *rest;

    for (size_t i = end; i > 0; i--)    /* of two of a name the later one counts */
        if (b->stages[i - 1].name[0] != '\0' && strcasecmp(b->stages[i - 1].name, name) == 0)
            return &b->stages[i - 1];
    unsigned long n = strtoul(name, &rest, 10);
    return *name >= '0' && *name <= '9' && *rest == '\0' && n < end ? &b->stages[n] : NULL;
}

json_t *build_from_words(struct build *b, const struct df_instruction *in, struct err *e)
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
        if (build_charge(b, json_string_length(word), e) < 0)
            return -1;
        if (given != NULL)
            (void)json_object_set(b->global_args, name, given);
        else if (eq != NULL)
            (void)json_object_set_new(b->global_args, name, json_string(eq + 1));
    }
    return 0;
}

static bool is_stage_name(const char *name)
{
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return *name != '\0' && strchr(LETTERS, *name) != NULL && name[strspn(name, LETTERS "0123456789-_.")] == '\0';
#undef LETTERS
}

static int add_stage(struct build *b, size_t at, struct err *e)
{
    auto_json *words = build_from_words(b, &b->file.list[at], e);

    if (words == NULL)
        return -1;
    const char *name = json_array_size(words) == 3 ? json_string_value(json_array_get(words, 2)) : "";
    if (*name != '\0' && !is_stage_name(name))
        return df_fail(&b->file.list[at], e, "'%.60s' is no name of a stage: a letter, then letters, digits, '-', '_' and '.'",
                       name);
    b->stages = mem_realloc(b->stages, (b->nstages + 1) * sizeof *b->stages);
    memset(&b->stages[b->nstages], 0, sizeof *b->stages);
    b->stages[b->nstages].name = mem_strdup(name);
    b->stages[b->nstages].from = at;
    b->nstages++;
    return 0;
}

int build_find_stages(struct build *b, struct err *e)
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

static void mark_named(struct build *b, size_t at, const char *name)
{
    b->stage = at;
    struct stage *other = build_find_stage(b, name, true);
    if (other != NULL)
        other->is_needed = true;
}

char *build_mount_from(const char *value)
{
    while (value != NULL && strncmp(value, "from=", 5) != 0)
        value = (value = strchr(value, ',')) != NULL ? value + 1 : NULL;
    return value != NULL ? mem_strndup(value + 5, strcspn(value + 5, ",\"")) : NULL;
}

static void mark_mounts(struct build *b, size_t at, const struct df_instruction *in)
{
    for (size_t i = 0; i < in->nflags; i++) {
        auto_free char *name = strcmp(in->flags[i].name, "mount") == 0 ? build_mount_from(in->flags[i].value) : NULL;
        if (name != NULL)
            mark_named(b, at, name);
    }
}

/* The stages that a stage is made of, all of them before it. */
static void mark(struct build *b, size_t at)
{
    const struct stage *s = &b->stages[at];
    struct err ignored;

    for (size_t i = s->from; i < s->end; i++) {
        const struct df_instruction *in = &b->file.list[i];
        auto_json *words = in->kind == DF_FROM ? build_from_words(b, in, &ignored) : NULL;
        const char *name = words != NULL ? json_string_value(json_array_get(words, 0)) : df_flag(in, "from");
        if (name != NULL)
            mark_named(b, at, name);
        mark_mounts(b, at, in);
    }
    b->nsteps += s->end - s->from;
}

int build_choose_target(struct build *b, const char *target, struct err *e)
{
    b->target = b->nstages - 1;
    if (target != NULL) {
        const struct stage *s = build_find_stage(b, target, false);
        if (s == NULL)
            return err_param(e, ERR_NOT_FOUND, "target", "the Dockerfile has no stage '%.60s'", target);
        b->target = (size_t)(s - b->stages);
    }
    b->stages[b->target].is_needed = true;
    for (size_t at = b->target + 1; at > 0; at--)
        if (b->stages[at - 1].is_needed)
            mark(b, at - 1);
    return 0;
}
