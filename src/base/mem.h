/*
 * mem.h - allocation that does not fail, and cleanup attributes
 *
 * Small allocations end the process when memory is gone (sandboxes outlive the daemons).
 * Sizes that a peer can influence are checked against limits.h before they get here.
 */
#ifndef QS_BASE_MEM_H
#define QS_BASE_MEM_H

#include <stddef.h>
#include <stdlib.h>

void *mem_alloc(size_t n) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_zalloc(size_t n) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_realloc(void *p, size_t n) __attribute__((alloc_size(2), returns_nonnull));
/* n * size, overflow ends the process */
void *mem_array(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
char *mem_strdup(const char *s) __attribute__((malloc, returns_nonnull));
char *mem_strndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
void *mem_dup(const void *p, size_t n) __attribute__((malloc, returns_nonnull));
char *mem_printf(const char *fmt, ...) __attribute__((malloc, returns_nonnull, format(printf, 1, 2)));

static inline void mem_free_p(void *p)
{
    free(*(void **)p);
}

/* Some are kept for their end alone, which clang calls unused. */
#define auto_free __attribute__((cleanup(mem_free_p), unused))
#define take_ptr(p) ({ __auto_type tp_ = *(p); *(p) = NULL; tp_; })
#define array_len(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
