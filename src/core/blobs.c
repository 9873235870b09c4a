/*
 * blobs.c - large files on their way from a client
 */
#include "core/blobs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/digest.h"
#include "sys/fd.h"

#define SWEEP_MOST 100
#define PIECE (256 * 1024)

/* What clients look for in the text of a refusal: they explain it to their users. */
#define MISMATCH "The Content-MD5 you specified did not match what we received."

struct blob_upload {
    struct blobs *blobs;
    struct blob_upload *prev, *next;
    struct blob_row row;
    int part;
    int fd;                             /* -1: the blob is complete, what comes is only compared */
    int64_t at, end;                    /* in the file */
    struct net_digest *md5, *sha256;    /* sha256: of a blob of one piece */
    void (*on_lost)(void *ctx);
    void *ctx;
};

struct blob_check {
    struct blobs *blobs;
    struct blob_check *prev, *next;
    struct blob_row row;
    struct loop_job job;
    int fd;
    int64_t at;
    struct net_digest *sha256;
    char etag[48];
    blob_check_fn fn;
    void *ctx;
};

struct blobs {
    struct core *core;
    struct files *files;
    struct blob_upload *uploads;
    struct blob_check *checks;
};

struct blobs *blobs_open(struct core *c, struct files *f)
{
    struct blobs *b = mem_zalloc(sizeof *b);

    b->core = c;
    b->files = f;
    return b;
}

void blobs_free(struct blobs *b)
{
    if (b == NULL)
        return;
    while (b->uploads != NULL)
        blob_upload_cancel(b->uploads);
    while (b->checks != NULL)
        blob_check_cancel(b->checks);
    free(b);
}

/* --- declaring ---------------------------------------------------------------------------------------- */

int blob_parts(const struct blob_row *r)
{
    if (r->part_bytes == 0 || r->bytes <= r->part_bytes)
        return 1;
    return (int)((r->bytes + r->part_bytes - 1) / r->part_bytes);
}

int64_t blob_part_bytes(const struct blob_row *r, int part)
{
    if (blob_parts(r) == 1)
        return r->bytes;
    int64_t left = r->bytes - (part - 1) * r->part_bytes;
    return left < r->part_bytes ? left : r->part_bytes;
}

int blob_declare(struct blobs *b, const char *hash, const char *md5, int64_t bytes, bool in_parts, struct blob_row *ret,
                 struct err *e)
{
    struct store *s = core_store(b->core);
    int64_t open = 0;

    if (!files_is_hash(hash))
        return err_set(e, ERR_INVALID, "the hash of a blob is not SHA-256");
    if (bytes < 0)
        return err_set(e, ERR_INVALID, "the length of a blob is %lld", (long long)bytes);
    if (bytes > LIMIT_UPLOAD_BYTES)
        return err_set(e, ERR_TOO_LARGE, "a blob has at most %lld bytes, this one has %lld",
                       LIMIT_UPLOAD_BYTES, (long long)bytes);
    if (store_blob_count_open(s, &open, e) < 0)
        return -1;
    if (open >= LIMIT_UPLOADS_OPEN)
        return err_set(e, ERR_LIMIT, "%d uploads of blobs are open already", LIMIT_UPLOADS_OPEN);
    if (files_check_room(b->files, bytes, e) < 0)
        return -1;
    memset(ret, 0, sizeof *ret);
    id_make(ret->id, "bl-");
    (void)snprintf(ret->hash, sizeof ret->hash, "%s", hash);
    (void)snprintf(ret->md5, sizeof ret->md5, "%s", md5);
    ret->bytes = bytes;
    ret->part_bytes = in_parts && bytes > BLOB_PART_BYTES ? BLOB_PART_BYTES : 0;
    ret->created_us = clock_wall_us();
    return store_blob_put(s, ret, e);
}

static bool is_busy(const struct blobs *b, const char *id)
{
    for (const struct blob_upload *u = b->uploads; u != NULL; u = u->next)
        if (strcmp(u->row.id, id) == 0)
            return true;
    for (const struct blob_check *ck = b->checks; ck != NULL; ck = ck->next)
        if (strcmp(ck->row.id, id) == 0)
            return true;
    return false;
}

