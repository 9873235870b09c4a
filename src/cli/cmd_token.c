/*
 * cmd_token.c - token create, ls, rm
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/table.h"

static int create(int argc, char **argv)
{
    const char *expires = NULL;
    auto_arg_list struct arg_list scopes = {0};
    const struct arg args[] = {
        {'s', "scope", ARG_LIST, &scopes, "SCOPE", "e.g. sandbox:create, exec:write, or *; may be repeated"},
        {0, "expires", ARG_TEXT, &expires, "SECONDS", "life of the token (default for ever)"},
    };
    const struct cmd d = {
        .usage = "token create -s SCOPE [options] NAME",
        .about = "Make a token and print it; it is shown this once.", .args = args, .nargs = array_len(args),
        .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *token = NULL;
    double seconds = 0;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (scopes.n == 0) {
        (void)err_set(&e, ERR_INVALID, "a token needs at least one --scope");
        return cmd_fail(&e, EXIT_USAGE);
    }
    if (expires != NULL && args_number("--expires", expires, &seconds, &e) < 0)
        return cmd_fail(&e, EXIT_USAGE);
    if (client_init(&cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    json_t *list = json_array(), *body = json_pack("{s:s, s:o}", "name", argv[0], "scopes", list);
    for (size_t i = 0; i < scopes.n; i++)
        json_array_append_new(list, json_string(scopes.items[i]));
    if (expires != NULL)
        json_object_set_new(body, "expires_s", json_real(seconds));
    int r = client_json(&cl, "POST", "/v1/tokens", body, &token, &e);
    if (r == 0)
        printf("%s.%s\n", table_text(json_object_get(token, "id")), table_text(json_object_get(token, "secret")));
    json_decref(token);
    json_decref(body);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}

static int list(int argc, char **argv)
{
    const struct cmd d = {.usage = "token ls", .about = "List tokens.", .mixed = true, .usage_code = EXIT_USAGE};
    json_t *page = NULL, *rows, *token;
    size_t i;
    int done = collection_get(&d, "/v1/tokens", argc, argv, &page);

    if (done >= 0)
        return done;
    rows = json_pack("[[s,s,s,s]]", "ID", "NAME", "AGE", "SCOPES");
    json_array_foreach(json_object_get(page, "items"), i, token) {
        auto_free char *age = table_age(json_object_get(token, "created_at"));
        json_array_append_new(rows, json_pack("[s,s,s,o]", table_text(json_object_get(token, "id")),
                                              table_text(json_object_get(token, "name")), age,
                                              table_join(json_object_get(token, "scopes"))));
    }
    table_print(rows);
    json_decref(rows);
    json_decref(page);
    return 0;
}

static int remove_tokens(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "token rm ID...", .about = "Remove tokens; in force at once.", .mixed = true, .min_words = 1,
        .max_words = -1, .usage_code = EXIT_USAGE,
    };

    return collection_remove(&d, "/v1/tokens", argc, argv);
}

int cmd_token(int argc, char **argv)
{
    static const struct subcommand table[] = {
        {"create", create, "make a token and print it"},
        {"ls", list, "list tokens"},
        {"rm", remove_tokens, "remove tokens"},
    };

    return cmd_family("token", table, array_len(table), argc, argv);
}
