/*
 * mover.h - bytes from one stream socket to another without a way through the process
 *
 * The kernel hands the pages on, socket to pipe to socket (splice(2)). A pipe is held only while bytes wait in it, so an idle
 * connection has none; empty ones are kept for the next who needs one. For relays that look at nothing: egress and tunnels.
 */
#ifndef QS_SYS_MOVER_H
#define QS_SYS_MOVER_H

#include <stdbool.h>
#include <stddef.h>

struct mover_pipe;

/* One direction; zeroed is empty. */
struct mover {
    struct mover_pipe *pipe;
    size_t held;                /* read, and not written yet */
};

enum mover_result {
    MOVER_MORE,                 /* the budget is used up */
    MOVER_DRY,                  /* nothing more to read for now */
    MOVER_FULL,                 /* the other socket takes no more: bytes are held */
    MOVER_END,                  /* the reader's peer has ended; all it said is written */
    MOVER_COPY,                 /* nothing was read: no pipe is to be had, or the sockets are of a kind that cannot */
};

/* Moves about `budget` bytes; nothing may be held. *ret_n: how many were read. An enum mover_result or -errno. Both sockets
 * are non-blocking, and SIGPIPE is ignored. */
int mover_move(struct mover *m, int from, int to, size_t budget, size_t *ret_n);
/* Writes what is held: 0, also if it is not all, or -errno. */
int mover_flush(struct mover *m, int to);
void mover_done(struct mover *m);

#endif
