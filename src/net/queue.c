/*
 * queue.c - byte queues
 */
#include "net/queue.h"

#include <string.h>

#include "base/mem.h"

/* An empty queue keeps this much, so that ten thousand idle connections cost little. */
#define QUEUE_KEEP ((size_t)32 * 1024)
/* A queue that outgrows it gets a block of this size at once: bodies fill and drain such queues all the time, and growing
 * by steps from fresh memory cost more than all else in a download. Drained blocks are kept for the next queue. */
#define BLOCK_SIZE ((size_t)512 * 1024)
#define BLOCKS_KEPT 16

/* One loop, one thread a process. */
static uint8_t *kept[BLOCKS_KEPT];
static unsigned nkept;

static uint8_t *get_mem(size_t size)
{
    return size == BLOCK_SIZE && nkept > 0 ? kept[--nkept] : mem_alloc(size);
}

static void put_mem(uint8_t *mem, size_t size)
{
    if (size == BLOCK_SIZE && nkept < BLOCKS_KEPT)
        kept[nkept++] = mem;
    else
        free(mem);
}

uint8_t *queue_reserve(struct queue *q, size_t n)
{
    if (q->size - q->end >= n && q->mem != NULL)
        return q->mem + q->end;
    size_t len = queue_len(q);
    /* Moving to the front is worth it when it frees at least as much as it moves. */
    if (q->mem != NULL && q->start >= len && q->size - len >= n) {
        memmove(q->mem, q->mem + q->start, len);
    } else {
        size_t size = q->size > 0 ? q->size : 256;
        while (size - len < n)
            size *= 2;
        if (size > QUEUE_KEEP && size < BLOCK_SIZE)
            size = BLOCK_SIZE;
        uint8_t *mem = get_mem(size);
        if (q->mem != NULL)
            memcpy(mem, q->mem + q->start, len);
        put_mem(q->mem, q->size);
        q->mem = mem;
        q->size = size;
    }
    q->start = 0;
    q->end = len;
    return q->mem + len;
}

void queue_grew(struct queue *q, size_t n)
{
    q->end += n;
}

void queue_add(struct queue *q, const void *p, size_t n)
{
    if (n == 0)
        return;
    memcpy(queue_reserve(q, n), p, n);
    q->end += n;
}

void queue_drop(struct queue *q, size_t n)
{
    q->start += n;
    if (q->start < q->end)
        return;
    q->start = q->end = 0;
    if (q->size > QUEUE_KEEP)
        queue_done(q);
}

void queue_done(struct queue *q)
{
    put_mem(q->mem, q->size);
    *q = (struct queue){0};
}
