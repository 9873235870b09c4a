/*
 * cmd_build.c - build an image out of a Dockerfile and a directory
 *
 * The directory goes to the server as a tar, less what .dockerignore names.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/build_context.h"
#include "cli/cmd.h"
#include "cli/operation.h"
#include "cli/registry_login.h"
#include "cli/table.h"
#include "cli/tar.h"
#include "sys/fd.h"

#define DOCKERFILE_MAX (1024 * 1024)
#define SECRET_MAX (512 * 1024)

struct build_args {
    const char *file, *name, *target, *timeout, *memory, *network;
    struct arg_list args, labels, secrets, domains;
    struct registry_login login;
    bool no_cache, refresh, quiet;
};

static ssize_t read_fd(void *ctx, void *p, size_t n)
{
    ssize_t r;

    do {
        r = read(*(int *)ctx, p, n);
    } while (r < 0 && errno == EINTR);
    return r;
}

/* "-" is stdin. */
static int read_dockerfile(const char *path, json_t *body, struct err *e)
{
    auto_free char *text = mem_alloc(DOCKERFILE_MAX + 1);
    auto_close int file = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return err_sys(e, errno, "open %s", path);
    ssize_t n = fd_read_all(file, text, DOCKERFILE_MAX);
    if (n < 0)
        return err_sys(e, (int)-n, "read %s", path);
    json_t *value = json_stringn(text, (size_t)n);
    if (value == NULL)
        return err_set(e, ERR_INVALID, "%s is not UTF-8", path);
    (void)json_object_set_new(body, "dockerfile", value);
    return 0;
}

static int upload(struct client *cl, const char *dir, const char *dockerfile, json_t *body, struct err *e)
{
    auto_close int list = build_context_list(dir, dockerfile, e);
    auto_free char *names = mem_printf("--files-from=/proc/self/fd/%d", list);
    char *argv[] = {"tar", "-c", "-f", "-", "--owner=0", "--group=0", "--numeric-owner", "--null", "--no-recursion", "-C",
                    (char *)(uintptr_t)dir, names, NULL};
    json_t *answer = NULL;
    struct err tar = {0};
    int ends[2];

    if (list < 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    auto_close int in = ends[0];
    auto_close int out = ends[1];
    pid_t pid = tar_start(argv, out, STDOUT_FILENO, e);
    if (pid < 0)
        return -1;
    fd_close(&out);
    struct client_body b = {.read = read_fd, .ctx = &in, .length = -1};
    int r = client_stream(cl, "POST", "/v1/builds/contexts", &b, &answer, e);
    fd_close(&in);
    if (tar_end(pid, &tar) < 0 && r == 0) {
        *e = tar;
        r = -1;
    }
    if (r == 0)
        (void)json_object_set(body, "context", json_object_get(answer, "context"));
    (void)json_object_set_new(body, "whole_context", json_true());
    json_decref(answer);
    return r;
}

static json_t *pairs(const struct arg_list *list)
{
    json_t *o = json_object();

    for (size_t i = 0; i < list->n; i++) {
        const char *eq = strchr(list->items[i], '=');
        auto_free char *name = mem_strndup(list->items[i], eq != NULL ? (size_t)(eq - list->items[i]) : strlen(list->items[i]));
        const char *value = eq != NULL ? eq + 1 : getenv(name);
        if (value != NULL)
            (void)json_object_set_new(o, name, json_string(value));
    }
    return o;
}

static int secret_of_variable(const char *id, const char *variable, json_t *into, struct err *e)
{
    const char *value = getenv(variable);

    if (value == NULL)
        return err_set(e, ERR_INVALID, "option --secret: there is no variable '%.60s'", variable);
    json_t *text = json_string(value);
    if (text == NULL)
        return err_set(e, ERR_INVALID, "option --secret: the value of '%.60s' is no text in UTF-8", variable);
    (void)json_object_set_new(into, id, text);
    return 0;
}

static int secret_of_file(const char *id, const char *path, json_t *into, struct err *e)
{
    auto_free char *content = mem_alloc(SECRET_MAX + 1);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    ssize_t n = fd_read_all(fd, content, SECRET_MAX);
    if (n < 0)
        return err_sys(e, (int)-n, "read %s", path);
    json_t *value = memchr(content, '\0', (size_t)n) == NULL ? json_stringn(content, (size_t)n) : NULL;
    explicit_bzero(content, (size_t)n);
    if (value == NULL)
        return err_set(e, ERR_INVALID, "option --secret: %s is no text in UTF-8", path);
    (void)json_object_set_new(into, id, value);
    return 0;
}

/* The value of "key=..." in "a=b,key=...": the caller frees; NULL = it is not there. */
static char *part_of(const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *at = text; *at != '\0'; at += *at == ',') {
        size_t len = strcspn(at, ",");
        if (len > n && strncmp(at, key, n) == 0 && at[n] == '=')
            return mem_strndup(at + n + 1, len - n - 1);
        at += len;
    }
    return NULL;
}

