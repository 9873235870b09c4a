/*
 * err.c - filling in and looking up errors
 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct err_row rows[ERR_MAX_] = {
#define ERROR(sym, name, http, grpc, retry, meaning, hint) \
    [ERR_##sym] = {ERR_##sym, name, http, grpc, retry, meaning, hint},
#include "base/errors.def"
#undef ERROR
};

const struct err_row *err_row(enum err_code code)
{
    if ((int)code <= ERR_OK || code >= ERR_MAX_)
        code = ERR_INTERNAL;
    return &rows[code];
}

enum err_code err_code_from_name(const char *name)
{
    for (int i = ERR_OK + 1; i < ERR_MAX_; i++)
        if (strcmp(rows[i].name, name) == 0)
            return (enum err_code)i;
    return ERR_INTERNAL;
}

static void fill(struct err *e, enum err_code code, const char *param, int sys_errno,
                 const char *fmt, va_list ap)
{
    memset(e, 0, sizeof *e);
    e->code = code;
    e->sys_errno = sys_errno;
    if (param != NULL)
        (void)snprintf(e->param, sizeof e->param, "%s", param);
    (void)vsnprintf(e->message, sizeof e->message, fmt, ap);
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    if (e == NULL)
        return -1;
    va_start(ap, fmt);
    fill(e, code, NULL, 0, fmt, ap);
    va_end(ap);
    return -1;
}

int err_param(struct err *e, enum err_code code, const char *param, const char *fmt, ...)
{
    va_list ap;

    if (e == NULL)
        return -1;
    va_start(ap, fmt);
    fill(e, code, param, 0, fmt, ap);
    va_end(ap);
    return -1;
}

static enum err_code code_of_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOENT:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_EXISTS;
    case EACCES:
    case EPERM:
        return ERR_DENIED;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return ERR_CAPACITY;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EAGAIN:
        return ERR_UNAVAILABLE;
    default:
        return ERR_INTERNAL;
    }
}

int err_sys(struct err *e, int sys_errno, const char *fmt, ...)
{
    va_list ap;

    if (e == NULL)
        return -1;
    va_start(ap, fmt);
    fill(e, code_of_errno(sys_errno), NULL, sys_errno, fmt, ap);
    va_end(ap);

    size_t n = strlen(e->message);
    (void)snprintf(e->message + n, sizeof e->message - n, ": %s", strerror(sys_errno));
    return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    char inner[sizeof e->message];
    va_list ap;
    size_t n;

    if (e == NULL)
        return -1;
    memcpy(inner, e->message, sizeof inner);
    va_start(ap, fmt);
    (void)vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    n = strlen(e->message);
    (void)snprintf(e->message + n, sizeof e->message - n, ": %s", inner);
    return -1;
}

void err_hint(struct err *e, const char *fmt, ...)
{
    va_list ap;

    if (e == NULL)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(e->hint, sizeof e->hint, fmt, ap);
    va_end(ap);
}
