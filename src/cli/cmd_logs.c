/*
 * cmd_logs.c - logs: what the entry point has written
 */
#include <stdio.h>

#include "base/mem.h"
#include "cli/attach.h"
#include "cli/cmd.h"

int cmd_logs(int argc, char **argv)
{
    bool follow = false;
    const struct arg args[] = {{'f', "follow", ARG_FLAG, &follow, NULL, "go on until the entry point has ended"}};
    const struct cmd d = {
        .usage = "logs [-f] SANDBOX", .about = "Print what the entry point has written, stdout and stderr apart.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = 1,
        .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    char id[64];
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0 || client_sandbox(&cl, argv[0], id, sizeof id, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    auto_free char *base = client_path("/v1/sandboxes/%s/logs", id);
    auto_free char *out = mem_printf("%s?stream=stdout&follow=%s", base, follow ? "true" : "false");
    auto_free char *err = mem_printf("%s?stream=stderr&follow=%s", base, follow ? "true" : "false");
    int r = attach_copy(&cl, out, err, &e);
    if (r < 0)
        return cmd_fail(&e, EXIT_FAILED);
    return r > 0 ? 128 + r : 0;
}
