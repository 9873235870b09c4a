/*
 * store.h - everything that is known about sandboxes, apps, images, tokens and calls, behind one
 * interface
 *
 * Called by core only; all SQL stands in this folder. One writer: the control process.
 *
 * Durability: the SQLite back end runs in WAL mode with synchronous=NORMAL. A commit is in the file
 * (the page cache) when it returns, so killing the process loses nothing and never corrupts. A
 * power cut may lose the last commits, as far back as the last checkpoint; the sandboxes they were
 * about do not survive a power cut either, and the start after it compares rows with the nodes.
 * What must survive all the same (tokens made or revoked) uses a durable transaction.
 *
 * Functions return 0, or -1 with the error; those that look for one object fail with ERR_NOT_FOUND.
 */
#ifndef QS_STORE_STORE_H
#define QS_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/image_ref.h"
#include "base/limits.h"

struct store;

/* Opens or makes the database and brings its tables up to date. A database of a newer version is
 * refused. */
int store_open(const char *path, struct store **ret, struct err *e);
void store_close(struct store *s);          /* accepts NULL */

/* Transactions do not nest. Without one each call below is its own. */
enum store_durability { STORE_FAST, STORE_DURABLE };
int store_begin(struct store *s, enum store_durability d, struct err *e);
int store_commit(struct store *s, struct err *e);
void store_rollback(struct store *s);       /* harmless without a transaction */

/* --- sandboxes ------------------------------------------------------------------------------- */

/* Deleting rows are never shown: the sandbox is being removed. */
enum store_state { STORE_CREATING = 1, STORE_RUNNING, STORE_STOPPING, STORE_ENDED, STORE_DELETING };

#define STORE_LIVE_STATES (1u << STORE_CREATING | 1u << STORE_RUNNING | 1u << STORE_STOPPING)

struct sandbox_row {
    char id[ID_SIZE];
    char app[LIMIT_NAME + 1];
    char name[LIMIT_NAME + 1];              /* "" = none */
    char image[ID_SIZE];
    uint8_t state;                          /* enum store_state */
    int64_t created_us, started_ms, ended_ms;
    int64_t expires_ms;                     /* 0 = no deadline */
    uint64_t idle_ms;                       /* 0 = none */
    uint32_t grace_ms;
    uint64_t retain_ms;
    char *spec;                             /* JSON of what does not change; owned */
    char *tags;                             /* JSON object; owned */
    int64_t tags_revision;
    char idem_token[ID_SIZE];               /* whose idempotency key made it, "" = none */
    /* the exit, once ended */
    char reason[24];
    int32_t code;                           /* -1 = none */
    int32_t signal;                         /* 0 = none */
    char actor[LIMIT_ID];
    char message[160];
    uint64_t cpu_us, memory_peak, oom_kills;
    int64_t last_activity_ms;               /* 0 = unknown */
    char last_activity[16];
};

void sandbox_row_done(struct sandbox_row *r);   /* frees what it owns; safe on a zeroed object */

#define auto_sandbox_row __attribute__((cleanup(sandbox_row_done))) struct sandbox_row

/* ERR_EXISTS when another live sandbox of the app has the name. */
int store_sandbox_insert(struct store *s, const struct sandbox_row *r, struct err *e);
int store_sandbox_get(struct store *s, const char *id, struct sandbox_row *ret, struct err *e);
/* The live one, or with `any` the latest that is not being removed. */
int store_sandbox_by_name(struct store *s, const char *app, const char *name, bool any, struct sandbox_row *ret,
                          struct err *e);
int store_sandbox_set_state(struct store *s, const char *id, enum store_state state, int64_t started_ms,
                            struct err *e);
/* State ended, with the exit fields of *r and ended_ms. */
int store_sandbox_end(struct store *s, const struct sandbox_row *r, struct err *e);
int store_sandbox_set_times(struct store *s, const char *id, int64_t expires_ms, uint64_t idle_ms, struct err *e);
int store_sandbox_set_spec(struct store *s, const char *id, const char *spec, struct err *e);
int store_sandbox_set_name(struct store *s, const char *id, const char *name, struct err *e);
/* Writes `tags` and the next revision; fails with ERR_PRECONDITION when `expected` >= 0 is not
 * the current one. */
int store_sandbox_set_tags(struct store *s, const char *id, const char *tags, int64_t expected, int64_t *ret_revision,
                           struct err *e);
int store_sandbox_remove(struct store *s, const char *id, struct err *e);

struct store_tag {
    const char *key;
    const char *value;
};

