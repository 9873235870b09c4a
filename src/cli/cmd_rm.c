/*
 * cmd_rm.c - rm: end sandboxes at once and remove their record and output
 */
#include "base/mem.h"
#include "cli/cmd.h"

int cmd_rm(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "rm SANDBOX...", .about = "End sandboxes at once and remove them with their output.", .mixed = true,
        .min_words = 1, .max_words = -1, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    int code = 0, done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    for (int i = 0; i < argc; i++) {
        char id[64];
        auto_free char *path = NULL;
        if (client_sandbox(&cl, argv[i], id, sizeof id, &e) == 0) {
            path = client_path("/v1/sandboxes/%s", id);
            if (client_json(&cl, "DELETE", path, NULL, NULL, &e) == 0)
                continue;
        }
        code = cmd_fail(&e, EXIT_FAILED);
    }
    return code;
}
