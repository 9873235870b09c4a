/*
 * exec_model.c - bodies of commands to node messages, node records to exec objects
 */
#include "api/rest/exec_model.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/rest/text.h"
#include "base/mem.h"
#include "ipc/monitor_proto.h"
#include "ipc/record.h"

#define GRACE_DEFAULT_MS 2000

static uint64_t seconds_to_ms(double s)
{
    return (uint64_t)ceil(s * 1000);
}

static int take_command(struct exec_request *rq, const json_t *body, struct err *e)
{
    const json_t *list = json_object_get(body, "command");
    size_t n = json_array_size(list), bytes = 0;

    rq->argv = mem_array(n + 1, sizeof rq->argv[0]);
    for (size_t i = 0; i < n; i++) {
        const json_t *arg = json_array_get(list, i);
        rq->argv[i].data = (uint8_t *)(uintptr_t)json_string_value(arg);
        rq->argv[i].len = json_string_length(arg);
        bytes += rq->argv[i].len + 1;
    }
    if (bytes > LIMIT_ARGV_BYTES)
        return err_param(e, ERR_TOO_LARGE, "command", "the arguments have %zu bytes, but at most %d are allowed",
                         bytes, LIMIT_ARGV_BYTES);
    if (n == 0 || rq->argv[0].len == 0)
        return err_param(e, ERR_INVALID, "command", "the program's name is empty");
    rq->command.n_argv = n;
    rq->command.argv = rq->argv;
    return 0;
}

static int take_env(struct exec_request *rq, json_t *body, struct err *e)
{
    json_t *map = json_object_get(body, "env"), *value;
    size_t n = json_object_size(map), bytes = 0, i = 0;
    const char *name;

    rq->env = mem_array(n + 1, sizeof rq->env[0]);
    rq->env_texts = mem_zalloc((n + 1) * sizeof rq->env_texts[0]);
    json_object_foreach(map, name, value) {
        if (*name == '\0' || strchr(name, '=') != NULL)
            return err_param(e, ERR_INVALID, "env", "'%.60s' is not a name of a variable", name);
        size_t len = strlen(name) + 1 + json_string_length(value);
        bytes += len + 1;
        if (bytes > LIMIT_ENV_BYTES)
            return err_param(e, ERR_TOO_LARGE, "env", "the variables have more than %d bytes", LIMIT_ENV_BYTES);
        rq->env_texts[i] = mem_printf("%s=%s", name, json_string_value(value));
        rq->env[i].data = (uint8_t *)rq->env_texts[i];
        rq->env[i].len = len;
        i++;
    }
    rq->command.n_env = i;
    rq->command.env = rq->env;
    return 0;
}

static int take_umask(struct exec_request *rq, const json_t *body, struct err *e)
{
    const char *text = json_string_value(json_object_get(body, "umask"));
    uint32_t v = 022;

    if (text != NULL) {
        size_t n = strlen(text);
        v = 0;
        for (size_t i = 0; i < n; i++)
            v = v * 8 + (uint32_t)(text[i] - '0');
        if (n == 0 || n > 4 || strspn(text, "01234567") != n || v > 0777)
            return err_param(e, ERR_INVALID, "umask", "'%.8s' is not an octal mask from 000 to 777", text);
    }
    rq->command.has_umask = true;
    rq->command.umask = v;
    return 0;
}

static void take_place(struct exec_request *rq, const json_t *body)
{
    const json_t *v = json_object_get(body, "workdir");

    if (json_is_string(v)) {
        rq->command.has_cwd = true;
        rq->command.cwd.data = (uint8_t *)(uintptr_t)json_string_value(v);
        rq->command.cwd.len = json_string_length(v);
    }
    v = json_object_get(body, "user");
    if (json_is_string(v))
        rq->command.user = (char *)(uintptr_t)json_string_value(v);
    v = json_object_get(body, "nice");
    if (json_is_integer(v)) {
        rq->command.has_nice = true;
        rq->command.nice = (int32_t)json_integer_value(v);
    }
    v = json_object_get(body, "nofile");
    if (json_is_integer(v)) {
        rq->command.has_nofile = true;
        rq->command.nofile = (uint64_t)json_integer_value(v);
    }
}

bool exec_size_parse(const json_t *object, uint32_t *ret_rows, uint32_t *ret_cols)
{
    const json_t *rows = json_object_get(object, "rows"), *cols = json_object_get(object, "cols");

    if (!json_is_integer(rows) || !json_is_integer(cols))
        return false;
    json_int_t r = json_integer_value(rows), c = json_integer_value(cols);
    if (r < 1 || r > UINT16_MAX || c < 1 || c > UINT16_MAX)
        return false;
    *ret_rows = (uint32_t)r;
    *ret_cols = (uint32_t)c;
    return true;
}

