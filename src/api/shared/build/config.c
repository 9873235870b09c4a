/*
 * config.c - instructions of a Dockerfile that change no file
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/internal.h"
#include "api/shared/signals.h"
#include "base/mem.h"

#define TEXT_BYTES_MAX (32U << 20)
#define PORT_BYTES 100          /* of one port in the configuration */

int build_charge(struct build *b, uint64_t n, struct err *e)
{
    b->text_bytes += n;
    return b->text_bytes <= TEXT_BYTES_MAX
               ? 0
               : err_set(
                     e, ERR_TOO_LARGE,
                     "variables, labels and ports of the build have more than %u bytes in all its stages",
                     TEXT_BYTES_MAX);
}

static json_t *member(json_t *o, const char *key, bool is_array)
{
    json_t *v = json_object_get(o, key);

    if (v == NULL || json_is_null(v)) {
        v = is_array ? json_array() : json_object();
        (void)json_object_set_new(o, key, v);
    }
    return v;
}

/* ENV and LABEL: pairs into an object. */
static int pairs(struct build *b, const struct df_instruction *in, json_t *into, struct err *e)
{
    const struct df_shell sh = {.escape = b->file.escape, .lookup = build_lookup, .ctx = b};
    auto_json *list = df_pairs(&sh, in->text, e);
    json_t *pair;
    size_t i;

    if (list == NULL)
        return -1;
    json_array_foreach(list, i, pair) {
        const json_t *name = json_array_get(pair, 0), *value = json_array_get(pair, 1);
        if (build_charge(b, json_string_length(name) + json_string_length(value), e) < 0)
            return -1;
        (void)json_object_set(into, json_string_value(name), json_array_get(pair, 1));
    }
    return 0;
}

static int arg(struct build *b, const struct df_instruction *in, struct err *e)
{
    const struct df_shell sh = {.escape = b->file.escape, .lookup = build_lookup, .ctx = b};
    auto_json *words = df_words(&sh, in->text, e);
    struct stage *s = build_stage(b);
    json_t *word;
    size_t i;

    if (words == NULL)
        return -1;
    json_array_foreach(words, i, word)
    {
        const char *text = json_string_value(word), *eq = strchr(text, '=');
        auto_free char *name = mem_strndup(text, eq != NULL ? (size_t)(eq - text) : strlen(text));
        json_t *given = json_object_get(b->given_args, name);
        json_t *global = json_object_get(b->global_args, name);
        if (*name == '\0')
            return df_fail(in, e, "an argument has no name");
        if (build_charge(b, json_string_length(word), e) < 0)
            return -1;
        if (given != NULL)
            (void)json_object_set(s->args, name, given);
        else if (eq != NULL)
            (void)json_object_set_new(s->args, name, json_string(eq + 1));
        else if (global != NULL)
            (void)json_object_set(s->args, name, global);
        else if (build_predefined(name) != NULL)
            (void)json_object_set_new(s->args, name, json_string(build_predefined(name)));
    }
    return 0;
}

/* CMD and ENTRYPOINT. */
static json_t *command(const struct stage *s, const struct df_instruction *in)
{
    if (in->json != NULL)
        return json_incref(in->json);
    if (*in->text == '\0')
        return json_array();
    json_t *list = json_deep_copy(s->shell);
    (void)json_array_append_new(list, js_string_lossy(in->text));
    return list;
}

/* "80", "80/udp", "8000-8010/tcp": each port is a key. */
static int expose(struct build *b, const struct df_instruction *in, const char *text, json_t *into, struct err *e)
{
    const char *slash = strchr(text, '/'), *kind = slash != NULL ? slash + 1 : "tcp";
    char *end = NULL;
    unsigned long first = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0, last = first;

    if (end != NULL && *end == '-')
        last = strtoul(end + 1, &end, 10);
    if (end == NULL || (*end != '\0' && end != slash) || first < 1 || last > 65535 || first > last)
        return df_fail(in, e, "'%.40s' is no port and no range of ports", text);
    if (strcmp(kind, "tcp") != 0 && strcmp(kind, "udp") != 0 && strcmp(kind, "sctp") != 0)
        return df_fail(in, e, "'%.40s' is neither tcp, udp nor sctp", kind);
    if (build_charge(b, (last - first + 1) * PORT_BYTES, e) < 0)
        return -1;
    for (unsigned long port = first; port <= last; port++) {
        auto_free char *name = mem_printf("%lu/%s", port, kind);
        (void)json_object_set_new(into, name, json_object());
    }
    return 0;
}

