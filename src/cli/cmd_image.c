/*
 * cmd_image.c - image import, ls, rm, and the way to the others
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/cmd_image.h"
#include "cli/table.h"

static ssize_t read_fd(void *ctx, void *p, size_t n)
{
    ssize_t r;

    do {
        r = read(*(int *)ctx, p, n);
    } while (r < 0 && errno == EINTR);
    return r;
}

static int import(int argc, char **argv)
{
    const char *workdir = NULL, *user = NULL;
    auto_arg_list struct arg_list env = {0};
    const struct arg args[] = {
        {'e', "env", ARG_LIST, &env, "NAME=VALUE", "a variable of the image; may be repeated"},
        {'w', "workdir", ARG_TEXT, &workdir, "DIR", "working directory of the image"},
        {'u', "user", ARG_TEXT, &user, "USER", "user of the image"},
    };
    const struct cmd d = {
        .usage = "image import [options] FILE NAME",
        .about = "Import a tar of a root file system (plain, gzip, zstd, xz; - is stdin) and name it.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 2, .max_words = 2,
        .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    struct stat st;
    json_t *image = NULL;
    auto_buf path = {0};
    int fd = STDIN_FILENO, done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    if (strcmp(argv[0], "-") != 0)
        fd = open(argv[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        (void)err_sys(&e, errno, "open %s", argv[0]);
        return cmd_fail(&e, EXIT_FAILED);
    }
    if (S_ISDIR(st.st_mode)) {
        (void)err_set(&e, ERR_INVALID, "%s is a directory, not an archive", argv[0]);
        err_hint(&e, "tar -C %s -c . | quicksand image import - %s", argv[0], argv[1]);
        return cmd_fail(&e, EXIT_FAILED);
    }
    if (client_init(&cl, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    buf_init(&path, 64 * 1024);
    auto_free char *first = client_path("/v1/images?name=%s", argv[1]);
    (void)buf_adds(&path, first);
    for (size_t i = 0; i < env.n; i++) {
        auto_free char *more = client_path("&env=%s", env.items[i]);
        (void)buf_adds(&path, more);
    }
    auto_free char *at = workdir != NULL ? client_path("&workdir=%s", workdir) : mem_strdup("");
    auto_free char *as = user != NULL ? client_path("&user=%s", user) : mem_strdup("");
    (void)buf_adds(&path, at);
    (void)buf_adds(&path, as);
    struct client_body body = {.read = read_fd, .ctx = &fd, .length = S_ISREG(st.st_mode) ? (long long)st.st_size : -1};
    int r = client_stream(&cl, "POST", buf_str(&path), &body, &image, &e);
    if (r == 0)
        printf("%s\n", table_text(json_object_get(image, "id")));
    json_decref(image);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}

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
        {"import", import, "import a root file system from a tar archive"},
        {"ls", list, "list images"},
        {"inspect", image_inspect, "print an image as JSON"},
        {"tag", image_tag, "point a name at an image"},
        {"untag", image_untag, "remove names"},
        {"rm", remove_images, "remove images"},
        {"gc", image_gc, "remove images and build steps that nobody uses"},
    };

    return cmd_family("image", table, array_len(table), argc, argv);
}
