/*
 * objects.h - rows of environments, apps as users see them, secrets, queues and dicts
 *
 * The rest of the store's interface (store.h) for the dialects that have such objects. An environment of "" is the default
 * one's rows of apps, which were there before environments were.
 */
#ifndef QS_STORE_OBJECTS_H
#define QS_STORE_OBJECTS_H

#include "store/store.h"

/* --- environments -------------------------------------------------------------------------------------------------- */

struct environment_row {
    char name[LIMIT_NAME + 1];
    char id[ID_SIZE];
    int64_t created_us;
    bool is_default;
};

/* ERR_EXISTS when the name is taken. */
int store_environment_insert(struct store *s, const struct environment_row *r, struct err *e);
/* `name` NULL or "" = the default one. */
int store_environment_get(struct store *s, const char *name, struct environment_row *ret, struct err *e);
int store_environment_rename(struct store *s, const char *name, const char *new_name, struct err *e);
/* With its apps' rows, secrets, queues and dicts; the apps' sandboxes are the caller's concern. */
int store_environment_remove(struct store *s, const char *name, struct err *e);
typedef void (*store_environment_fn)(void *ctx, const struct environment_row *r);
int store_environment_list(struct store *s, store_environment_fn fn, void *ctx, struct err *e);

/* --- apps ---------------------------------------------------------------------------------------------------------- */

struct app_info {
    char id[ID_SIZE];
    char name[LIMIT_NAME + 1];              /* what sandboxes carry */
    char environment[LIMIT_NAME + 1];       /* "" = the default one */
    char text[LIMIT_TAG_VALUE + 1];         /* what a user calls it */
    bool is_ephemeral;
    int64_t created_us, stopped_us;         /* 0 = it is not stopped */
    int64_t seen_ms;                        /* ephemeral: last sign of its client */
    int64_t live;                           /* sandboxes */
    char tags[4096];                        /* JSON object */
};

int store_app_insert(struct store *s, const struct app_info *a, struct err *e);
int store_app_get(struct store *s, const char *id, struct app_info *ret, struct err *e);
/* By what sandboxes carry. */
int store_app_by_name(struct store *s, const char *name, struct app_info *ret, struct err *e);
/* The one that is not ephemeral. */
int store_app_by_text(struct store *s, const char *environment, const char *text, struct app_info *ret, struct err *e);
int store_app_set_stopped(struct store *s, const char *id, int64_t stopped_us, struct err *e);
int store_app_set_seen(struct store *s, const char *id, int64_t seen_ms, struct err *e);
int store_app_set_tags(struct store *s, const char *id, const char *tags, struct err *e);
typedef void (*store_app_info_fn)(void *ctx, const struct app_info *a);
/* Newest first. */
int store_app_each(struct store *s, const char *environment, size_t limit, store_app_info_fn fn, void *ctx, struct err *e);
/* Ephemeral ones that are not stopped and whose client was last seen before. */
int store_app_silent(struct store *s, int64_t before_ms, store_app_info_fn fn, void *ctx, struct err *e);

/* --- secrets ------------------------------------------------------------------------------------------------------- */

struct secret_row {
    char id[ID_SIZE];
    char environment[LIMIT_NAME + 1];
    char name[LIMIT_NAME + 1];              /* "" = none */
    int64_t created_us, used_us;
    int64_t expires_ms;                     /* 0 = never */
    int64_t version;
    char *keys;                             /* JSON array; owned */
    unsigned char *sealed;                  /* owned */
    size_t sealed_len;
};

void secret_row_done(struct secret_row *r);

#define auto_secret_row __attribute__((cleanup(secret_row_done))) struct secret_row

