/*
 * image_def.c - reading the definition of an image layer
 */
#include "api/modal/image_def.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/ids.h"

/* What a client adds to its default image; the image named base has it, or does not need it. */
static const char *const tuning[] = {
    "RUN apt-get update",
    "RUN apt-get install -y gcc gfortran build-essential",
    "RUN pip install --upgrade pip",
    "RUN echo 'debconf debconf/frontend select Noninteractive'",
};

static bool has_word(const char *line, const char *word)
{
    size_t n = strlen(word);

    return strncasecmp(line, word, n) == 0 && (line[n] == ' ' || line[n] == '\t');
}

bool image_def_is_tuning(const char *line)
{
    for (size_t i = 0; i < sizeof tuning / sizeof tuning[0]; i++)
        if (strncmp(line, tuning[i], strlen(tuning[i])) == 0)
            return true;
    return false;
}

static void read_from(const char *line, struct image_def *d)
{
    const char *at = line + 4;

    at += strspn(at, " \t");
    while (strncmp(at, "--", 2) == 0) {         /* --platform=... */
        at += strcspn(at, " \t");
        at += strspn(at, " \t");
    }
    size_t n = strcspn(at, " \t\r\n");
    if (n == 0 || n >= sizeof d->ref)
        return;
    memcpy(d->ref, at, n);
    d->ref[n] = '\0';
    d->kind = strcmp(d->ref, "base") == 0 ? IMAGE_DEF_BASE : IMAGE_DEF_REF;
}

void image_def_read(char *const *lines, size_t n, struct image_def *ret)
{
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; i < n; i++) {
        const char *line = lines[i] + strspn(lines[i], " \t");
        if (*line == '\0' || *line == '\n' || *line == '#')
            continue;
        if (has_word(line, "FROM") && ret->kind == IMAGE_DEF_EMPTY) {
            read_from(line, ret);
            continue;
        }
        if (image_def_is_tuning(line) && ret->kind == IMAGE_DEF_REF && image_ref_is_debian(ret->ref)) {
            ret->has_tuning = true;
            continue;
        }
        ret->kind = IMAGE_DEF_BUILD;
        (void)snprintf(ret->command, sizeof ret->command, "%.*s", (int)strcspn(line, "\r\n"), line);
        return;
    }
}

/* What follows a registry and "library/". */
static const char *without_registry(const char *ref)
{
    const char *slash = strchr(ref, '/');

    if (slash != NULL && (memchr(ref, '.', (size_t)(slash - ref)) != NULL || memchr(ref, ':', (size_t)(slash - ref)) != NULL
                          || strncmp(ref, "localhost/", 10) == 0))
        ref = slash + 1;
    return strncmp(ref, "library/", 8) == 0 ? ref + 8 : ref;
}

static size_t len_without_tag(const char *ref)
{
    const char *at = strchr(ref, '@'), *slash = strrchr(ref, '/');
    const char *colon = strchr(slash != NULL ? slash : ref, ':');

    if (colon != NULL && (at == NULL || colon < at))
        return (size_t)(colon - ref);
    return at != NULL ? (size_t)(at - ref) : strlen(ref);
}

bool image_ref_is_debian(const char *ref)
{
    const char *bare = without_registry(ref);
    size_t n = len_without_tag(bare);

    if (n == 6 && strncmp(bare, "debian", 6) == 0)
        return true;
    return n == 6 && strncmp(bare, "python", 6) == 0 && strstr(bare + 6, "alpine") == NULL && strncmp(bare + 6, ":2", 2) != 0;
}

bool image_tag_name(const char *tag, const char *environment_key, char out[IMAGE_REF_MAX])
{
    const char *slash = strrchr(tag, '/');
    const char *name = slash != NULL ? slash + 1 : tag;
    const char *colon = strchr(name, ':');
    size_t n = colon != NULL ? (size_t)(colon - name) : strlen(name);
    const char *version = colon != NULL ? colon + 1 : "latest";

    if (!name_is_valid(name, n) || !name_is_valid(version, strlen(version)))
        return false;
    bool is_latest = strcmp(version, "latest") == 0;
    int len = snprintf(out, IMAGE_REF_MAX, "%s%s%.*s%s%s", environment_key, environment_key[0] != '\0' ? "/" : "", (int)n, name,
                       is_latest ? "" : ":", is_latest ? "" : version);
    return len > 0 && len < IMAGE_REF_MAX;
}
