/*
 * collection.c - what the commands on images and on tokens have in common
 */
#include <stdlib.h>

#include "base/mem.h"
#include "cli/cmd.h"

/* What is behind the first page. */
static int add_pages(struct client *cl, const char *collection, json_t *into, struct err *e)
{
    auto_free char *cursor = NULL;
    const char *next = json_string_value(json_object_get(into, "next"));

    while (next != NULL) {
        json_t *page = NULL;
        free(cursor);
        cursor = mem_strdup(next);
        auto_free char *query = client_path("?limit=1000&cursor=%s", cursor);
        auto_free char *path = mem_printf("%s%s", collection, query);
        if (client_json(cl, "GET", path, NULL, &page, e) < 0)
            return -1;
        (void)json_array_extend(json_object_get(into, "items"), json_object_get(page, "items"));
        (void)json_object_set(into, "next", json_object_get(page, "next"));
        json_decref(page);
        next = json_string_value(json_object_get(into, "next"));
    }
    return 0;
}

int collection_get(const struct cmd *d, const char *collection, int argc, char **argv, json_t **ret_page)
{
    auto_client struct client cl = {0};
    auto_free char *path = mem_printf("%s?limit=1000", collection);
    struct err e = {0};
    int done = cmd_parse(d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0 || client_json(&cl, "GET", path, NULL, ret_page, &e) < 0 ||
        add_pages(&cl, collection, *ret_page, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    return -1;
}

int collection_remove(const struct cmd *d, const char *collection, int argc, char **argv)
{
    auto_client struct client cl = {0};
    struct err e = {0};
    int code = 0, done = cmd_parse(d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    for (int i = 0; i < argc; i++) {
        auto_free char *name = client_path("/%s", argv[i]);
        auto_free char *path = mem_printf("%s%s", collection, name);
        if (client_json(&cl, "DELETE", path, NULL, NULL, &e) < 0)
            code = cmd_fail(&e, EXIT_FAILED);
    }
    return code;
}
