/*
 * cmd_policy.c - policy: what may leave a sandbox
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/table.h"

/* Asks for something about the network of a sandbox and prints it. */
static int show(const struct cmd *d, const char *what, int argc, char **argv)
{
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *o = NULL;
    char id[64];
    int done = cmd_parse(d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0 || client_sandbox(&cl, argv[0], id, sizeof id, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    auto_free char *path = argc > 1 ? client_path("/v1/sandboxes/%s/policy/explain?url=%s", id, argv[1])
                           : strcmp(what, "network") == 0 ? client_path("/v1/sandboxes/%s/network", id)
                                                          : client_path("/v1/sandboxes/%s/policy", id);
    if (client_json(&cl, "GET", path, NULL, &o, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    table_json(o);
    json_decref(o);
    return 0;
}

static int get(int argc, char **argv)
{
    static const struct cmd d = {
        .usage = "policy get SANDBOX", .about = "Print the network policy in force, as JSON.",
        .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE,
    };

    return show(&d, "policy", argc, argv);
}

static int explain(int argc, char **argv)
{
    static const struct cmd d = {
        .usage = "policy explain SANDBOX URL", .about = "Say which rule decides about a URL, such as https://example.com/ or tcp://host:22.",
        .mixed = true, .min_words = 2, .max_words = 2, .usage_code = EXIT_USAGE,
    };

    return show(&d, "explain", argc, argv);
}

static int denials(int argc, char **argv)
{
    static const struct cmd d = {
        .usage = "policy status SANDBOX", .about = "Print connections and bytes of a sandbox, and what it was refused last.",
        .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE,
    };

    return show(&d, "network", argc, argv);
}

int cmd_policy(int argc, char **argv)
{
    static const struct subcommand table[] = {
        {"get", get, "the policy in force"},
        {"explain", explain, "which rule decides about a URL"},
        {"status", denials, "connections, bytes and denials"},
    };

    return cmd_family("policy", table, array_len(table), argc, argv);
}
