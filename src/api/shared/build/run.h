/*
 * run.h - what the files of RUN share
 *
 * run.c begins and ends a step; run_spec.c makes command, environment and key out of the instruction; mounts.c reads
 * --mount; mounts_make.c makes the layers that stand for them; caches.c keeps what is in caches; run_box.c is the
 * sandbox of the step.
 */
#ifndef QS_API_SHARED_BUILD_RUN_H
#define QS_API_SHARED_BUILD_RUN_H

#include "api/shared/build/internal.h"
#include "api/shared/exec_reader.h"
#include "api/shared/stdin_pump.h"
#include "base/buf.h"
#include "core/sandbox.h"

#define RUN_MOUNTS_MAX 16

enum mount_type { MOUNT_BIND, MOUNT_CACHE, MOUNT_TMPFS, MOUNT_SECRET };
enum mount_sharing { SHARING_SHARED, SHARING_PRIVATE, SHARING_LOCKED };

/*
 * A layer on top of the stage's that hides what is at the target; whatever the step writes there is left out of its layer.
 * Of a secret in a file the layer has the directory alone: the file is written into the sandbox.
 */
struct mount {
    enum mount_type type;
    char *id, *from, *source, *target, *env;    /* owned; from and env NULL = none, target NULL = a secret as a variable alone */
    bool is_required, is_read_only;
    int mode;
    unsigned long uid, gid;
    enum mount_sharing sharing;
    const char *secret;                 /* borrowed from the build, NULL = it was not given */
    bool is_made, is_held, is_dropped;  /* held: the cache's lock; dropped: what is in it afterwards is not kept */
    char layer[72];                     /* "" = none */
    char path[512];                     /* the target without links and without a slash in front */
    size_t existing;                    /* so many bytes of it are the image's own */
    char began[72];                     /* of a cache: its layer at the start, "" = it was empty */
};

struct run {
    struct build *build;
    const struct df_instruction *in;
    struct mount mounts[RUN_MOUNTS_MAX];
    size_t nmounts, at;                 /* at: the one that is being made, or whose cache is being kept */
    json_t *argv, *env;                 /* owned */
    bool is_blocked;                    /* no network for this step */
    bool has_files;                     /* secrets as files: the command is not the entry point */
    void (*then)(struct run *r);        /* once the mounts are made */

    char image[ID_SIZE];                /* the row for the step, "" = none */
    char sandbox[ID_SIZE];              /* "" = none */
    char exec[ID_SIZE];                 /* the command, if it is not the entry point */
    struct exec_reader *readers[2];
    uint64_t offsets[2];                /* of the output that comes next */
    struct buf lines[2];                /* of an output, up to the next end of a line */
    bool is_read[2];                    /* to its end */
    bool has_ended, is_cancelled, is_creating, is_known;
    struct stdin_pump *pump;            /* secrets on their way */
    struct sandbox_wait *wait;
    struct loop_timer *timer;
    unsigned tries;
    char reason[24];
    int32_t code, signal;
    struct err failure;
    char layer[72];                     /* of the step */
    char changes[72], onto[72];         /* of the cache that is being kept: what was written, and the layer it is laid over */
    uint64_t bytes, files;
};

/* run.c: the step is over, by r->failure or well. */
void run_end(struct run *r);

/* run_spec.c: ERR_INVALID with the line. */
int run_read(struct run *r, struct err *e);
char *run_key(const struct run *r);     /* the caller's */
void run_add_unkeyed(struct run *r);    /* variables that are in no key: proxies and secrets */

/* mounts.c */
int mount_read(struct build *b, const struct df_instruction *in, const char *value, struct mount *ret, struct err *e);
void mount_done(struct mount *m);
json_t *mount_key(const struct mount *m);

/* mounts_make.c: makes the layers of binds, or, once the step has a key, those of all others; then r->then, or run_end with the
 * failure. */
void mounts_make(struct run *r, void (*then)(struct run *r));
json_t *mounts_layers(const struct run *r);             /* with those of the stage, top first; the caller's */
/* The folding of one tree of the sandbox: everything but the mounts, or (only != NULL) one of them. */
void mounts_fold(struct run *r, const struct mount *only, node_reply_fn fn);

/* caches.c: the lock of a cache; false = somebody has it, fn comes later. */
bool cache_lock(struct run *r, struct mount *m, void (*fn)(struct run *r));
bool cache_stop_waiting(struct run *r);                 /* true if it waited for one */
void cache_unlock_all(struct run *r);                   /* also what waits */
void caches_keep(struct run *r, void (*then)(struct run *r));

/* run_box.c: the sandbox, to the end of the command: then r->code, r->signal and r->reason, or r->failure. */
void box_run(struct run *r, void (*then)(struct run *r));
void box_cancel(struct run *r);
void box_free(struct run *r);

#endif
