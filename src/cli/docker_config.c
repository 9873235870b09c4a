/*
 * docker_config.c - credentials that docker login has left for its user
 *
 * They are in the file itself, or a program has them: docker-credential-NAME, asked with the registry on its standard input.
 * One that is not there, or has nothing, is no reason not to pull what may well be public; it is said.
 */
#include "cli/docker_config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/image_ref.h"
#include "base/mem.h"
#include "sys/fd.h"

#define FILE_MAX (1024 * 1024)
#define ANSWER_MAX (64 * 1024)
#define HUB "docker.io"
#define HUB_KEY "https://index.docker.io/v1/"   /* what docker login calls it */

/* "https://index.docker.io/v1/" and "quay.io" alike name a registry. */
static char *host_of(const char *key)
{
    const char *at = strstr(key, "://");
    const char *host = at != NULL ? at + 3 : key;
    auto_free char *name = mem_strndup(host, strcspn(host, "/"));

    return strcasecmp(name, "index.docker.io") == 0 || strcasecmp(name, HUB) == 0 ? mem_strdup(HUB) : take_ptr(&name);
}

static int read_config(json_t **ret, struct err *e)
{
    const char *dir = getenv("DOCKER_CONFIG"), *home = getenv("HOME");
    json_error_t why;

    *ret = NULL;
    if ((dir == NULL || *dir == '\0') && (home == NULL || *home == '\0'))
        return 0;
    auto_free char *path = dir != NULL && *dir != '\0' ? mem_printf("%s/config.json", dir)
                                                       : mem_printf("%s/.docker/config.json", home);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : err_sys(e, errno, "open %s", path);
    auto_free char *text = mem_alloc(FILE_MAX);
    ssize_t n = fd_read_all(fd, text, FILE_MAX);
    if (n < 0)
        return err_sys(e, (int)-n, "read %s", path);
    *ret = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    explicit_bzero(text, (size_t)n);
    return *ret != NULL ? 0 : err_set(e, ERR_INVALID, "%s is no JSON: line %d: %s", path, why.line, why.text);
}

/* --- programs that keep credentials ----------------------------------------------------------- */

static pid_t start(const char *program, int in, int out)
{
    char *argv[] = {(char *)(uintptr_t)program, "get", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int r = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (r == 0)
        return pid;
    fprintf(stderr, "quicksand: %s, which has the credentials of docker login, cannot be started: %s\n", program, strerror(r));
    return -1;
}

static bool ended_well(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Its answer, or NULL: it has none. */
static json_t *ask(const char *helper, const char *key)
{
    auto_free char *program = mem_printf("docker-credential-%s", helper);
    auto_free char *text = mem_alloc(ANSWER_MAX);
    int in[2], out[2];

    if (strchr(helper, '/') != NULL || pipe2(in, O_CLOEXEC) < 0)
        return NULL;
    auto_close int in_read = in[0];
    auto_close int in_write = in[1];
    if (pipe2(out, O_CLOEXEC) < 0)
        return NULL;
    auto_close int out_read = out[0];
    auto_close int out_write = out[1];
    pid_t pid = start(program, in_read, out_write);
    if (pid < 0)
        return NULL;
    fd_close(&in_read);
    fd_close(&out_write);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)fd_write_all(in_write, key, strlen(key));     /* one that does not read it says so by its exit code */
    fd_close(&in_write);
    ssize_t n = fd_read_all(out_read, text, ANSWER_MAX);
    fd_close(&out_read);
    json_t *answer = ended_well(pid) && n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
    explicit_bzero(text, n > 0 ? (size_t)n : 0);
    return answer;
}

static json_t *from_helper(const char *helper, const char *key)
{
    auto_json *answer = ask(helper, key);
    json_t *user = json_object_get(answer, "Username"), *secret = json_object_get(answer, "Secret");

    if (!json_is_string(user) || !json_is_string(secret))
        return NULL;
    return strcmp(json_string_value(user), "<token>") == 0 ? json_pack("{s:O}", "identitytoken", secret)
                                                            : json_pack("{s:O, s:O}", "username", user, "password", secret);
}

/* --- what a request is given ------------------------------------------------------------------ */

static json_t *from_entry(const json_t *entry)
{
    static const char *const fields[] = {"auth", "username", "password", "identitytoken"};
    json_t *out = json_object();

    for (size_t i = 0; i < array_len(fields); i++) {
        json_t *value = json_object_get(entry, fields[i]);
        if (json_string_length(value) > 0)
            (void)json_object_set(out, fields[i], value);
    }
    if (json_object_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}

static void add(const json_t *config, const char *key, json_t *auths)
{
    auto_free char *host = host_of(key);
    const char *helper = json_string_value(json_object_get(json_object_get(config, "credHelpers"), key));

    if (json_object_get(auths, host) != NULL)
        return;
    if (helper == NULL)
        helper = json_string_value(json_object_get(json_object_get(config, "credHelpers"), host));
    json_t *found = helper == NULL ? from_entry(json_object_get(json_object_get(config, "auths"), key)) : NULL;
    if (helper == NULL && found == NULL)
        helper = json_string_value(json_object_get(config, "credsStore"));
    if (helper != NULL)
        found = from_helper(helper, key);
    if (found != NULL)
        (void)json_object_set_new(auths, host, found);
}

/* A Dockerfile means Docker's own registry without naming it. */
static bool is_meant(const char *host, const char *registry, const char *text)
{
    if (registry != NULL)
        return strcasecmp(host, registry) == 0;
    return strcmp(host, HUB) == 0 || strstr(text, host) != NULL;
}

static void add_meant(const json_t *config, const char *where, const char *registry, const char *text, json_t *auths)
{
    const char *key;
    json_t *value;

    json_object_foreach(json_object_get(config, where), key, value)
    {
        auto_free char *host = host_of(key);
        if (is_meant(host, registry, text))
            add(config, key, auths);
    }
}

int docker_config_add(const char *ref, const char *text, json_t *body, struct err *e)
{
    struct image_ref parsed = {0};
    struct err ignored;
    json_t *loaded;

    if (ref != NULL && image_ref_parse(ref, &parsed, &ignored) < 0)
        return 0;                       /* the server says what is wrong with it */
    if (read_config(&loaded, e) < 0)
        return -1;
    auto_json *config = loaded;
    auto_json *auths = json_object();
    const char *registry = ref != NULL ? parsed.registry : NULL;
    add_meant(config, "credHelpers", registry, text, auths);
    add_meant(config, "auths", registry, text, auths);
    /* Everything may be with the one program for all. */
    if (registry != NULL && json_object_size(auths) == 0 && json_object_get(config, "credsStore") != NULL)
        add(config, strcmp(registry, HUB) == 0 ? HUB_KEY : registry, auths);
    if (json_object_size(auths) > 0)
        (void)json_object_set(body, "auths", auths);
    return 0;
}
