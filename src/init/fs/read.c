/*
 * read.c - ReadFile: the bytes of a regular file, and of files that do not know their size
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/fs/op.h"
#include "init/fs/signs.h"
#include "sys/fd.h"

#define READ_MAX (5LL * 1024 * 1024 * 1024)     /* the limit that clients document */
#define BATCH_MAX (1024 * 1024)

struct range {
    int64_t offset, length, max;        /* length -1 = all */
    int64_t suffix;                     /* the last so many bytes, -1 = not asked for */
    bool header;
};

static int range_args(struct op *o, struct range *r, struct fs_error *e)
{
    if (arg_int(o, "offset", 0, 0, INT64_MAX, &r->offset, e) < 0 ||
        arg_int(o, "length", -1, 0, INT64_MAX, &r->length, e) < 0 ||
        arg_int(o, "suffix", -1, 0, INT64_MAX, &r->suffix, e) < 0 ||
        arg_bool(o, "header", false, &r->header, e) < 0 ||
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

/* Places the range in the file. A size of 0 may be unknown, as in /proc. */
static int range_place(struct range *r, const struct stat *st, struct fs_error *e)
{
    if (r->suffix >= 0) {
        r->offset = st->st_size > r->suffix ? st->st_size - r->suffix : 0;
        r->length = -1;
    }
    if (r->header && st->st_size > 0 && (r->offset >= st->st_size || r->suffix == 0))
        return fs_fail_kind(e, "InvalidRange", "the range begins behind the end of the file");
    return 0;
}

static void header_print(struct out *o, const struct range *r, const struct stat *st)
{
    int64_t there = st->st_size > r->offset ? st->st_size - r->offset : 0;

    out_text(o, "{\"size\":");
    out_i64(o, st->st_size);
    out_text(o, ",\"mode\":");
    out_u64(o, st->st_mode & 07777);
    out_text(o, ",\"offset\":");
    out_i64(o, r->offset);
    out_text(o, ",\"length\":");
    if (st->st_size == 0)
        out_text(o, "null");
    else
        out_i64(o, r->length >= 0 && r->length < there ? r->length : there);
    out_text(o, "}\n");
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
    static struct signs signs;

    if (arg_path(o, "path", &path, e) < 0 || range_args(o, &r, e) < 0 || op_signs(o, &signs, e) < 0)
        return -1;
    auto_close int fd = open_regular(path, &st, e);
    if (fd < 0)
        return -1;
    if (range_place(&r, &st, e) < 0)
        return -1;
    if (too_large(&st, &r))
        return fs_fail(e, EFBIG);
    if (o->batch)
        return read_batch(o, fd, &st, &r, e);
    if (r.header)
        header_print(o->out, &r, &st);
    return copy(o, fd, &r, e);
}
