/*
 * blobs.h - large files on their way from a client: declared first, then sent in one piece or in parts
 *
 * A blob is declared with the hash and the length of its content. What is sent is written beside core/files.h's files; when
 * all of it is there and has the hash, it becomes the file of that hash. Until then nobody can use it. What is not complete
 * after BLOB_OPEN_S is removed. Called by the dialects, which carry the bytes. One writer a part: a second one takes over
 * from the first, whose connection must be dead, and none writes while the whole is checked.
 */
#ifndef QS_CORE_BLOBS_H
#define QS_CORE_BLOBS_H

#include "core/files.h"

#define BLOB_OPEN_S (LIMIT_UPLOAD_HOURS * 3600LL)
#define BLOB_PART_BYTES (64LL << 20)        /* larger ones come in parts, if the client can do that */

struct blobs;

struct blobs *blobs_open(struct core *c, struct files *f);
void blobs_free(struct blobs *b);           /* accepts NULL; ends what is under way */
void blobs_sweep(struct blobs *b);

/* `hash` in hexadecimal; `md5` may be "". ERR_TOO_LARGE, ERR_LIMIT, ERR_CAPACITY. */
int blob_declare(struct blobs *b, const char *hash, const char *md5, int64_t bytes, bool in_parts, struct blob_row *ret,
                 struct err *e);
int blob_parts(const struct blob_row *r);   /* how many; 1 = sent in one piece */
int64_t blob_part_bytes(const struct blob_row *r, int part);    /* part counts from 1 */

/* --- one part being sent ------------------------------------------------------------------------------ */

struct blob_upload;

/* on_lost: another one sends this part now; the upload is gone. NULL with the error. */
struct blob_upload *blob_upload_begin(struct blobs *b, const char *id, int part, void (*on_lost)(void *ctx), void *ctx,
                                      struct err *e);
/* -1: the upload is gone. */
int blob_upload_data(struct blob_upload *u, const void *p, size_t n, struct err *e);
/* The upload is gone in any case. A blob of one piece is complete afterwards. */
int blob_upload_end(struct blob_upload *u, char ret_md5[33], struct err *e);
void blob_upload_cancel(struct blob_upload *u);

/* --- all parts are there -------------------------------------------------------------------------------- */

struct blob_check;
/* `etag` is the MD5 of the parts' MD5s, a dash and their number. */
typedef void (*blob_check_fn)(void *ctx, const char *etag, const struct err *e);
/* Reads all of it once, a piece a turn of the loop. `fn` is called later, unless cancelled. NULL with the error. */
struct blob_check *blob_check_begin(struct blobs *b, const char *id, blob_check_fn fn, void *ctx, struct err *e);
void blob_check_cancel(struct blob_check *ck);

#endif