struct sandbox_filter {
    const char *app, *name, *image;         /* NULL = any */
    unsigned states;                        /* bits 1 << enum store_state */
    const struct store_tag *tags;           /* all must match */
    size_t ntags;
    int64_t created_after_us, created_before_us;    /* exclusive; 0 = unbounded */
    int64_t cursor_us;                      /* continue after this row; 0 = from the first */
    const char *cursor_id;
    size_t limit;
    bool oldest_first;
};

/* By creation, newest first if nothing else is said, ties broken by id. The row is borrowed during the callback. */
typedef void (*store_sandbox_fn)(void *ctx, const struct sandbox_row *r);
int store_sandbox_list(struct store *s, const struct sandbox_filter *f, store_sandbox_fn fn, void *ctx, struct err *e);
/* How many match; cursor and limit do not count. */
int store_sandbox_count(struct store *s, const struct sandbox_filter *f, int64_t *ret, struct err *e);
/* Everything that has not ended, for recovery: live and being removed. */
int store_sandbox_unfinished(struct store *s, store_sandbox_fn fn, void *ctx, struct err *e);
/* Ended ones whose record need not be kept any longer, at most `limit`. */
int store_sandbox_expired(struct store *s, int64_t now_ms, size_t limit, store_sandbox_fn fn, void *ctx,
                          struct err *e);

/* --- apps ------------------------------------------------------------------------------------ */

struct app_row {
    char id[ID_SIZE];
    char name[LIMIT_NAME + 1];
    int64_t created_us;
    int64_t live;                           /* sandboxes */
};

int store_app_ensure(struct store *s, const char *name, int64_t now_us, struct err *e);
typedef void (*store_app_fn)(void *ctx, const struct app_row *r);
int store_app_list(struct store *s, int64_t cursor_us, const char *cursor_id, size_t limit, store_app_fn fn, void *ctx,
                   struct err *e);

/* --- images ---------------------------------------------------------------------------------- */

struct image_row {
    char id[ID_SIZE];
    int64_t created_us;
    int64_t size_bytes, files;
    char *layers;                           /* JSON array of digests, top first; owned */
    char *env;                              /* JSON object; owned */
    char *workdir;                          /* owned, NULL = none */
    char *user;                             /* owned, NULL = none */
    char *names;                            /* JSON array, filled in on reading; owned */
    char *config;                           /* JSON object: configuration as images carry it; owned, NULL = {} */
    char *source;                           /* what it was pulled by or built from; owned, NULL = imported */
    char digest[IMAGE_DIGEST_SIZE];         /* of what `source` named, "" = unknown */
    int64_t used_us;                        /* a sandbox was started of it; 0 = never */
};

void image_row_done(struct image_row *r);

#define auto_image_row __attribute__((cleanup(image_row_done))) struct image_row

int store_image_insert(struct store *s, const struct image_row *r, struct err *e);
int store_image_get(struct store *s, const char *id_or_name, struct image_row *ret, struct err *e);
int store_image_name(struct store *s, const char *name, const char *id, struct err *e);     /* points it there */
typedef void (*store_image_fn)(void *ctx, const struct image_row *r);
int store_image_list(struct store *s, int64_t cursor_us, const char *cursor_id, size_t limit, store_image_fn fn,
                     void *ctx, struct err *e);
int store_image_is_used(struct store *s, const char *id, bool *ret, struct err *e);  /* by a live sandbox */
int store_image_set_used(struct store *s, const char *id, int64_t now_us, struct err *e);
int store_image_unname(struct store *s, const char *name, struct err *e);               /* ERR_NOT_FOUND */
/* The id of an image pulled from a digest, "" if there is none. */
int store_image_by_digest(struct store *s, const char *digest, char ret[ID_SIZE], struct err *e);

struct layer_row {
    char layer[72];
    int64_t bytes, files, created_us;
    int64_t images;                         /* that name it */
};

/* Becomes garbage, if no image and no build step names it. */
int store_layer_release(struct store *s, const char *layer, struct err *e);
/* All of those that were known before and that no image and no build step names. */
int store_layer_release_unnamed(struct store *s, int64_t before_us, struct err *e);
/* Size and files of an image from those of its layers. */
int store_image_measure(struct store *s, const char *id, struct err *e);
/* A layer that nothing is known of yet gets a row; one that has a row keeps it. */
int store_layer_note(struct store *s, const char *layer, int64_t bytes, int64_t files, int64_t now_us, bool *ret_is_new,
                     struct err *e);
int store_layer_put(struct store *s, const char *layer, int64_t bytes, int64_t files, int64_t now_us, struct err *e);
/* Of one image, top first. */
typedef void (*store_layer_fn)(void *ctx, const struct layer_row *r);
int store_image_layers(struct store *s, const char *image, store_layer_fn fn, void *ctx, struct err *e);
/* Removes row and names; layers that no image names any more become garbage. */
int store_image_remove(struct store *s, const char *id, struct err *e);
/* One layer to remove from the nodes; *ret is "" if there is none. */
int store_garbage_next(struct store *s, char *ret, size_t size, struct err *e);
/* The layer is no longer on the nodes. */
int store_garbage_remove(struct store *s, const char *layer, struct err *e);
int store_garbage_bytes(struct store *s, int64_t *ret, struct err *e);

