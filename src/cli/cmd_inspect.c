/*
 * cmd_inspect.c - inspect: everything about a sandbox or one of its commands, as JSON
 */
#include <stdio.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/table.h"

int cmd_inspect(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "inspect SANDBOX [EXEC]", .about = "Print a sandbox, or one of its commands, as JSON.",
        .mixed = true, .min_words = 1, .max_words = 2, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *o = NULL;
    char id[64];
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0 || client_sandbox(&cl, argv[0], id, sizeof id, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    auto_free char *path = argc > 1 ? client_path("/v1/sandboxes/%s/execs/%s", id, argv[1])
                                    : client_path("/v1/sandboxes/%s", id);
    int r = client_json(&cl, "GET", path, NULL, &o, &e);
    if (r < 0)
        return cmd_fail(&e, EXIT_FAILED);
    table_json(o);
    json_decref(o);
    return 0;
}
