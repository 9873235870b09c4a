/*
 * run.c - RUN: a sandbox whose entry point is the command; what it wrote becomes a layer
 *
 * The sandbox is of an image row that lives as long as the step: the layers so far. Its output goes to the log as it comes. Whatever
 * happens, sandbox and row are removed before the step is over.
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/internal.h"
#include "api/shared/exec_reader.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/image.h"
#include "core/policy_json.h"
#include "core/sandbox.h"
#include "ipc/monitor_proto.h"

#define WAIT_MS (60 * 1000)             /* of one question whether it has ended */
#define FOLD_TIMEOUT_MS (30ULL * 60 * 1000)
#define FOLD_RETRY_MS 100
#define FOLD_TRIES 300                  /* dying processes may hold the groups for a while */
#define LINE_MAX_BYTES 4096
#define MOUNTS_MAX 8

struct run {
    struct build *build;
    char image[ID_SIZE];                /* the row for the step, "" = none */
    char sandbox[ID_SIZE];              /* "" = none */
    struct exec_reader *readers[2];
    struct buf lines[2];                /* of an output, up to the next end of a line */
    bool is_read[2];                    /* to its end */
    bool has_ended, is_cancelled, is_creating;
    bool is_blocked;                    /* no network for this step */
    struct sandbox_wait *wait;
    struct loop_timer *timer;
    unsigned tries;
    json_t *exclude;                    /* paths of mounts; owned */
    char reason[24];
    int32_t code, signal;
    struct err failure;
    char layer[72];
    uint64_t bytes, files;
};

/* --- the end ---------------------------------------------------------------------------------------------------------------- */

static void run_free(struct run *r)
{
    for (int i = 0; i < 2; i++) {
        exec_reader_free(r->readers[i]);
        buf_done(&r->lines[i]);
    }
    sandbox_wait_cancel(r->wait);
    loop_timer_free(r->timer);
    json_decref(r->exclude);
    free(r);
}

static void finish(struct run *r)
{
    struct build *b = r->build;
    struct err failure = r->failure, ignored;

    if (r->image[0] != '\0')
        (void)image_remove(b->core, r->image, &ignored);
    if (failure.code == ERR_OK && store_step_put(core_store(b->core), b->key, r->layer, clock_wall_us(), &ignored) < 0)
        log_warn("build.step", "key=%.12s could not be kept", b->key);
    if (failure.code == ERR_OK)
        build_add_layer(b, r->layer, r->bytes, r->files, false);
    b->run = NULL;
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

static void clean_up(struct run *r)
{
    if (r->sandbox[0] != '\0')
        sandbox_delete(r->build->core, r->sandbox, on_deleted, r);
    else
        finish(r);
}

/* --- the layer --------------------------------------------------------------------------------------------------------------- */

static void fold(void *arg);

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
    } else {
        (void)snprintf(r->layer, sizeof r->layer, "%s", l->layer);
        r->bytes = l->bytes;
        r->files = l->files;
    }
    clean_up(r);
}

static void fold(void *arg)
{
    /* Ours, and what the kernel has there. */
    static const char *const always[] = {"__modal", "proc", "sys", "dev"};
    Quicksand__Node__ImageFoldRequest rq = QUICKSAND__NODE__IMAGE_FOLD_REQUEST__INIT;
    struct run *r = arg;
    char *exclude[array_len(always) + MOUNTS_MAX];
    size_t n = 0, i;
    json_t *path;

    for (i = 0; i < array_len(always); i++)
        exclude[n++] = (char *)(uintptr_t)always[i];
    json_array_foreach(r->exclude, i, path)
        if (n < array_len(exclude))
            exclude[n++] = (char *)(uintptr_t)json_string_value(path);
    rq.sandbox_id = r->sandbox;
    rq.exclude = exclude;
    rq.n_exclude = n;
    rq.has_max_bytes = rq.has_max_files = true;
    rq.max_bytes = IMAGE_BYTES_MAX;
    rq.max_files = IMAGE_FILES_MAX;
    r->build->call = node_unary(r->build->core, "ImageFold", &rq.base, &quicksand__node__layer__descriptor, FOLD_TIMEOUT_MS, true,
                                on_folded, r);
}

