/*
 * download.c - blobs of a registry into files, several at once, each checked against its digest while it comes
 */
#include "image/download.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sys/fd.h"

#define TURN_MS 200
#define ADVANCE (64 * 1024)         /* bytes; with less a transfer that broke off was in vain */
#define CHUNK (256 * 1024)

enum stage { IDLE, LOCKING, DUE, RUNNING };

struct piece {
    enum stage stage;
    uint32_t index;
    const struct manifest_blob *blob;
    int fd;                             /* of the part, locked */
    EVP_MD_CTX *hash;
    uint64_t have;                      /* bytes in the part, which are in the hash too */
    uint64_t asked;                     /* where this transfer begins */
    bool is_begun, is_over, is_disk_error;
    int disk_errno;
    char *url;                          /* owned */
    bool first_party, was_authorized;
    unsigned tries, redirects, restarts;
    int64_t due_ms;
    struct registry_transfer transfer;
    struct downloads *all;
};

struct downloads {
    struct registry *registry;
    int dir;
    const struct download_ops *ops;
    void *arg;
    CURLM *multi;
    struct piece pieces[DOWNLOAD_PARALLEL];
    uint64_t done_bytes;
    bool has_room;                      /* a blob was finished: the next one begins at once */
};

static void part_name(const struct piece *p, char out[80])
{
    (void)snprintf(out, 80, "%s.part", p->blob->digest + 7);
}

static int restart_hash(struct piece *p)
{
    return EVP_DigestInit_ex(p->hash, EVP_sha256(), NULL) == 1 ? 0 : -1;
}

/* Forgets the bytes that are there. */
static int empty_part(struct piece *p)
{
    p->have = 0;
    return ftruncate(p->fd, 0) < 0 || restart_hash(p) < 0 ? -1 : 0;
}

/* What an earlier try left, into the hash. */
static int take_part(struct piece *p, struct err *e)
{
    auto_free char *chunk = mem_alloc(CHUNK);
    struct stat st;

    if (restart_hash(p) < 0 || fstat(p->fd, &st) < 0)
        return err_set(e, ERR_INTERNAL, "the part of a blob cannot be read");
    p->have = 0;
    if ((uint64_t)st.st_size > p->blob->size)
        return empty_part(p) < 0 ? err_sys(e, errno, "empty the part of a blob") : 0;
    for (;;) {
        ssize_t n = pread(p->fd, chunk, CHUNK, (off_t)p->have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || (n > 0 && EVP_DigestUpdate(p->hash, chunk, (size_t)n) != 1))
            return err_sys(e, errno, "read the part of a blob");
        if (n == 0)
            return 0;
        p->have += (uint64_t)n;
    }
}

