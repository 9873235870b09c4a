/*
 * log.c - log lines
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *log_role = "-";
static enum log_level log_max = LOG_L_INFO;

void log_init(const char *role, enum log_level level)
{
    log_role = role;
    log_max = level;
}

enum log_level log_level_from_name(const char *name)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum log_level)i;
    return LOG_L_INFO;
}

void log_write(enum log_level level, const char *event, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    char line[2048];
    struct timespec ts;
    struct tm tm;
    va_list ap;

    if (level > log_max)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s %s ",
                     tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                     tm.tm_sec, ts.tv_nsec / 1000000, names[level], log_role, event);
    if (n < 0)
        return;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (m < 0)
        return;
    size_t len = strlen(line);
    line[len++] = '\n';
    (void)!write(STDERR_FILENO, line, len);
}

const char *log_escape(const char *text, char *out, size_t size)
{
    size_t n = 0;

    for (; *text != '\0' && n + 5 < size; text++) {
        unsigned char c = (unsigned char)*text;
        if (c > ' ' && c < 127 && c != '"' && c != '\\')
            out[n++] = (char)c;
        else
            n += (size_t)snprintf(out + n, size - n, "\\x%02x", c);
    }
    out[n] = '\0';
    return out;
}
