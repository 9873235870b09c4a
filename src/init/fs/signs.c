/*
 * signs.c - a stdin of signs
 *
 * Used by whatever writes much (out.c) and by whatever waits long (watch.c) for a caller in another process, who may be
 * gone without a word.
 */
#include "init/fs/signs.h"

#include <errno.h>
#include <poll.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "ipc/fs_proto.h"

int64_t signs_now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void signs_init(struct signs *s, int64_t window, int silence_ms)
{
    *s = (struct signs){.window = window, .credit = window, .silence_ms = silence_ms, .last_ms = signs_now_ms()};
}

int signs_take(struct signs *s)
{
    char bytes[256];
    ssize_t n = read(0, bytes, sizeof bytes);

    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : -errno;
    if (n == 0)
        return -EPIPE;
    s->last_ms = signs_now_ms();
    for (ssize_t i = 0; i < n; i++)
        if (bytes[i] == FS_SIGN_CREDIT)
            s->credit += s->window / 2;
    return 0;
}

int signs_left_ms(const struct signs *s)
{
    if (s->silence_ms < 0)
        return -1;
    int64_t gone = signs_now_ms() - s->last_ms;
    return gone >= s->silence_ms ? 0 : (int)(s->silence_ms - gone);
}

int signs_wait(struct signs *s)
{
    struct pollfd pf = {.fd = 0, .events = POLLIN};

    while (s->credit <= 0) {
        int left = signs_left_ms(s);
        int r = poll(&pf, 1, left);
        if (r < 0 && errno != EINTR)
            return -errno;
        if (r == 0 && left >= 0)
            return -ETIMEDOUT;
        if (r > 0) {
            r = signs_take(s);
            if (r < 0)
                return r;
        }
    }
    return 0;
}