static int take_streams(struct exec_request *rq, const json_t *body, struct err *e)
{
    const json_t *tty = json_object_get(body, "tty");
    const char *out = json_string_value(json_object_get(body, "stdout"));
    const char *err = json_string_value(json_object_get(body, "stderr"));
    Quicksand__Node__ExecStartRequest *s = &rq->start;

    if (json_is_object(tty)) {
        if (!exec_size_parse(tty, &s->rows, &s->cols))
            return err_param(e, ERR_INVALID, "tty", "rows and cols must be whole numbers from 1 to 65535");
        s->has_rows = s->has_cols = true;
    }
    s->has_tty = true;
    s->tty = json_is_object(tty) || json_is_true(tty);
    s->has_stdin = true;
    s->stdin = json_is_true(json_object_get(body, "stdin"));
    s->has_drop_stdout = s->has_drop_stderr = s->has_merge_stderr = true;
    s->drop_stdout = out != NULL && strcmp(out, "drop") == 0;
    s->drop_stderr = err != NULL && strcmp(err, "drop") == 0;
    s->merge_stderr = err != NULL && strcmp(err, "merge") == 0;
    return 0;
}

static void take_limits(struct exec_request *rq, const json_t *body)
{
    const json_t *timeout = json_object_get(body, "timeout_s"), *grace = json_object_get(body, "grace_s");
    const json_t *limit = json_object_get(body, "output_limit_bytes");
    Quicksand__Node__ExecStartRequest *s = &rq->start;

    s->has_timeout_ms = s->has_grace_ms = s->has_output_limit = true;
    s->timeout_ms = json_is_number(timeout) ? seconds_to_ms(json_number_value(timeout)) : 0;
    s->grace_ms = json_is_number(grace) ? (uint32_t)seconds_to_ms(json_number_value(grace)) : GRACE_DEFAULT_MS;
    s->output_limit = json_is_integer(limit) ? (uint64_t)json_integer_value(limit) : (uint64_t)LIMIT_OUTPUT_BYTES;
}

int exec_request_init(struct exec_request *rq, const char *sandbox, const char *exec_id, json_t *body,
                      struct err *e)
{
    memset(rq, 0, sizeof *rq);
    quicksand__node__exec_start_request__init(&rq->start);
    quicksand__node__command__init(&rq->command);
    quicksand__node__exec_ref__init(&rq->ref);
    rq->body = json_incref(body);
    (void)snprintf(rq->sandbox, sizeof rq->sandbox, "%s", sandbox);
    (void)snprintf(rq->exec_id, sizeof rq->exec_id, "%s", exec_id);
    rq->ref.sandbox_id = rq->sandbox;
    rq->ref.exec_id = rq->exec_id;
    rq->start.ref = &rq->ref;
    rq->start.command = &rq->command;

    if (take_command(rq, body, e) < 0 || take_env(rq, body, e) < 0 || take_umask(rq, body, e) < 0 ||
        take_streams(rq, body, e) < 0)
        return -1;
    take_place(rq, body);
    take_limits(rq, body);
    return 0;
}

void exec_request_done(struct exec_request *rq)
{
    for (size_t i = 0; rq->env_texts != NULL && rq->env_texts[i] != NULL; i++)
        free(rq->env_texts[i]);
    free(rq->env_texts);
    free(rq->env);
    free(rq->argv);
    json_decref(rq->body);
    memset(rq, 0, sizeof *rq);
}

bool exec_has_ended(const Quicksand__Node__Exec *x)
{
    return x->state >= EXEC_EXITED;
}

int exec_start_error(const Quicksand__Node__Exec *x, struct err *e)
{
    const char *step = x->step != NULL ? x->step : "";
    int len = x->has_command ? (int)x->command.len : 0;
    const char *command = x->has_command ? (const char *)x->command.data : "";

    if (x->state != EXEC_FAILED)
        return 0;
    if (strcmp(step, "cwd") == 0)
        (void)err_param(e, ERR_INVALID, "workdir", "the working directory cannot be entered: %s",
                        strerror(x->error));
    else if (strcmp(step, "user") == 0)
        (void)err_param(e, ERR_INVALID, "user", "the user is not known in the sandbox: %s", strerror(x->error));
    else if (strcmp(step, "exec") == 0 && (x->error == ENOENT || x->error == ENOTDIR))
        (void)err_param(e, ERR_EXEC_NOT_FOUND, "command", "cannot execute '%.*s': %s", len, command,
                        strerror(x->error));
    else if (strcmp(step, "exec") == 0)
        (void)err_param(e, ERR_NOT_EXECUTABLE, "command", "cannot execute '%.*s': %s", len, command,
                        strerror(x->error));
    else
        (void)err_sys(e, x->error, "cannot start '%.*s' (%s)", len, command, step);
    e->sys_errno = x->error;
    return -1;
}

static json_t *time_json(int64_t wall_ms)
{
    return wall_ms > 0 ? json_real((double)wall_ms / 1000) : json_null();
}

