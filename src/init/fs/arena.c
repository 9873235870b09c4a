/*
 * arena.c - memory of the file helper, straight from the kernel
 */
#include "init/fs/arena.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_SIZE (256 * 1024)

struct arena_chunk {
    struct arena_chunk *below;
    size_t size, used;                  /* used counts this header */
};

static _Noreturn void out_of_memory(void)
{
    static const char text[] = "{\"version\":1,\"error_kind\":\"Io\",\"message\":\"out of memory\"}\n";

    (void)!write(2, text, sizeof text - 1);
    _exit(1);
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX / 2)
        out_of_memory();
    n = (n + 15) & ~(size_t)15;
    if (a->top == NULL || a->top->size - a->top->used < n) {
        size_t head = (sizeof(struct arena_chunk) + 15) & ~(size_t)15;
        size_t size = head + n > CHUNK_SIZE ? head + n : CHUNK_SIZE;
        struct arena_chunk *c =
            mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (c == MAP_FAILED)
            out_of_memory();
        *c = (struct arena_chunk){.below = a->top, .size = size, .used = head};
        a->top = c;
    }
    void *p = (char *)a->top + a->top->used;
    a->top->used += n;
    return p;
}

char *arena_copy(struct arena *a, const void *p, size_t n)
{
    char *c = arena_alloc(a, n + 1);

    if (n > 0)
        memcpy(c, p, n);
    c[n] = '\0';
    return c;
}

struct arena_mark arena_mark(const struct arena *a)
{
    return (struct arena_mark){.chunk = a->top, .used = a->top != NULL ? a->top->used : 0};
}

void arena_reset(struct arena *a, struct arena_mark m)
{
    while (a->top != m.chunk) {
        struct arena_chunk *c = a->top;
        a->top = c->below;
        (void)munmap(c, c->size);
    }
    if (a->top != NULL)
        a->top->used = m.used;
}
