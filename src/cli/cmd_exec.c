/*
 * cmd_exec.c - exec and sh: a command in a sandbox that is there, its streams and its exit code ours
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/ids.h"
#include "base/mem.h"
#include "cli/attach.h"
#include "cli/cmd.h"
#include "cli/term.h"

static int start_failed(const struct err *e)
{
    if (e->code == ERR_EXEC_NOT_FOUND)
        return cmd_fail(e, EXIT_NOT_FOUND);
    if (e->code == ERR_NOT_EXECUTABLE)
        return cmd_fail(e, EXIT_CANNOT_EXECUTE);
    return cmd_fail(e, EXIT_OURS);
}

static void say_ended(const char *what, const json_t *exit)
{
    const char *reason = json_string_value(json_object_get(exit, "reason"));
    const char *message = json_string_value(json_object_get(exit, "message"));

    fprintf(stderr, "quicksand: the %s was ended: %s%s%s\n", what, reason != NULL ? reason : "unknown",
            message != NULL && *message != '\0' ? ": " : "", message != NULL ? message : "");
}

/* Says why a command ended that did not end by itself; the sandbox knows, where that took it along. */
static int exit_code(struct client *cl, const char *sandbox, const json_t *exec)
{
    const json_t *x = json_object_get(exec, "exit"), *shell = json_object_get(exec, "shell_code"), *end = NULL;
    const char *reason = json_string_value(json_object_get(x, "reason"));
    json_t *sb = NULL;
    struct err ignored;

    if (reason != NULL && strcmp(reason, "terminated") == 0) {
        auto_free char *path = client_path("/v1/sandboxes/%s?wait=exit&timeout_s=5", sandbox);
        if (client_json(cl, "GET", path, NULL, &sb, &ignored) == 0)
            end = json_object_get(sb, "exit");
    }
    if (json_is_object(end))
        say_ended("sandbox", end);
    else if (reason != NULL && strcmp(reason, "exited") != 0 && strcmp(reason, "signaled") != 0)
        say_ended("command", x);
    json_decref(sb);
    return json_is_integer(shell) ? (int)json_integer_value(shell) : EXIT_OURS;
}

int exec_attached(struct client *cl, const char *sandbox, const struct command_args *c, int argc, char **argv)
{
    char id[ID_SIZE];
    unsigned rows, cols;
    struct err e = {0};
    json_t *exec = NULL;
    int sig = 0;

    id_make(id, "ex-");
    auto_free char *base = client_path("/v1/sandboxes/%s/execs/%s", sandbox, id);
    json_t *body = command_body(c, argc, argv, &e);
    if (body == NULL)
        return cmd_fail(&e, EXIT_OURS);
    json_object_set_new(body, "stdin", json_boolean(c->use_stdin));
    if (c->tty && term_size(&rows, &cols))
        json_object_set_new(body, "tty", json_pack("{s:i, s:i}", "rows", (int)rows, "cols", (int)cols));
    else if (c->tty)
        json_object_set_new(body, "tty", json_true());
    int r = client_json(cl, "PUT", base, body, NULL, &e);
    json_decref(body);
    if (r < 0)
        return start_failed(&e);

    struct attach a = {.base = base, .use_stdin = c->use_stdin, .tty = c->tty};
    if (attach_run(cl, &a, &exec, &sig, &e) < 0)
        return cmd_fail(&e, EXIT_OURS);
    if (exec == NULL)
        return 128 + sig;
    int code = exit_code(cl, sandbox, exec);
    json_decref(exec);
    return code;
}

static int run_in(const char *name, const struct command_args *c, int argc, char **argv)
{
    auto_client struct client cl = {0};
    struct err e = {0};
    char id[64];

    if (client_init(&cl, &e) < 0 || client_sandbox(&cl, name, id, sizeof id, &e) < 0)
        return cmd_fail(&e, EXIT_OURS);
    int code = exec_attached(&cl, id, c, argc, argv);
    return code;
}

int cmd_exec(int argc, char **argv)
{
    auto_command_args struct command_args c = {0};
    const struct arg args[] = {COMMAND_ARGS(c)};
    const struct cmd d = {
        .usage = "exec [options] SANDBOX COMMAND [ARG...]",
        .about = "Run a command in a sandbox; its exit code is ours.",
        .args = args, .nargs = array_len(args), .min_words = 2, .max_words = -1, .usage_code = EXIT_OURS,
    };
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    int skip = strcmp(argv[1], "--") == 0 ? 2 : 1;
    if (argc <= skip)
        return cmd_usage(&d);
    return run_in(argv[0], &c, argc - skip, argv + skip);
}

int cmd_sh(int argc, char **argv)
{
    /* A shell that an image is likely to have; bash where there is one, because people expect it. */
    static char shell[] = "sh", option[] = "-c",
                script[] = "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l";
    char *command[] = {shell, option, script, NULL};
    struct command_args c = {.use_stdin = true, .tty = true};
    const struct arg args[] = {
        {'u', "user", ARG_TEXT, &c.user, "USER", "name or id, with optional :group"},
        {'w', "workdir", ARG_TEXT, &c.workdir, "DIR", "working directory"},
    };
    const struct cmd d = {
        .usage = "sh [options] SANDBOX", .about = "Open a shell in a sandbox.", .args = args, .nargs = array_len(args),
        .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_OURS,
    };
    const char *term = getenv("TERM");
    auto_free char *term_env = mem_printf("TERM=%s", term != NULL && *term != '\0' ? term : "xterm");
    const char *env[] = {term_env};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    c.env = (struct arg_list){.items = env, .n = 1};
    return run_in(argv[0], &c, 3, command);
}
