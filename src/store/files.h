/*
 * files.h - rows of what clients upload: files by their content, blobs on their way, sets of files
 *
 * The rest of the store's interface (store.h) for core/files.c, core/blobs.c and the dialects.
 */
#ifndef QS_STORE_FILES_H
#define QS_STORE_FILES_H

#include "store/store.h"

#define FILE_HASH_SIZE 65                   /* SHA-256 in hexadecimal with its NUL */

/* --- files, by content --------------------------------------------------------------------------- */

int store_file_put(struct store *s, const char *hash, int64_t bytes, int64_t now_us, struct err *e);
/* *ret_bytes is -1 when there is none. */
int store_file_get(struct store *s, const char *hash, int64_t *ret_bytes, struct err *e);
int store_file_used(struct store *s, const char *hash, int64_t now_us, struct err *e);
int store_file_remove(struct store *s, const char *hash, struct err *e);
typedef void (*store_file_fn)(void *ctx, const char *hash);
/* Some of those not used since. */
int store_file_old(struct store *s, int64_t before_us, size_t limit, store_file_fn fn, void *ctx, struct err *e);

/* --- blobs ----------------------------------------------------------------------------------------- */

struct blob_row {
    char id[ID_SIZE];
    char hash[FILE_HASH_SIZE];              /* SHA-256 of the whole */
    char md5[33];                           /* "" = not known before */
    int64_t bytes, part_bytes;              /* part_bytes 0 = one part */
    bool is_complete;                       /* the file of that hash is there */
    int64_t created_us;
};

int store_blob_put(struct store *s, const struct blob_row *r, struct err *e);
int store_blob_get(struct store *s, const char *id, struct blob_row *ret, struct err *e);      /* ERR_NOT_FOUND */
int store_blob_set_complete(struct store *s, const char *id, struct err *e);
int store_blob_count_open(struct store *s, int64_t *ret, struct err *e);
int store_blob_remove(struct store *s, const char *id, struct err *e);
typedef void (*store_blob_fn)(void *ctx, const struct blob_row *r);
/* Some of those made before: complete ones before `complete_us`, others before `open_us`. */
int store_blob_old(struct store *s, int64_t complete_us, int64_t open_us, size_t limit,
                   store_blob_fn fn, void *ctx, struct err *e);
/* Parts that have come, by number from 1. */
int store_part_put(struct store *s, const char *blob, int part, const char *md5, struct err *e);
typedef void (*store_part_fn)(void *ctx, int part, const char *md5);
int store_part_each(struct store *s, const char *blob, store_part_fn fn, void *ctx, struct err *e);

/* --- mounts: sets of files ----------------------------------------------------------------------- */

/* `files` is an array of [path, hash, mode, size]. The same id again: noted as used. */
int store_mount_put(struct store *s, const char *id, const char *environment, const char *name, const char *files, int64_t now_us,
                    struct err *e);
int store_mount_get(struct store *s, const char *id, char **ret_files, struct err *e);             /* ERR_NOT_FOUND */
int store_mount_by_name(struct store *s, const char *environment, const char *name, char ret_id[ID_SIZE], struct err *e);
int store_mount_used(struct store *s, const char *id, int64_t now_us, struct err *e);
/* Nameless ones not used since. */
int store_mount_expire(struct store *s, int64_t before_us, struct err *e);
typedef void (*store_mount_fn)(void *ctx, const char *id, const char *files);
/* Those with a name. */
int store_mount_named(struct store *s, store_mount_fn fn, void *ctx, struct err *e);

#endif
