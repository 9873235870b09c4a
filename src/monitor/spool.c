/*
 * spool.c - what execs print
 *
 * A stream lives in a small buffer until it outgrows it, then in <seq>.out or <seq>.err of the run
 * directory, at the offsets of the stream. Pipes are always emptied, whoever reads or not: of an exec at
 * most `keep` unread bytes are held (then it ends for its output), of the entry point the last `keep`
 * bytes. Bytes before `first` are gone; the file has a hole there. All streams together keep at most
 * mon.spool_bytes: the output of the execs that ended first makes room, then whoever writes is over its limit.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "monitor/monitor.h"
#include "sys/fd.h"

#define BUFFER 4096
#define BUFFERS 64
#define TURN_BYTES (256 * 1024)         /* from one stream a turn, so that others get theirs */
#define PIPE_MOST (2 * 1024 * 1024)     /* more cannot be in a pipe: the default most is 1 MiB */
#define PUNCH_STEP (1024 * 1024)        /* holes are made in steps */
#define NAME_SIZE 24
#define BUFFERS_READY 8                 /* kept free in idle time */

static uint8_t buffers[BUFFERS][BUFFER] __attribute__((aligned(BUFFER)));
static struct exec *owners[BUFFERS];
static unsigned used;
static bool flush_fails;                /* until something else changes, trying again is no use */

void stream_init(struct stream *s)
{
    *s = (struct stream){.fd = -1, .file = -1, .memory = -1};
}

/* "<seq>.out" or "<seq>.err", at the end of `space`. */
static const char *name_of(const struct exec *e, int which, char space[NAME_SIZE])
{
    size_t n = NAME_SIZE - sizeof ".out";
    uint32_t seq = e->r.seq;

    memcpy(space + n, which == OUT ? ".out" : ".err", sizeof ".out");
    do
        space[--n] = (char)('0' + seq % 10);
    while ((seq /= 10) != 0);
    return space + n;
}

static int open_file(const struct exec *e, int which)
{
    char space[NAME_SIZE];
    int fd = openat(mon.run_dir, name_of(e, which, space), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);

    return fd < 0 ? -errno : fd;
}

static int write_at(int fd, const uint8_t *p, size_t n, uint64_t offset)
{
    while (n > 0) {
        ssize_t w = pwrite(fd, p, n, (off_t)offset);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return w < 0 ? -errno : -EIO;
        p += w;
        n -= (size_t)w;
        offset += (size_t)w;
    }
    return 0;
}

/* To the file, which stays open only while the exec lives: ended ones are many. */
static int write_file(struct exec *e, int which, const uint8_t *p, size_t n, uint64_t offset)
{
    struct stream *s = &e->s[which];
    auto_close int fd = s->file;

    if (fd < 0)
        fd = open_file(e, which);
    if (fd < 0)
        return fd;
    s->in_file = true;
    int r = write_at(fd, p, n, offset);
    s->file = e->live ? take_fd(&fd) : -1;
    return r;
}

static void memory_release(struct stream *s)
{
    if (s->memory < 0)
        return;
    owners[s->memory] = NULL;
    s->memory = -1;
    used--;
    flush_fails = false;
}

static int stream_flush(struct exec *e, int which)
{
    struct stream *s = &e->s[which];

    if (s->memory < 0)
        return 0;
    int r = write_file(e, which, buffers[s->memory], (size_t)s->total, 0);
    if (r == 0)
        memory_release(s);
    return r;
}

int spool_flush(struct exec *e)
{
    int r = stream_flush(e, OUT);
    int r2 = stream_flush(e, ERR);

    return r < 0 ? r : r2;
}

/* The oldest ended exec that has a buffer. */
static struct exec *oldest_ended(void)
{
    struct exec *e = NULL;

    for (int i = 0; i < BUFFERS; i++)
        if (owners[i] != NULL && !owners[i]->live && (e == NULL || owners[i]->r.seq < e->r.seq))
            e = owners[i];
    return e;
}

/* A free buffer, or -1. One of an ended exec is written out if none is left. */
static int16_t memory_take(struct exec *e)
{
    if (used == BUFFERS) {
        struct exec *ended = oldest_ended();
        if (ended == NULL || spool_flush(ended) < 0)
            return -1;
    }
    int16_t i = 0;
    while (owners[i] != NULL)
        i++;
    owners[i] = e;
    used++;
    return i;
}

bool spool_wants_work(void)
{
    return used > BUFFERS - BUFFERS_READY && !flush_fails && oldest_ended() != NULL;
}

void spool_work(void)
{
    struct exec *e = oldest_ended();

    if (e != NULL && spool_flush(e) < 0)
        flush_fails = true;
}

static int append(struct exec *e, int which, const uint8_t *p, size_t n)
{
    struct stream *s = &e->s[which];

    if (!s->in_file && s->total + n <= BUFFER) {
        if (s->memory < 0)
            s->memory = memory_take(e);
        if (s->memory >= 0) {
            memcpy(buffers[s->memory] + s->total, p, n);
            return 0;
        }
    }
    int r = stream_flush(e, which);
    if (r < 0)
        return r;
    return write_file(e, which, p, n, s->total);
}