/* NAME=VALUE, NAME alone for our variable, or as other builders have it: id=NAME[,src=FILE|,env=VARIABLE]. */
static int read_secret(const char *text, json_t *into, struct err *e)
{
    const char *eq = strchr(text, '=');

    if (eq == NULL)
        return secret_of_variable(text, text, into, e);
    auto_free char *id = part_of(text, "id"), *src = part_of(text, "src"), *source = part_of(text, "source");
    auto_free char *env = part_of(text, "env");
    if (strncmp(text, "id=", 3) == 0 || strncmp(text, "type=", 5) == 0) {
        if (id == NULL)
            return err_set(e, ERR_INVALID, "option --secret has no id");
        if (src != NULL || source != NULL)
            return secret_of_file(id, src != NULL ? src : source, into, e);
        return secret_of_variable(id, env != NULL ? env : id, into, e);
    }
    auto_free char *name = mem_strndup(text, (size_t)(eq - text));
    json_t *value = json_string(eq + 1);
    if (value == NULL)
        return err_set(e, ERR_INVALID, "option --secret: the value of '%.60s' is no text in UTF-8", name);
    (void)json_object_set_new(into, name, value);
    return 0;
}

static int fill(const struct build_args *a, json_t *body, struct err *e)
{
    double seconds = 0;
    long long memory = 0;

    if (a->name != NULL)
        (void)json_object_set_new(body, "name", json_string(a->name));
    if (a->target != NULL)
        (void)json_object_set_new(body, "target", json_string(a->target));
    (void)json_object_set_new(body, "args", pairs(&a->args));
    (void)json_object_set_new(body, "labels", pairs(&a->labels));
    json_t *secrets = json_object();
    (void)json_object_set_new(body, "secrets", secrets);
    for (size_t i = 0; i < a->secrets.n; i++)
        if (read_secret(a->secrets.items[i], secrets, e) < 0)
            return -1;
    (void)json_object_set_new(body, "no_cache", json_boolean(a->no_cache));
    (void)json_object_set_new(body, "refresh", json_boolean(a->refresh));
    if (registry_login_add(&a->login, NULL, json_string_value(json_object_get(body, "dockerfile")),
                           body, e) < 0 ||
        cmd_network(body, a->network, &a->domains, e) < 0)
        return -1;
    if (a->timeout != NULL) {
        if (args_number("--timeout", a->timeout, &seconds, e) < 0)
            return -1;
        (void)json_object_set_new(body, "step_timeout_s", json_real(seconds));
    }
    if (a->memory != NULL) {
        if (args_int("--memory", a->memory, &memory, e) < 0)
            return -1;
        (void)json_object_set_new(body, "memory_mb", json_integer(memory));
    }
    return 0;
}

static int build(const struct build_args *a, const char *dir, struct err *e)
{
    auto_client struct client cl = {0};
    auto_json *body = json_object();
    auto_free char *file = a->file != NULL ? mem_strdup(a->file) : mem_printf("%s/Dockerfile", dir);
    json_t *operation = NULL;

    if (read_dockerfile(file, body, e) < 0 || fill(a, body, e) < 0 || client_init(&cl, e) < 0 ||
        upload(&cl, dir, file, body, e) < 0 ||
        client_json(&cl, "POST", "/v1/builds", body, &operation, e) < 0 ||
        operation_follow(&cl, operation, a->quiet, &operation, e) < 0)
        return -1;
    printf("%s\n", table_text(json_object_get(operation, "image")));
    json_decref(operation);
    return 0;
}

int cmd_build(int argc, char **argv)
{
    struct build_args a = {0};
    const struct arg args[] = {
        {'f', "file", ARG_TEXT, &a.file, "FILE", "the Dockerfile (default DIRECTORY/Dockerfile; - is stdin)"},
        {'t', "name", ARG_TEXT, &a.name, "NAME", "name of the image"},
        {0, "target", ARG_TEXT, &a.target, "STAGE", "stage to build (default the last)"},
        {0, "build-arg", ARG_LIST, &a.args, "NAME=VALUE", "value of an ARG; NAME alone takes ours; may be repeated"},
        {0, "label", ARG_LIST, &a.labels, "NAME=VALUE", "label of the image; may be repeated"},
        {0, "secret", ARG_LIST, &a.secrets, "id=NAME,src=FILE",
         "for RUN --mount=type=secret; or id=NAME,env=VARIABLE, or NAME=VALUE; may be repeated"},
        REGISTRY_LOGIN_ARGS(&a.login),
        {0, "network", ARG_TEXT, &a.network, "POLICY", "what RUN may reach: open, block, or a policy as JSON"},
        {0, "allow-domain", ARG_LIST, &a.domains, "DOMAIN", "what RUN may reach, this alone; may be repeated"},
        {0, "no-cache", ARG_FLAG, &a.no_cache, NULL, "run every step"},
        {0, "refresh", ARG_FLAG, &a.refresh, NULL, "ask registries again what tags of FROM name"},
        {0, "timeout", ARG_TEXT, &a.timeout, "SECONDS", "longest time of one RUN (default 3600)"},
        {'m', "memory", ARG_TEXT, &a.memory, "MB", "memory of a RUN"},
        {'q', "quiet", ARG_FLAG, &a.quiet, NULL, "print the id alone"},
    };
    const struct cmd d = {
        .usage = "build [options] DIRECTORY", .about = "Build an image out of a Dockerfile and print its id.", .args = args,
        .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = 1, .usage_code = EXIT_USAGE,
    };
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);
    int r = done < 0 ? build(&a, argv[0], &e) : 0;

    arg_list_done(&a.args);
    arg_list_done(&a.labels);
    arg_list_done(&a.secrets);
    arg_list_done(&a.domains);
    return done >= 0 ? done : r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}
