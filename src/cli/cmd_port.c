/*
 * cmd_port.c - port: opens ports of a sandbox to the outside and lists those that are open
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/table.h"

static int open_port(struct client *cl, const char *id, const char *word, const char *kind, const char *host, struct err *e)
{
    long long port;

    if (args_int("PORT", word, &port, e) < 0)
        return -1;
    auto_free char *number = mem_printf("%lld", port);
    auto_free char *path = client_path("/v1/sandboxes/%s/ports/%s", id, number);
    json_t *body = json_object();
    if (kind != NULL)
        json_object_set_new(body, "kind", json_string(kind));
    if (host != NULL)
        json_object_set_new(body, "host", json_string(host));
    int r = client_json(cl, "PUT", path, body, NULL, e);
    json_decref(body);
    return r;
}

static int list(struct client *cl, const char *id, struct err *e)
{
    auto_free char *path = client_path("/v1/sandboxes/%s/ports", id);
    json_t *page = NULL, *item, *rows;
    size_t i;

    if (client_json(cl, "GET", path, NULL, &page, e) < 0)
        return -1;
    rows = json_pack("[[s,s,s,s]]", "PORT", "KIND", "URL", "WITHOUT TLS");
    json_array_foreach(json_object_get(page, "items"), i, item) {
        long long raw = json_integer_value(json_object_get(item, "raw_port"));
        auto_free char *port = mem_printf("%lld", (long long)json_integer_value(json_object_get(item, "port")));
        auto_free char *plain = raw == 0 ? mem_strdup("")
                                         : mem_printf("%s:%lld", table_text(json_object_get(item, "host")), raw);
        json_array_append_new(rows, json_pack("[s,s,s,s]", port, table_text(json_object_get(item, "kind")),
                                              table_text(json_object_get(item, "url")), plain));
    }
    table_print(rows);
    json_decref(rows);
    json_decref(page);
    return 0;
}

int cmd_port(int argc, char **argv)
{
    const char *kind = NULL, *host = NULL;
    const struct arg args[] = {
        {'k', "kind", ARG_TEXT, &kind, "KIND", "tls (default), h2, or raw: also without TLS"},
        {0, "host", ARG_TEXT, &host, "NAME", "a name of its own, for which the server has a certificate"},
    };
    const struct cmd d = {
        .usage = "port [options] SANDBOX [PORT...]",
        .about = "Open ports of a sandbox to the outside, and list all that are open and where they are reached.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = -1,
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
    for (int i = 1; i < argc; i++)
        if (open_port(&cl, id, argv[i], kind, host, &e) < 0)
            return cmd_fail(&e, EXIT_FAILED);
    return list(&cl, id, &e) < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}
