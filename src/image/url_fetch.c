/*
 * url_fetch.c - a file from elsewhere becomes a layer, for ADD of a build
 *
 * A child with the network and without privileges fetches it (url_get.c) into a file that is open already. Here it is read
 * again for its digest, and gets owner, mode and time. The layer has nothing else, but what the server said of the version
 * for the next time.
 */
#include "image/url_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "image/confine.h"
#include "image/layer.h"
#include "image/url_get.h"
#include "sys/fd.h"
#include "sys/seccomp_role.h"

#define CHUNK (256 * 1024)
#define VALIDATOR "validator"           /* beside the file's directory: "etag\nlast-modified\n" */

struct fetch {
    const struct job *job;
    struct image_fetch rq;
    struct url_validator known;
    bool has_known;
    int staging, root, file;
    pid_t child;                        /* 0 = none (any more) */
    int answer;
    struct url_got got;
};

static void read_known(struct fetch *f)
{
    char path[96], text[sizeof f->known + 4] = "";

    if (f->rq.known[0] == '\0' || f->rq.checksum[0] != '\0' || !layer_is_there(f->job, f->rq.known))
        return;
    (void)snprintf(path, sizeof path, "%s/" VALIDATOR, f->rq.known);
    auto_close int fd = openat(f->job->layers, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fd_read_all(fd, text, sizeof text - 1) <= 0)
        return;
    char *etag = text, *rest = strchr(text, '\n');
    if (rest == NULL || strchr(rest + 1, '\n') == NULL)
        return;
    *rest++ = '\0';
    *strchr(rest, '\n') = '\0';
    (void)snprintf(f->known.etag, sizeof f->known.etag, "%s", etag);
    (void)snprintf(f->known.modified, sizeof f->known.modified, "%s", rest);
    f->has_known = true;
}