static int words_as_keys(struct build *b, const struct df_instruction *in, const char *key, struct err *e)
{
    const struct df_shell sh = {.escape = b->file.escape, .lookup = build_lookup, .ctx = b};
    auto_json *words = in->json != NULL ? json_incref(in->json) : df_words(&sh, in->text, e);
    json_t *into = member(build_stage(b)->config, key, false), *word;
    size_t i;

    if (words == NULL)
        return -1;
    json_array_foreach(words, i, word)
    {
        const char *text = json_string_value(word);
        if (in->kind != DF_EXPOSE)
            (void)json_object_set_new(into, text, json_object());
        else if (expose(b, in, text, into, e) < 0)
            return -1;
    }
    return 0;
}

/* Without empty, "." and ".." parts, by the text alone. */
static char *clean_path(const char *path)
{
    char *out = mem_alloc(strlen(path) + 2);
    size_t n = 0;

    for (const char *at = path; *at != '\0';) {
        at += strspn(at, "/");
        size_t k = strcspn(at, "/");
        if (k == 2 && memcmp(at, "..", 2) == 0) {
            while (n > 0 && out[--n] != '/')
                ;
        } else if (k > 0 && !(k == 1 && *at == '.')) {
            out[n++] = '/';
            memcpy(out + n, at, k);
            n += k;
        }
        at += k;
    }
    if (n == 0)
        out[n++] = '/';
    out[n] = '\0';
    return out;
}

static int workdir(struct build *b, const struct df_instruction *in, struct err *e)
{
    struct stage *s = build_stage(b);
    auto_free char *text = build_expand(b, in->text, e);

    if (text == NULL)
        return -1;
    auto_free char *whole = build_path(s, text), *path = clean_path(whole);
    if (strlen(path) >= LIMIT_PATH)
        return df_fail(in, e, "the path is longer than %d bytes", LIMIT_PATH - 1);
    (void)json_object_set_new(s->config, "WorkingDir", js_string_lossy(path));
    const char *user = json_string_value(json_object_get(s->config, "User"));
    return build_make_dir(b, path, user != NULL && *user != '\0' ? user : NULL, e);
}

static int text_field(struct build *b, const struct df_instruction *in, const char *key, struct err *e)
{
    auto_free char *text = build_expand(b, in->text, e);

    if (text == NULL)
        return -1;
    (void)json_object_set_new(build_stage(b)->config, key, js_string_lossy(text));
    return 0;
}

static int stop_signal(struct build *b, const struct df_instruction *in, struct err *e)
{
    if (text_field(b, in, "StopSignal", e) < 0)
        return -1;
    const char *text = json_string_value(json_object_get(build_stage(b)->config, "StopSignal"));
    return signal_parse(text) > 0
               ? 0
               : df_fail(
                     in, e,
                     "'%.40s' is no signal: it is a name such as SIGTERM or a number from 1 to %d",
                     text, SIGNAL_MAX);
}

static int shell(struct stage *s, const struct df_instruction *in, struct err *e)
{
    if (in->json == NULL || json_array_size(in->json) == 0)
        return df_fail(in, e, "it needs the exec form: [\"program\", \"argument\"]");
    json_decref(s->shell);
    s->shell = json_incref(in->json);
    (void)json_object_set(s->config, "Shell", in->json);
    return 0;
}

static long long nanoseconds(const char *text)
{
    double total = 0;
    char *end;

    for (const char *at = text; *at != '\0'; at = end) {
        double v = strtod(at, &end);
        if (end == at || v < 0)
            return -1;
        double unit = strncmp(end, "ms", 2) == 0 ? 1e6 : *end == 's' ? 1e9 : *end == 'm' ? 60e9 : *end == 'h' ? 3600e9 : 0;
        if (unit == 0)
            return -1;
        end += unit == 1e6 ? 2 : 1;
        total += v * unit;
        if (!(total < 9e18))            /* nor one that is no number */
            return -1;
    }
    return (long long)total;
}

