/*
 * fs_helper.h - one run of the file helper in a sandbox
 *
 * Used by every operation on files. The helper is a command like any other, hidden from lists; it takes one JSON object,
 * gives content on stdout and its error on stderr. When it is over, or its caller loses interest, it is cleaned up in
 * the background: its stdin is closed (an unfinished write undoes itself then), it is killed if that does not end it,
 * and its output is forgotten.
 *
 * A helper outlives this process, so one that waits for us asks for a sign of life: fs_helper sends one regularly, and
 * a helper that has had none for FS_SILENCE_S ends by itself.
 */
#ifndef QS_API_REST_FS_HELPER_H
#define QS_API_REST_FS_HELPER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "core/core.h"
#include "json/json.h"

#define FS_SILENCE_S 60

/* What stdin of the helper is. */
enum fs_stdin {
    FS_STDIN_NONE,          /* empty */
    FS_STDIN_BYTES,         /* the operation's input, all of it, then its end */
    FS_STDIN_FRAMES,        /* content in frames that a commit ends (fs_helper_content, fs_helper_commit) */
    FS_STDIN_SIGNS,         /* signs of life, and credit for output (fs_helper_consumed) */
};

struct fs_helper_ops {
    void (*on_data)(void *ctx, const void *p, size_t n);        /* stdout */
    void (*on_taken)(void *ctx, size_t n);      /* so many bytes of content have gone on; NULL without frames */
    /* The last callback; e is NULL when the operation has succeeded. The helper is still to be freed. */
    void (*on_end)(void *ctx, const struct err *e);
};

struct fs_helper;

/* `args` is consumed; {"op": args} is what the helper gets. `path` (may be NULL) is named in errors. */
struct fs_helper *fs_helper_new(struct core *c, const char *sandbox, const char *op, json_t *args, const char *path,
                                enum fs_stdin in, const struct fs_helper_ops *ops, void *ctx);
void fs_helper_consumed(struct fs_helper *h, size_t n);
void fs_helper_input(struct fs_helper *h, const void *p, size_t n);     /* FS_STDIN_BYTES: everything, once */
void fs_helper_content(struct fs_helper *h, const void *p, size_t n);
void fs_helper_commit(struct fs_helper *h);
/* Accepts NULL; allowed from its own callbacks. */
void fs_helper_free(struct fs_helper *h);

/* object[key], or object[key_b64] when the bytes are not UTF-8. */
void fs_put_path(json_t *object, const char *key, const char *path, size_t n);

#endif
