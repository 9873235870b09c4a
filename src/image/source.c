/*
 * source.c - the bytes of an archive: read from a pipe, decompressed, hashed and counted
 *
 * Decompression is libarchive's, with the archive format "raw", so that the uncompressed tar passes through
 * our hands: its SHA-256 is the name of the layer, whatever it was compressed with.
 */
#include "image/source.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define CHUNK (128 * 1024)

struct source {
    int fd, conn, alive;            /* borrowed */
    struct archive *raw;
    EVP_MD_CTX *hash;
    uint64_t bytes;
    bool cancelled, ended;
    char in[CHUNK];
    char out[CHUNK];
};

bool source_cancelled(struct source *s)
{
    struct pollfd p[2] = {{.fd = s->conn, .events = POLLRDHUP}, {.fd = s->alive}};

    if (!s->cancelled && poll(p, 2, 0) > 0)
        s->cancelled = ((p[0].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0) || (p[1].revents != 0);
    return s->cancelled;
}

static la_ssize_t read_some(struct archive *a, void *arg, const void **ret)
{
    struct source *s = arg;

    *ret = s->in;
    for (;;) {
        struct pollfd p[3] = {{.fd = s->fd, .events = POLLIN},
                              {.fd = s->conn, .events = POLLRDHUP},
                              {.fd = s->alive}};
        if (poll(p, 3, -1) < 0 && errno != EINTR) {
            archive_set_error(a, errno, "poll");
            return -1;
        }
        if (source_cancelled(s)) {
            archive_set_error(a, ECANCELED, "cancelled");
            return -1;
        }
        if (p[0].revents == 0)
            continue;
        ssize_t n = read(s->fd, s->in, sizeof s->in);
        if (n >= 0)
            return n;
        if (errno != EINTR && errno != EAGAIN) {
            archive_set_error(a, errno, "read: %s", strerror(errno));
            return -1;
        }
    }
}

static int refuse(const struct source *s, struct err *e)
{
    if (s->cancelled)
        return err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
    const char *why = archive_error_string(s->raw);
    return err_set(e, ERR_INVALID, "the archive cannot be read: %s", why != NULL ? why : "unknown format");
}

static int open_raw(struct source *s, struct err *e)
{
    struct archive_entry *entry;

    /* By name, not "all": some of libarchive's filters start programs. */
    if (archive_read_support_filter_gzip(s->raw) != ARCHIVE_OK ||
        archive_read_support_filter_bzip2(s->raw) != ARCHIVE_OK ||
        archive_read_support_filter_xz(s->raw) != ARCHIVE_OK ||
        archive_read_support_filter_zstd(s->raw) != ARCHIVE_OK ||
        archive_read_support_format_raw(s->raw) != ARCHIVE_OK ||
        archive_read_support_format_empty(s->raw) != ARCHIVE_OK)
        return err_set(e, ERR_INTERNAL, "libarchive lacks a filter: %s", archive_error_string(s->raw));
    if (archive_read_open(s->raw, s, NULL, read_some, NULL) != ARCHIVE_OK)
        return refuse(s, e);
    int r = archive_read_next_header(s->raw, &entry);
    if (r == ARCHIVE_EOF)
        return err_set(e, ERR_INVALID, "the archive is empty");
    return r == ARCHIVE_OK || r == ARCHIVE_WARN ? 0 : refuse(s, e);
}

struct source *source_new(int fd, int conn, int alive, struct err *e)
{
    struct source *s = mem_zalloc(sizeof *s);

    s->fd = fd;
    s->conn = conn;
    s->alive = alive;
    s->raw = archive_read_new();
    s->hash = EVP_MD_CTX_new();
    if (s->raw == NULL || s->hash == NULL || EVP_DigestInit_ex(s->hash, EVP_sha256(), NULL) != 1) {
        (void)err_set(e, ERR_INTERNAL, "cannot set up the reader of an archive");
        source_free(s);
        return NULL;
    }
    if (open_raw(s, e) < 0) {
        source_free(s);
        return NULL;
    }
    return s;
}

void source_free(struct source *s)
{
    if (s == NULL)
        return;
    if (s->raw != NULL)
        (void)archive_read_free(s->raw);
    EVP_MD_CTX_free(s->hash);
    free(s);
}

ssize_t source_read(struct source *s, const void **ret_data, struct err *e)
{
    if (s->ended)
        return 0;
    la_ssize_t n = archive_read_data(s->raw, s->out, sizeof s->out);
    if (n < 0)
        return refuse(s, e);
    if (n == 0) {
        s->ended = true;
        return 0;
    }
    if (EVP_DigestUpdate(s->hash, s->out, (size_t)n) != 1)
        return err_set(e, ERR_INTERNAL, "SHA-256 failed");
    s->bytes += (uint64_t)n;
    *ret_data = s->out;
    return (ssize_t)n;
}

uint64_t source_bytes(const struct source *s)
{
    return s->bytes;
}

int source_digest(struct source *s, char ret_hex[65], struct err *e)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (EVP_DigestFinal_ex(s->hash, sum, &n) != 1 || n != 32)
        return err_set(e, ERR_INTERNAL, "SHA-256 failed");
    for (unsigned i = 0; i < n; i++)
        (void)snprintf(ret_hex + (size_t)i * 2, 3, "%02x", sum[i]);
    return 0;
}
