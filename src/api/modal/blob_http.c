/*
 * blob_http.c - bytes of blobs by plain HTTP: PUT of a part, POST when all are there, GET of the whole
 *
 * The forms are those of S3, which clients expect: an ETag with the MD5 of what came, texts of errors, XML at the end of parts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/modal/blobs.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/blobs.h"
#include "net/digest.h"
#include "sys/fd.h"

#define CHUNK (64 * 1024)

struct transfer {
    struct modal *m;
    struct http_stream *st;
    char id[ID_SIZE];
    char content_md5[33];               /* of the header, "" = none */
    struct blob_upload *upload;
    struct blob_check *check;
    int fd;                             /* of what is sent */
    int64_t left;
};

static void answer_text(struct http_stream *st, int status, const char *text)
{
    http_respond_all(st, status, "text/plain; charset=utf-8", text, strlen(text));
}

static void answer_err(struct http_stream *st, const char *id, const struct err *e)
{
    int status = err_row(e->code)->http_status;
    auto_free char *text = mem_printf("%s\n", e->message);
    char cause[512];

    log_info("blob.refused", "id=%s cause=\"%s\"", id, log_escape(e->message, cause, sizeof cause));
    answer_text(st, e->code == ERR_CAPACITY ? 507 : status, text);
}

/* --- the transfer -------------------------------------------------------------------------------------- */

static void on_close(struct http_stream *st, enum http_close why, void *ctx)
{
    struct transfer *t = ctx;

    if (t->upload != NULL)
        blob_upload_cancel(t->upload);
    if (t->check != NULL)
        blob_check_cancel(t->check);
    fd_close(&t->fd);
    free(t);
}

static void fail(struct transfer *t, const struct err *e)
{
    answer_err(t->st, t->id, e);
}

/* Another connection sends this part now. */
static void on_lost(void *ctx)
{
    struct transfer *t = ctx;

    t->upload = NULL;
    http_stream_cancel(t->st);
}

static void on_body(struct http_stream *st, const void *p, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    struct err e;

    http_stream_consume(st, n);
    if (t->upload != NULL && blob_upload_data(t->upload, p, n, &e) < 0) {
        t->upload = NULL;
        fail(t, &e);
    }
}

static int end_of_part(struct transfer *t, char ret_md5[33], struct err *e)
{
    struct blob_upload *u = take_ptr(&t->upload);

    if (blob_upload_end(u, ret_md5, e) < 0)
        return -1;
    if (t->content_md5[0] == '\0' || strcmp(t->content_md5, ret_md5) == 0)
        return 0;
    return err_set(e, ERR_INVALID, "The Content-MD5 you specified did not match what we received.");
}

static void on_body_end(struct http_stream *st, const struct http_header *trailers, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    char md5[33], etag[40];
    struct err e;

    if (t->upload == NULL)
        return;
    if (end_of_part(t, md5, &e) < 0) {
        fail(t, &e);
        return;
    }
    (void)snprintf(etag, sizeof etag, "\"%s\"", md5);
    const struct http_header h[] = {{"etag", etag}, {"content-length", "0"}};
    http_respond(st, 200, h, array_len(h));
    http_stream_end(st, NULL, 0);
}

static void on_checked(void *ctx, const char *etag, const struct err *e)
{
    struct transfer *t = ctx;

    t->check = NULL;
    if (e != NULL) {
        fail(t, e);
        return;
    }
    auto_free char *text = mem_printf(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CompleteMultipartUploadResult><ETag>\"%s\"</ETag>"
        "</CompleteMultipartUploadResult>\n",
        etag);
    http_respond_all(t->st, 200, "application/xml", text, strlen(text));
}

