/*
 * run_box.c - the sandbox of a RUN, from its creation to the end of the command
 *
 * The command is the entry point, unless secrets have to be in files before it begins: then the sandbox idles, the file
 * helper writes them, the command is an exec, and the sandbox is ended when that has ended. Output goes to the log as it
 * comes.
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/run.h"
#include "base/base64.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"
#include "ipc/record.h"

#define WAIT_MS (60 * 1000)             /* of one question whether it has ended */
#define ASK_MS (WAIT_MS + 30 * 1000)
#define LINE_MAX_BYTES 4096
#define FILES_TIMEOUT_MS (60 * 1000)
#define HELPER "/__modal/.bin/modal-sandbox-fs-tools"

static void box_over(struct run *r)
{
    r->then(r);
}

/* Judged when the end is known and all output was shown. */
static void look(struct run *r)
{
    if (r->has_ended && r->is_read[0] && r->is_read[1])
        box_over(r);
}

static void box_fail(struct run *r, const struct err *e)
{
    if (r->failure.code == ERR_OK)
        r->failure = *e;
    box_over(r);
}

/* --- output --------------------------------------------------------------------------------------------------------------- */

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

static void on_output(struct run *r, int i, uint64_t offset, const void *p, size_t n)
{
    if (offset > r->offsets[i]) {
        flush_line(r, i, false);
        operation_log(r->build->operation, "(%llu bytes of output are left out: more came than is kept)",
                      (unsigned long long)(offset - r->offsets[i]));
    }
    r->offsets[i] = offset + n;
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
    on_output(ctx, 0, offset, p, n);
}

