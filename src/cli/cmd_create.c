/*
 * cmd_create.c - create: a sandbox that stays; prints its id
 */
#include <stdio.h>

#include "base/mem.h"
#include "cli/cmd.h"

int cmd_create(int argc, char **argv)
{
    auto_sandbox_args struct sandbox_args s = {0};
    auto_command_args struct command_args c = {0};
    const struct arg args[] = {COMMAND_ARGS(c), SANDBOX_ARGS(s)};
    const struct cmd d = {
        .usage = "create [options] [COMMAND [ARG...]]",
        .about = "Create a sandbox and print its id. With a command, its end is the sandbox's end.",
        .args = args, .nargs = array_len(args), .max_words = -1, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *sb = NULL;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    json_t *body = sandbox_body(&s, &e), *command = body != NULL ? command_body(&c, argc, argv, &e) : NULL;
    if (body == NULL || command == NULL || client_init(&cl, &e) < 0) {
        json_decref(body);
        json_decref(command);
        return cmd_fail(&e, EXIT_FAILED);
    }
    if (argc == 0)
        json_object_del(command, "command");
    if (c.use_stdin)
        json_object_set_new(command, "stdin", json_true());
    if (c.tty)
        json_object_set_new(command, "tty", json_true());
    json_object_update(body, command);
    int r = client_json(&cl, "POST", "/v1/sandboxes", body, &sb, &e);
    if (r == 0)
        printf("%s\n", json_string_value(json_object_get(sb, "id")));
    json_decref(sb);
    json_decref(body);
    json_decref(command);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}
