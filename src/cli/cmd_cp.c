/*
 * cmd_cp.c - cp: files and directories between here and a sandbox
 *
 * A file goes as it is, replaced atomically on the other side. A directory goes as a tar that the local tar program makes
 * or unpacks. As with cp(1), a directory that is there receives the source under its own name.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/tar.h"
#include "sys/fd.h"

/* One side: with a sandbox, or local. */
struct side {
    char *sandbox;              /* owned; NULL = local */
    char id[64];
    const char *path;
};

static ssize_t read_fd(void *ctx, void *p, size_t n)
{
    ssize_t r;

    do {
        r = read(*(int *)ctx, p, n);
    } while (r < 0 && errno == EINTR);
    return r;
}

static int write_fd(void *ctx, const void *p, size_t n)
{
    const char *at = p;

    while (n > 0) {
        ssize_t w = write(*(int *)ctx, at, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
        at += w;
        n -= (size_t)w;
    }
    return 0;
}

/* "NAME:PATH" is a sandbox's unless a '/' comes before the colon. */
static void side_parse(const char *text, struct side *ret)
{
    const char *colon = strchr(text, ':'), *slash = strchr(text, '/');

    *ret = (struct side){.path = text};
    if (colon == NULL || colon == text || (slash != NULL && slash < colon))
        return;
    ret->sandbox = mem_strndup(text, (size_t)(colon - text));
    ret->path = colon + 1;
}

static const char *base_name(const char *path, size_t *ret_len)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    *ret_len = n - start;
    return path + start;
}

/* dir + "/" + the last part of `of`; the caller frees. */
static char *under(const char *dir, const char *of)
{
    size_t len, n = strlen(dir);
    const char *name = base_name(of, &len);

    if (n > 0 && dir[n - 1] == '/')
        n--;
    return mem_printf("%.*s/%.*s", (int)n, dir, (int)len, name);
}

/* What is at the path in the sandbox: "file", "directory", ..., "" for nothing. Links are followed once. */
static int remote_type(struct client *cl, const struct side *s, char *out, size_t size, struct err *e)
{
    auto_free char *path = client_path("/v1/sandboxes/%s/files/stat?path=%s", s->id, s->path);
    /* A slash at the end makes the path's last link be followed. */
    auto_free char *follow = client_path("/v1/sandboxes/%s/files/list?limit=1&path=%s", s->id, s->path);
    json_t *o = NULL;

    *out = '\0';
    if (client_json(cl, "GET", path, NULL, &o, e) < 0)
        return e->code == ERR_FS_NOT_FOUND ? 0 : -1;
    const char *type = json_string_value(json_object_get(o, "type"));
    (void)snprintf(out, size, "%s", type != NULL ? type : "");
    json_decref(o);
    if (strcmp(out, "symlink") == 0 && client_json(cl, "GET", follow, NULL, NULL, NULL) == 0)
        (void)snprintf(out, size, "directory");
    return 0;
}

static int put_file(struct client *cl, int fd, const struct stat *st, const char *id, const char *to, struct err *e)
{
    struct client_body body = {.read = read_fd, .ctx = &fd, .length = S_ISREG(st->st_mode) ? (long long)st->st_size : -1};
    auto_free char *path = client_path("/v1/sandboxes/%s/files?path=%s", id, to);
    auto_free char *full = S_ISREG(st->st_mode) ? mem_printf("%s&mode=%04o", path, st->st_mode & 07777)
                                                : mem_strdup(path);

    return client_stream(cl, "PUT", full, &body, NULL, e);
}

static int put_tree(struct client *cl, const char *from, const char *id, const char *to, struct err *e)
{
    char *argv[] = {"tar", "-c", "-f", "-", "-C", (char *)(uintptr_t)from, ".", NULL};
    auto_close int in = -1, out = -1;
    int fds[2];

    json_t *dir = json_pack("{s:s}", "path", to);
    if (dir == NULL)
        return err_set(e, ERR_INVALID, "the path in the sandbox must be UTF-8 text for a directory");
    auto_free char *mkdir_path = client_path("/v1/sandboxes/%s/files/mkdir", id);
    int r = client_json(cl, "POST", mkdir_path, dir, NULL, e);
    json_decref(dir);
    if (r < 0)
        return -1;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    in = fds[0];
    out = fds[1];
    pid_t pid = tar_start(argv, out, STDOUT_FILENO, e);
    if (pid < 0)
        return -1;
    fd_close(&out);
    struct client_body body = {.read = read_fd, .ctx = &in, .length = -1};
    auto_free char *path = client_path("/v1/sandboxes/%s/files/archive?path=%s", id, to);
    r = client_stream(cl, "PUT", path, &body, NULL, e);
    fd_close(&in);
    struct err tar = {0};
    int ended = tar_end(pid, &tar);
    if (r == 0 && ended < 0) {
        *e = tar;
        return -1;
    }
    return r;
}

