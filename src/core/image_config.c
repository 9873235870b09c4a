/*
 * image_config.c - configurations of images
 */
#include "core/image_config.h"

#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "base/mem.h"
#include "core/life.h"

#define CONFIG_MAX (2U << 20)

/* "NAME=value" items as an object; the last of a name counts. */
static json_t *read_env(const json_t *list, struct err *e)
{
    auto_json *env = json_object();
    json_t *item;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, item)
    {
        const char *text = json_string_value(item);
        const char *eq = text != NULL ? strchr(text, '=') : NULL;
        if (eq == NULL || eq == text || strlen(text) != json_string_length(item)) {
            err_set(e, ERR_INVALID, "variable %zu of the image's configuration is not of the form NAME=value", i);
            return NULL;
        }
        auto_free char *name = mem_strndup(text, (size_t)(eq - text));
        (void)json_object_set_new(env, name, json_string(eq + 1));
    }
    return take_ptr(&env);
}

static const char *text_of(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);

    return json_is_string(v) && json_string_length(v) > 0 ? json_string_value(v) : NULL;
}

enum kind { TEXT, TEXTS, OBJECT, OBJECT_OF_TEXTS };

static bool is_list_of_texts(const json_t *list)
{
    json_t *item;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, item)
        if (!json_is_string(item))
            return false;
    return json_is_array(list);
}

static bool is_object_of(const json_t *o, bool texts)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)o, key, value)
        if (texts && !json_is_string(value))
            return false;
    return json_is_object(o);
}

static bool is_of(const json_t *v, enum kind kind)
{
    switch (kind) {
    case TEXT:
        return json_is_string(v);
    case TEXTS:
        return is_list_of_texts(v);
    case OBJECT:
    case OBJECT_OF_TEXTS:
    default:
        return is_object_of(v, kind == OBJECT_OF_TEXTS);
    }
}

int image_config_kinds(const json_t *config, struct err *e)
{
    static const char *const names[] = {"a text", "a list of texts", "an object", "an object of texts"};
    static const struct {
        const char *key;
        enum kind kind;
    } fields[] = {
        {"Cmd", TEXTS},           {"Entrypoint", TEXTS}, {"Env", TEXTS},
        {"OnBuild", TEXTS},       {"Shell", TEXTS},      {"User", TEXT},
        {"WorkingDir", TEXT},     {"StopSignal", TEXT},  {"Labels", OBJECT_OF_TEXTS},
        {"ExposedPorts", OBJECT}, {"Volumes", OBJECT},   {"Healthcheck", OBJECT},
    };

    if (config != NULL && !json_is_null(config) && !json_is_object(config))
        return err_set(e, ERR_INVALID, "'config' in the image's configuration is not an object");
    for (size_t i = 0; i < array_len(fields); i++) {
        const json_t *v = json_object_get(config, fields[i].key);
        if (v != NULL && !json_is_null(v) && !is_of(v, fields[i].kind))
            return err_set(e, ERR_INVALID, "'%s' in the image's configuration is not %s", fields[i].key, names[fields[i].kind]);
    }
    return 0;
}

int image_config_apply(const json_t *whole, struct image_row *row, struct err *e)
{
    const json_t *config = json_object_get(whole, "config");
    auto_json *env = image_config_kinds(config, e) < 0 ? NULL : read_env(json_object_get(config, "Env"), e);
    auto_free char *workdir = NULL;

    if (env == NULL)
        return -1;
    if (js_has_nul(whole))
        return err_set(e, ERR_INVALID, "there is a NUL in a text of the image's configuration");
    const char *dir = text_of(config, "WorkingDir");
    /* Some builders write it without the slash that it must have. */
    if (dir != NULL)
        workdir = mem_printf("%s%s", dir[0] == '/' ? "" : "/", dir);
    const struct sandbox_spec spec = {
        .image = "", .app = "default", .env = env, .workdir = workdir, .user = text_of(config, "User")};
    if (spec_check(&spec, e) < 0)
        return err_wrap(e, "configuration of the image");
    auto_free char *text = js_text(whole, false);
    if (strlen(text) > CONFIG_MAX)
        return err_set(e, ERR_TOO_LARGE,
                       "the image's configuration has %zu bytes, at most %u are accepted",
                       strlen(text), CONFIG_MAX);
    row->env = js_text(env, false);
    row->workdir = take_ptr(&workdir);
    row->user = spec.user != NULL ? mem_strdup(spec.user) : NULL;
    row->config = take_ptr(&text);
    return 0;
}

int image_config_read(const char *text, struct image_row *row, struct err *e)
{
    auto_json *whole = js_parse(text, strlen(text), CONFIG_MAX, e);

    if (whole == NULL)
        return err_wrap(e, "configuration of the image");
    return image_config_apply(whole, row, e);
}

/* --- the other way ---------------------------------------------------------------------------- */

static void set_text(json_t *o, const char *key, const char *text)
{
    if (text != NULL && *text != '\0')
        (void)json_object_set_new(o, key, json_string(text));
    else
        (void)json_object_del(o, key);
}

static json_t *env_list(const struct image_row *row)
{
    auto_json *env = row->env != NULL ? json_loads(row->env, 0, NULL) : NULL;
    json_t *list = json_array(), *value;
    const char *key;

    json_object_foreach(env, key, value) {
        auto_free char *text = mem_printf("%s=%s", key, json_string_value(value));
        (void)json_array_append_new(list, json_string(text));
    }
    return list;
}

/* As image configurations have it, RFC 3339. */
static json_t *time_text(int64_t us)
{
    char text[40];
    time_t seconds = (time_t)(us / 1000000);
    struct tm tm;

    if (gmtime_r(&seconds, &tm) == NULL || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        return json_string("1970-01-01T00:00:00Z");
    return json_string(text);
}

/* The history of an image whose layers have been made into fewer is not that of its layers any more. */
static bool is_history_of(const json_t *history, size_t nlayers)
{
    size_t i, n = 0;
    json_t *step;

    json_array_foreach((json_t *)(uintptr_t)history, i, step)
        n += json_is_true(json_object_get(step, "empty_layer")) ? 0 : 1;
    return n == nlayers;
}

json_t *image_config_make(const struct image_row *row, size_t nlayers)
{
    json_t *whole = row->config != NULL && row->config[0] != '\0' ? json_loads(row->config, 0, NULL) : NULL;

    if (!json_is_object(whole)) {
        json_decref(whole);
        whole = json_object();
    }
    json_t *config = json_object_get(whole, "config");
    if (!json_is_object(config)) {
        config = json_object();
        (void)json_object_set_new(whole, "config", config);
    }
    auto_json *env = env_list(row);
    if (json_array_size(env) > 0)
        (void)json_object_set(config, "Env", env);
    else
        (void)json_object_del(config, "Env");
    set_text(config, "WorkingDir", row->workdir);
    set_text(config, "User", row->user);
    if (!json_is_string(json_object_get(whole, "created")))
        (void)json_object_set_new(whole, "created", time_text(row->created_us));
    if (!is_history_of(json_object_get(whole, "history"), nlayers))
        (void)json_object_del(whole, "history");
    return whole;
}
