/*
 * exec_spec.h - what to run: travels node -> monitor -> init as one opaque block
 *
 * The monitor forwards the block, taking only the summary for its lists; init decodes it.
 */
#ifndef QS_IPC_EXEC_SPEC_H
#define QS_IPC_EXEC_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct exec_spec {
    uint32_t argc;
    const char **argv;          /* argc + 1 entries, last NULL; argc >= 1 */
    uint32_t envc;
    const char **envp;          /* "NAME=value", envc + 1 entries, last NULL; complete environment */
    const char *cwd;            /* "" = the user's home, else "/" */
    const char *user;           /* "", "name", "uid", "name:group", "uid:gid"; "" = root */
    uint32_t umask;             /* e.g. 022 */
    int32_t nice;               /* 0 to 19 */
    uint64_t nofile;            /* 0 = inherited */
    bool make_cwd;              /* create a missing cwd (image WORKDIR) instead of failing */
    bool helper;                /* run quicksand-init itself as the file helper: argv[0] is its path */
};

/* Encoded size is at most LIMIT_CHANNEL_MESSAGE. 0 or -ENOBUFS. */
int exec_spec_encode(const struct exec_spec *s, void *out, size_t size, size_t *ret_len);

/*
 * Decodes in place: strings are made NUL-terminated inside `block` (which is modified) and the arrays
 * are taken from `arrays` (narrays pointers). 0, -EBADMSG, or -E2BIG for counts over the limits.
 */
int exec_spec_decode(struct exec_spec *ret, void *block, size_t len, const char **arrays, size_t narrays);

/* The arguments joined by spaces and cut to `size`, for lists; "" if the block is malformed. */
void exec_spec_summary(const void *block, size_t len, char *out, size_t size);

#endif
