/*
 * cmd_policy_named.c - policy: policies with names, and which one a sandbox has
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/cmd_policy.h"
#include "cli/table.h"

static json_t *parse(FILE *f, const char *from, struct err *e)
{
    json_error_t why;
    json_t *j = json_loadf(f, 0, &why);

    if (!json_is_object(j)) {
        err_set(e, ERR_INVALID, "%s is no JSON object: %.100s (line %d)", from, j == NULL ? why.text : "it is something else",
                j == NULL ? why.line : 1);
        json_decref(j);
        return NULL;
    }
    return j;
}

/* "{...}", "@FILE" or "@-"; with `names`, a policy's name too. */
static json_t *read_policy(const char *text, bool names, struct err *e)
{
    json_error_t why;
    json_t *j;

    if (strcmp(text, "@-") == 0)
        return parse(stdin, "standard input", e);
    if (text[0] == '@') {
        FILE *f = fopen(text + 1, "re");
        if (f == NULL) {
            err_set(e, ERR_INVALID, "cannot read %.200s", text + 1);
            return NULL;
        }
        j = parse(f, text + 1, e);
        (void)fclose(f);
        return j;
    }
    if (text[0] != '{' && names)
        return json_pack("{s:s}", "name", text);
    j = json_loads(text, 0, &why);
    if (j == NULL)
        err_set(e, ERR_INVALID, "the policy is no JSON (@FILE reads a file): %.100s", why.text);
    return j;
}

static int report(const json_t *o)
{
    size_t i;
    json_t *item;

    json_array_foreach(json_object_get(o, "applied"), i, item)
        printf("%s: revision %" JSON_INTEGER_FORMAT "\n", json_string_value(json_object_get(item, "sandbox")),
               json_integer_value(json_object_get(item, "revision")));
    json_array_foreach(json_object_get(o, "failed"), i, item)
        (void)fprintf(stderr, "quicksand: %s: %s\n", json_string_value(json_object_get(item, "sandbox")),
                      json_string_value(json_object_get(item, "message")));
    return json_array_size(json_object_get(o, "failed")) > 0 ? EXIT_FAILED : 0;
}