struct old {
    struct blob_row rows[SWEEP_MOST];
    size_t n;
};

static void add_old(void *ctx, const struct blob_row *r)
{
    struct old *o = ctx;

    if (o->n < SWEEP_MOST)
        o->rows[o->n++] = *r;
}

void blobs_sweep(struct blobs *b)
{
    struct store *s = core_store(b->core);
    auto_free struct old *o = mem_zalloc(sizeof *o);
    int64_t now_us = clock_wall_us();
    struct err e = {0};

    if (store_blob_old(s, now_us - FILES_KEEP_S * 1000000, now_us - BLOB_OPEN_S * 1000000, SWEEP_MOST, add_old, o, &e) < 0)
        log_warn("blobs.sweep", "cause=\"%s\"", e.message);
    for (size_t i = 0; i < o->n; i++) {
        if (is_busy(b, o->rows[i].id))
            continue;
        files_remove_part(b->files, o->rows[i].id);
        if (store_blob_remove(s, o->rows[i].id, &e) < 0)
            log_warn("blobs.sweep", "cause=\"%s\"", e.message);
    }
}

/* --- sending ------------------------------------------------------------------------------------------- */

static void upload_free(struct blob_upload *u)
{
    if (u->prev != NULL)
        u->prev->next = u->next;
    else
        u->blobs->uploads = u->next;
    if (u->next != NULL)
        u->next->prev = u->prev;
    fd_close(&u->fd);
    net_digest_free(u->md5);
    net_digest_free(u->sha256);
    free(u);
}

void blob_upload_cancel(struct blob_upload *u)
{
    upload_free(u);
}

static void take_over(struct blobs *b, const char *id, int part)
{
    for (struct blob_upload *u = b->uploads, *next; u != NULL; u = next) {
        next = u->next;
        if (strcmp(u->row.id, id) != 0 || u->part != part)
            continue;
        void (*on_lost)(void *ctx) = u->on_lost;
        void *ctx = u->ctx;
        upload_free(u);
        on_lost(ctx);
        return;
    }
}

static bool is_checked(const struct blobs *b, const char *id)
{
    for (const struct blob_check *ck = b->checks; ck != NULL; ck = ck->next)
        if (strcmp(ck->row.id, id) == 0)
            return true;
    return false;
}

struct blob_upload *blob_upload_begin(struct blobs *b, const char *id, int part, void (*on_lost)(void *ctx), void *ctx,
                                      struct err *e)
{
    struct blob_row row;

    if (store_blob_get(core_store(b->core), id, &row, e) < 0)
        return NULL;
    if (part < 1 || part > blob_parts(&row)) {
        (void)err_set(e, ERR_INVALID, "the blob has %d parts and no part %d", blob_parts(&row), part);
        return NULL;
    }
    if (is_checked(b, id)) {
        (void)err_set(e, ERR_CONFLICT, "the blob is being put together");
        return NULL;
    }
    take_over(b, id, part);
    struct blob_upload *u = mem_zalloc(sizeof *u);
    u->blobs = b;
    u->row = row;
    u->part = part;
    u->fd = -1;
    u->at = (part - 1) * row.part_bytes;
    u->end = u->at + blob_part_bytes(&row, part);
    u->on_lost = on_lost;
    u->ctx = ctx;
    u->next = b->uploads;
    if (u->next != NULL)
        u->next->prev = u;
    b->uploads = u;
    u->md5 = net_digest_new(NET_MD5);
    u->sha256 = blob_parts(&row) == 1 ? net_digest_new(NET_SHA256) : NULL;
    if (u->md5 == NULL || (u->sha256 == NULL && blob_parts(&row) == 1)) {
        (void)err_set(e, ERR_INTERNAL, "this machine's OpenSSL refuses MD5 or SHA-256");
        upload_free(u);
        return NULL;
    }
    if (!row.is_complete && files_open_part(b->files, id, &u->fd, e) < 0) {
        upload_free(u);
        return NULL;
    }
    return u;
}