static int upload(struct client *cl, const char *from, const struct side *to, struct err *e)
{
    auto_close int fd = -1;
    auto_free char *inside = NULL;
    const char *target = to->path;
    struct stat st;
    char type[16];

    fd = strcmp(from, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s", from);
    size_t n = strlen(target);
    if (remote_type(cl, to, type, sizeof type, e) < 0)
        return -1;
    if (strcmp(from, "-") != 0 && (strcmp(type, "directory") == 0 || (n > 0 && target[n - 1] == '/')))
        target = inside = under(target, from);
    if (S_ISDIR(st.st_mode))
        return put_tree(cl, from, to->id, target, e);
    if (!S_ISREG(st.st_mode) && strcmp(from, "-") != 0)
        return err_set(e, ERR_FS_SPECIAL, "%s is neither a file nor a directory", from);
    return put_file(cl, fd, &st, to->id, target, e);
}

static int get_tree(struct client *cl, const struct side *from, const char *to, struct err *e)
{
    char *argv[] = {"tar", "-x", "-f", "-", "-C", (char *)(uintptr_t)to, "--no-same-owner", NULL};
    auto_close int in = -1, out = -1;
    int fds[2];

    if (mkdir(to, 0777) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make %s", to);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    in = fds[0];
    out = fds[1];
    pid_t pid = tar_start(argv, in, STDIN_FILENO, e);
    if (pid < 0)
        return -1;
    fd_close(&in);
    struct client_body body = {.write = write_fd, .ctx = &out};
    auto_free char *path = client_path("/v1/sandboxes/%s/files/archive?path=%s", from->id, from->path);
    int r = client_stream(cl, "GET", path, &body, NULL, e);
    fd_close(&out);
    struct err tar = {0};
    int ended = tar_end(pid, &tar);
    if (r == 0 && ended < 0) {
        *e = tar;
        return -1;
    }
    return r;
}

/* Beside the target first, so that a broken download leaves what was there. */
static int get_file(struct client *cl, const struct side *from, const char *to, struct err *e)
{
    auto_free char *path = client_path("/v1/sandboxes/%s/files?path=%s", from->id, from->path);
    char suffix[ID_SIZE];
    auto_close int fd = -1;
    struct stat st;

    id_make(suffix, ".part-");
    bool direct = strcmp(to, "-") == 0 || (stat(to, &st) == 0 && !S_ISREG(st.st_mode));
    auto_free char *part = direct ? mem_strdup(to) : mem_printf("%s%s", to, suffix);
    if (strcmp(to, "-") == 0)
        fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    else
        fd = open(part, direct ? O_WRONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_sys(e, errno, "open %s", part);
    struct client_body body = {.write = write_fd, .ctx = &fd};
    int r = client_stream(cl, "GET", path, &body, NULL, e);
    if (direct)
        return r;
    if (r == 0 && rename(part, to) < 0)
        r = err_sys(e, errno, "rename %s to %s", part, to);
    if (r < 0)
        (void)unlink(part);
    return r;
}

static int download(struct client *cl, const struct side *from, const char *to, struct err *e)
{
    auto_free char *inside = NULL;
    struct stat st;
    char type[16];

    if (remote_type(cl, from, type, sizeof type, e) < 0)
        return -1;
    if (type[0] == '\0')
        return err_set(e, ERR_FS_NOT_FOUND, "%s: no such file or directory", from->path);
    if (strcmp(to, "-") != 0 && stat(to, &st) == 0 && S_ISDIR(st.st_mode))
        to = inside = under(to, from->path);
    return strcmp(type, "directory") == 0 ? get_tree(cl, from, to, e) : get_file(cl, from, to, e);
}

int cmd_cp(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "cp LOCAL SANDBOX:PATH | SANDBOX:PATH LOCAL",
        .about = "Copy a file or a directory into or out of a sandbox; - is our stdin or stdout.", .mixed = true,
        .min_words = 2, .max_words = 2, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    struct side from, to;
    int r, done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    side_parse(argv[0], &from);
    side_parse(argv[1], &to);
    struct side *remote = from.sandbox != NULL ? &from : &to;
    if ((from.sandbox == NULL) == (to.sandbox == NULL) || remote->path[0] != '/') {
        fprintf(stderr, "usage: quicksand %s (one side in a sandbox, its path absolute)\n", d.usage);
        return EXIT_USAGE;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    if (client_init(&cl, &e) < 0 || client_sandbox(&cl, remote->sandbox, remote->id, sizeof remote->id, &e) < 0)
        return cmd_fail(&e, EXIT_FAILED);
    r = remote == &to ? upload(&cl, argv[0], &to, &e) : download(&cl, &from, argv[1], &e);
    free(remote->sandbox);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}
