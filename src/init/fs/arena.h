/*
 * arena.h - memory of the file helper: grows, is given back in the order of a stack, never freed piecewise
 */
#ifndef QS_INIT_FS_ARENA_H
#define QS_INIT_FS_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *top;
};

struct arena_mark {
    struct arena_chunk *chunk;
    size_t used;
};

/* 16-byte aligned, not cleared. Never NULL: without memory the helper reports so and exits. */
void *arena_alloc(struct arena *a, size_t n);
char *arena_copy(struct arena *a, const void *p, size_t n);     /* with a NUL behind */
struct arena_mark arena_mark(const struct arena *a);
void arena_reset(struct arena *a, struct arena_mark m);

#endif
