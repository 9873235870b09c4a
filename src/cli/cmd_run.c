/*
 * cmd_run.c - run: a sandbox for one command, gone afterwards
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/attach.h"
#include "cli/cmd.h"

#define PATIENCE_MS 10000       /* for a server that is away */
#define PAUSE_MS 200

/* Also when the server is just restarting: what it forgets to remove lives on until its idle timeout. */
static int remove_sandbox(struct client *cl, const char *path, struct err *e)
{
    int64_t give_up = clock_boot_ms() + PATIENCE_MS;

    for (;;) {
        if (client_json(cl, "DELETE", path, NULL, NULL, e) == 0 || e->code == ERR_NOT_FOUND)
            return 0;
        if (!err_row(e->code)->retryable || clock_boot_ms() > give_up)
            return -1;
        (void)poll(NULL, 0, PAUSE_MS);
    }
}

/* The sandbox is removed whatever became of the command. */
static int run(struct client *cl, json_t *body, const struct command_args *c, bool keep, int argc, char **argv)
{
    json_t *sb = NULL;
    struct err e = {0};

    attach_catch_signals();
    int r = client_json(cl, "POST", "/v1/sandboxes", body, &sb, &e);
    if (r < 0)
        return cmd_fail(&e, EXIT_OURS);
    const char *id = json_string_value(json_object_get(sb, "id"));
    auto_free char *path = client_path("/v1/sandboxes/%s", id != NULL ? id : "");
    int sig = attach_signal();
    int code = sig != 0 ? 128 + sig : exec_attached(cl, id != NULL ? id : "", c, argc, argv);
    if (keep) {
        fprintf(stderr, "quicksand: kept %s\n", id != NULL ? id : "");
    } else if (remove_sandbox(cl, path, &e) < 0) {
        (void)err_wrap(&e, "remove %s", id);
        (void)cmd_fail(&e, code);
    }
    json_decref(sb);
    return code;
}

int cmd_run(int argc, char **argv)
{
    auto_sandbox_args struct sandbox_args s = {0};
    auto_command_args struct command_args c = {0};
    bool keep = false;
    const struct arg args[] = {
        COMMAND_ARGS(c),
        SANDBOX_ARGS(s),
        {0, "keep", ARG_FLAG, &keep, NULL, "do not remove the sandbox afterwards"},
    };
    const struct cmd d = {
        .usage = "run [options] [IMAGE --] COMMAND [ARG...]",
        .about = "Create a sandbox, run a command in it, remove it; the command's exit code is ours.",
        .args = args, .nargs = array_len(args), .min_words = 1, .max_words = -1, .usage_code = EXIT_OURS,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (argc >= 2 && strcmp(argv[1], "--") == 0) {
        s.image = argv[0];
        argc -= 2;
        argv += 2;
    }
    if (argc == 0)
        return cmd_usage(&d);
    if (s.timeout == NULL)
        s.timeout = "none";             /* the command's end is the sandbox's; idle_timeout_s covers our own death */
    json_t *body = sandbox_body(&s, &e);
    if (body == NULL || client_init(&cl, &e) < 0) {
        json_decref(body);
        return cmd_fail(&e, EXIT_OURS);
    }
    int code = run(&cl, body, &c, keep, argc, argv);
    json_decref(body);
    return code;
}
