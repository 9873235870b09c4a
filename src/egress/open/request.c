/*
 * request.c - the head of a request that is changed on its way
 */
#include "egress/open/request.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"

static void wipe(char **text)
{
    if (*text != NULL)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void request_done(struct request *r)
{
    wipe(&r->method);
    wipe(&r->target);
    for (size_t i = 0; i < r->nfields; i++) {
        wipe(&r->fields[i].name);
        wipe(&r->fields[i].value);
    }
    r->nfields = 0;
}

bool request_add(struct request *r, const char *name, const char *value)
{
    if (r->nfields == REQUEST_FIELDS_MAX)
        return false;
    r->fields[r->nfields++] = (struct request_field){mem_strdup(name), mem_strdup(value)};
    return true;
}

static bool add_line(struct request *r, const char *p, size_t n)
{
    const char *colon = memchr(p, ':', n), *v = colon + 1, *end = p + n;

    if (colon == NULL || r->nfields == REQUEST_FIELDS_MAX)
        return false;
    while (v < end && (*v == ' ' || *v == '\t'))
        v++;
    while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    r->fields[r->nfields++] =
        (struct request_field){mem_strndup(p, (size_t)(colon - p)), mem_strndup(v, (size_t)(end - v))};
    return true;
}

bool request_from_head(struct request *r, const uint8_t *p, size_t n)
{
    const char *at = (const char *)p, *end = at + n, *sp = memchr(at, ' ', n);

    *r = (struct request){0};
    const char *sp2 = sp == NULL ? NULL : memchr(sp + 1, ' ', (size_t)(end - sp - 1));
    const char *lf = memchr(at, '\n', n);
    if (sp2 == NULL || lf == NULL || sp2 > lf)
        return false;
    r->method = mem_strndup(at, (size_t)(sp - at));
    r->target = mem_strndup(sp + 1, (size_t)(sp2 - sp - 1));
    r->is_http10 = lf - sp2 > 8 && sp2[8] == '0';
    for (at = lf + 1; at < end; at = lf + 1) {
        lf = memchr(at, '\n', (size_t)(end - at));
        if (lf == NULL || lf - at < 2)
            break;
        if (!add_line(r, at, (size_t)(lf - at - 1)))
            return false;
    }
    return true;
}

const char *request_get(const struct request *r, const char *name)
{
    for (size_t i = 0; i < r->nfields; i++)
        if (strcasecmp(r->fields[i].name, name) == 0)
            return r->fields[i].value;
    return NULL;
}

static void remove_from(struct request *r, const char *name, size_t from)
{
    size_t kept = from;

    for (size_t i = from; i < r->nfields; i++) {
        if (strcasecmp(r->fields[i].name, name) == 0) {
            wipe(&r->fields[i].name);
            wipe(&r->fields[i].value);
        } else {
            r->fields[kept++] = r->fields[i];
        }
    }
    r->nfields = kept;
}

void request_remove(struct request *r, const char *name)
{
    remove_from(r, name, 0);
}

static bool is_alike(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        char x = *a == '_' ? '-' : *a, y = *b == '_' ? '-' : *b;
        if (x != y && ((x ^ y) != 32 || (x | 32) < 'a' || (x | 32) > 'z'))
            return false;
    }
    return *a == *b;
}

void request_remove_alike(struct request *r, const char *name)
{
    size_t kept = 0;

    for (size_t i = 0; i < r->nfields; i++) {
        if (is_alike(r->fields[i].name, name) && strcasecmp(r->fields[i].name, name) != 0) {
            wipe(&r->fields[i].name);
            wipe(&r->fields[i].value);
        } else {
            r->fields[kept++] = r->fields[i];
        }
    }
    r->nfields = kept;
}

bool request_set(struct request *r, const char *name, const char *value)
{
    for (size_t i = 0; i < r->nfields; i++) {
        if (strcasecmp(r->fields[i].name, name) != 0)
            continue;
        char *copy = mem_strdup(value);
        wipe(&r->fields[i].value);
        r->fields[i].value = copy;
        remove_from(r, name, i + 1);
        return true;
    }
    return request_add(r, name, value);
}

void request_set_target(struct request *r, const char *target)
{
    char *copy = mem_strdup(target);

    wipe(&r->target);
    r->target = copy;
}

const char *request_path(const struct request *r)
{
    const char *scheme = r->target[0] == '/' ? NULL : strstr(r->target, "://");
    const char *path = scheme == NULL ? r->target : scheme + 3 + strcspn(scheme + 3, "/?#");

    return *path == '/' ? path : "/";
}

void request_write(const struct request *r, struct buf *out)
{
    size_t size = strlen(r->method) + strlen(r->target) + sizeof "  HTTP/1.1\r\n\r\n";

    /* All at once, so that nothing of it is left where it grew out of. */
    for (size_t i = 0; i < r->nfields; i++)
        size += strlen(r->fields[i].name) + strlen(r->fields[i].value) + 4;
    (void)buf_reserve(out, size);
    (void)buf_adds(out, r->method);
    (void)buf_addc(out, ' ');
    (void)buf_adds(out, r->target);
    (void)buf_adds(out, r->is_http10 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
    for (size_t i = 0; i < r->nfields; i++) {
        (void)buf_adds(out, r->fields[i].name);
        (void)buf_adds(out, ": ");
        (void)buf_adds(out, r->fields[i].value);
        (void)buf_adds(out, "\r\n");
    }
    (void)buf_adds(out, "\r\n");
}
