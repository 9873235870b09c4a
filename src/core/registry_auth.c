/*
 * registry_auth.c - credentials of registries
 */
#include "core/registry_auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/mem.h"
#include "core/vault.h"
#include "json/json.h"
#include "sys/fd.h"

#define FILE_MAX (1024 * 1024)
#define VALUE_MAX 8191                  /* of ipc/image_proto.h */
#define AUTHS_MAX 100                   /* registries that a request has credentials for */
#define AUTH_TEXT_MAX 12000             /* of base64 */

static void drop(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

void registry_auth_done(struct registry_auth *a)
{
    drop(a->user);
    drop(a->password);
    drop(a->session);
    drop(a->region);
    drop(a->auths);
    *a = (struct registry_auth){0};
}

static char *copy(const char *text)
{
    return text != NULL ? mem_strdup(text) : NULL;
}

void registry_auth_copy(struct registry_auth *ret, const struct registry_auth *from)
{
    *ret = (struct registry_auth){0};
    if (from == NULL)
        return;
    ret->kind = from->kind;
    ret->user = copy(from->user);
    ret->password = copy(from->password);
    ret->session = copy(from->session);
    ret->region = copy(from->region);
    ret->auths = copy(from->auths);
}

/* --- from a secret -------------------------------------------------------------------------------------------------------- */

/* A value that goes into a header or a signature: one line, and not of any length. */
static int take_value(const json_t *values, const char *key, bool is_needed, char **ret, struct err *e)
{
    const char *value = json_string_value(json_object_get(values, key));

    if (value == NULL || *value == '\0')
        return is_needed ? err_set(e, ERR_INVALID, "the secret for the registry has no %s", key) : 0;
    if (strlen(value) > VALUE_MAX)
        return err_set(e, ERR_TOO_LARGE, "%s of the secret for the registry is longer than %d bytes", key, VALUE_MAX);
    for (const char *at = value; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at > 126)
            return err_set(e, ERR_INVALID, "%s of the secret for the registry has a character that is none of it", key);
    *ret = mem_strdup(value);
    return 0;
}

static int read_aws(const json_t *values, struct registry_auth *ret, struct err *e)
{
    ret->kind = REGISTRY_AUTH_AWS;
    if (json_object_get(values, "AWS_ACCESS_KEY_ID") == NULL && json_object_get(values, "AWS_ROLE_ARN") != NULL)
        return err_set(
            e, ERR_UNSUPPORTED,
            "the secret for the registry has AWS_ROLE_ARN: roles are taken on with an identity that Modal's "
            "service signs, which this daemon has not; give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and "
            "AWS_SESSION_TOKEN if they are a role's");
    if (take_value(values, "AWS_ACCESS_KEY_ID", true, &ret->user, e) < 0 ||
        take_value(values, "AWS_SECRET_ACCESS_KEY", true, &ret->password, e) < 0 ||
        take_value(values, "AWS_SESSION_TOKEN", false, &ret->session, e) < 0 ||
        take_value(values, "AWS_REGION", false, &ret->region, e) < 0)
        return -1;
    return 0;
}

/* The key of a service account as Google's console writes it. Its registries take the whole text as a password. */
static int read_gcp(const json_t *values, struct registry_auth *ret, struct err *e)
{
    static const char *const needed[] = {"private_key", "client_email"};
    const char *text = json_string_value(json_object_get(values, "SERVICE_ACCOUNT_JSON"));
    struct err why;

    if (text == NULL)
        return err_set(e, ERR_INVALID, "the secret for the registry has no SERVICE_ACCOUNT_JSON");
    if (strlen(text) > VALUE_MAX)
        return err_set(
            e, ERR_TOO_LARGE,
            "SERVICE_ACCOUNT_JSON of the secret for the registry is longer than %d bytes",
            VALUE_MAX);
    auto_secret_values *o = js_parse(text, strlen(text), VALUE_MAX, &why);
    if (!json_is_object(o))
        return err_set(e, ERR_INVALID, "SERVICE_ACCOUNT_JSON of the secret for the registry is no JSON object");
    const char *type = json_string_value(json_object_get(o, "type"));
    if (type == NULL || strcmp(type, "service_account") != 0)
        return err_set(e, ERR_INVALID, "'type' of SERVICE_ACCOUNT_JSON is not 'service_account'");
    for (size_t i = 0; i < array_len(needed); i++) {
        const char *value = json_string_value(json_object_get(o, needed[i]));
        if (value == NULL || *value == '\0')
            return err_set(e, ERR_INVALID, "SERVICE_ACCOUNT_JSON has no '%s'", needed[i]);
    }
    if (strstr(json_string_value(json_object_get(o, "private_key")), "-----BEGIN PRIVATE KEY-----") == NULL)
        return err_set(e, ERR_INVALID, "'private_key' of SERVICE_ACCOUNT_JSON is no private key in PEM form");
    ret->user = mem_strdup("_json_key");
    ret->password = mem_strdup(text);
    return 0;
}

static int read_basic(const json_t *values, struct registry_auth *ret, struct err *e)
{
    static const char *const keys[] = {"REGISTRY_USERNAME", "REGISTRY_PASSWORD"};
    char **const to[] = {&ret->user, &ret->password};

    for (size_t i = 0; i < array_len(keys); i++) {
        const char *value = json_string_value(json_object_get(values, keys[i]));
        if (value == NULL)
            return err_set(e, ERR_INVALID, "the secret for the registry has no %s", keys[i]);
        *to[i] = mem_strdup(value);
    }
    return 0;
}

int registry_auth_read(const json_t *values, enum registry_auth_wanted wanted, struct registry_auth *ret, struct err *e)
{
    bool has_basic = json_object_get(values, "REGISTRY_USERNAME") != NULL || json_object_get(values, "REGISTRY_PASSWORD") != NULL;
    bool has_gcp = json_object_get(values, "SERVICE_ACCOUNT_JSON") != NULL;
    bool has_aws = json_object_get(values, "AWS_ACCESS_KEY_ID") != NULL || json_object_get(values, "AWS_ROLE_ARN") != NULL;

    *ret = (struct registry_auth){0};
    if (wanted == REGISTRY_WANTED_GCP || (wanted != REGISTRY_WANTED_AWS && has_gcp))
        return read_gcp(values, ret, e);
    if (wanted == REGISTRY_WANTED_AWS || (!has_basic && has_aws))
        return read_aws(values, ret, e);
    if (wanted == REGISTRY_WANTED_BASIC || has_basic)
        return read_basic(values, ret, e);
    return err_set(e, ERR_INVALID, "the secret for the registry has neither REGISTRY_USERNAME and REGISTRY_PASSWORD nor "
                   "SERVICE_ACCOUNT_JSON nor AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
}

/* --- from a file ---------------------------------------------------------------------------------------------------------- */

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

/* A user of this name has a token instead of a password, for which the registry's token service gives out others. */
#define TOKEN_USER "<token>"

static int take_entry(const json_t *entry, const char *registry, struct registry_auth *ret, struct err *e)
{
    const char *token = json_string_value(json_object_get(entry, "identitytoken"));
    const char *auth = json_string_value(json_object_get(entry, "auth"));
    const char *user = json_string_value(json_object_get(entry, "username"));
    const char *password = json_string_value(json_object_get(entry, "password"));

    if (token != NULL && *token != '\0') {
        ret->user = mem_strdup(TOKEN_USER);
        ret->password = mem_strdup(token);
        return 0;
    }
    if (auth != NULL && *auth != '\0') {
        size_t n = strlen(auth), len = 0;
        auto_free char *plain = mem_zalloc(n + 1);
        if (!base64_decode(auth, n, plain, &len) || memchr(plain, '\0', len) != NULL || strchr(plain, ':') == NULL)
            return err_set(e, ERR_INVALID, "'auth' of %.100s is not base64 of user:password", registry);
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

static int find_entry(const json_t *auths, const char *registry, struct registry_auth *ret, struct err *e)
{
    const char *key;
    json_t *entry;

    json_object_foreach((json_t *)(uintptr_t)auths, key, entry)
        if (is_for(key, registry))
            return take_entry(entry, registry, ret, e);
    return 0;
}

int registry_auths_read(const json_t *auths, struct registry_auth *ret, struct err *e)
{
    static const char *const known[] = {"auth", "username", "password", "identitytoken"};
    const char *key, *field;
    json_t *entry, *value;

    if (!json_is_object(auths) || json_object_size(auths) > AUTHS_MAX)
        return err_param(e, ERR_INVALID, "auths", "auths is not an object of at most %d registries", AUTHS_MAX);
    json_object_foreach((json_t *)(uintptr_t)auths, key, entry)
    {
        auto_registry_auth one = {0};
        if (!json_is_object(entry))
            return err_param(e, ERR_INVALID, "auths", "auths: the entry of %.100s is not an object", key);
        json_object_foreach(entry, field, value)
        {
            bool is_known = false;
            for (size_t i = 0; i < array_len(known); i++)
                is_known = is_known || strcmp(field, known[i]) == 0;
            if (!is_known || !json_is_string(value) || json_string_length(value) > AUTH_TEXT_MAX)
                return err_param(e, ERR_INVALID, "auths",
                                 "auths: %.40s of %.100s is none of auth, username, password and identitytoken, or no text of at "
                                 "most %d bytes", field, key, AUTH_TEXT_MAX);
        }
        if (take_entry(entry, key, &one, e) < 0) {
            (void)snprintf(e->param, sizeof e->param, "auths");
            return -1;
        }
    }
    ret->auths = js_text(auths, false);
    return 0;
}

/* Of a request: what it says of other registries counts for nothing here. */
static int from_text(const char *text, const char *registry, struct registry_auth *ret, struct err *e)
{
    auto_secret_values *auths = js_parse(text, strlen(text), FILE_MAX, e);

    return auths != NULL ? find_entry(auths, registry, ret, e) : -1;
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
    size_t n = 0;

    if (read_file(path, &text, &n, e) < 0)
        return -1;
    if (text == NULL)
        return 0;
    auto_json *o = js_parse(text, n, FILE_MAX, e);
    explicit_bzero(text, n);
    if (o == NULL)
        return err_wrap(e, "file of registry credentials %s", path);
    if (find_entry(json_object_get(o, "auths"), registry, ret, e) == 0)
        return 0;
    const struct err why = *e;
    return err_set(e, ERR_INTERNAL, "file of registry credentials %s: %s", path, why.message);
}

int registry_auth_find(const char *path, const char *registry, const struct registry_auth *given, struct registry_auth *ret,
                       struct err *e)
{
    registry_auth_copy(ret, given);
    if (ret->user != NULL || ret->password != NULL)
        return 0;
    if (ret->auths != NULL && (from_text(ret->auths, registry, ret, e) < 0 || ret->user != NULL))
        return ret->user != NULL ? 0 : -1;
    if (path != NULL && *path != '\0' && from_file(path, registry, ret, e) < 0)
        return -1;
    return 0;
}