static void on_stderr(void *ctx, uint64_t offset, const void *p, size_t n)
{
    on_output(ctx, 1, offset, p, n);
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

static void read_output(struct run *r, const char *exec)
{
    for (int i = 0; i < 2; i++)
        r->readers[i] = exec_reader_new(r->build->core, r->sandbox, exec, i + 1, 0, true, &reader_ops[i], r);
}

/* --- the end of the sandbox ----------------------------------------------------------------------------------------------- */

static void ask_for_end(struct run *r);

static void on_seen(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct run *r = ctx;

    r->wait = NULL;
    if (e != NULL) {
        box_fail(r, e);
        return;
    }
    if (sb->row->state != STORE_ENDED) {
        ask_for_end(r);
        return;
    }
    if (r->exec[0] == '\0') {
        memcpy(r->reason, sb->row->reason, sizeof r->reason);
        r->code = sb->row->code;
        r->signal = sb->row->signal;
    }
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

/* --- a command beside the entry point ------------------------------------------------------------------------------------- */

static void ask_exec(struct run *r, node_reply_fn fn)
{
    Quicksand__Node__ExecGetRequest rq = QUICKSAND__NODE__EXEC_GET_REQUEST__INIT;
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;

    ref.sandbox_id = r->sandbox;
    ref.exec_id = r->exec;
    rq.ref = &ref;
    rq.has_wait_ms = true;
    rq.wait_ms = WAIT_MS;
    r->build->call = node_unary(r->build->core, "ExecGet", &rq.base, &quicksand__node__exec__descriptor, ASK_MS, true, fn, r);
}

static bool is_running(const Quicksand__Node__Exec *x)
{
    return x->state != EXEC_EXITED && x->state != EXEC_FAILED;
}

static void on_terminated(void *ctx, const struct sandbox *sb, const struct err *e)
{
    (void)sb;
    (void)e;                            /* its end is waited for anyway */
    ask_for_end(ctx);
}

static void end_box(struct run *r)
{
    const struct sandbox_end_how how = {.actor = "build", .signal = 9, .grace_ms = 0, .wait_ms = 0};

    sandbox_terminate(r->build->core, r->sandbox, &how, on_terminated, r);
}

static void on_command(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct run *r = ctx;
    const Quicksand__Node__Exec *x = (const Quicksand__Node__Exec *)reply;

    r->build->call = NULL;
    if (e != NULL) {
        box_fail(r, e);
        return;
    }
    if (is_running(x)) {
        ask_exec(r, on_command);
        return;
    }
    if (x->state == EXEC_FAILED)
        (void)err_set(&r->failure, ERR_CONFLICT, "the command could not be started: %s (%.40s)", strerror(x->error), x->step);
    r->code = x->code;
    r->signal = x->signal;
    (void)snprintf(r->reason, sizeof r->reason, "%s", end_reason_name((uint8_t)x->reason));
    end_box(r);
}

static void on_command_started(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct run *r = ctx;

    (void)reply;
    r->build->call = NULL;
    if (e != NULL) {
        box_fail(r, e);
        return;
    }
    read_output(r, r->exec);
    ask_exec(r, on_command);
}

static void start_command(struct run *r)
{
    Quicksand__Node__ExecStartRequest rq = QUICKSAND__NODE__EXEC_START_REQUEST__INIT;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;
    size_t n = json_array_size(r->argv), i;
    auto_free ProtobufCBinaryData *argv = mem_array(n + 1, sizeof *argv);
    const json_t *arg;

    json_array_foreach(r->argv, i, arg)
        argv[i] = (ProtobufCBinaryData){json_string_length(arg), (uint8_t *)(uintptr_t)json_string_value(arg)};
    id_make(r->exec, "ex-");
    ref.sandbox_id = r->sandbox;
    ref.exec_id = r->exec;
    command.argv = argv;
    command.n_argv = n;
    rq.ref = &ref;
    rq.command = &command;
    rq.has_timeout_ms = true;
    rq.timeout_ms = (uint64_t)r->build->step_timeout_ms;
    r->build->call = node_unary(r->build->core, "ExecStart", &rq.base, &quicksand__node__exec__descriptor, ASK_MS, true,
                                on_command_started, r);
}

/* --- secrets in files ----------------------------------------------------------------------------------------------------- */

static void on_written(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    struct run *r = ctx;
    const Quicksand__Node__Exec *x = (const Quicksand__Node__Exec *)reply;
    struct err local;

    r->build->call = NULL;
    if (e == NULL && is_running(x)) {
        ask_exec(r, on_written);
        return;
    }
    if (e == NULL && (x->state == EXEC_FAILED || x->code != 0))
        e = (err_set(
                 &local, ERR_CONFLICT,
                 "the file of a secret cannot be written where it is to be: there is a directory of that "
                 "name, or no file may be made there"),
             &local);
    stdin_pump_free(r->pump);
    r->pump = NULL;
    if (e != NULL)
        box_fail(r, e);
    else
        start_command(r);
}

static void on_pumped(void *ctx, const struct err *e, uint64_t taken, bool closed)
{
    (void)ctx;                          /* the end of the helper says how it went */
    (void)e;
    (void)taken;
    (void)closed;
}

static void on_taken(void *ctx, size_t n)
{
    (void)ctx;
    (void)n;
}

/* What the helper is to write: it reads this from its stdin, so that no list of commands has it. */
static char *secrets_text(const struct run *r)
{
    auto_json *list = json_array();

    for (size_t i = 0; i < r->nmounts; i++) {
        const struct mount *m = &r->mounts[i];
        if (m->type != MOUNT_SECRET || !m->is_made)
            continue;
        auto_free char *path = mem_printf("/%s", m->path), *mode = mem_printf("%04o", (unsigned)m->mode);
        (void)json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:s, s:s, s:I, s:I}", "op",
                                                    "write", "secret", true, "path", path, "text",
                                                    m->secret, "mode", mode, "uid",
                                                    (json_int_t)m->uid, "gid", (json_int_t)m->gid));
    }
    return js_text(list, false);
}

static void on_helper_started(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    static const struct stdin_pump_ops ops = {.on_taken = on_taken, .on_done = on_pumped};
    struct run *r = ctx;

    (void)reply;
    r->build->call = NULL;
    if (e != NULL) {
        box_fail(r, e);
        return;
    }
    auto_free char *text = secrets_text(r);
    r->pump = stdin_pump_new(r->build->core, r->sandbox, r->exec, 0, &ops, r);
    (void)stdin_pump_write(r->pump, text, strlen(text));
    stdin_pump_end(r->pump, true);
    explicit_bzero(text, strlen(text));
    ask_exec(r, on_written);
}

