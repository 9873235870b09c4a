/*
 * signs.h - a stdin of signs: life, and credit for output (ipc/fs_proto.h)
 */
#ifndef QS_INIT_FS_SIGNS_H
#define QS_INIT_FS_SIGNS_H

#include <stdbool.h>
#include <stdint.h>

struct signs {
    int64_t window;                     /* 0 = output needs no credit */
    int64_t credit;
    int silence_ms;                     /* -1 = none */
    int64_t last_ms;                    /* when the last sign came */
};

int64_t signs_now_ms(void);             /* monotonic */
void signs_init(struct signs *s, int64_t window, int silence_ms);
/* Reads what is there, which must be something. 0; -EPIPE = the end of stdin; or another -errno. */
int signs_take(struct signs *s);
/* How long silence may still last; -1 = for ever, 0 = it has been too long. */
int signs_left_ms(const struct signs *s);
/* Waits until there is credit: 0; -EPIPE = nobody wants output; -ETIMEDOUT = silence. */
int signs_wait(struct signs *s);

#endif