static void judge(struct run *r)
{
    if (r->is_cancelled)
        (void)err_set(&r->failure, ERR_CONFLICT, "it was cancelled");
    else if (strcmp(r->reason, "timeout") == 0 || strcmp(r->reason, "deadline") == 0)
        (void)err_set(&r->failure, ERR_TIMEOUT, "the command did not end within %lld s", (long long)(r->build->step_timeout_ms / 1000));
    else if (r->signal != 0)
        (void)err_set(&r->failure, ERR_CONFLICT, "the command was killed by signal %d (%s)", r->signal, r->reason);
    else if (r->code != 0)
        (void)err_set(&r->failure, ERR_CONFLICT, "the command ended with exit code %d (%s)", r->code, r->reason);
    if (r->failure.code != ERR_OK)
        clean_up(r);
    else
        fold(r);
}

/* Judged when the end is known and all output was shown. */
static void look(struct run *r)
{
    if (r->has_ended && r->is_read[0] && r->is_read[1])
        judge(r);
}

/* --- output ------------------------------------------------------------------------------------------------------------------ */

static void flush_line(struct run *r, int i, bool even_empty)
{
    if (r->lines[i].len > 0 || even_empty)
        operation_log_text(r->build->operation, buf_str(&r->lines[i]), r->lines[i].len);
    buf_clear(&r->lines[i]);
}

static void add_output(struct run *r, int i, const char *p, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        if (p[k] == '\n')
            flush_line(r, i, true);
        else if (p[k] != '\r')
            (void)buf_addc(&r->lines[i], p[k] != '\0' ? p[k] : ' ');
        if (r->lines[i].len >= LINE_MAX_BYTES)
            flush_line(r, i, false);
    }
}

static void on_output(struct run *r, int i, const void *p, size_t n)
{
    add_output(r, i, p, n);
    exec_reader_consumed(r->readers[i], n);
}

static void on_output_end(struct run *r, int i)
{
    flush_line(r, i, false);
    exec_reader_free(r->readers[i]);
    r->readers[i] = NULL;
    r->is_read[i] = true;
    look(r);
}

static void on_stdout(void *ctx, uint64_t offset, const void *p, size_t n)
{
    (void)offset;
    on_output(ctx, 0, p, n);
}

static void on_stderr(void *ctx, uint64_t offset, const void *p, size_t n)
{
    (void)offset;
    on_output(ctx, 1, p, n);
}

static void on_stdout_end(void *ctx, const struct err *e)
{
    (void)e;
    on_output_end(ctx, 0);
}

static void on_stderr_end(void *ctx, const struct err *e)
{
    (void)e;
    on_output_end(ctx, 1);
}

static const struct exec_reader_ops reader_ops[2] = {
    {.on_data = on_stdout, .on_end = on_stdout_end},
    {.on_data = on_stderr, .on_end = on_stderr_end},
};

/* --- the sandbox --------------------------------------------------------------------------------------------------------------- */

static void ask_for_end(struct run *r);

static void on_seen(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct run *r = ctx;

    r->wait = NULL;
    if (e != NULL) {
        r->failure = *e;
        clean_up(r);
        return;
    }
    if (sb->row->state != STORE_ENDED) {
        ask_for_end(r);
        return;
    }
    memcpy(r->reason, sb->row->reason, sizeof r->reason);
    r->code = sb->row->code;
    r->signal = sb->row->signal;
    r->has_ended = true;
    look(r);
}

static void on_ask(void *arg)
{
    struct run *r = arg;
    struct sandbox_wait *w = sandbox_get(r->build->core, r->sandbox, WAIT_MS, on_seen, r);

    if (w != NULL)
        r->wait = w;
}

static void ask_for_end(struct run *r)
{
    loop_defer(core_loop(r->build->core), on_ask, r);
}

static void on_created(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct run *r = ctx;

    r->is_creating = false;
    if (e != NULL) {
        r->failure = *e;
        finish(r);
        return;
    }
    memcpy(r->sandbox, sb->row->id, sizeof r->sandbox);
    if (r->is_cancelled) {
        (void)err_set(&r->failure, ERR_CONFLICT, "it was cancelled");
        clean_up(r);
        return;
    }
    for (int i = 0; i < 2; i++)
        r->readers[i] = exec_reader_new(r->build->core, r->sandbox, ENTRY_EXEC_ID, i + 1, 0, true, &reader_ops[i], r);
    ask_for_end(r);
}

