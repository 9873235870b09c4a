/*
 * input.h - content on stdin: plain until end of file, or in frames that a commit ends (ipc/fs_proto.h)
 */
#ifndef QS_INIT_FS_INPUT_H
#define QS_INIT_FS_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "init/fs/op.h"

struct input {
    bool frames;
    bool committed;
    uint32_t left;                      /* of the current frame */
    int silence_ms;                     /* -1 = wait for ever */
};

/* From the arguments require_commit and silence_s. */
int input_init(struct input *in, struct op *o, struct fs_error *e);
/* Up to n bytes; 0 = all of the content has been read; -ENODATA = it ended without a commit; -ETIMEDOUT = silence;
 * -EBADMSG = no frames. */
ssize_t input_read(struct input *in, void *p, size_t n);
/* Reads on to the end. 0, or as above. */
int input_finish(struct input *in);
/* One of these errors, or any other errno. Returns -1. */
int input_fail(int error, struct fs_error *e);

/* silence_s in milliseconds, -1 if it is not given. */
int arg_silence(struct op *o, int *ret_ms, struct fs_error *e);

#endif
