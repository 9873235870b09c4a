/*
 * mover.c - see mover.h
 */
#include "sys/mover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

#define PIPE_BYTES (512 * 1024)
#define SPARE_MAX 16 /* empty pipes that are kept */

struct mover_pipe {
    struct mover_pipe *next;
    int rd, wr;
};

static struct mover_pipe *spare;
static size_t nspare;

static void pipe_free(struct mover_pipe *p)
{
    (void)close(p->rd);
    (void)close(p->wr);
    free(p);
}

static struct mover_pipe *pipe_take(void)
{
    struct mover_pipe *p = spare;
    int fds[2];

    if (p != NULL) {
        spare = p->next;
        nspare--;
        return p;
    }
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return NULL;
    /* Refused to a user who has many already; a small one works too. */
    (void)fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES);
    p = mem_zalloc(sizeof *p);
    p->rd = fds[0];
    p->wr = fds[1];
    return p;
}

/* It is empty. */
static void give(struct mover *m)
{
    struct mover_pipe *p = take_ptr(&m->pipe);

    if (nspare == SPARE_MAX) {
        pipe_free(p);
        return;
    }
    p->next = spare;
    spare = p;
    nspare++;
}

int mover_flush(struct mover *m, int to)
{
    while (m->held > 0) {
        ssize_t n = splice(m->pipe->rd, NULL, to, NULL, m->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        m->held -= (size_t)n;
    }
    if (m->pipe != NULL)
        give(m);
    return 0;
}

/* Into the pipe: as splice(2), with -errno. */
static ssize_t fill(struct mover *m, int from)
{
    for (;;) {
        ssize_t n =
            splice(from, NULL, m->pipe->wr, NULL, PIPE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n >= 0)
            return n;
        if (errno != EINTR)
            return -errno;
    }
}

int mover_move(struct mover *m, int from, int to, size_t budget, size_t *ret_n)
{
    *ret_n = 0;
    while (*ret_n < budget) {
        if (m->pipe == NULL)
            m->pipe = pipe_take();
        if (m->pipe == NULL)
            return MOVER_COPY;
        ssize_t n = fill(m, from);
        if (n <= 0) {
            give(m);
            return n == 0                        ? MOVER_END
                   : n == -EAGAIN                ? MOVER_DRY
                   : n == -EINVAL && *ret_n == 0 ? MOVER_COPY
                                                 : (int)n;
        }
        *ret_n += (size_t)n;
        m->held = (size_t)n;
        int r = mover_flush(m, to);
        if (r < 0)
            return r;
        if (m->held > 0)
            return MOVER_FULL;
    }
    return MOVER_MORE;
}

void mover_done(struct mover *m)
{
    if (m->pipe != NULL)
        pipe_free(m->pipe); /* with what it holds */
    *m = (struct mover){0};
}
