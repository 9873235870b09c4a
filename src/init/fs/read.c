/*
 * read.c - ReadFile: the bytes of a regular file, and of files that do not know their size
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/fs/op.h"
#include "sys/fd.h"

#define READ_MAX (5LL * 1024 * 1024 * 1024)     /* the limit that clients document */
#define BATCH_MAX (1024 * 1024)

struct range {
    int64_t offset, length, max;        /* length -1 = all */
};

static int range_args(struct op *o, struct range *r, struct fs_error *e)
{
    if (arg_int(o, "offset", 0, 0, INT64_MAX, &r->offset, e) < 0 ||
        arg_int(o, "length", -1, 0, INT64_MAX, &r->length, e) < 0 ||
        arg_int(o, "max", o->batch ? BATCH_MAX : READ_MAX, 0, INT64_MAX, &r->max, e) < 0)
        return -1;
    if (o->batch && r->max > BATCH_MAX)
        r->max = BATCH_MAX;
    return 0;
}

/* A FIFO would block, a device need not end, a directory has no bytes. */
static int open_regular(const char *path, struct stat *st, struct fs_error *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return fs_fail(e, errno);
    if (fstat(fd, st) < 0)
        return fs_fail(e, errno);
    if (S_ISDIR(st->st_mode))
        return fs_fail(e, EISDIR);
    if (!S_ISREG(st->st_mode))
        return fs_fail_kind(e, "SpecialFile", "not a regular file");
    return take_fd(&fd);
}

static int too_large(const struct stat *st, const struct range *r)
{
    int64_t there = st->st_size > r->offset ? st->st_size - r->offset : 0;

    if (r->length >= 0 && there > r->length)
        there = r->length;
    return there > r->max;
}

static int copy(struct op *o, int fd, const struct range *r, struct fs_error *e)
{
    static char buffer[256 * 1024];
    int64_t left = r->length >= 0 ? r->length : INT64_MAX, done = 0;
    bool seek = r->offset > 0;

    while (left > 0) {
        size_t want = left < (int64_t)sizeof buffer ? (size_t)left : sizeof buffer;
        /* pread only where an offset was asked for: some files of /proc cannot do it. */
        ssize_t n = seek ? pread(fd, buffer, want, r->offset + done) : read(fd, buffer, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fs_fail(e, errno);
        if (n == 0)
            break;
        done += n;
        left -= n;
        if (done > r->max)              /* a file that did not tell its size */
            return fs_fail(e, EFBIG);
        out_bytes(o->out, buffer, (size_t)n);
        if (o->out->error != 0)
            return fs_fail(e, o->out->error);
    }
    return 0;
}

static int read_batch(struct op *o, int fd, const struct stat *st, const struct range *r,
                      struct fs_error *e)
{
    struct out *real = o->out, content;

    out_init(&content, -1);
    o->out = &content;
    int ret = copy(o, fd, r, e);
    o->out = real;
    if (ret < 0)
        return ret;
    out_text(real, "{\"size\":");
    out_i64(real, st->st_size);
    out_text(real, ",\"b64\":");
    out_base64(real, content.data, content.len);
    out_text(real, "}");
    out_free(&content);
    return 0;
}

int op_read(struct op *o, struct fs_error *e)
{
    const char *path;
    struct range r;
    struct stat st;

    if (arg_path(o, "path", &path, e) < 0 || range_args(o, &r, e) < 0)
        return -1;
    auto_close int fd = open_regular(path, &st, e);
    if (fd < 0)
        return -1;
    if (too_large(&st, &r))
        return fs_fail(e, EFBIG);
    if (o->batch)
        return read_batch(o, fd, &st, &r, e);
    return copy(o, fd, &r, e);
}
