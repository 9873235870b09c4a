/*
 * cmd_ps.c - ps: the sandboxes there are
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/table.h"

/* All pages; the caller owns the array. */
static json_t *fetch(struct client *cl, const char *state, const char *app, struct err *e)
{
    json_t *all = json_array();
    auto_free char *cursor = NULL;

    for (;;) {
        json_t *page = NULL;
        auto_free char *path = client_path("/v1/sandboxes?limit=1000&state=%s", state);
        auto_free char *by_app = app != NULL ? client_path("&app=%s", app) : mem_strdup("");
        auto_free char *next = cursor != NULL ? client_path("&cursor=%s", cursor) : mem_strdup("");
        auto_free char *full = mem_printf("%s%s%s", path, by_app, next);
        if (client_json(cl, "GET", full, NULL, &page, e) < 0) {
            json_decref(all);
            return NULL;
        }
        json_array_extend(all, json_object_get(page, "items"));
        const char *more = json_string_value(json_object_get(page, "next"));
        free(cursor);
        cursor = more != NULL ? mem_strdup(more) : NULL;
        json_decref(page);
        if (cursor == NULL)
            return all;
    }
}

static json_t *command_text(const json_t *command)
{
    auto_buf b = {0};
    const json_t *word;
    size_t i;

    buf_init(&b, 1024 * 1024);
    json_array_foreach((json_t *)(uintptr_t)command, i, word) {
        if (i > 0)
            (void)buf_addc(&b, ' ');
        if (b.len + json_string_length(word) > 60) {
            (void)buf_adds(&b, "...");
            break;
        }
        (void)buf_adds(&b, json_string_value(word));
    }
    return json_string(json_is_string(command) ? json_string_value(command) : buf_str(&b));
}

/* Id of an image -> the name it has now. Empty where the token may not list images: ids are shown then. */
static json_t *image_names(struct client *cl)
{
    json_t *names = json_object(), *page = NULL, *image;
    struct err ignored;
    size_t i;

    if (client_json(cl, "GET", "/v1/images?limit=1000", NULL, &page, &ignored) < 0)
        return names;
    json_array_foreach(json_object_get(page, "items"), i, image) {
        const char *name = table_text(json_object_get(image, "names"));
        if (*name != '\0')
            json_object_set_new(names, table_text(json_object_get(image, "id")), json_string(name));
    }
    json_decref(page);
    return names;
}

static void print(const json_t *items, const json_t *names)
{
    json_t *rows = json_pack("[[s,s,s,s,s,s]]", "ID", "NAME", "IMAGE", "STATE", "AGE", "COMMAND");
    const json_t *sb;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)items, i, sb) {
        const char *state = table_text(json_object_get(sb, "state"));
        const char *reason = table_text(json_object_get(json_object_get(sb, "exit"), "reason"));
        auto_free char *age = table_age(json_object_get(sb, "created_at"));
        const char *image = table_text(json_object_get(sb, "image")), *name = table_text(json_object_get(names, image));
        auto_free char *how = *reason != '\0' ? mem_printf("%s (%s)", state, reason) : mem_strdup(state);
        json_t *row = json_pack("[s,s,s,s,s,o]", table_text(json_object_get(sb, "id")),
                                table_text(json_object_get(sb, "name")), *name != '\0' ? name : image, how, age,
                                command_text(json_object_get(sb, "command")));
        json_array_append_new(rows, row);
    }
    table_print(rows);
    json_decref(rows);
}

int cmd_ps(int argc, char **argv)
{
    bool all = false, quiet = false;
    const char *format = "table", *app = NULL;
    const struct arg args[] = {
        {'a', "all", ARG_FLAG, &all, NULL, "also those that have ended"},
        {'q', "quiet", ARG_FLAG, &quiet, NULL, "ids alone"},
        {0, "app", ARG_TEXT, &app, "APP", "of this app"},
        {'o', "output", ARG_TEXT, &format, "FORMAT", "table (default) or json"},
    };
    const struct cmd d = {
        .usage = "ps [options]", .about = "List sandboxes, newest first.", .args = args, .nargs = array_len(args),
        .mixed = true, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (strcmp(format, "table") != 0 && strcmp(format, "json") != 0) {
        (void)err_set(&e, ERR_INVALID, "option --output is table or json, not '%.40s'", format);
        return cmd_fail(&e, EXIT_USAGE);
    }
    if (client_init(&cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    json_t *items = fetch(&cl, all ? "any" : "live", app, &e), *sb;
    if (items == NULL)
        return cmd_fail(&e, EXIT_FAILED);
    size_t i;
    if (quiet) {
        json_array_foreach(items, i, sb)
            printf("%s\n", table_text(json_object_get(sb, "id")));
    } else if (strcmp(format, "json") == 0) {
        table_json(items);
    } else {
        json_t *names = image_names(&cl);
        print(items, names);
        json_decref(names);
    }
    json_decref(items);
    return 0;
}
