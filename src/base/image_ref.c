/*
 * image_ref.c - references to images in registries, and names of images here
 */
#include "base/image_ref.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_REGISTRY "docker.io"
#define NAME_MAX_BYTES 255
#define TAG_MAX 128

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool image_digest_is_valid(const char *text)
{
    return strncmp(text, "sha256:", 7) == 0 && strspn(text + 7, "0123456789abcdef") == 64 && text[71] == '\0';
}

/* One part of a path, or a tag: letters, digits, . _ -, beginning with a letter, a digit or '_'. */
static bool is_part(const char *text, size_t n, bool lower)
{
    if (n == 0 || (!is_alnum(text[0]) && text[0] != '_'))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_alnum(text[i]) && text[i] != '.' && text[i] != '_' && text[i] != '-')
            return false;
        if (lower && text[i] >= 'A' && text[i] <= 'Z')
            return false;
    }
    return true;
}

static bool is_path(const char *text, size_t n, bool lower)
{
    for (size_t at = 0;;) {
        const char *slash = memchr(text + at, '/', n - at);
        size_t len = slash != NULL ? (size_t)(slash - text) - at : n - at;
        if (!is_part(text + at, len, lower))
            return false;
        if (slash == NULL)
            return true;
        at += len + 1;
    }
}

/* host, host:port, [v6]:port */
static bool is_host(const char *text, size_t n)
{
    const char *end = text + n;
    const char *at = text;

    if (n > 0 && *at == '[') {
        const char *close = memchr(at, ']', n);
        if (close == NULL || strspn(at + 1, "0123456789abcdefABCDEF:.") < (size_t)(close - at - 1) || close == at + 1)
            return false;
        at = close + 1;
    } else {
        while (at < end && (is_alnum(*at) || *at == '.' || *at == '-'))
            at++;
        if (at == text)
            return false;
    }
    if (at == end)
        return true;
    if (*at++ != ':' || at == end || end - at > 5)
        return false;
    for (; at < end; at++)
        if (*at < '0' || *at > '9')
            return false;
    return true;
}

/* The length of the host at the front, 0 if the first part is one of the path. */
static size_t host_len(const char *text)
{
    const char *slash = strchr(text, '/');
    size_t n = slash != NULL ? (size_t)(slash - text) : 0;

    if (n == 0)
        return 0;
    if (memchr(text, '.', n) != NULL || memchr(text, ':', n) != NULL || *text == '[' ||
        (n == 9 && memcmp(text, "localhost", 9) == 0))
        return n;
    return 0;
}

static int refuse(const char *text, struct err *e)
{
    char shown[81];

    (void)snprintf(shown, sizeof shown, "%.80s", text);
    for (char *c = shown; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 127)
            *c = '?';
    return err_set(
        e, ERR_INVALID,
        "'%s' is no image reference: it is [registry/]path[:tag][@sha256:digest], the path in lower case",
        shown);
}

static int copy(char *out, size_t size, const char *text, size_t n)
{
    if (n >= size)
        return -1;
    memcpy(out, text, n);
    out[n] = '\0';
    return 0;
}

int image_ref_parse(const char *text, struct image_ref *ret, struct err *e)
{
    const char *rest = text;
    size_t host = host_len(text);

    memset(ret, 0, sizeof *ret);
    if (strlen(text) >= IMAGE_REF_SIZE)
        return err_set(e, ERR_INVALID, "an image reference has at most %d bytes", IMAGE_REF_SIZE - 1);
    if (host > 0) {
        if (!is_host(text, host) || copy(ret->registry, sizeof ret->registry, text, host) < 0)
            return refuse(text, e);
        rest = text + host + 1;
    }
    if (host == 0 || strcmp(ret->registry, "index.docker.io") == 0)
        (void)snprintf(ret->registry, sizeof ret->registry, "%s", DEFAULT_REGISTRY);
    const char *at = strchr(rest, '@');
    if (at != NULL && (!image_digest_is_valid(at + 1) || copy(ret->digest, sizeof ret->digest, at + 1, 71) < 0))
        return refuse(text, e);
    size_t n = at != NULL ? (size_t)(at - rest) : strlen(rest);
    const char *colon = memchr(rest, ':', n);
    if (colon != NULL) {
        size_t tag = n - (size_t)(colon + 1 - rest);
        if (tag > TAG_MAX || !is_part(colon + 1, tag, false) || copy(ret->tag, sizeof ret->tag, colon + 1, tag) < 0)
            return refuse(text, e);
        n = (size_t)(colon - rest);
    } else if (at == NULL) {
        memcpy(ret->tag, "latest", sizeof "latest");
    }
    if (n == 0 || !is_path(rest, n, true))
        return refuse(text, e);
    bool is_official = strcmp(ret->registry, DEFAULT_REGISTRY) == 0 && memchr(rest, '/', n) == NULL;
    if (snprintf(ret->repository, sizeof ret->repository, "%s%.*s", is_official ? "library/" : "", (int)n, rest) >=
        (int)sizeof ret->repository)
        return refuse(text, e);
    return 0;
}

static const char *without(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);

    return strncmp(text, prefix, n) == 0 && text[n] != '\0' ? text + n : text;
}

int image_name_normalize(const char *text, char ret[IMAGE_REF_SIZE], struct err *e)
{
    const char *name = without(without(without(text, "index.docker.io/"), "docker.io/"), "library/");
    size_t host = host_len(name), n = strlen(name);
    const char *rest = host > 0 ? name + host + 1 : name;
    const char *at = strchr(rest, '@');
    const char *colon = at == NULL ? strchr(rest, ':') : NULL;
    size_t path = at != NULL ? (size_t)(at - rest) : colon != NULL ? (size_t)(colon - rest) : strlen(rest);
    bool good = n > 0 && n <= NAME_MAX_BYTES && path > 0 && (host == 0 || is_host(name, host)) && is_path(rest, path, false);

    if (good && colon != NULL)
        good = strlen(colon + 1) <= TAG_MAX && is_part(colon + 1, strlen(colon + 1), false);
    if (good && at != NULL)
        good = image_digest_is_valid(at + 1);
    if (!good || strncmp(name, "im-", 3) == 0)
        return err_param(e, ERR_INVALID, "name",
                         "an image name is [host[:port]/]path[:tag] of A-Z a-z 0-9 . _ - in at most %d bytes, and does not begin "
                         "with 'im-', as image ids do", NAME_MAX_BYTES);
    if (colon != NULL && strcmp(colon, ":latest") == 0)
        n -= strlen(":latest");
    memcpy(ret, name, n);
    ret[n] = '\0';
    return 0;
}
