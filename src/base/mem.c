/*
 * mem.c - the only file that calls malloc and realloc
 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void out_of_memory(void)
{
    static const char text[] = "out of memory\n";

    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    abort();
}

void *mem_alloc(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (p == NULL)
        out_of_memory();
    return p;
}

void *mem_zalloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);

    if (p == NULL)
        out_of_memory();
    return p;
}

void *mem_realloc(void *old, size_t n)
{
    void *p = realloc(old, n ? n : 1);

    if (p == NULL)
        out_of_memory();
    return p;
}

void *mem_array(size_t n, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(n, size, &total))
        out_of_memory();
    return mem_zalloc(total);
}

void *mem_dup(const void *src, size_t n)
{
    void *p = mem_alloc(n);

    if (n > 0)
        memcpy(p, src, n);
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_dup(s, strlen(s) + 1);
}

char *mem_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = mem_alloc(len + 1);

    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *mem_printf(const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;

    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0)
        out_of_memory();
    return s;
}
