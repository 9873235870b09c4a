/*
 * run_spec.c - RUN: command, environment and key out of the instruction
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/run.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/policy_json.h"

/* The command as an array: the exec form, or the shell with the text and its here-documents. */
static json_t *command_of(struct build *b, const struct df_instruction *in)
{
    struct buf text;
    json_t *argv;

    if (in->json != NULL)
        return json_incref(in->json);
    buf_init(&text, 2 * DF_TEXT_MAX);
    const char *script = in->nheredocs == 1 ? in->heredocs[0].text : NULL;
    bool alone = script != NULL && strncmp(in->text, "<<", 2) == 0 && strpbrk(in->text, " \t;|&>") == NULL;
    if (alone && strncmp(script, "#!", 2) == 0) {
        /* Its own interpreter: a file, for as long as it runs. */
        (void)buf_addf(&text, "f=$(mktemp) && cat >\"$f\" <<'__END_OF_SCRIPT__' && chmod 700 \"$f\"\n%s__END_OF_SCRIPT__\n",
                       script);
        (void)buf_adds(&text, "\"$f\"; r=$?; rm -f \"$f\"; exit $r");
    } else if (alone) {
        (void)buf_adds(&text, script);
    } else {
        (void)buf_adds(&text, in->text);
        for (size_t i = 0; i < in->nheredocs; i++)
            (void)buf_addf(&text, "\n%s%s", in->heredocs[i].text, in->heredocs[i].name);
        if (in->nheredocs > 0)
            (void)buf_addc(&text, '\n');
    }
    argv = json_deep_copy(build_stage(b)->shell);
    (void)json_array_append_new(argv, js_string_lossy(buf_str(&text)));
    buf_done(&text);
    return argv;
}

static json_t *environment(struct build *b)
{
    const struct stage *s = build_stage(b);
    json_t *env = json_deep_copy(s->args);

    (void)json_object_update(env, s->env);
    return env;
}

/* Given without an ARG they are for RUN alone: they say how to get out here, and change nothing of what comes of it. */
static void add_proxies(const struct build *b, json_t *env)
{
    static const char *const names[] = {"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy",
                                        "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"};

    for (size_t i = 0; i < array_len(names); i++) {
        json_t *given = json_object_get(b->given_args, names[i]);
        if (given != NULL && json_object_get(env, names[i]) == NULL)
            (void)json_object_set(env, names[i], given);
    }
}

static int read_network(struct run *r, struct err *e)
{
    const struct df_instruction *in = r->in;
    const struct build *b = r->build;
    const char *mode = df_flag(in, "network"), *security = df_flag(in, "security");

    if (security != NULL && strcmp(security, "sandbox") != 0)
        return df_fail(in, e, "--security=%.40s is not there: every RUN is in a sandbox", security);
    if (mode != NULL && strcmp(mode, "host") == 0)
        return df_fail(in, e, "--network=host is not there: a RUN has a network of its own, with the build's policy");
    if (mode != NULL && strcmp(mode, "none") != 0 && strcmp(mode, "default") != 0)
        return df_fail(in, e, "--network is none or default, not '%.40s'", mode);
    r->is_blocked = network_is_blocked(b->network) || (mode != NULL && strcmp(mode, "none") == 0);
    return 0;
}

/* What the result depends on. */
char *run_key(const struct run *r)
{
    const struct stage *s = build_stage(r->build);
    auto_json *o = json_pack("{s:s, s:O, s:O, s:O}", "version", BUILD_VERSION, "layers", s->layers, "argv", r->argv, "env",
                             r->env);
    json_t *mounts = json_array();
    uint8_t sum[SHA256_SIZE];
    struct sha256 hash;

    for (size_t i = 0; i < r->nmounts; i++)
        (void)json_array_append_new(mounts, mount_key(&r->mounts[i]));
    (void)json_object_set_new(o, "mounts", mounts);
    (void)json_object_set_new(o, "workdir", js_string_or_null(json_string_value(json_object_get(s->config, "WorkingDir"))));
    (void)json_object_set_new(o, "user", js_string_or_null(json_string_value(json_object_get(s->config, "User"))));
    (void)json_object_set_new(o, "network", json_boolean(!r->is_blocked));
    auto_free char *text = js_text(o, true);
    char *key = mem_alloc(SHA256_HEX_SIZE);
    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end(&hash, sum);
    sha256_hex(sum, key);
    return key;
}

void run_add_unkeyed(struct run *r)
{
    add_proxies(r->build, r->env);
    for (size_t i = 0; i < r->nmounts; i++) {
        const struct mount *m = &r->mounts[i];
        if (m->type == MOUNT_SECRET && m->env != NULL && m->secret != NULL)
            (void)json_object_set_new(r->env, m->env, json_string(m->secret));
    }
    if (r->build->secret_env)
        (void)json_object_update_missing(r->env, r->build->secrets);
}

int run_read(struct run *r, struct err *e)
{
    static const char *const names[] = {"mount", "network", "security"};
    const struct df_instruction *in = r->in;

    if (df_check_flags(in, names, array_len(names), e) < 0 || read_network(r, e) < 0)
        return -1;
    for (size_t i = 0; i < in->nflags; i++) {
        if (strcmp(in->flags[i].name, "mount") != 0)
            continue;
        if (r->nmounts == RUN_MOUNTS_MAX)
            return df_fail(in, e, "more than %d mounts", RUN_MOUNTS_MAX);
        if (mount_read(r->build, in, in->flags[i].value, &r->mounts[r->nmounts], e) < 0)
            return -1;
        const struct mount *m = &r->mounts[r->nmounts++];
        r->has_files = r->has_files || (m->type == MOUNT_SECRET && m->target != NULL && m->secret != NULL);
    }
    r->argv = command_of(r->build, in);
    r->env = environment(r->build);
    return 0;
}
