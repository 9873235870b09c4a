/*
 * cmd_image_store.c - image pull, inspect, verify, tag, untag, gc
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/cmd_image.h"
#include "cli/operation.h"
#include "cli/registry_login.h"
#include "cli/table.h"

int image_pull(int argc, char **argv)
{
    const char *name = NULL, *arch = NULL;
    struct registry_login login = {0};
    bool refresh = false, quiet = false;
    const struct arg args[] = {
        {0, "name", ARG_TEXT, &name, "NAME", "name of the image here (default the reference)"},
        {0, "refresh", ARG_FLAG, &refresh, NULL, "ask the registry again what the tag names"},
        {0, "arch", ARG_TEXT, &arch, "ARCH", "architecture (default the server's)"},
        REGISTRY_LOGIN_ARGS(&login),
        {'q', "quiet", ARG_FLAG, &quiet, NULL, "print the id alone"},
    };
    const struct cmd d = {
        .usage = "image pull [options] REFERENCE", .about = "Pull an image from a registry and print its id.", .args = args,
        .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *operation = NULL;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    auto_json *body = json_pack("{s:s, s:b}", "ref", argv[0], "refresh", refresh);
    if (name != NULL)
        (void)json_object_set_new(body, "name", json_string(name));
    if (arch != NULL)
        (void)json_object_set_new(body, "arch", json_string(arch));
    if (registry_login_add(&login, argv[0], NULL, body, &e) < 0 || client_init(&cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    int r = client_json(&cl, "POST", "/v1/images:pull", body, &operation, &e);
    if (r == 0)
        r = operation_follow(&cl, operation, quiet, &operation, &e);
    if (r < 0)
        return cmd_fail(&e, EXIT_FAILED);
    printf("%s\n", table_text(json_object_get(operation, "image")));
    json_decref(operation);
    return 0;
}

int image_inspect(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "image inspect IMAGE", .about = "Print an image as JSON.", .mixed = true, .min_words = 1, .max_words = 1,
        .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *image = NULL;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    auto_free char *path = client_path("/v1/images/%s", argv[0]);
    if (client_init(&cl, &e) < 0 || client_json(&cl, "GET", path, NULL, &image, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    (void)json_dumpf(image, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(image);
    return 0;
}

int image_verify(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "image verify IMAGE",
        .about = "Read all layers of an image and say which ones are not what was unpacked.",
        .mixed = true,
        .min_words = 1,
        .max_words = 1,
        .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *result = NULL, *layer;
    size_t i;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    auto_free char *path = client_path("/v1/images/%s/verify", argv[0]);
    if (client_init(&cl, &e) < 0 || client_json(&cl, "POST", path, NULL, &result, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    json_array_foreach(json_object_get(result, "layers"), i, layer)
        printf("%.12s %s\n", table_text(json_object_get(layer, "layer")), table_text(json_object_get(layer, "state")));
    bool is_whole = json_is_true(json_object_get(result, "whole"));
    json_decref(result);
    if (is_whole)
        return 0;
    (void)err_set(&e, ERR_CONFLICT, "%s is damaged", argv[0]);
    err_hint(&e, "pull it again with --refresh, or import or build it again");
    return cmd_fail(&e, EXIT_FAILED);
}

int image_tag(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "image tag IMAGE NAME", .about = "Point a name at an image.", .mixed = true, .min_words = 2, .max_words = 2,
        .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    auto_free char *path = client_path("/v1/images/names/%s", argv[1]);
    json_t *body = json_pack("{s:s}", "image", argv[0]);
    int r = client_init(&cl, &e) < 0 ? -1 : client_json(&cl, "PUT", path, body, NULL, &e);
    json_decref(body);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}

int image_untag(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "image untag NAME...", .about = "Remove names; the images stay.", .mixed = true, .min_words = 1, .max_words = -1,
        .usage_code = EXIT_USAGE,
    };

    return collection_remove(&d, "/v1/images/names", argc, argv);
}

int image_gc(int argc, char **argv)
{
    const char *unused = NULL;
    bool named = false, dry = false;
    const struct arg args[] = {
        {0, "unused", ARG_TEXT, &unused, "SECONDS", "only what was not used for so long (default a day)"},
        {0, "named", ARG_FLAG, &named, NULL, "images that have a name too"},
        {'n', "dry-run", ARG_FLAG, &dry, NULL, "only say what would go"},
    };
    const struct cmd d = {
        .usage = "image gc [options]", .about = "Remove images and build steps that nobody uses.", .args = args,
        .nargs = array_len(args), .mixed = true, .min_words = 0, .max_words = 0, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    json_t *result = NULL, *image;
    double seconds = 0;
    size_t i;
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (unused != NULL && args_number("--unused", unused, &seconds, &e) < 0)
        return cmd_fail(&e, EXIT_USAGE);
    json_t *body = json_pack("{s:b, s:b}", "dry_run", dry, "named", named);
    if (unused != NULL)
        (void)json_object_set_new(body, "unused_s", json_real(seconds));
    int r = client_init(&cl, &e) < 0 ? -1 : client_json(&cl, "POST", "/v1/images:gc", body, &result, &e);
    json_decref(body);
    if (r < 0)
        return cmd_fail(&e, EXIT_FAILED);
    json_array_foreach(json_object_get(result, "images"), i, image)
        printf("%s\n", table_text(json_object_get(image, "image")));
    fprintf(stderr, "%s %.1f MB, %lld build steps\n", dry ? "would free" : "freed",
            json_number_value(json_object_get(result, "freed_bytes")) / 1e6,
            (long long)json_integer_value(json_object_get(result, "build_steps")));
    json_decref(result);
    return 0;
}