/* --- operations: work that goes on without its caller ---------------------------------------- */

enum operation_state { OPERATION_RUNNING, OPERATION_SUCCEEDED, OPERATION_FAILED, OPERATION_CANCELLED };

struct operation_row {
    char id[ID_SIZE];
    char kind[24];                          /* "image.pull" */
    uint8_t state;
    char target[IMAGE_REF_SIZE];            /* what is worked at: equal ones are not begun twice; "" = nothing */
    char *request;                          /* JSON object to show; owned */
    int64_t created_us, ended_us;
    char image[ID_SIZE];                    /* that it made, "" = none (yet) */
    char *result;                           /* JSON object; owned */
    char error_code[32];
    char *error;                            /* owned */
};

void operation_row_done(struct operation_row *r);

#define auto_operation_row __attribute__((cleanup(operation_row_done))) struct operation_row

int store_operation_insert(struct store *s, const struct operation_row *r, struct err *e);
/* State, ended_us, image, result and error. */
int store_operation_end(struct store *s, const struct operation_row *r, struct err *e);
int store_operation_get(struct store *s, const char *id, struct operation_row *ret, struct err *e);
typedef void (*store_operation_fn)(void *ctx, const struct operation_row *r);
int store_operation_list(struct store *s, int64_t cursor_us, const char *cursor_id, size_t limit, store_operation_fn fn,
                         void *ctx, struct err *e);
/* Those that were running when the last process ended become failed. */
int store_operation_fail_running(struct store *s, int64_t now_us, const char *code, const char *error, struct err *e);
int store_operation_expire(struct store *s, int64_t before_us, struct err *e);
int store_operation_line(struct store *s, const char *id, int64_t seq, int64_t at_ms, const char *text, struct err *e);
typedef void (*store_line_fn)(void *ctx, int64_t seq, int64_t at_ms, const char *text);
int store_operation_lines(struct store *s, const char *id, int64_t after, size_t limit, store_line_fn fn, void *ctx,
                          struct err *e);

/* --- names of images and what they stood for ---------------------------------------------------- */

struct image_name_row {
    const char *name, *image;               /* of the row; valid during the callback */
    int64_t created_us, updated_us;         /* first and last publication; else the image's creation */
};

typedef void (*store_image_name_fn)(void *ctx, const struct image_name_row *r);
/* In the order of the names, those after `after`. */
int store_image_names(struct store *s, const char *after, size_t limit, store_image_name_fn fn, void *ctx, struct err *e);

struct revision_row {
    int64_t seq;
    char image[ID_SIZE], revision[ID_SIZE];
    int64_t published_us;
    char published_by[LIMIT_NAME + 1];
};

int store_revision_put(struct store *s, const char *name, const struct revision_row *r, struct err *e);
typedef void (*store_revision_fn)(void *ctx, const struct revision_row *r);
/* Newest first, those before seq (0 = all). */
int store_revision_list(struct store *s, const char *name, int64_t before_seq, size_t limit, store_revision_fn fn, void *ctx,
                        struct err *e);
int store_revision_remove(struct store *s, const char *name, struct err *e);

/* --- definitions of images -------------------------------------------------------------------- */

struct definition_row {
    char image[ID_SIZE];                    /* that it becomes, or was to become */
    char hash[72];
    char operation[ID_SIZE];
    int64_t created_us;
    char base[ID_SIZE];                     /* image that it is built on, "" = none of ours */
};

int store_definition_put(struct store *s, const struct definition_row *r, struct err *e);
/* The latest of a hash, or (hash NULL) that of an image; ret->image is "" if there is none. */
int store_definition_get(struct store *s, const char *hash, const char *image, struct definition_row *ret, struct err *e);
typedef void (*store_definition_fn)(void *ctx, const char *image);
/* Some of those whose hash begins so, made before and whose image was not used since, or is gone. */
int store_definition_old(struct store *s, const char *prefix, int64_t before_us, size_t limit, store_definition_fn fn, void *ctx,
                         struct err *e);
int store_definition_remove(struct store *s, const char *image, struct err *e);
/* Forgets those made before whose image is gone. */
int store_definition_expire(struct store *s, int64_t before_us, struct err *e);

/* `files` is a JSON array, which the caller of get frees. */
/* --- build steps ------------------------------------------------------------------------------ */

