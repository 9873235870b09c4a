/*
 * input.c - stdin of an exec
 *
 * A write is taken at once as far as the pipe has room; the rest of it lies in a buffer until the
 * program reads, and only then is the request answered. One write an exec is under way at a time: a
 * newer one takes its place (it comes from a client that connected again), and the older is answered
 * with what was taken until then.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "monitor/monitor.h"
#include "sys/fd.h"

#define BUFFERS 128
#define END_OF_FILE 4       /* VEOF of a new terminal: ^D */

static uint8_t buffers[BUFFERS][LIMIT_STDIN_CHUNK] __attribute__((aligned(4096)));
static bool in_use[BUFFERS];
static unsigned used;

bool input_has_room(const struct exec *e)
{
    return e->stdin_buffer >= 0 || used < BUFFERS;
}

/* The terminal is one descriptor for both directions and stays watched for output. */
static void want_room(struct exec *e, bool on)
{
    if (e->tty && e->s[OUT].fd >= 0)
        watch_change(e->s[OUT].fd, EPOLLIN | (on ? (uint32_t)EPOLLOUT : 0), SRC_OUT, exec_index(e));
    else if (on && !e->tty)
        (void)watch_add(e->stdin_fd, EPOLLOUT, SRC_IN, exec_index(e));
    else if (e->stdin_fd >= 0)
        watch_remove(e->stdin_fd);
}

static void buffer_release(struct exec *e)
{
    if (e->stdin_buffer < 0)
        return;
    want_room(e, false);
    (void)madvise(buffers[e->stdin_buffer], LIMIT_STDIN_CHUNK, MADV_DONTNEED);
    in_use[e->stdin_buffer] = false;
    used--;
    e->stdin_buffer = -1;
    e->stdin_eof = false;
}

static void buffer_take(struct exec *e, const uint8_t *data, size_t len, bool eof)
{
    int16_t i = 0;

    while (in_use[i])
        i++;
    in_use[i] = true;
    used++;
    memcpy(buffers[i], data, len);
    e->stdin_buffer = i;
    e->stdin_at = 0;
    e->stdin_len = (uint32_t)len;
    e->stdin_eof = eof;
    want_room(e, true);
}

static void close_ours(struct exec *e)
{
    if (e->tty)
        e->stdin_fd = -1;       /* the stream still reads from it */
    else
        fd_close(&e->stdin_fd);
    e->r.stdin_closed = true;
}

/* How many bytes went in: fewer than len if there is no room now, and with stdin closed if the program
 * is not reading any more. */
static size_t put(struct exec *e, const uint8_t *data, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = write(e->stdin_fd, data + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            close_ours(e);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (done > 0) {
        e->stdin_last = data[done - 1];
        e->r.stdin_taken += done;
    }
    return done;
}

static void end_of_file(struct exec *e)
{
    /* On a terminal ^D ends the file only at the start of a line; in the middle it must come twice. */
    static const uint8_t twice[2] = {END_OF_FILE, END_OF_FILE};

    if (e->tty && e->stdin_fd >= 0) {
        bool in_line = e->r.stdin_taken > 0 && e->stdin_last != '\n' && e->stdin_last != '\r';
        /* A terminal whose input queue is full does not read; then nobody will miss the mark. */
        (void)!write(e->stdin_fd, twice, in_line ? 2 : 1);
    }
    close_ours(e);
}

void input_write(struct exec *e, const struct mon_stdin *m)
{
    if (e->stdin_buffer >= 0) {
        buffer_release(e);
        waiters_wake(e);        /* the older write is answered */
    }
    if (e->r.stdin_closed)
        return;
    /* Bytes before what was taken are there already: a client that connected again repeats some. */
    uint64_t skip = m->len > 0 ? e->r.stdin_taken - m->offset : 0;
    if (skip < m->len) {
        const uint8_t *data = m->data + skip;
        size_t len = m->len - (size_t)skip;
        size_t done = put(e, data, len);
        ending_activity("stdin");
        if (done < len && !e->r.stdin_closed) {
            buffer_take(e, data + done, len - done, m->eof);
            return;
        }
    }
    if (m->eof && !e->r.stdin_closed)
        end_of_file(e);
}

void input_continue(struct exec *e)
{
    if (e->stdin_buffer < 0)
        return;
    e->stdin_at += (uint32_t)put(e, buffers[e->stdin_buffer] + e->stdin_at, e->stdin_len - e->stdin_at);
    if (e->stdin_at < e->stdin_len && !e->r.stdin_closed)
        return;
    bool eof = e->stdin_eof;
    buffer_release(e);
    if (eof && !e->r.stdin_closed)
        end_of_file(e);
    waiters_wake(e);
}

void input_close(struct exec *e)
{
    buffer_release(e);
    close_ours(e);
    waiters_wake(e);
}

void input_cancel(struct exec *e)
{
    buffer_release(e);
}
