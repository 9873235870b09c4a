/*
 * collection.c - what the commands on images and on tokens have in common
 */
#include <stdlib.h>

#include "base/mem.h"
#include "cli/cmd.h"

int collection_get(const struct cmd *d, const char *collection, int argc, char **argv, json_t **ret_page)
{
    auto_client struct client cl = {0};
    auto_free char *path = mem_printf("%s?limit=1000", collection);
    struct err e = {0};
    int done = cmd_parse(d, &argc, argv);

    if (done >= 0)
        return done;
    if (client_init(&cl, &e) < 0 || client_json(&cl, "GET", path, NULL, ret_page, &e) < 0)
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