static int healthcheck(struct build *b, const struct df_instruction *in, struct err *e)
{
    static const char *const names[] = {"interval", "timeout", "start-period", "start-interval", "retries"};
    static const char *const keys[] = {"Interval", "Timeout", "StartPeriod", "StartInterval"};
    struct stage *s = build_stage(b);
    auto_json *check = json_object();
    struct df_file one;

    if (df_check_flags(in, names, array_len(names), e) < 0)
        return -1;
    for (size_t i = 0; i < array_len(keys); i++) {
        const char *value = df_flag(in, names[i]);
        if (value == NULL)
            continue;
        long long ns = nanoseconds(value);
        if (ns < 0)
            return df_fail(in, e, "--%s is '%.20s', which is no time such as 30s", names[i], value);
        (void)json_object_set_new(check, keys[i], json_integer(ns));
    }
    const char *retries = df_flag(in, "retries");
    if (retries != NULL) {
        size_t n = strspn(retries, "0123456789");
        if (n == 0 || n > 6 || retries[n] != '\0')
            return df_fail(in, e, "--retries is '%.20s', which is no number from 0 to 999999", retries);
        (void)json_object_set_new(check, "Retries", json_integer(strtol(retries, NULL, 10)));
    }
    if (strcasecmp(in->text, "none") == 0) {
        (void)json_object_set_new(check, "Test", json_pack("[s]", "NONE"));
    } else {
        if (df_parse_one(in->text, b->file.escape, &one, e) < 0 || one.n != 1 || one.list[0].kind != DF_CMD) {
            df_done(&one);
            return df_fail(in, e, "it is followed by CMD or NONE");
        }
        bool is_empty = one.list[0].json != NULL ? json_array_size(one.list[0].json) == 0 : *one.list[0].text == '\0';
        if (is_empty) {
            df_done(&one);
            return df_fail(in, e, "CMD needs a command behind it");
        }
        json_t *test = one.list[0].json != NULL ? json_pack("[s]", "CMD")
                                                : json_pack("[s, o]", "CMD-SHELL", js_string_lossy(one.list[0].text));
        if (one.list[0].json != NULL)
            (void)json_array_extend(test, one.list[0].json);
        (void)json_object_set_new(check, "Test", test);
        df_done(&one);
    }
    (void)json_object_set(s->config, "Healthcheck", check);
    return 0;
}

int build_config(struct build *b, const struct df_instruction *in, struct err *e)
{
    struct stage *s = build_stage(b);

    if (in->kind != DF_HEALTHCHECK && df_check_flags(in, NULL, 0, e) < 0)
        return -1;
    switch (in->kind) {
    case DF_ENV:
        return pairs(b, in, s->env, e);
    case DF_LABEL:
        return pairs(b, in, member(s->config, "Labels", false), e);
    case DF_ARG:
        return arg(b, in, e);
    case DF_CMD:
        (void)json_object_set_new(s->config, "Cmd", command(s, in));
        s->has_cmd = true;
        return 0;
    case DF_ENTRYPOINT:
        (void)json_object_set_new(s->config, "Entrypoint", command(s, in));
        if (!s->has_cmd)
            (void)json_object_del(s->config, "Cmd");    /* of the base, which was meant for another one */
        return 0;
    case DF_EXPOSE:
        return words_as_keys(b, in, "ExposedPorts", e);
    case DF_VOLUME:
        return words_as_keys(b, in, "Volumes", e);
    case DF_WORKDIR:
        return workdir(b, in, e);
    case DF_USER:
        return text_field(b, in, "User", e);
    case DF_STOPSIGNAL:
        return stop_signal(b, in, e);
    case DF_MAINTAINER:
        return 0;
    case DF_SHELL:
        return shell(s, in, e);
    case DF_HEALTHCHECK:
        return healthcheck(b, in, e);
    case DF_ONBUILD:
        (void)json_array_append_new(member(s->config, "OnBuild", true), js_string_lossy(in->text));
        return 0;
    case DF_ADD:
    case DF_COPY:
    case DF_FROM:
    case DF_RUN:
        break;
    }
    return err_set(e, ERR_INTERNAL, "%s is no instruction of the configuration", df_name(in->kind));
}