static bool is_complete(const struct downloads *d, const struct manifest_blob *b)
{
    struct stat st;

    return fstatat(d->dir, b->digest + 7, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == b->size;
}

/* 1 = locked, 0 = somebody else is at it, -1. */
static int lock_part(struct downloads *d, struct piece *p, struct err *e)
{
    char name[80];
    struct stat mine, there;

    part_name(p, name);
    if (p->fd < 0)
        p->fd = openat(d->dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (p->fd < 0)
        return err_sys(e, errno, "make the file of a blob");
    if (flock(p->fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK || errno == EINTR ? 0 : err_sys(e, errno, "lock the file of a blob");
    if (fstat(p->fd, &mine) == 0 && fstatat(d->dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && mine.st_ino == there.st_ino)
        return 1;
    fd_close(&p->fd);                   /* whoever had it has finished it meanwhile */
    return 0;
}

static size_t on_data(char *data, size_t one, size_t n, void *arg)
{
    struct piece *p = arg;
    long status = 0;

    n *= one;
    (void)curl_easy_getinfo(p->transfer.curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 299)
        return n;                       /* the body of an error is not of the blob */
    if (!p->is_begun && p->have > 0 && status != 206 && empty_part(p) < 0) {
        p->is_disk_error = true;
        return 0;
    }
    p->is_begun = true;
    if (p->have + n > p->blob->size) {
        p->is_over = true;
        return 0;
    }
    for (size_t done = 0; done < n;) {
        ssize_t w = pwrite(p->fd, data + done, n - done, (off_t)(p->have + done));
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0) {
            p->disk_errno = errno;
            p->is_disk_error = true;
            return 0;
        }
        done += (size_t)w;
    }
    if (EVP_DigestUpdate(p->hash, data, n) != 1)
        return 0;
    p->have += n;
    return n;
}

static int begin(struct downloads *d, struct piece *p, struct err *e)
{
    char range[32];

    if (registry_transfer_begin(d->registry, &p->transfer, p->url, NULL, p->first_party, e) < 0)
        return -1;
    CURL *h = p->transfer.curl;
    if (p->have > 0) {
        (void)snprintf(range, sizeof range, "%" PRIu64 "-", p->have);
        (void)curl_easy_setopt(h, CURLOPT_RANGE, range);
    }
    p->is_begun = false;
    p->asked = p->have;
    (void)curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(h, CURLOPT_WRITEDATA, p);
    (void)curl_easy_setopt(h, CURLOPT_PRIVATE, p);
    if (curl_multi_add_handle(d->multi, h) != CURLM_OK)
        return err_set(e, ERR_INTERNAL, "libcurl cannot take a transfer");
    p->stage = RUNNING;
    return 0;
}

static void release(struct piece *p)
{
    if (p->transfer.curl != NULL && p->stage == RUNNING)
        (void)curl_multi_remove_handle(p->all->multi, p->transfer.curl);
    registry_transfer_end(&p->transfer);
    EVP_MD_CTX_free(p->hash);
    p->hash = NULL;
    free(p->url);
    p->url = NULL;
    fd_close(&p->fd);
    p->stage = IDLE;
}

static void finished(struct downloads *d, struct piece *p)
{
    uint32_t index = p->index;

    d->done_bytes += p->blob->size;
    d->has_room = true;
    release(p);
    d->ops->got(d->arg, index);
}

/* All bytes are there: are they the right ones? */
static int check(struct downloads *d, struct piece *p, struct err *e)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    char name[80], hex[65];
    unsigned n = 0;

    if (EVP_DigestFinal_ex(p->hash, sum, &n) != 1 || n != 32)
        return err_set(e, ERR_INTERNAL, "SHA-256 failed");
    for (unsigned i = 0; i < n; i++)
        (void)snprintf(hex + (size_t)i * 2, 3, "%02x", sum[i]);
    part_name(p, name);
    if (strcmp(hex, p->blob->digest + 7) != 0) {
        (void)unlinkat(d->dir, name, 0);
        return err_set(e, ERR_INVALID, "blob %.19s... of the registry %s has the digest sha256:%.12s... instead", p->blob->digest,
                       d->registry->host, hex);
    }
    if (renameat(d->dir, name, d->dir, p->blob->digest + 7) < 0)
        return err_sys(e, errno, "name a blob");
    finished(d, p);
    return 0;
}

static int set_up(struct downloads *d, struct piece *p, struct err *e)
{
    int r = lock_part(d, p, e);
    char name[80];

    if (is_complete(d, p->blob)) {
        part_name(p, name);
        if (r == 1)                     /* another pull has finished it: this part is a new one */
            (void)unlinkat(d->dir, name, 0);
        finished(d, p);
        return 0;
    }
    if (r <= 0) {
        p->stage = LOCKING;
        return r;
    }
    p->hash = EVP_MD_CTX_new();
    if (p->hash == NULL)
        return err_set(e, ERR_INTERNAL, "SHA-256 cannot be set up");
    if (take_part(p, e) < 0)
        return -1;
    if (p->have == p->blob->size)
        return check(d, p, e);
    auto_free char *what = mem_printf("blobs/%s", p->blob->digest);
    p->url = registry_url(d->registry, what);
    p->first_party = true;
    return begin(d, p, e);
}

static int again(struct piece *p, int64_t wait_ms)
{
    registry_transfer_end(&p->transfer);
    p->stage = DUE;
    p->due_ms = clock_boot_ms() + wait_ms;
    return 0;
}

static int cut_or_wrong(struct piece *p, struct err *e)
{
    if (p->is_disk_error)
        return err_sys(e, p->disk_errno != 0 ? p->disk_errno : EIO, "write a blob");
    return err_set(e, ERR_INVALID, "blob %.19s... is longer than the %" PRIu64 " bytes that the manifest says", p->blob->digest,
                   p->blob->size);
}

/* The end of a transfer, of whatever kind. */
static int ended(struct downloads *d, struct piece *p, CURLcode code, struct err *e)
{
    struct registry_transfer *t = &p->transfer;
    char what[64];
    int64_t wait_ms = 0;

    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->reply.status);
    (void)curl_multi_remove_handle(d->multi, t->curl);
    p->stage = DUE;
    long status = t->reply.status;
    (void)snprintf(what, sizeof what, "blob %.19s...", p->blob->digest);
    if (p->is_over || p->is_disk_error)
        return cut_or_wrong(p, e);
    if (p->have > p->asked + ADVANCE)
        p->tries = 0;                   /* it gets on: a long download may break more often */
    if (code == CURLE_OK && status >= 200 && status <= 299) {
        if (p->have == p->blob->size) {
            registry_transfer_end(t);
            return check(d, p, e);
        }
        if (++p->tries < REGISTRY_TRIES)
            return again(p, 500);
        return err_set(e, ERR_INVALID, "%s ends after %" PRIu64 " of %" PRIu64 " bytes", what, p->have, p->blob->size);
    }
    if (code == CURLE_OK && status == 416 && p->have > 0 && p->restarts++ < REGISTRY_TRIES)
        return empty_part(p) < 0 ? err_sys(e, errno, "empty the part of a blob") : again(p, 0);
    if (code == CURLE_OK && status == 401 && p->first_party && !p->was_authorized) {
        p->was_authorized = true;
        return registry_authorize(d->registry, &t->reply, e) < 0 ? -1 : again(p, 0);
    }
    if (code == CURLE_OK && status >= 301 && status <= 308 && status != 304 && p->redirects++ < REGISTRY_REDIRECTS) {
        char *url = registry_redirect(t, e);
        if (url == NULL)
            return -1;
        free(p->url);
        p->url = url;
        p->first_party = false;
        return again(p, 0);
    }
    if (registry_may_retry(t, code, p->tries, &wait_ms)) {
        p->tries++;
        /* Addresses that a registry redirects to are valid for a short time. */
        auto_free char *blob = mem_printf("blobs/%s", p->blob->digest);
        free(p->url);
        p->url = registry_url(d->registry, blob);
        p->first_party = true;
        p->redirects = 0;
        p->was_authorized = false;
        return again(p, wait_ms);
    }
    return registry_failed(t, code, what, e);
}

static int take_ended(struct downloads *d, struct err *e)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(d->multi, &left)) != NULL) {
        struct piece *p = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&p);
        if (ended(d, p, m->data.result, e) < 0)
            return -1;
    }
    return 0;
}

