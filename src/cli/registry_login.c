/*
 * registry_login.c - the options by which `image pull` and `build` get credentials for a registry
 *
 * No password is on the command line, which everybody who lists processes sees.
 */
#include "cli/registry_login.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/docker_config.h"
#include "sys/fd.h"

#define VALUE_MAX 8191

/* A text of stdin or a file; what is longer than anybody takes is no key. */
static int take(int fd, const char *what, const char *ends, json_t *into, const char *key, struct err *e)
{
    char text[VALUE_MAX + 2];
    ssize_t n = fd_read_all(fd, text, sizeof text - 1);

    if (n < 0)
        return err_sys(e, (int)-n, "read %s", what);
    if (n > VALUE_MAX)
        return err_set(e, ERR_TOO_LARGE, "%s has more than %d bytes", what, VALUE_MAX);
    text[n] = '\0';
    if (ends != NULL)
        text[strcspn(text, ends)] = '\0';
    json_t *value = strlen(text) == (size_t)n || ends != NULL ? json_string(text) : NULL;
    explicit_bzero(text, sizeof text);
    if (value == NULL)
        return err_set(e, ERR_INVALID, "%s is no text in UTF-8", what);
    (void)json_object_set_new(into, key, value);
    return 0;
}

static int add_aws(json_t *values, struct err *e)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"};

    for (size_t i = 0; i < array_len(names); i++) {
        const char *value = getenv(names[i]);
        if (value == NULL && i == 3)
            value = getenv("AWS_DEFAULT_REGION");
        if (value == NULL && i < 2)
            return err_set(e, ERR_INVALID, "option --aws: there is no variable %s", names[i]);
        json_t *text = value != NULL ? json_string(value) : NULL;
        if (value != NULL && text == NULL)
            return err_set(e, ERR_INVALID, "option --aws: %s is no text in UTF-8", names[i]);
        if (text != NULL)
            (void)json_object_set_new(values, names[i], text);
    }
    return 0;
}

static int add_credentials(const struct registry_login *l, json_t *body, struct err *e)
{
    json_t *values = json_object();

    (void)json_object_set_new(body, "credentials", values);
    if (l->aws)
        return add_aws(values, e);
    auto_close int fd = open(l->gcp_key, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open %s", l->gcp_key) : take(fd, l->gcp_key, NULL, values, "SERVICE_ACCOUNT_JSON", e);
}

int registry_login_add(const struct registry_login *l, const char *ref, const char *text, json_t *body, struct err *e)
{
    int given = (l->user != NULL || l->password_stdin) + l->aws + (l->gcp_key != NULL);

    if (given > 1)
        return err_set(e, ERR_INVALID, "options --username and --password-stdin, --aws and --gcp-key exclude each other");
    if (given == 0)
        return docker_config_add(ref, text, body, e);
    if (l->aws || l->gcp_key != NULL)
        return add_credentials(l, body, e);
    if (l->user != NULL)
        (void)json_object_set_new(body, "username", json_string(l->user));
    return l->password_stdin ? take(STDIN_FILENO, "the password", "\r\n", body, "password", e) : 0;
}