static int insert_row(struct build *b, struct run *r, struct err *e)
{
    const struct stage *s = build_stage(b);
    auto_image_row row = {.created_us = clock_wall_us()};

    id_make(row.id, "im-");
    row.layers = js_text(s->layers, false);
    row.env = mem_strdup("{}");
    row.source = mem_strdup("(a step of a build)");
    if (store_image_insert(core_store(b->core), &row, e) < 0)
        return -1;
    memcpy(r->image, row.id, sizeof r->image);
    return 0;
}

static void create(struct build *b, struct run *r, const json_t *argv, const json_t *env)
{
    static const uint8_t no_hash[IDEM_HASH_SIZE];
    const struct stage *s = build_stage(b);
    struct sandbox_spec spec = {
        .image = r->image,
        .app = "builds",
        .command = argv,
        .env = env,
        .workdir = json_string_value(json_object_get(s->config, "WorkingDir")),
        .user = json_string_value(json_object_get(s->config, "User")),
        .timeout_ms = b->step_timeout_ms,
        .grace_ms = 2000,
        .retain_ms = 24 * 3600 * 1000ULL,
        .limits = *core_default_limits(b->core),
        .network = r->is_blocked ? NULL : b->network,
    };

    if (spec.limits.disk_mb == 0)
        spec.limits.disk_mb = BUILD_STEP_DISK_MB;
    if (b->memory_mb != 0)
        spec.limits.memory_mb = b->memory_mb;
    if (b->cpu_milli != 0)
        spec.limits.cpu_milli = b->cpu_milli;
    r->is_creating = true;
    sandbox_create(b->core, &spec, "", NULL, no_hash, on_created, r);
}

/* --- the command ------------------------------------------------------------------------------------------------------------- */

