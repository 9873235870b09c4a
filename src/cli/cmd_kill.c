/*
 * cmd_kill.c - kill: end sandboxes, keeping their record; or send a signal
 */
#include <stdio.h>

#include "base/mem.h"
#include "cli/cmd.h"

int cmd_kill(int argc, char **argv)
{
    const char *signal_name = NULL, *grace = NULL;
    const struct arg args[] = {
        {'s', "signal", ARG_TEXT, &signal_name, "SIGNAL", "send this to every process instead of ending the sandbox"},
        {'g', "grace", ARG_TEXT, &grace, "SECONDS", "between SIGTERM and SIGKILL (default the sandbox's, 5)"},
    };
    const struct cmd d = {
        .usage = "kill [options] SANDBOX...", .about = "End sandboxes: SIGTERM, a grace time, SIGKILL.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = -1,
        .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    double seconds = 0;
    int code = 0, done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (grace != NULL && args_number("--grace", grace, &seconds, &e) < 0)
        return cmd_fail(&e, EXIT_USAGE);
    if (client_init(&cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    json_t *body = json_object();
    if (signal_name != NULL)
        json_object_set_new(body, "signal", json_string(signal_name));
    else if (grace != NULL)
        json_object_set_new(body, "grace_s", json_real(seconds));
    for (int i = 0; i < argc; i++) {
        char id[64];
        auto_free char *path = NULL;
        if (client_sandbox(&cl, argv[i], id, sizeof id, &e) == 0) {
            path = client_path(signal_name != NULL ? "/v1/sandboxes/%s/signal" : "/v1/sandboxes/%s/terminate", id);
            if (client_json(&cl, "POST", path, body, NULL, &e) == 0)
                continue;
        }
        code = cmd_fail(&e, EXIT_FAILED);
    }
    json_decref(body);
    return code;
}