/* *ret_found, and the layer of the step ("" = none). */
int store_step_get(struct store *s, const char *key, int64_t now_us, bool *ret_found, char ret_layer[72], struct err *e);
int store_step_put(struct store *s, const char *key, const char *layer, int64_t now_us, struct err *e);
int store_step_remove(struct store *s, const char *key, struct err *e);     /* 0 also if there is none */
/* Those whose key begins with `prefix`, by key: what is behind it, the bytes of the layer, and when it was used last. */
typedef void (*store_step_fn)(void *ctx, const char *rest, int64_t bytes, int64_t used_us);
int store_step_list(struct store *s, const char *prefix, store_step_fn fn, void *ctx, struct err *e);
/* Forgets the oldest of those; its layer does not become garbage by this. */
int store_step_take(struct store *s, const char *prefix, bool *ret_found, struct err *e);
/* Forgets those of a prefix ("" = all) that were not used since; layers that nothing names any more become garbage. */
int store_step_expire(struct store *s, const char *prefix, int64_t before_us, int64_t *ret_forgotten, struct err *e);

/* --- tokens ---------------------------------------------------------------------------------- */

#define STORE_HASH_SIZE 32

struct token_row {
    char id[ID_SIZE];
    char name[LIMIT_NAME + 1];
    char scopes[512];
    uint8_t hash[STORE_HASH_SIZE];          /* SHA-256 of the secret */
    int64_t created_ms, expires_ms;         /* 0 = never */
};

int store_token_insert(struct store *s, const struct token_row *r, struct err *e);
int store_token_get(struct store *s, const char *id, struct token_row *ret, struct err *e);
int store_token_remove(struct store *s, const char *id, struct err *e);
typedef void (*store_token_fn)(void *ctx, const struct token_row *r);
int store_token_list(struct store *s, int64_t cursor_ms, const char *cursor_id, size_t limit, store_token_fn fn,
                     void *ctx, struct err *e);

/* --- idempotency keys ------------------------------------------------------------------------ */

struct idem_row {
    uint8_t hash[STORE_HASH_SIZE];
    char object[LIMIT_ID];
    int64_t created_ms;
};

int store_idem_get(struct store *s, const char *token, const char *key, struct idem_row *ret, struct err *e);
int store_idem_insert(struct store *s, const char *token, const char *key, const struct idem_row *r, struct err *e);
int store_idem_remove(struct store *s, const char *token, const char *key, struct err *e);
int store_idem_remove_object(struct store *s, const char *object, struct err *e);
int store_idem_expire(struct store *s, int64_t before_ms, struct err *e);

/* --- named network policies ------------------------------------------------------------------ */

struct policy_row {
    char name[LIMIT_NAME + 1];
    uint32_t version;                       /* from 1, without gaps as long as the name is there */
    char *policy;                           /* JSON as it was written; owned */
    char token[ID_SIZE];                    /* that made it */
    int64_t created_us;
};

void policy_row_done(struct policy_row *r);
/* Versions older than the latest `keep` go. */
int store_policy_insert(struct store *s, const struct policy_row *r, uint32_t keep, struct err *e);
/* version 0 = the latest. */
int store_policy_get(struct store *s, const char *name, uint32_t version, struct policy_row *ret, struct err *e);
typedef void (*store_policy_fn)(void *ctx, const struct policy_row *r);
/* The latest of each name, by name, after `after`. */
int store_policy_list(struct store *s, const char *after, size_t limit, store_policy_fn fn, void *ctx, struct err *e);
int store_policy_versions(struct store *s, const char *name, store_policy_fn fn, void *ctx, struct err *e);  /* latest first */
int store_policy_remove(struct store *s, const char *name, struct err *e);     /* all versions */

/* --- audit ----------------------------------------------------------------------------------- */

struct audit_row {
    int64_t seq;                            /* given on insertion */
    int64_t at_ms;
    char token[ID_SIZE];                    /* "" = none */
    char method[16];
    char path[256];                         /* without the query, cut */
    char op[48];                            /* "" = no such operation */
    char target[LIMIT_ID];
    int32_t status;
    char request_id[LIMIT_ID + 1];
    int32_t ms;
};

int store_audit_insert(struct store *s, const struct audit_row *r, struct err *e);
typedef void (*store_audit_fn)(void *ctx, const struct audit_row *r);
/* Newest first; before_seq 0 = from the newest. */
int store_audit_list(struct store *s, int64_t before_seq, size_t limit, store_audit_fn fn, void *ctx, struct err *e);
/* Removes lines from before `before_ms` and those beyond the newest `keep`; at most `limit` in
 * one go, so that nobody waits long. *ret_more tells whether there are more. */
int store_audit_expire(struct store *s, int64_t before_ms, int64_t keep, int64_t limit, bool *ret_more, struct err *e);

#endif