/* The command as an array: the exec form, or the shell with the text and its here-documents. */
static json_t *command_of(struct build *b, const struct df_instruction *in, const json_t *mounts)
{
    struct buf text;
    json_t *argv, *path;
    size_t k;

    if (in->json != NULL)
        return json_incref(in->json);
    buf_init(&text, 2 * DF_TEXT_MAX);
    json_array_foreach(mounts, k, path)
        (void)buf_addf(&text, "mkdir -p '/%s' || exit\n", json_string_value(path));
    const char *script = in->nheredocs == 1 ? in->heredocs[0].text : NULL;
    bool alone = script != NULL && strncmp(in->text, "<<", 2) == 0 && strpbrk(in->text, " \t;|&>") == NULL;
    if (alone && strncmp(script, "#!", 2) == 0) {
        /* Its own interpreter: a file, for as long as it runs. */
        (void)buf_addf(&text, "f=$(mktemp) && cat >\"$f\" <<'__END_OF_SCRIPT__' && chmod 700 \"$f\"\n%s__END_OF_SCRIPT__\n", script);
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

/* The value of "key=..." in "a=b,key=...": the caller frees; NULL = it is not there. */
static char *option(const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *at = text; *at != '\0';) {
        size_t len = strcspn(at, ",");
        if (len > n && strncmp(at, key, n) == 0 && at[n] == '=')
            return mem_strndup(at + n + 1, len - n - 1);
        at += len + (at[len] == ',');
    }
    return NULL;
}

/* What is mounted is not the image's. Caches are empty each time, which their users must be ready for. */
static int read_mount(struct build *b, const struct df_instruction *in, const char *value, struct run *r, json_t *env, struct err *e)
{
    auto_free char *type = option(value, "type"), *target = option(value, "target"), *dst = option(value, "dst"),
                   *destination = option(value, "destination"), *id = option(value, "id"), *name = option(value, "env");
    const char *path = target != NULL ? target : dst != NULL ? dst : destination;

    if (type != NULL && strcmp(type, "secret") == 0) {
        const json_t *secret = id != NULL ? json_object_get(b->secrets, id) : NULL;
        if (name == NULL)
            return df_fail(in, e, "a secret is given as a variable: --mount=type=secret,id=...,env=NAME");
        if (secret == NULL)
            return df_fail(in, e, "there is no secret '%.60s'", id != NULL ? id : "");
        (void)json_object_set(env, name, (json_t *)(uintptr_t)secret);
        return 0;
    }
    if (type == NULL || (strcmp(type, "cache") != 0 && strcmp(type, "tmpfs") != 0))
        return df_fail(in, e, "--mount is of type cache, tmpfs or secret, not '%.40s'", type != NULL ? type : "bind");
    if (path == NULL || strchr(path, '\'') != NULL)
        return df_fail(in, e, "--mount has no target, or one with a quote");
    auto_free char *whole = build_path(build_stage(b), path);
    if (json_array_size(r->exclude) == MOUNTS_MAX)
        return df_fail(in, e, "more than %d mounts", MOUNTS_MAX);
    (void)json_array_append_new(r->exclude, js_string_lossy(whole + 1));
    return 0;
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
    static const char *const names[] = {"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY",
                                        "no_proxy", "ALL_PROXY", "all_proxy"};

    for (size_t i = 0; i < array_len(names); i++) {
        json_t *given = json_object_get(b->given_args, names[i]);
        if (given != NULL && json_object_get(env, names[i]) == NULL)
            (void)json_object_set(env, names[i], given);
    }
}

static int read_network(struct build *b, const struct df_instruction *in, struct run *r, struct err *e)
{
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
static char *key_of(struct build *b, const json_t *argv, const json_t *env, const json_t *exclude, bool is_blocked)
{
    const struct stage *s = build_stage(b);
    auto_json *o = json_pack("{s:s, s:O, s:O, s:O, s:O}", "version", BUILD_VERSION, "layers", s->layers, "argv", argv, "env", env,
                             "exclude", exclude);
    uint8_t sum[SHA256_SIZE];
    struct sha256 hash;

    (void)json_object_set_new(o, "workdir", js_string_or_null(json_string_value(json_object_get(s->config, "WorkingDir"))));
    (void)json_object_set_new(o, "user", js_string_or_null(json_string_value(json_object_get(s->config, "User"))));
    (void)json_object_set_new(o, "network", json_boolean(!is_blocked));
    auto_free char *text = js_text(o, true);
    char *key = mem_alloc(SHA256_HEX_SIZE);
    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end(&hash, sum);
    sha256_hex(sum, key);
    return key;
}

/* 0 = the result was there already. */
static int use_cached(struct build *b, bool *ret_found, struct err *e)
{
    char layer[72];

    if (store_step_get(core_store(b->core), b->key, clock_wall_us(), ret_found, layer, e) < 0)
        return -1;
    if (!*ret_found || b->no_cache) {
        *ret_found = false;
        return 0;
    }
    b->cached++;
    operation_log(b->operation, "CACHED");
    build_add_layer(b, layer, 0, 0, true);
    return 0;
}

int build_run(struct build *b, const struct df_instruction *in, struct err *e)
{
    static const char *const names[] = {"mount", "network", "security"};
    auto_json *argv = NULL;
    auto_json *env = environment(b);
    bool found = false;

    if (df_check_flags(in, names, array_len(names), e) < 0)
        return -1;
    if (json_array_size(build_stage(b)->layers) == 0)
        return df_fail(in, e, "there is nothing in the image that could run");
    struct run *r = mem_zalloc(sizeof *r);
    r->build = b;
    r->exclude = json_array();
    for (int i = 0; i < 2; i++)
        buf_init(&r->lines[i], LINE_MAX_BYTES + 16);
    if (read_network(b, in, r, e) < 0) {
        run_free(r);
        return -1;
    }
    for (size_t i = 0; i < in->nflags; i++)
        if (strcmp(in->flags[i].name, "mount") == 0 && read_mount(b, in, in->flags[i].value, r, env, e) < 0) {
            run_free(r);
            return -1;
        }
    argv = command_of(b, in, r->exclude);
    b->key = key_of(b, argv, env, r->exclude, r->is_blocked);
    add_proxies(b, env);
    (void)json_object_update_missing(env, b->secrets);
    int result = use_cached(b, &found, e);
    if (result == 0 && !found) {
        result = insert_row(b, r, e);
        if (result == 0) {
            r->timer = loop_timer_new(core_loop(b->core), fold, r);
            b->run = r;
            create(b, r, argv, env);
            return 1;
        }
    }
    run_free(r);
    return result;
}

static void build_ignore(void *ctx, const struct sandbox *sb, const struct err *e)
{
    (void)ctx;
    (void)sb;
    (void)e;                            /* its end is seen anyway */
}

void build_run_cancel(struct build *b)
{
    struct run *r = b->run;

    r->is_cancelled = true;
    if (r->is_creating || r->sandbox[0] == '\0')
        return;
    const struct sandbox_end_how how = {.actor = "build", .signal = 9, .grace_ms = 0, .wait_ms = 0};
    sandbox_terminate(b->core, r->sandbox, &how, build_ignore, NULL);
}
