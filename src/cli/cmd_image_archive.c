/*
 * cmd_image_archive.c - image import, export
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
#include "cli/tar.h"
#include "sys/fd.h"

static ssize_t read_fd(void *ctx, void *p, size_t n)
{
    ssize_t r;

    do {
        r = read(*(int *)ctx, p, n);
    } while (r < 0 && errno == EINTR);
    return r;
}

static int send_file(struct client *cl, int fd, long long length, const char *path, json_t **ret, struct err *e)
{
    const struct client_body body = {.read = read_fd, .ctx = &fd, .length = length};

    return client_stream(cl, "POST", path, &body, ret, e);
}

/* A root file system keeps its owners, as numbers. */
static int send_directory(struct client *cl, const char *dir, const char *path, json_t **ret, struct err *e)
{
    char *argv[] = {"tar",
                    "-c",
                    "-f",
                    "-",
                    "--format=posix",
                    "--xattrs",
                    "--numeric-owner",
                    "-C",
                    (char *)(uintptr_t)dir,
                    ".",
                    NULL};
    struct err tar = {0};
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    auto_close int in = ends[0];
    auto_close int out = ends[1];
    pid_t pid = tar_start(argv, out, STDOUT_FILENO, e);
    if (pid < 0)
        return -1;
    fd_close(&out);
    int r = send_file(cl, in, -1, path, ret, e);
    fd_close(&in);
    if (tar_end(pid, &tar) < 0 && r == 0) {
        *e = tar;
        r = -1;
    }
    return r;
}

int image_import(int argc, char **argv)
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
        .about = "Import an image (docker save, OCI layout) or a root file system: a tar, plain or compressed (- is stdin), or a "
                 "directory. It gets the name.",
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
    int r = S_ISDIR(st.st_mode)
                ? send_directory(&cl, argv[0], buf_str(&path), &image, &e)
                : send_file(&cl, fd, S_ISREG(st.st_mode) ? (long long)st.st_size : -1,
                            buf_str(&path), &image, &e);
    if (r == 0)
        printf("%s\n", table_text(json_object_get(image, "id")));
    json_decref(image);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}

/* --- export ----------------------------------------------------------------------------------- */

static int write_fd(void *ctx, const void *p, size_t n)
{
    return fd_write_all(*(int *)ctx, p, n);
}

/* Under another name until it is complete: a file of the name asked for is a whole archive. */
static int export_to_file(struct client *cl, const char *path, const char *file, struct err *e)
{
    auto_free char *partial = mem_printf("%s.partial", file);
    auto_close int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const struct client_body body = {.write = write_fd, .ctx = &fd, .length = -1};

    if (fd < 0)
        return err_sys(e, errno, "open %s", partial);
    int r = client_stream(cl, "GET", path, &body, NULL, e);
    if (r == 0 && rename(partial, file) < 0)
        r = err_sys(e, errno, "name %s", file);
    if (r < 0)
        (void)unlink(partial);
    return r;
}

static int export_to_stdout(struct client *cl, const char *path, struct err *e)
{
    int fd = STDOUT_FILENO;
    const struct client_body body = {.write = write_fd, .ctx = &fd, .length = -1};

    if (isatty(fd)) {
        (void)err_set(e, ERR_INVALID, "an archive is no text for a terminal");
        err_hint(e, "name a file, or redirect the output");
        return -1;
    }
    return client_stream(cl, "GET", path, &body, NULL, e);
}

int image_export(int argc, char **argv)
{
    const char *compression = "gzip";
    const struct arg args[] = {
        {0, "compression", ARG_TEXT, &compression, "KIND", "of the layers: gzip (default), zstd or none"},
    };
    const struct cmd d = {
        .usage = "image export [options] IMAGE FILE",
        .about = "Write an image to a tar archive, an OCI layout that 'docker load' and 'podman load' take too (- is stdout).",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 2, .max_words = 2, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    auto_free char *path = client_path("/v1/images/%s/export?compression=%s", argv[0], compression);
    int r = client_init(&cl, &e);
    if (r == 0)
        r = strcmp(argv[1], "-") == 0 ? export_to_stdout(&cl, path, &e) : export_to_file(&cl, path, argv[1], &e);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}