static void write_files(struct run *r)
{
    static const char *const argv[] = {HELPER, "{\"Batch\": {\"strict\": true}}"};
    Quicksand__Node__ExecStartRequest rq = QUICKSAND__NODE__EXEC_START_REQUEST__INIT;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;
    ProtobufCBinaryData words[array_len(argv)];
    static const char root[] = "0:0", at_root[] = "/";

    for (size_t i = 0; i < array_len(argv); i++)
        words[i] = (ProtobufCBinaryData){strlen(argv[i]), (uint8_t *)(uintptr_t)argv[i]};
    id_make(r->exec, "ex-");
    ref.sandbox_id = r->sandbox;
    ref.exec_id = r->exec;
    command.argv = words;
    command.n_argv = array_len(words);
    command.user = (char *)(uintptr_t)root;
    command.has_cwd = true;
    command.cwd = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t)at_root};
    rq.ref = &ref;
    rq.command = &command;
    rq.has_stdin = rq.has_helper = rq.has_hidden = rq.has_timeout_ms = true;
    rq.stdin = rq.helper = rq.hidden = true;
    rq.timeout_ms = FILES_TIMEOUT_MS;
    r->build->call = node_unary(r->build->core, "ExecStart", &rq.base, &quicksand__node__exec__descriptor, ASK_MS, true,
                                on_helper_started, r);
}

/* --- begin ---------------------------------------------------------------------------------------------------------------- */

static void on_created(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct run *r = ctx;
    struct err local;

    r->is_creating = false;
    if (e != NULL) {
        box_fail(r, e);
        return;
    }
    memcpy(r->sandbox, sb->row->id, sizeof r->sandbox);
    if (r->is_cancelled) {
        (void)err_set(&local, ERR_CONFLICT, "it was cancelled");
        box_fail(r, &local);
    } else if (r->has_files) {
        write_files(r);
    } else {
        read_output(r, ENTRY_EXEC_ID);
        ask_for_end(r);
    }
}

void box_run(struct run *r, void (*then)(struct run *r))
{
    static const uint8_t no_hash[IDEM_HASH_SIZE];
    struct build *b = r->build;
    const struct stage *s = build_stage(b);
    struct sandbox_spec spec = {
        .image = r->image,
        .app = "builds",
        .command = r->has_files ? NULL : r->argv,
        .env = r->env,
        .workdir = json_string_value(json_object_get(s->config, "WorkingDir")),
        .user = json_string_value(json_object_get(s->config, "User")),
        .timeout_ms = b->step_timeout_ms + (r->has_files ? 2 * FILES_TIMEOUT_MS : 0),
        .grace_ms = 2000,
        .retain_ms = 24 * 3600 * 1000ULL,
        .limits = *core_default_limits(b->core),
        .network = r->is_blocked ? NULL : b->network,
    };

    r->then = then;
    for (int i = 0; i < 2; i++)
        buf_init(&r->lines[i], LINE_MAX_BYTES + 16);
    if (spec.limits.disk_mb == 0)
        spec.limits.disk_mb = BUILD_STEP_DISK_MB;
    if (b->disk_mb != 0)
        spec.limits.disk_mb = b->disk_mb;
    if (b->memory_mb != 0)
        spec.limits.memory_mb = b->memory_mb;
    if (b->cpu_milli != 0)
        spec.limits.cpu_milli = b->cpu_milli;
    r->is_creating = true;
    sandbox_create(b->core, &spec, "", NULL, no_hash, on_created, r);
}

static void on_ended_early(void *ctx, const struct sandbox *sb, const struct err *e)
{
    (void)ctx;
    (void)sb;
    (void)e;                            /* its end is seen anyway */
}

void box_cancel(struct run *r)
{
    const struct sandbox_end_how how = {.actor = "build", .signal = 9, .grace_ms = 0, .wait_ms = 0};

    if (!r->is_creating && r->sandbox[0] != '\0' && !r->has_ended)
        sandbox_terminate(r->build->core, r->sandbox, &how, on_ended_early, NULL);
}

void box_free(struct run *r)
{
    for (int i = 0; i < 2; i++) {
        exec_reader_free(r->readers[i]);
        buf_done(&r->lines[i]);
    }
    stdin_pump_free(r->pump);
    sandbox_wait_cancel(r->wait);
}