static void send_file(struct transfer *t)
{
    static char piece[CHUNK];

    while (t->fd >= 0 && http_stream_queued(t->st) <= HTTP_HIGH) {
        ssize_t n = read(t->fd, piece, sizeof piece);
        if (n <= 0) {                   /* what is missing, the client sees by the length */
            fd_close(&t->fd);
            if (t->left == 0)
                http_stream_end(t->st, NULL, 0);
            else
                http_stream_cancel(t->st);
            return;
        }
        t->left -= n;
        http_stream_write(t->st, piece, (size_t)n);
    }
}

static void on_writable(struct http_stream *st, void *ctx)
{
    send_file(ctx);
}

static const struct http_ops ops = {.on_body = on_body,
                                    .on_body_end = on_body_end,
                                    .on_writable = on_writable,
                                    .on_close = on_close};

/* --- methods --------------------------------------------------------------------------------------------- */

static int begin_put(struct transfer *t, int part, const struct http_request *rq, struct err *e)
{
    static const char digits[] = "0123456789abcdef";
    const char *md5 = http_header_get(rq->headers, rq->nheaders, "content-md5");
    uint8_t raw[24];
    size_t len = 0;

    if (md5 != NULL && (strlen(md5) != 24 || !base64_decode(md5, 24, raw, &len) || len != NET_MD5_SIZE))
        return err_set(e, ERR_INVALID, "The Content-MD5 you specified is not valid.");
    for (size_t i = 0; i < len; i++) {
        t->content_md5[2 * i] = digits[raw[i] >> 4];
        t->content_md5[2 * i + 1] = digits[raw[i] & 15];
    }
    t->upload = blob_upload_begin(t->m->blobs, t->id, part, on_lost, t, e);
    return t->upload != NULL ? 0 : -1;
}

static int begin_get(struct transfer *t, struct err *e)
{
    char length[24], etag[FILE_HASH_SIZE + 2];
    struct blob_row row;

    if (store_blob_get(core_store(t->m->core), t->id, &row, e) < 0)
        return -1;
    if (!row.is_complete)
        return err_set(e, ERR_NOT_FOUND, "the blob was not uploaded completely");
    if (files_read(t->m->files, row.hash, &t->fd, &t->left, e) < 0)
        return -1;
    (void)snprintf(length, sizeof length, "%" PRId64, t->left);
    (void)snprintf(etag, sizeof etag, "\"%s\"", row.hash);
    const struct http_header h[] = {{"content-type", "application/octet-stream"}, {"content-length", length}, {"etag", etag}};
    http_respond(t->st, 200, h, array_len(h));
    send_file(t);
    return 0;
}

static int begin(struct transfer *t, int part, const struct http_request *rq, struct err *e)
{
    if (strcmp(rq->method, "GET") == 0)
        return begin_get(t, e);
    if (strcmp(rq->method, "PUT") == 0)
        return begin_put(t, part, rq, e);
    t->check = blob_check_begin(t->m->blobs, t->id, on_checked, t, e);
    return t->check != NULL ? 0 : -1;
}

void blob_http(struct modal *m, struct http_stream *st, const struct http_request *rq)
{
    bool is_part = strcmp(rq->method, "PUT") == 0;
    char id[ID_SIZE];
    struct err e;
    int part;

    if (!is_part && strcmp(rq->method, "GET") != 0 && strcmp(rq->method, "POST") != 0) {
        const struct http_header h[] = {{"allow", "GET, POST, PUT"}, {"content-length", "0"}};
        http_respond(st, 405, h, array_len(h));
        http_stream_end(st, NULL, 0);
        return;
    }
    if (blob_check_url(m, rq->method, rq->path, rq->query, clock_wall_ms() / 1000, id, &part, &e) < 0) {
        answer_err(st, "-", &e);
        return;
    }
    struct transfer *t = mem_zalloc(sizeof *t);
    t->m = m;
    t->st = st;
    t->fd = -1;
    memcpy(t->id, id, sizeof t->id);
    http_stream_set(st, &ops, t);
    if (begin(t, part, rq, &e) < 0)
        fail(t, &e);
}