static int make_place(struct fetch *f, struct err *e)
{
    if (layer_stage(f->job, &f->staging, &f->root, e) < 0)
        return -1;
    auto_close int dir = mkdirat(f->root, IMAGE_FETCHED, 0755) == 0
                             ? openat(f->root, IMAGE_FETCHED, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
    f->file = dir >= 0 ? openat(dir, f->rq.name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    return f->file < 0 ? err_sys(e, errno, "make the file of '%.100s'", f->rq.name) : 0;
}

/* --- the child -------------------------------------------------------------------------------------------------------------- */

static void become_child(struct fetch *f, int out) __attribute__((noreturn));
static void become_child(struct fetch *f, int out)
{
    int conn = f->job->conn, layers = f->job->layers, alive = f->job->alive;
    struct err e = {0};

    fd_close(&conn);
    fd_close(&layers);
    fd_close(&alive);
    fd_close(&f->staging);
    fd_close(&f->root);
    fd_close(&f->answer);
    if (confine_fetcher(-1, &e) < 0) {
        log_error("image.confine", "error=\"%s\"", e.message);
        _exit(1);
    }
    _exit(url_get_run(&f->rq, f->job->conf, f->has_known ? &f->known : NULL, f->file, out));
}

static int start_child(struct fetch *f, struct err *e)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    auto_close int out = ends[1];
    f->answer = ends[0];
    f->child = fork();
    if (f->child == 0)
        become_child(f, out);
    if (f->child < 0) {
        f->child = 0;
        return err_sys(e, errno, "start the fetching process");
    }
    return 0;
}

static int wait_child(struct fetch *f, struct err *e)
{
    struct pollfd p[3] = {{.fd = f->job->conn, .events = POLLRDHUP}, {.fd = f->job->alive}, {.fd = f->answer, .events = POLLIN}};

    while (p[2].revents == 0) {
        if (poll(p, 3, -1) < 0 && errno != EINTR)
            return err_sys(e, errno, "poll");
        if ((p[0].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0 || p[1].revents != 0)
            return err_set(e, ERR_UNAVAILABLE, "the job was cancelled");
    }
    if (fd_read_all(f->answer, &f->got, sizeof f->got) != sizeof f->got)
        return err_set(e, ERR_INTERNAL, "the fetching process died");
    f->got.message[sizeof f->got.message - 1] = '\0';
    f->got.validator.etag[sizeof f->got.validator.etag - 1] = '\0';
    f->got.validator.modified[sizeof f->got.validator.modified - 1] = '\0';
    /* It quotes strangers. */
    for (char *c = f->got.message; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 127)
            *c = '?';
    if (f->got.code != ERR_OK)
        return err_set(e, f->got.code < ERR_MAX_ ? (enum err_code)f->got.code : ERR_INTERNAL, "%s", f->got.message);
    return 0;
}

static void end_child(struct fetch *f)
{
    if (f->child == 0)
        return;
    (void)kill(f->child, SIGKILL);
    while (waitpid(f->child, NULL, 0) < 0 && errno == EINTR)
        ;
    f->child = 0;
}

/* --- the layer -------------------------------------------------------------------------------- */

static int digest_file(struct fetch *f, char ret_hex[SHA256_HEX_SIZE], uint64_t *ret_bytes, struct err *e)
{
    auto_free char *chunk = mem_alloc(CHUNK);
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    *ret_bytes = 0;
    for (;;) {
        ssize_t n = pread(f->file, chunk, CHUNK, (off_t)*ret_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read what was fetched");
        if (n == 0)
            break;
        sha256_add(&s, chunk, (size_t)n);
        *ret_bytes += (uint64_t)n;
    }
    sha256_end(&s, sum);
    sha256_hex(sum, ret_hex);
    return 0;
}

static int write_validator(const struct fetch *f, struct err *e)
{
    auto_free char *text = mem_printf("%s\n%s\n", f->got.validator.etag, f->got.validator.modified);
    auto_close int fd = openat(f->root, VALIDATOR, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int r = fd >= 0 ? fd_write_all(fd, text, strlen(text)) : -errno;

    return r < 0 ? err_sys(e, -r, "write what the server said") : 0;
}

static void name_layer(const struct fetch *f, const char *digest, char ret[72])
{
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, "fetched", 8);
    sha256_add(&s, f->rq.name, strlen(f->rq.name) + 1);
    sha256_add(&s, digest, strlen(digest) + 1);
    sha256_add(&s, &f->got.modified_s, sizeof f->got.modified_s);
    sha256_add(&s, f->got.validator.etag, strlen(f->got.validator.etag) + 1);
    sha256_add(&s, f->got.validator.modified, strlen(f->got.validator.modified) + 1);
    sha256_end(&s, sum);
    sha256_hex(sum, ret);
}

static int make_layer(struct fetch *f, struct image_done *ret, struct err *e)
{
    const struct timespec times[2] = {{.tv_sec = f->got.modified_s}, {.tv_sec = f->got.modified_s}};
    char digest[SHA256_HEX_SIZE];

    if (digest_file(f, digest, &ret->bytes, e) < 0)
        return -1;
    if (ret->bytes > f->rq.max_bytes)
        return err_set(e, ERR_TOO_LARGE, "the file has more than %llu bytes", (unsigned long long)f->rq.max_bytes);
    if (f->rq.checksum[0] != '\0' && strcmp(f->rq.checksum, digest) != 0)
        return err_set(e, ERR_INVALID, "the checksum is not that of what came: sha256:%s", digest);
    if (write_validator(f, e) < 0)
        return -1;
    if (fchown(f->file, 0, 0) < 0 || fchmod(f->file, 0600) < 0 || futimens(f->file, times) < 0)
        return err_sys(e, errno, "attributes of what was fetched");
    ret->files = 1;
    name_layer(f, digest, ret->layer);
    const struct unpack_counts counts = {.bytes = ret->bytes, .files = ret->files};
    return layer_publish(f->job, f->staging, f->root, ret->layer, &counts, e);
}

static int work(struct fetch *f, struct image_done *ret, struct err *e)
{
    if (start_child(f, e) < 0)
        return -1;
    /* From here on nobody but the child has the network. */
    if (seccomp_role_install(SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX | SECCOMP_READ_FILES | SECCOMP_WRITE_FILES | SECCOMP_MEMFD |
                                 SECCOMP_TREE | SECCOMP_CHILDREN | SECCOMP_NARROW,
                             e) < 0 ||
        wait_child(f, e) < 0)
        return -1;
    end_child(f);
    if (!f->got.is_same)
        return make_layer(f, ret, e);
    if (!f->has_known)
        return err_set(e, ERR_INTERNAL, "the fetching process knows something that it was not told");
    memcpy(ret->layer, f->rq.known, sizeof f->rq.known);
    return 0;
}

int url_fetch_run(const struct job *job, const struct chan_msg *m, struct image_done *ret, struct err *e)
{
    struct fetch *f = mem_zalloc(sizeof *f);
    int r = -1;

    f->job = job;
    f->staging = f->root = f->file = f->answer = -1;
    if (m->nfds != 0 || image_fetch_decode(&f->rq, m->data, m->len) < 0) {
        (void)err_set(e, ERR_MALFORMED, "not a request of this version");
    } else {
        read_known(f);
        if (make_place(f, e) == 0)
            r = work(f, ret, e);
        end_child(f);
        if (f->staging >= 0 && (r < 0 || f->got.is_same))
            layer_discard(job, f->staging);
    }
    fd_close(&f->file);
    fd_close(&f->root);
    fd_close(&f->staging);
    fd_close(&f->answer);
    free(f);
    return r;
}