static int write_piece(struct blob_upload *u, const void *p, size_t n, struct err *e)
{
    const char *at = p;
    int64_t offset = u->at;

    while (n > 0 && u->fd >= 0) {
        ssize_t r = pwrite(u->fd, at, n, offset);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && (errno == ENOSPC || errno == EDQUOT))
            return err_set(e, ERR_CAPACITY, "the disk is full");
        if (r < 0)
            return err_sys(e, errno, "write an upload");
        at += r;
        offset += r;
        n -= (size_t)r;
    }
    return 0;
}

int blob_upload_data(struct blob_upload *u, const void *p, size_t n, struct err *e)
{
    int r = 0;

    if ((int64_t)n > u->end - u->at)
        r = err_set(e, ERR_INVALID, MISMATCH " It is longer than the %lld bytes that were declared",
                    (long long)blob_part_bytes(&u->row, u->part));
    if (r == 0)
        r = write_piece(u, p, n, e);
    if (r == 0 && (net_digest_add(u->md5, p, n) < 0 || (u->sha256 != NULL && net_digest_add(u->sha256, p, n) < 0)))
        r = err_set(e, ERR_INTERNAL, "the hash of an upload could not be computed");
    u->at += (int64_t)n;
    if (r < 0)
        upload_free(u);
    return r;
}

static void hex_of(const uint8_t *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * n] = '\0';
}

static int check_sum(struct net_digest *d, const char *hash, struct err *e)
{
    uint8_t sum[NET_SHA256_SIZE];
    char hex[FILE_HASH_SIZE];

    if (net_digest_end(d, sum) < 0)
        return err_set(e, ERR_INTERNAL, "the hash of an upload could not be computed");
    hex_of(sum, sizeof sum, hex);
    if (strcmp(hex, hash) != 0)
        return err_set(e, ERR_INVALID, MISMATCH " Its SHA-256 is %.12s... and not %.12s... as declared", hex, hash);
    return 0;
}

static int complete(struct blobs *b, const struct blob_row *r, struct err *e)
{
    if (files_adopt(b->files, r->id, r->hash, r->bytes, e) < 0)
        return -1;
    return store_blob_set_complete(core_store(b->core), r->id, e);
}

static int end_upload(struct blob_upload *u, char ret_md5[33], struct err *e)
{
    uint8_t sum[NET_MD5_SIZE];

    if (u->at != u->end)
        return err_set(e, ERR_INVALID, MISMATCH " It is %lld bytes shorter than declared", (long long)(u->end - u->at));
    if (net_digest_end(u->md5, sum) < 0)
        return err_set(e, ERR_INTERNAL, "the hash of an upload could not be computed");
    hex_of(sum, sizeof sum, ret_md5);
    if (u->sha256 == NULL)
        return u->row.is_complete ? 0 : store_part_put(core_store(u->blobs->core), u->row.id, u->part, ret_md5, e);
    if (check_sum(u->sha256, u->row.hash, e) < 0)
        return -1;
    return u->row.is_complete ? 0 : complete(u->blobs, &u->row, e);
}

int blob_upload_end(struct blob_upload *u, char ret_md5[33], struct err *e)
{
    int r = end_upload(u, ret_md5, e);

    upload_free(u);
    return r;
}

/* --- putting together ------------------------------------------------------------------------------------ */

static void check_free(struct blob_check *ck)
{
    loop_job_cancel(&ck->job);
    if (ck->prev != NULL)
        ck->prev->next = ck->next;
    else
        ck->blobs->checks = ck->next;
    if (ck->next != NULL)
        ck->next->prev = ck->prev;
    fd_close(&ck->fd);
    net_digest_free(ck->sha256);
    free(ck);
}

void blob_check_cancel(struct blob_check *ck)
{
    check_free(ck);
}

static void answer(struct blob_check *ck, const struct err *e)
{
    blob_check_fn fn = ck->fn;
    void *ctx = ck->ctx;
    char etag[sizeof ck->etag];

    memcpy(etag, ck->etag, sizeof etag);
    check_free(ck);
    fn(ctx, etag, e);
}