static int step(struct downloads *d, struct err *e)
{
    int64_t now = clock_boot_ms();

    for (size_t i = 0; i < DOWNLOAD_PARALLEL; i++) {
        struct piece *p = &d->pieces[i];
        if (p->stage == LOCKING && set_up(d, p, e) < 0)
            return -1;
        if (p->stage == DUE && p->due_ms <= now && begin(d, p, e) < 0)
            return -1;
    }
    return 0;
}

/* True while anything is under way. */
static bool fill(struct downloads *d, const struct manifest_blob *blobs, uint32_t n, const bool *want, uint32_t *next)
{
    bool busy = false;

    for (size_t i = 0; i < DOWNLOAD_PARALLEL; i++) {
        struct piece *p = &d->pieces[i];
        while (*next < n && !want[*next])
            ++*next;
        if (p->stage == IDLE && *next < n) {
            *p = (struct piece){.stage = LOCKING, .index = *next, .blob = &blobs[*next], .fd = -1, .all = d};
            ++*next;
        }
        busy = busy || p->stage != IDLE;
    }
    return busy;
}

static int run(struct downloads *d, const struct manifest_blob *blobs, uint32_t n, const bool *want, struct err *e)
{
    struct curl_waitfd wake = {.fd = d->ops->wake_fd, .events = CURL_WAIT_POLLIN};
    uint32_t next = 0;
    int running;

    while (fill(d, blobs, n, want, &next)) {
        d->has_room = false;
        if (step(d, e) < 0)
            return -1;
        if (curl_multi_perform(d->multi, &running) != CURLM_OK)
            return err_set(e, ERR_INTERNAL, "libcurl failed");
        if (take_ended(d, e) < 0)
            return -1;
        uint64_t bytes = d->done_bytes;
        for (size_t i = 0; i < DOWNLOAD_PARALLEL; i++)
            bytes += d->pieces[i].stage != IDLE ? d->pieces[i].have : 0;
        d->ops->progress(d->arg, bytes);
        if (d->registry->is_cancelled(d->registry->arg))
            return err_set(e, ERR_UNAVAILABLE, "the pull was cancelled");
        if (curl_multi_poll(d->multi, &wake, 1, d->has_room ? 0 : TURN_MS, NULL) != CURLM_OK)
            return err_set(e, ERR_INTERNAL, "libcurl failed");
    }
    return 0;
}

int download_blobs(struct registry *r, int dir, const struct manifest_blob *blobs, uint32_t n, const bool *want,
                   const struct download_ops *ops, void *arg, struct err *e)
{
    struct downloads *d = mem_zalloc(sizeof *d);
    int result;

    d->registry = r;
    d->dir = dir;
    d->ops = ops;
    d->arg = arg;
    for (size_t i = 0; i < DOWNLOAD_PARALLEL; i++)
        d->pieces[i].fd = -1;
    d->multi = curl_multi_init();
    result = d->multi != NULL ? run(d, blobs, n, want, e) : err_set(e, ERR_INTERNAL, "libcurl cannot be set up");
    for (size_t i = 0; i < DOWNLOAD_PARALLEL; i++)
        if (d->pieces[i].stage != IDLE) {
            d->pieces[i].all = d;
            release(&d->pieces[i]);
        }
    if (d->multi != NULL)
        (void)curl_multi_cleanup(d->multi);
    free(d);
    return result;
}
