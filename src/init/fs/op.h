/*
 * op.h - one operation of the file helper: its arguments and its name
 *
 * main.c and batch.c find the operation by name; each lives in a file of its own. An operation prints its
 * result to op->out (or raw bytes to stdout, if it is no batchable one) and returns 0, or fills *e and
 * returns -1. What it has printed before it failed is dropped by whoever called it, where it can be.
 */
#ifndef QS_INIT_FS_OP_H
#define QS_INIT_FS_OP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "init/fs/arena.h"
#include "init/fs/error.h"
#include "init/fs/json.h"
#include "init/fs/out.h"

struct op {
    const struct json *args;
    struct out *out;
    struct arena *arena;                /* released after the operation */
    bool batch;                         /* no stdin, no raw output */
};

typedef int op_fn(struct op *o, struct fs_error *e);

/* Lets op->out wait for credit if the arguments say so; signs also tells whether the caller lives. */
struct signs;
int op_signs(struct op *o, struct signs *signs, struct fs_error *e);

op_fn op_read, op_write, op_list, op_stat, op_mkdir, op_remove, op_move, op_copy, op_chmod, op_chown,
    op_symlink, op_readlink, op_hash, op_batch, op_tar_out, op_tar_in, op_watch, op_probe, op_trust;

/* By name, case counting; NULL if unknown. With `batch` also the lower-case names of batches. */
op_fn *op_find(const char *name, bool batch);

/*
 * Arguments. A path is absolute, given as `name` (text) or `name`_b64 (any bytes); it is NUL-terminated and lives as
 * long as the operation. Missing and null are the same.
 */
int arg_path(struct op *o, const char *name, const char **ret, struct fs_error *e);
int arg_bool(struct op *o, const char *name, bool otherwise, bool *ret, struct fs_error *e);
int arg_int(struct op *o, const char *name, int64_t otherwise, int64_t min, int64_t max, int64_t *ret,
            struct fs_error *e);
/* Seconds, perhaps with a fraction, as milliseconds; -1 if missing. */
int arg_seconds(struct op *o, const char *name, int64_t *ret_ms, struct fs_error *e);
int arg_mode(struct op *o, const char *name, mode_t *ret, bool *ret_given, struct fs_error *e);
/* Any bytes; *ret is NULL if missing. */
int arg_text(struct op *o, const char *name, const char **ret, size_t *ret_len, struct fs_error *e);

#endif
