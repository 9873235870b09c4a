/*
 * stdin_feed.h - bytes of a call on their way to the stdin of an exec
 *
 * Used by stdin.c and modal/stdin.c. Pieces are queued and handed to the monitor a chunk at a time. A message's bytes are
 * consumed, and so the client's window opened, when the program has them; the queue is no longer than that window. The offset
 * makes a repeated write harmless: bytes that were taken before are skipped.
 */
#ifndef QS_NODE_STDIN_FEED_H
#define QS_NODE_STDIN_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ids.h"
#include "ipc/monitor_proto.h"
#include "node/node.h"

struct stdin_piece;

/* Uses q[0] of the op, and lives as long as it. */
struct stdin_feed {
    struct op *op;
    char sandbox[ID_SIZE];
    struct mon_ref ref;
    bool held;                  /* only queue for now; stdin_feed_go ends that */
    bool placed;                /* offset is known; else it is where stdin stands */
    bool ended;                 /* nothing more is going to be added */
    bool has_eof;
    bool heard;                 /* state is filled in */
    uint64_t offset;            /* of the next byte to hand on */
    struct stdin_piece *head, **tail;
    struct mon_stdin_r state;   /* as last heard */
    /* Once: all is taken, or stdin is closed, or e says what is wrong. Ends the op. */
    void (*done)(struct op *op, const struct mon_stdin_r *r, const struct err *e);
};

void stdin_feed_init(struct stdin_feed *f, struct op *op);
/* `size` bytes of the message are consumed with the piece (0 = they are already). May end the op. */
void stdin_feed_add(struct stdin_feed *f, const void *p, size_t n, bool eof, size_t size);
void stdin_feed_end(struct stdin_feed *f);      /* may end the op */
void stdin_feed_go(struct stdin_feed *f);       /* may end the op */
/* Where stdin would stand if everything that was added were taken. */
uint64_t stdin_feed_goal(const struct stdin_feed *f);
void stdin_feed_free(struct stdin_feed *f);

#endif