static void on_turn(void *arg)
{
    static char piece[PIECE];
    struct blob_check *ck = arg;
    struct err e = {0};

    if (ck->row.is_complete) {
        answer(ck, NULL);
        return;
    }
    ssize_t n = pread(ck->fd, piece, sizeof piece, ck->at);
    if (n > 0 && net_digest_add(ck->sha256, piece, (size_t)n) == 0) {
        ck->at += n;
        loop_job_soon(core_loop(ck->blobs->core), &ck->job);
        return;
    }
    if (n != 0)
        (void)err_sys(&e, n < 0 ? errno : EIO, "read an upload");
    else if (ck->at != ck->row.bytes)
        (void)err_set(&e, ERR_INVALID, MISMATCH " It has %lld bytes instead of %lld",
                      (long long)ck->at, (long long)ck->row.bytes);
    else if (check_sum(ck->sha256, ck->row.hash, &e) == 0)
        (void)complete(ck->blobs, &ck->row, &e);
    answer(ck, e.code != ERR_OK ? &e : NULL);
}

struct parts {
    int n;                              /* that came, in order from 1 */
    struct net_digest *md5;
    bool failed;
};

static void add_part(void *ctx, int part, const char *md5)
{
    struct parts *p = ctx;
    uint8_t sum[NET_MD5_SIZE] = {0};

    if (part != p->n + 1)
        return;
    p->n++;
    for (size_t i = 0; i < 2 * sizeof sum; i++)
        sum[i / 2] = (uint8_t)(sum[i / 2] << 4 | (md5[i] >= 'a' ? md5[i] - 'a' + 10 : md5[i] - '0'));
    p->failed |= net_digest_add(p->md5, sum, sizeof sum) < 0;
}

static int make_etag(struct blob_check *ck, struct err *e)
{
    struct parts p = {.md5 = net_digest_new(NET_MD5)};
    uint8_t sum[NET_MD5_SIZE];
    char hex[33];
    int r = p.md5 == NULL ? err_set(e, ERR_INTERNAL, "this machine's OpenSSL refuses MD5")
                          : store_part_each(core_store(ck->blobs->core), ck->row.id, add_part, &p, e);

    if (r == 0 && p.n != blob_parts(&ck->row))
        r = err_set(e, ERR_INVALID, "part %d of %d was not sent", p.n + 1, blob_parts(&ck->row));
    else if (r == 0 && (p.failed || net_digest_end(p.md5, sum) < 0))
        r = err_set(e, ERR_INTERNAL, "the hash of an upload could not be computed");
    net_digest_free(p.md5);
    if (r == 0) {
        hex_of(sum, sizeof sum, hex);
        (void)snprintf(ck->etag, sizeof ck->etag, "%s-%d", hex, p.n);
    }
    return r;
}

struct blob_check *blob_check_begin(struct blobs *b, const char *id, blob_check_fn fn, void *ctx, struct err *e)
{
    struct blob_row row;

    if (store_blob_get(core_store(b->core), id, &row, e) < 0)
        return NULL;
    if (is_busy(b, id)) {
        (void)err_set(e, ERR_CONFLICT, "a part of the blob is being sent, or it is being put together");
        return NULL;
    }
    struct blob_check *ck = mem_zalloc(sizeof *ck);
    ck->blobs = b;
    ck->row = row;
    ck->fd = -1;
    ck->fn = fn;
    ck->ctx = ctx;
    ck->job = (struct loop_job){.cb = on_turn, .arg = ck};
    ck->next = b->checks;
    if (ck->next != NULL)
        ck->next->prev = ck;
    b->checks = ck;
    ck->sha256 = net_digest_new(NET_SHA256);
    if (make_etag(ck, e) < 0 || (!row.is_complete && files_open_part(b->files, id, &ck->fd, e) < 0)) {
        check_free(ck);
        return NULL;
    }
    loop_job_soon(core_loop(b->core), &ck->job);
    return ck;
}
