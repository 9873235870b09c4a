/*
 * blobs.h - the side channel of blobs: signed URLs on our own server, and what answers them
 *
 * A URL names method, blob, part and the second until which it holds, and is signed with a key of data_dir/control. Whoever
 * has it needs no token: clients send none there.
 */
#ifndef QS_API_MODAL_BLOBS_H
#define QS_API_MODAL_BLOBS_H

#include "api/modal/mcall.h"
#include "http/http.h"

#define BLOB_PATH "/modal/blobs/"

/* "PUT" of a part (from 1), "GET" and "POST" with part 0. The caller frees it. */
char *blob_sign(const struct modal *m, const char *method, const char *id, int part, int64_t expires_s);
/* The path and query of a URL, as they came; ERR_DENIED. */
int blob_check_url(const struct modal *m, const char *method, const char *path, const char *query, int64_t now_s,
                   char ret_id[ID_SIZE], int *ret_part, struct err *e);
/* blob_http.c; the path begins with BLOB_PATH. */
void blob_http(struct modal *m, struct http_stream *st, const struct http_request *rq);

#endif