int store_secret_insert(struct store *s, const struct secret_row *r, struct err *e);
int store_secret_get(struct store *s, const char *id, struct secret_row *ret, struct err *e);
int store_secret_by_name(struct store *s, const char *environment, const char *name, struct secret_row *ret, struct err *e);
/* Keys, sealed values and the next version. */
int store_secret_update(struct store *s, const struct secret_row *r, struct err *e);
int store_secret_used(struct store *s, const char *id, int64_t used_us, struct err *e);
int store_secret_remove(struct store *s, const char *id, struct err *e);
typedef void (*store_secret_fn)(void *ctx, const struct secret_row *r);
/* Named ones, newest first, made before before_us (0 = all). */
int store_secret_list(struct store *s, const char *environment, int64_t before_us, size_t limit, store_secret_fn fn,
                      void *ctx, struct err *e);
int store_secret_each(struct store *s, store_secret_fn fn, void *ctx, struct err *e);
int store_secret_expire(struct store *s, int64_t now_ms, struct err *e);

/* --- queues and dicts ---------------------------------------------------------------------------------------------- */

enum object_kind { OBJECT_QUEUE = 1, OBJECT_DICT };

struct object_row {
    char id[ID_SIZE];
    enum object_kind kind;
    char environment[LIMIT_NAME + 1];
    char name[LIMIT_NAME + 1];              /* "" = none */
    int64_t created_us;
    int64_t seen_ms;                        /* 0 = not ephemeral */
};

int store_object_insert(struct store *s, const struct object_row *r, struct err *e);
int store_object_get(struct store *s, enum object_kind kind, const char *id, struct object_row *ret, struct err *e);
int store_object_by_name(struct store *s, enum object_kind kind, const char *environment, const char *name,
                         struct object_row *ret, struct err *e);
int store_object_seen(struct store *s, const char *id, int64_t seen_ms, struct err *e);
int store_object_remove(struct store *s, const char *id, struct err *e);
typedef void (*store_object_fn)(void *ctx, const struct object_row *r);
int store_object_list(struct store *s, enum object_kind kind, const char *environment, int64_t before_us, size_t limit,
                      store_object_fn fn, void *ctx, struct err *e);
/* Ephemeral ones not seen since, and items of queues whose time is over. */
int store_object_expire(struct store *s, int64_t seen_before_ms, int64_t now_ms, struct err *e);

struct blob {
    const void *p;
    size_t n;
};

int store_queue_put(struct store *s, const char *queue, struct blob part, int64_t expires_ms, struct blob value,
                    struct err *e);
/* The partition's items live on until then. */
int store_queue_touch(struct store *s, const char *queue, struct blob part, int64_t expires_ms, struct err *e);
/* part NULL: of all partitions. */
int store_queue_len(struct store *s, const char *queue, const struct blob *part, int64_t now_ms, int64_t *ret_items,
                    int64_t *ret_parts, struct err *e);
int store_queue_clear(struct store *s, const char *queue, const struct blob *part, struct err *e);
typedef void (*store_item_fn)(void *ctx, int64_t seq, struct blob value);
/* Oldest first, after `after`; they stay. */
int store_queue_peek(struct store *s, const char *queue, struct blob part, int64_t now_ms, int64_t after, size_t limit,
                     store_item_fn fn, void *ctx, struct err *e);
/* Removes those up to `seq`. */
int store_queue_drop(struct store *s, const char *queue, struct blob part, int64_t seq, struct err *e);

/* *ret_new: the key was not there. With if_absent a value that is there stays. */
int store_dict_put(struct store *s, const char *dict, struct blob key, struct blob value, bool if_absent, bool *ret_new,
                   struct err *e);
/* *ret_value is NULL when the key is not there; else owned by the caller. */
int store_dict_get(struct store *s, const char *dict, struct blob key, void **ret_value, size_t *ret_n, struct err *e);
int store_dict_remove(struct store *s, const char *dict, const struct blob *key, struct err *e);    /* NULL: all */
int store_dict_len(struct store *s, const char *dict, int64_t *ret, struct err *e);
typedef void (*store_entry_fn)(void *ctx, struct blob key, struct blob value);
int store_dict_each(struct store *s, const char *dict, store_entry_fn fn, void *ctx, struct err *e);

#endif
