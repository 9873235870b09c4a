/*
 * files.h - files that clients uploaded, by the SHA-256 of their content
 *
 * In data_dir/control/uploads, one file a content, mode 0600. Called by the dialects for builds, mounts and blobs. Whoever
 * needs a file says so from time to time (files_has, files_use); one that nobody has asked about for FILES_KEEP_S is
 * removed. A row in the store comes before the file and tells its length: what a power cut cut short counts as missing.
 */
#ifndef QS_CORE_FILES_H
#define QS_CORE_FILES_H

#include "core/core.h"
#include "store/files.h"

#define FILES_KEEP_S (LIMIT_UPLOAD_KEEP_DAYS * 24 * 3600LL)

struct files;

/* Makes the directory. */
struct files *files_open(struct core *c, struct err *e);
void files_free(struct files *f);           /* accepts NULL */

bool files_is_hash(const char *text);       /* 64 lower-case hexadecimal digits */
/* Is it here? If so it is kept for another FILES_KEEP_S. */
bool files_has(struct files *f, const char *hash);
/* ERR_INVALID when the content has another hash, ERR_CAPACITY when the disk is too full. */
int files_put(struct files *f, const char *hash, const void *p, size_t n, struct err *e);
/* The caller closes the descriptor. ERR_NOT_FOUND. */
int files_read(struct files *f, const char *hash, int *ret_fd, int64_t *ret_bytes, struct err *e);
/* Room on the disk for that much more; ERR_CAPACITY. */
int files_check_room(struct files *f, int64_t bytes, struct err *e);
/* Removes some of what nobody wants any more. Call it again and again. */
void files_sweep(struct files *f);

/* --- for blobs.c: what is not complete lies beside the files, by another name ---------------------- */

int files_open_part(struct files *f, const char *name, int *ret_fd, struct err *e);
/* `name` becomes the file of that hash, which it must have. */
int files_adopt(struct files *f, const char *name, const char *hash, int64_t bytes, struct err *e);
void files_remove_part(struct files *f, const char *name);

#endif