static void exit_message(const Quicksand__Node__Exec *x, char *out, size_t size)
{
    struct err e;

    *out = '\0';
    if (exec_start_error(x, &e) < 0)
        (void)snprintf(out, size, "%s", e.message);
    else if (x->reason == END_OOM_LIMIT && x->oom_comm != NULL && *x->oom_comm != '\0')
        (void)snprintf(out, size, "the memory limit was reached and '%s' (pid %d) was killed", x->oom_comm, x->oom_pid);
    else if (x->reason == END_OOM_LIMIT)
        (void)snprintf(out, size, "the memory limit was reached");
    else if (x->reason == END_TIMEOUT)
        (void)snprintf(out, size, "it ran longer than %" PRIu64 " ms", x->timeout_ms);
    else if (x->reason == END_OUTPUT_LIMIT && x->error != 0)
        (void)snprintf(out, size, "its output could not be kept: %s", strerror(x->error));
    else if (x->reason == END_OUTPUT_LIMIT)
        (void)snprintf(out, size, "it had written more unread output than its limit");
}

static json_t *exit_json(const Quicksand__Node__Exec *x)
{
    char message[400];
    bool by_signal = x->signal != 0, failed = x->state == EXEC_FAILED;
    json_t *o = json_object();

    exit_message(x, message, sizeof message);
    json_object_set_new(o, "reason", json_string(end_reason_name(failed ? END_START_FAILED : (uint8_t)x->reason)));
    json_object_set_new(o, "code", by_signal || failed ? json_null() : json_integer(x->code));
    json_object_set_new(o, "signal", by_signal ? json_integer(x->signal) : json_null());
    text_set(o, "message", message, strlen(message));
    return o;
}

/* The process that the memory limit killed, the exec's own or one below it. */
static json_t *oom_json(const Quicksand__Node__Exec *x)
{
    if (x->oom_pid <= 0)
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "pid", json_integer(x->oom_pid));
    text_set(o, "comm", x->oom_comm != NULL ? x->oom_comm : "", x->oom_comm != NULL ? strlen(x->oom_comm) : 0);
    return o;
}

static json_t *shell_code_json(const Quicksand__Node__Exec *x)
{
    if (x->state == EXEC_FAILED)
        return json_integer(x->error == ENOENT || x->error == ENOTDIR ? 127 : 126);
    if (x->state != EXEC_EXITED)
        return json_null();
    return json_integer(x->signal != 0 ? 128 + x->signal : x->code);
}

/* The record's summary may end inside a character where it was cut. */
static void set_command(json_t *o, const Quicksand__Node__Exec *x)
{
    const void *p = x->has_command ? (const void *)x->command.data : "";
    size_t n = x->has_command ? x->command.len : 0;

    text_set(o, "command", p, n - text_utf8_tail(p, n));
}

json_t *exec_json(const Quicksand__Node__Exec *x, const char *sandbox)
{
    bool ended = exec_has_ended(x);
    json_t *o = json_object(), *usage = json_object();

    json_object_set_new(o, "id", json_string(x->exec_id != NULL ? x->exec_id : ""));
    json_object_set_new(o, "sandbox", json_string(sandbox));
    json_object_set_new(o, "state",
                        json_string(!ended ? "running" : x->state == EXEC_FAILED ? "failed" : "exited"));
    set_command(o, x);
    json_object_set_new(o, "pid", x->pid > 0 ? json_integer(x->pid) : json_null());
    json_object_set_new(o, "started_at", time_json(x->started_ms));
    json_object_set_new(o, "ended_at", time_json(x->ended_ms));
    json_object_set_new(o, "exit", ended ? exit_json(x) : json_null());
    json_object_set_new(o, "oom", oom_json(x));
    json_object_set_new(o, "shell_code", shell_code_json(x));
    json_object_set_new(o, "stdout_bytes", json_integer((json_int_t)x->out_total));
    json_object_set_new(o, "stderr_bytes", json_integer((json_int_t)x->err_total));
    json_object_set_new(o, "stdout_first", json_integer((json_int_t)x->out_first));
    json_object_set_new(o, "stderr_first", json_integer((json_int_t)x->err_first));
    json_object_set_new(o, "stdin_bytes", json_integer((json_int_t)x->stdin_taken));
    json_object_set_new(o, "stdin_closed", json_boolean(x->stdin_closed));
    json_object_set_new(o, "tty", json_boolean((x->flags & MON_EXEC_TTY) != 0));
    json_object_set_new(usage, "user_s", json_real((double)x->user_us / 1e6));
    json_object_set_new(usage, "system_s", json_real((double)x->system_us / 1e6));
    json_object_set_new(usage, "max_rss_kb", json_integer((json_int_t)x->max_rss_kb));
    json_object_set_new(o, "usage", usage);
    return o;
}
