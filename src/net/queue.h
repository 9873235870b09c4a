/*
 * queue.h - a byte queue: appended at the end, taken from the front, in one piece of memory
 *
 * For bytes that wait to be sent. It has no cap of its own: its owners stop producers by its length
 * (see "Flow control" in http/http.h).
 */
#ifndef QS_NET_QUEUE_H
#define QS_NET_QUEUE_H

#include <stddef.h>
#include <stdint.h>

struct queue {
    uint8_t *mem;               /* owned */
    size_t start;               /* first waiting byte */
    size_t end;                 /* behind the last */
    size_t size;
};

static inline size_t queue_len(const struct queue *q)
{
    return q->end - q->start;
}

static inline const uint8_t *queue_data(const struct queue *q)
{
    return q->mem + q->start;
}

/* Room for n bytes at the end; then queue_grew. */
uint8_t *queue_reserve(struct queue *q, size_t n);
void queue_grew(struct queue *q, size_t n);
void queue_add(struct queue *q, const void *p, size_t n);
/* Forget n bytes at the front; memory of a large queue goes back when it is empty. */
void queue_drop(struct queue *q, size_t n);
void queue_done(struct queue *q);

#endif
