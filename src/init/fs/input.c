/*
 * input.c - content on stdin
 *
 * Used by the operations that take content. Without frames, an end of file is the end of the content; who cannot tell
 * one from a broken connection asks for a commit.
 */
#include "init/fs/input.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "ipc/fs_proto.h"

/* What may follow the end of an archive is read away, so that its writer does not meet a closed pipe. */
#define TAIL_MAX (16 * 1024 * 1024)

int arg_silence(struct op *o, int *ret_ms, struct fs_error *e)
{
    int64_t seconds;

    if (arg_int(o, "silence_s", -1, 1, 86400, &seconds, e) < 0)
        return -1;
    *ret_ms = seconds < 0 ? -1 : (int)seconds * 1000;
    return 0;
}

int input_init(struct input *in, struct op *o, struct fs_error *e)
{
    *in = (struct input){.silence_ms = -1};
    if (arg_bool(o, "require_commit", false, &in->frames, e) < 0)
        return -1;
    return arg_silence(o, &in->silence_ms, e);
}

static ssize_t read_some(const struct input *in, void *p, size_t n)
{
    struct pollfd pf = {.fd = 0, .events = POLLIN};

    for (;;) {
        if (in->silence_ms >= 0) {
            int r = poll(&pf, 1, in->silence_ms);
            if (r == 0)
                return -ETIMEDOUT;
            if (r < 0 && errno != EINTR)
                return -errno;
            if (r < 0)
                continue;
        }
        ssize_t got = read(0, p, n);
        if (got >= 0)
            return got;
        if (errno != EINTR)
            return -errno;
    }
}

/* The next frame with content, or the commit. */
static int next_frame(struct input *in)
{
    unsigned char head[4];

    for (;;) {
        for (size_t got = 0; got < sizeof head;) {
            ssize_t n = read_some(in, head + got, sizeof head - got);
            if (n <= 0)
                return n == 0 ? -ENODATA : (int)n;
            got += (size_t)n;
        }
        uint32_t length = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 |
                          (uint32_t)head[3] << 24;
        if (length == FS_FRAME_ALIVE)
            continue;
        if (length != FS_FRAME_COMMIT && length > FS_FRAME_MAX)
            return -EBADMSG;
        in->committed = length == FS_FRAME_COMMIT;
        in->left = length;
        return 0;
    }
}

ssize_t input_read(struct input *in, void *p, size_t n)
{
    if (!in->frames)
        return read_some(in, p, n);
    if (in->left == 0 && !in->committed) {
        int r = next_frame(in);
        if (r < 0)
            return r;
    }
    if (in->committed)
        return 0;
    ssize_t got = read_some(in, p, n < in->left ? n : in->left);
    if (got > 0)
        in->left -= (uint32_t)got;
    return got == 0 ? -ENODATA : got;
}

int input_finish(struct input *in)
{
    static char waste[64 * 1024];
    size_t total = 0;

    while (in->frames || total < TAIL_MAX) {
        ssize_t n = input_read(in, waste, sizeof waste);
        if (n <= 0)
            return (int)n;
        total += (size_t)n;
    }
    return 0;
}

int input_fail(int error, struct fs_error *e)
{
    switch (error) {
    case ENODATA:
        return fs_fail_kind(e, "Incomplete", "content ended before its end was marked");
    case ETIMEDOUT:
        return fs_fail_kind(e, "Incomplete", "nothing more came");
    case EBADMSG:
        return fs_fail_kind(e, "Invalid", "stdin has no frames");
    default:
        return fs_fail(e, error);
    }
}
