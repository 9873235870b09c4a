/*
 * cmd_policy.c - policy: what may leave a sandbox
 */
#include "cli/cmd_policy.h"

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
        .usage = "policy explain SANDBOX URL",
        .about =
            "Say which rule decides about a URL, such as https://example.com/ or tcp://host:22.",
        .mixed = true,
        .min_words = 2,
        .max_words = 2,
        .usage_code = EXIT_USAGE,
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

#define POLL_S "30"

/* One line of the log of decisions. Names and paths are of strangers, but printable ASCII. */
static void print_line(const json_t *d)
{
    const char *name = json_string_value(json_object_get(d, "name")), *address = json_string_value(json_object_get(d, "address")),
               *rule = json_string_value(json_object_get(d, "rule")), *method = json_string_value(json_object_get(d, "method")),
               *path = json_string_value(json_object_get(d, "path"));
    const json_t *secret;
    size_t i;
    json_int_t missed = json_integer_value(json_object_get(d, "missed")), count = json_integer_value(json_object_get(d, "count"));
    char at[40];

    if (missed > 0)
        printf("(%" JSON_INTEGER_FORMAT " decisions before it have no line)\n", missed);
    table_time(json_object_get(d, "at"), at, sizeof at);
    printf("%s  %s  %s %s", at, json_string_value(json_object_get(d, "verdict")),
           json_string_value(json_object_get(d, "protocol")),
           name != NULL      ? name
           : address != NULL ? address
                             : "-");
    if (name != NULL && address != NULL)
        printf(" (%s)", address);
    printf(" port %" JSON_INTEGER_FORMAT "  %s", json_integer_value(json_object_get(d, "port")),
           json_string_value(json_object_get(d, "reason")));
    if (rule != NULL)
        printf(" %s", rule);
    if (method != NULL && path != NULL)
        printf("  %s %s", method, path);
    json_array_foreach(json_object_get(d, "secrets"), i, secret)
        printf("%s%s", i == 0 ? "  with " : ",", json_string_value(secret));
    if (count > 1)
        printf("  %" JSON_INTEGER_FORMAT " times", count);
    (void)putchar('\n');
}

static int log_lines(int argc, char **argv)
{
    bool follow = false, as_json = false;
    const struct arg args[] = {{'f', "follow", ARG_FLAG, &follow, NULL, "go on with what comes"},
                               {0, "json", ARG_FLAG, &as_json, NULL, "one JSON object a line"}};
    const struct cmd d = {
        .usage = "policy log [-f] [--json] SANDBOX",
        .about = "Print what the network policy denied, and what rules of action log noted.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    char id[64];
    json_int_t after = 0;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0 || client_sandbox(&cl, argv[0], id, sizeof id, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    for (bool more = true; more;) {
        auto_free char *path = mem_printf("/v1/sandboxes/%s/network/log?limit=1000&after=%" JSON_INTEGER_FORMAT "&wait_s=%s", id,
                                          after, follow ? POLL_S : "0");
        json_t *o = NULL;
        if (client_json(&cl, "GET", path, NULL, &o, &e) < 0)
            return cmd_fail(&e, EXIT_FAILED);
        const json_t *item;
        json_t *items = json_object_get(o, "items");
        size_t i;
        json_array_foreach(items, i, item)
        {
            if (as_json)
                table_json_line(item);
            else
                print_line(item);
        }
        after = json_integer_value(json_object_get(o, "next"));
        more = follow || json_array_size(items) > 0;
        json_decref(o);
        (void)fflush(stdout);
    }
    return 0;
}

int cmd_policy(int argc, char **argv)
{
    static const struct subcommand table[] = {
        {"get", get, "the policy in force in a sandbox"},
        {"set", policy_set, "replace it"},
        {"explain", explain, "which rule decides about a URL"},
        {"status", denials, "connections, bytes and denials"},
        {"log", log_lines, "what was denied or noted, line by line"},
        {"ls", policy_list, "policies with names"},
        {"put", policy_put, "make one, or its next version"},
        {"show", policy_show, "print one"},
        {"versions", policy_versions, "its versions"},
        {"apply", policy_apply, "bring the sandboxes that follow it to the latest version"},
        {"rm", policy_remove, "remove it"},
    };

    return cmd_family("policy", table, array_len(table), argc, argv);
}
