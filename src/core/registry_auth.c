/*
 * registry_auth.c - credentials of registries
 */
#include "core/registry_auth.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/mem.h"
#include "json/json.h"
#include "sys/fd.h"

#define FILE_MAX (1024 * 1024)

void registry_auth_done(struct registry_auth *a)
{
    if (a->password != NULL)
        explicit_bzero(a->password, strlen(a->password));
    free(a->user);
    free(a->password);
    *a = (struct registry_auth){0};
}

/* "https://index.docker.io/v1/" and "quay.io" alike name a host. */
static bool is_for(const char *key, const char *registry)
{
    const char *at = strstr(key, "://");
    const char *host = at != NULL ? at + 3 : key;
    size_t n = strcspn(host, "/");

    if (n == strlen(registry) && strncasecmp(host, registry, n) == 0)
        return true;
    return strcmp(registry, "docker.io") == 0 && n == strlen("index.docker.io") && strncasecmp(host, "index.docker.io", n) == 0;
}

static int take_entry(const json_t *entry, const char *registry, struct registry_auth *ret, struct err *e)
{
    const char *auth = json_string_value(json_object_get(entry, "auth"));
    const char *user = json_string_value(json_object_get(entry, "username"));
    const char *password = json_string_value(json_object_get(entry, "password"));

    if (auth != NULL && *auth != '\0') {
        size_t n = strlen(auth), len = 0;
        auto_free char *plain = mem_zalloc(n + 1);
        if (!base64_decode(auth, n, plain, &len) || memchr(plain, '\0', len) != NULL || strchr(plain, ':') == NULL)
            return err_set(e, ERR_INTERNAL, "'auth' of %s in the file of registry credentials is not base64 of user:password",
                           registry);
        char *colon = strchr(plain, ':');
        ret->user = mem_strndup(plain, (size_t)(colon - plain));
        ret->password = mem_strdup(colon + 1);
        explicit_bzero(plain, n);
        return 0;
    }
    ret->user = mem_strdup(user != NULL ? user : "");
    ret->password = mem_strdup(password != NULL ? password : "");
    return 0;
}

static int read_file(const char *path, char **ret, size_t *ret_len, struct err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

    *ret = NULL;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return err_sys(e, errno, "open the file of registry credentials %s", path);
    auto_free char *text = mem_alloc(FILE_MAX);
    ssize_t n = fd_read_all(fd, text, FILE_MAX);
    if (n < 0)
        return err_sys(e, (int)-n, "read the file of registry credentials %s", path);
    *ret = take_ptr(&text);
    *ret_len = (size_t)n;
    return 0;
}

static int from_file(const char *path, const char *registry, struct registry_auth *ret, struct err *e)
{
    auto_free char *text = NULL;
    const char *key;
    json_t *entry;
    size_t n = 0;

    if (read_file(path, &text, &n, e) < 0)
        return -1;
    if (text == NULL)
        return 0;
    auto_json *o = js_parse(text, n, FILE_MAX, e);
    explicit_bzero(text, n);
    if (o == NULL)
        return err_wrap(e, "file of registry credentials %s", path);
    json_object_foreach(json_object_get(o, "auths"), key, entry)
        if (is_for(key, registry))
            return take_entry(entry, registry, ret, e);
    return 0;
}

int registry_auth_find(const char *path, const char *registry, const char *user, const char *password, struct registry_auth *ret,
                       struct err *e)
{
    *ret = (struct registry_auth){0};
    if (user != NULL || password != NULL) {
        ret->user = mem_strdup(user != NULL ? user : "");
        ret->password = mem_strdup(password != NULL ? password : "");
        return 0;
    }
    if (path != NULL && *path != '\0' && from_file(path, registry, ret, e) < 0)
        return -1;
    if (ret->user == NULL)
        ret->user = mem_strdup("");
    if (ret->password == NULL)
        ret->password = mem_strdup("");
    return 0;
}