/* Only the last `keep` bytes stay. */
static void drop_old(struct exec *e, struct stream *s)
{
    if (s->total - s->first <= e->keep)
        return;
    mon.spooled -= s->total - e->keep - s->first;
    s->first = s->total - e->keep;
    uint64_t hole = s->first & ~(uint64_t)4095;
    if (s->file < 0 || hole - s->punched < PUNCH_STEP)
        return;
    /* Where the file system cannot, the file only stays larger. */
    (void)fallocate(s->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->punched,
                    (off_t)(hole - s->punched));
    s->punched = hole;
}

/* Memory and files of both streams. */
static void files_drop(struct exec *e)
{
    char space[NAME_SIZE];

    for (int i = OUT; i <= ERR; i++) {
        memory_release(&e->s[i]);
        fd_close(&e->s[i].file);
        if (e->s[i].in_file)    /* what cannot be removed now goes with the directory */
            (void)unlinkat(mon.run_dir, name_of(e, i, space), 0);
        e->s[i].in_file = false;
    }
}

static uint64_t kept(const struct exec *e)
{
    return e->s[OUT].total - e->s[OUT].first + e->s[ERR].total - e->s[ERR].first;
}

/* An ended exec's output goes; how much there was stays known. */
static void drop_all(struct exec *e)
{
    mon.spooled -= kept(e);
    files_drop(e);
    for (int i = OUT; i <= ERR; i++)
        e->s[i].first = e->s[i].total;
}

/* Whether n bytes more may be kept, after what ended longest ago has made room. */
static bool make_room(const struct exec *writer, size_t n)
{
    struct exec *e = exec_oldest();

    while (mon.spooled + n > mon.spool_bytes && e != NULL) {
        if (e != writer && !e->live && !e->entry && kept(e) > 0)
            drop_all(e);
        e = exec_newer(e);
    }
    /* The entry point never ends for its output: its own oldest bytes go. */
    return writer->entry || mon.spooled + n <= mon.spool_bytes;
}

static void store(struct exec *e, int which, const uint8_t *p, size_t n)
{
    struct stream *s = &e->s[which];
    bool over = false;

    if (s->discard || e->forgotten)
        return;
    if (!e->entry) {
        uint64_t unread = s->total - s->taken;
        uint64_t room = unread < e->keep ? e->keep - unread : 0;
        over = n > room;
        n = over ? (size_t)room : n;
    }
    if (!over && n > 0 && !make_room(e, n)) {
        over = true;
        n = 0;
    }
    int r = n > 0 ? append(e, which, p, n) : 0;
    if (r == 0) {
        s->total += n;
        mon.spooled += n;
    }
    drop_old(e, s);
    if (over || r < 0) {
        s->discard = true;
        exec_over_limit(e, -r);
    }
}

void spool_close(struct exec *e, int which)
{
    struct stream *s = &e->s[which];

    s->eof = true;
    if (e->tty && which == OUT)
        input_close(e);         /* the same descriptor */
    fd_close(&s->fd);
    if (!e->live)
        fd_close(&s->file);
}

void spool_drain(struct exec *e, int which, bool all)
{
    struct stream *s = &e->s[which];
    size_t most = all ? PIPE_MOST : TURN_BYTES;

    for (size_t done = 0; s->fd >= 0 && done < most;) {
        ssize_t n = read(s->fd, io_buffer, sizeof io_buffer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {           /* a terminal says EIO when the last program has closed it */
            spool_close(e, which);
            return;
        }
        buffers_used((size_t)n);
        store(e, which, io_buffer, (size_t)n);
        done += (size_t)n;
        /* A short read emptied it; if there is more after all, epoll says so again. */
        if (!all && (size_t)n < sizeof io_buffer)
            return;
    }
}

size_t spool_read(struct exec *e, int which, uint64_t offset, void *out, size_t max)
{
    struct stream *s = &e->s[which];
    uint64_t left = offset < s->total ? s->total - offset : 0;
    size_t n = left < max ? (size_t)left : max;

    if (n == 0)
        return 0;
    if (s->memory >= 0) {
        memcpy(out, buffers[s->memory] + offset, n);
        return n;
    }
    auto_close int fd = s->file >= 0 ? s->file : open_file(e, which);
    ssize_t got = fd < 0 ? -1 : pread(fd, out, n, (off_t)offset);
    if (s->file >= 0)
        (void)take_fd(&fd);
    buffers_used(n);
    return got > 0 ? (size_t)got : 0;
}

void spool_settle(struct exec *e)
{
    for (int i = OUT; i <= ERR; i++)
        fd_close(&e->s[i].file);
}

void spool_forget(struct exec *e)
{
    drop_all(e);
}
