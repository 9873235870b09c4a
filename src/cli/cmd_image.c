/*
 * cmd_image.c - image ls, rm, and the way to the others
 */
#include "cli/cmd_image.h"

#include <stdio.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/table.h"

static int list(int argc, char **argv)
{
    const struct cmd d = {.usage = "image ls", .about = "List images.", .mixed = true, .usage_code = EXIT_USAGE};
    json_t *page = NULL, *rows, *image;
    size_t i;
    int done = collection_get(&d, "/v1/images", argc, argv, &page);

    if (done >= 0)
        return done;
    rows = json_pack("[[s,s,s,s]]", "ID", "NAMES", "MB", "AGE");
    json_array_foreach(json_object_get(page, "items"), i, image) {
        auto_free char *age = table_age(json_object_get(image, "created_at"));
        auto_free char *mb = mem_printf("%.1f", json_number_value(json_object_get(image, "size_bytes")) / 1e6);
        json_array_append_new(rows, json_pack("[s,o,s,s]", table_text(json_object_get(image, "id")),
                                              table_join(json_object_get(image, "names")), mb, age));
    }
    table_print(rows);
    json_decref(rows);
    json_decref(page);
    return 0;
}

static int remove_images(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "image rm IMAGE...", .about = "Remove images by id or name.", .mixed = true, .min_words = 1,
        .max_words = -1, .usage_code = EXIT_USAGE,
    };

    return collection_remove(&d, "/v1/images", argc, argv);
}

int cmd_image(int argc, char **argv)
{
    static const struct subcommand table[] = {
        {"pull", image_pull, "pull an image from a registry"},
        {"build", cmd_build, "build an image out of a Dockerfile, as 'quicksand build'"},
        {"import", image_import, "import an image or a root file system from a tar archive or a directory"},
        {"export", image_export, "write an image to a tar archive"},
        {"ls", list, "list images"},
        {"inspect", image_inspect, "print an image as JSON"},
        {"verify", image_verify, "read an image's layers: are they what was unpacked?"},
        {"tag", image_tag, "point a name at an image"},
        {"untag", image_untag, "remove names"},
        {"rm", remove_images, "remove images"},
        {"gc", image_gc, "remove images and build steps that nobody uses"},
    };

    return cmd_family("image", table, array_len(table), argc, argv);
}
