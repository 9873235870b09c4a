/*
 * cmd_create.c - create: a sandbox that stays; prints its id
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cmd.h"

/* tcp:PORT, http:PORT/PATH, file:PATH, log:EXPRESSION, or the API's JSON. NULL: an error. */
static json_t *read_probe(const char *text, struct err *e)
{
    const char *colon = strchr(text, ':'), *rest = colon != NULL ? colon + 1 : "";
    size_t kind = colon != NULL ? (size_t)(colon - text) : 0;
    json_t *probe = NULL;
    char *end;

    if (text[0] == '{') {
        probe = json_loads(text, 0, NULL);
    } else if ((kind == 3 && memcmp(text, "tcp", 3) == 0) || (kind == 4 && memcmp(text, "http", 4) == 0)) {
        json_int_t port = strtoll(rest, &end, 10);
        if (end != rest && kind == 3 && *end == '\0')
            probe = json_pack("{s:I}", "tcp", port);
        else if (end != rest && kind == 4 && (*end == '\0' || *end == '/'))
            probe = json_pack("{s:{s:I, s:s}}", "http", "port", port, "path", *end == '/' ? end : "/");
    } else if ((kind == 3 && memcmp(text, "log", 3) == 0) || (kind == 4 && memcmp(text, "file", 4) == 0)) {
        probe = json_pack("{s:s}", kind == 3 ? "log" : "file", rest);
    }
    if (probe == NULL)
        (void)err_set(
            e, ERR_INVALID,
            "option --ready: '%.60s' is not tcp:PORT, http:PORT/PATH, file:PATH, log:EXPRESSION or JSON",
            text);
    return probe;
}

static int wait_ready(struct client *cl, const char *id, struct err *e)
{
    auto_free char *path = client_path("/v1/sandboxes/%s/wait-ready", id);
    json_t *none = json_object();
    int r = client_json(cl, "POST", path, none, NULL, e);

    json_decref(none);
    return r;
}

int cmd_create(int argc, char **argv)
{
    auto_sandbox_args struct sandbox_args s = {0};
    auto_command_args struct command_args c = {0};
    const char *ready = NULL;
    const struct arg args[] = {
        COMMAND_ARGS(c), SANDBOX_ARGS(s),
        {0, "ready", ARG_TEXT, &ready, "PROBE", "wait until it is: tcp:PORT, http:PORT/PATH, file:PATH, log:EXPRESSION or JSON"},
    };
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
    json_t *probe = ready != NULL && command != NULL ? read_probe(ready, &e) : NULL;
    if (probe != NULL)
        json_object_set_new(body, "ready", probe);
    if (body == NULL || command == NULL || (ready != NULL && probe == NULL) || client_init(&cl, &e) < 0) {
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
    const char *id = json_string_value(json_object_get(sb, "id"));
    if (r == 0) {
        printf("%s\n", id);
        (void)fflush(stdout);
    }
    if (r == 0 && ready != NULL)
        r = wait_ready(&cl, id, &e);
    json_decref(sb);
    json_decref(body);
    json_decref(command);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}