/* One request whose answer names a version. */
static int change(const char *method, const char *path, const json_t *body, const char *name, struct client *cl)
{
    struct err e = {0};
    json_t *o = NULL;

    if (client_json(cl, method, path, body, &o, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    printf("%s version %" JSON_INTEGER_FORMAT "\n", name, json_integer_value(json_object_get(o, "version")));
    int code = report(o);
    json_decref(o);
    return code;
}

int policy_put(int argc, char **argv)
{
    bool apply = false, keep = false;
    const struct arg args[] = {{0, "apply", ARG_FLAG, &apply, NULL, "put it in force in the sandboxes that follow the name"},
                               {0, "keep", ARG_FLAG, &keep, NULL, "and keep connections that it does not allow"}};
    const struct cmd d = {
        .usage = "policy put [--apply [--keep]] NAME POLICY", .about = "Make a policy, or its next version, of JSON or @FILE.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 2, .max_words = 2, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    json_t *policy = read_policy(argv[1], false, &e);
    if (policy == NULL || client_init(&cl, &e) < 0) {
        json_decref(policy);
        return cmd_fail(&e, EXIT_FAILED);
    }
    auto_free char *base = client_path("/v1/policies/%s", argv[0]);
    auto_free char *path = mem_printf("%s?apply=%s&keep=%s", base, apply ? "true" : "false", keep ? "true" : "false");
    int code = change("PUT", path, policy, argv[0], &cl);
    json_decref(policy);
    return code;
}

int policy_apply(int argc, char **argv)
{
    bool keep = false;
    const struct arg args[] = {{0, "keep", ARG_FLAG, &keep, NULL, "keep connections that it does not allow"}};
    const struct cmd d = {
        .usage = "policy apply [--keep] NAME", .about = "Put the latest version in force in the sandboxes that follow the name.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    auto_free char *base = client_path("/v1/policies/%s/apply", argv[0]);
    auto_free char *path = mem_printf("%s?keep=%s", base, keep ? "true" : "false");
    return change("POST", path, NULL, argv[0], &cl);
}

int policy_set(int argc, char **argv)
{
    bool keep = false;
    const char *version = NULL;
    const struct arg args[] = {{0, "version", ARG_TEXT, &version, "N", "of a policy by name: stay at this version"},
                               {0, "keep", ARG_FLAG, &keep, NULL, "keep connections that it does not allow"}};
    const struct cmd d = {
        .usage = "policy set [options] SANDBOX POLICY",
        .about = "Replace the policy of a sandbox by one with a name, by JSON, or by @FILE.",
        .args = args,
        .nargs = array_len(args),
        .mixed = true,
        .min_words = 2,
        .max_words = 2,
        .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    char id[64];
    long long number = 0;
    json_t *o = NULL;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    json_t *policy = read_policy(argv[1], true, &e);
    if (policy == NULL || (version != NULL && args_int("version", version, &number, &e) < 0) || client_init(&cl, &e) < 0 ||
        client_sandbox(&cl, argv[0], id, sizeof id, &e) < 0) {
        json_decref(policy);
        return cmd_fail(&e, EXIT_FAILED);
    }
    if (version != NULL)
        json_object_set_new(policy, "version", json_integer(number));
    auto_free char *path = mem_printf("/v1/sandboxes/%s/policy?keep=%s", id, keep ? "true" : "false");
    int r = client_json(&cl, "PUT", path, policy, &o, &e);
    json_decref(policy);
    if (r < 0)
        return cmd_fail(&e, EXIT_FAILED);
    printf("revision %" JSON_INTEGER_FORMAT "\n", json_integer_value(json_object_get(o, "revision")));
    json_decref(o);
    return 0;
}

int policy_show(int argc, char **argv)
{
    const char *version = NULL;
    const struct arg args[] = {{0, "version", ARG_TEXT, &version, "N", "not the latest one"}};
    const struct cmd d = {
        .usage = "policy show [--version N] NAME", .about = "Print a policy with a name, as JSON.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *o = NULL;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    auto_free char *path = version != NULL ? client_path("/v1/policies/%s?version=%s", argv[0], version)
                                           : client_path("/v1/policies/%s", argv[0]);
    if (client_init(&cl, &e) < 0 || client_json(&cl, "GET", path, NULL, &o, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    table_json(o);
    json_decref(o);
    return 0;
}

static int print_page(json_t *page)
{
    json_t *rows = json_pack("[[s, s, s, s]]", "NAME", "VERSION", "AGE", "BY"), *item;
    size_t i;

    json_array_foreach(json_object_get(page, "items"), i, item)
    {
        auto_free char *age = table_age(json_object_get(item, "created_at"));
        auto_free char *version = mem_printf("%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(item, "version")));
        json_array_append_new(rows, json_pack("[O, s, s, O]", json_object_get(item, "name"), version, age,
                                              json_object_get(item, "created_by")));
    }
    table_print(rows);
    json_decref(rows);
    json_decref(page);
    return 0;
}

int policy_list(int argc, char **argv)
{
    static const struct cmd d = {.usage = "policy ls", .about = "List the policies with names, each with its latest version.",
                                 .mixed = true, .min_words = 0, .max_words = 0, .usage_code = EXIT_USAGE};
    json_t *page = NULL;
    int done = collection_get(&d, "/v1/policies", argc, argv, &page);

    return done >= 0 ? done : print_page(page);
}

int policy_versions(int argc, char **argv)
{
    static const struct cmd d = {.usage = "policy versions NAME", .about = "List the versions of a policy, the latest first.",
                                 .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE};
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *page = NULL;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    auto_free char *path = client_path("/v1/policies/%s/versions", argv[0]);
    if (client_init(&cl, &e) < 0 || client_json(&cl, "GET", path, NULL, &page, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    return print_page(page);
}

int policy_remove(int argc, char **argv)
{
    bool force = false;
    const struct arg args[] = {{0, "force", ARG_FLAG, &force, NULL, "also while sandboxes follow it; they keep what they have"}};
    const struct cmd d = {.usage = "policy rm [--force] NAME", .about = "Remove a policy with a name, with all its versions.",
                          .args = args, .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = 1,
                          .usage_code = EXIT_USAGE};
    auto_client struct client cl = {0};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    auto_free char *base = client_path("/v1/policies/%s", argv[0]);
    auto_free char *path = mem_printf("%s?force=%s", base, force ? "true" : "false");
    if (client_init(&cl, &e) < 0 || client_json(&cl, "DELETE", path, NULL, NULL, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    return 0;
}
